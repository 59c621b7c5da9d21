"""Payloads of flows ``digest`` and ``digest-request``."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.digest import (
    FLOOR_ROWS,
    MAX_ROWS,
    MIN_POWER,
    WINDOW_NS,
    Digest,
    DigestRequest,
    Settings,
    Window,
    noise_floor,
    observed,
    symbol_power,
)
from twinlink.errors import MalformedPayload
from twinlink.slots import Content, Slot, SlotSpectrum
from twinlink.spectrum import Spectrum

BEGIN_NS = 1_800_000_000 * WINDOW_NS
SETTINGS = Settings(106, 10, 24, 30_000, 3.6192e9, 2, True, 20)
RNG = np.random.default_rng(57)


def window(records: int = 50, n_prbs: int = 24) -> Window:
    made = Window(BEGIN_NS)
    for k in range(records):
        made.count(BEGIN_NS + 7 + k)
        made.sample(RNG.gamma(12, 32 / 12, (1, n_prbs)).astype(np.float32))
    return made


def equal(one: Digest, other: Digest) -> bool:
    same = one.settings == other.settings and (one.window_ns, one.first_ns, one.last_ns) == (
        other.window_ns, other.first_ns, other.last_ns,
    )  # fmt: skip
    counts = ("records", "missed", "sampled", "threshold", "answer")
    same = same and all(getattr(one, name) == getattr(other, name) for name in counts)
    return same and bool((one.power == other.power).all() and (one.occupied == other.occupied).all())


@pytest.mark.parametrize("answer", [False, True])
@pytest.mark.parametrize("records", [0, 1, 50])
def test_it_comes_back(records: int, answer: bool) -> None:
    digest = window(records).digest(SETTINGS, missed=3, answer=answer)
    payload = digest.encode()
    assert len(payload) == 64 + 8 * 24
    assert equal(Digest.decode(payload), digest)
    assert equal(Digest.decode(memoryview(payload)), digest)


def test_the_octets_are_those_of_the_table() -> None:
    digest = Digest(
        Settings(106, 10, 1, 30_000, 3.5e9, 1, True, 20), BEGIN_NS, BEGIN_NS + 1, BEGIN_NS + 2, 3, 4, 2, 5.0,
        np.array([6.0], np.float32), np.array([1], np.uint32), answer=True,
    )  # fmt: skip
    head = "01030100006a000a000100140000753041ea13b860000000"
    times = f"{BEGIN_NS:016x}{BEGIN_NS + 1:016x}{BEGIN_NS + 2:016x}"
    assert digest.encode().hex() == head + times + "00000003000000040000000240a0000040c0000000000001"


@given(st.integers(0, 255), st.integers(0, 255))
def test_a_changed_octet_is_refused_or_is_a_digest(at: int, octet: int) -> None:
    payload = bytearray(window(4).digest(SETTINGS).encode())
    payload[at % len(payload)] = octet
    try:
        Digest.decode(bytes(payload)).encode()
    except MalformedPayload:
        return


@given(st.binary(max_size=300))
def test_other_octets_are_refused(payload: bytes) -> None:
    with pytest.raises(MalformedPayload):
        Digest.decode(b"\x02" + payload)
    with pytest.raises(MalformedPayload):
        DigestRequest.decode(payload)


@pytest.mark.parametrize(
    ("at", "octets", "says"),
    [
        (0, b"\x02", "version 2"),
        (1, b"\x04", "flags 4"),
        (2, b"\x03", "content 3"),
        (3, b"\x01", "not known"),
        (8, b"\0\0", "PRBs"),
        (4, b"\0\x10", "PRBs"),
        (10, b"\0\0", "one slot of 0"),
        (16, b"\x7f\xf0", "centre"),
        (31, b"\x01", "a window from"),
        (32, b"\xff", "a window from"),
        (60, b"\x7f\xc0", "threshold"),
        (56, b"\xff", "sampled"),
        (64, b"\x7f\x80\0\0", "out of range"),
        (64, b"\xbf\x80", "out of range"),
        (160, b"\xff", "out of range"),
    ],
)
def test_each_field_is_checked(at: int, octets: bytes, says: str) -> None:
    payload = bytearray(window(4).digest(SETTINGS).encode())
    payload[at : at + len(octets)] = octets
    with pytest.raises(MalformedPayload, match=says):
        Digest.decode(bytes(payload))


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"node":"a"}', b'{"node":"a","reason":1}', b"[" * 5000])
def test_a_request_has_exactly_its_fields(payload: bytes) -> None:
    assert DigestRequest.decode(DigestRequest("gnb-1", "why").encode()) == DigestRequest("gnb-1", "why")
    with pytest.raises(MalformedPayload):
        DigestRequest.decode(payload)


def test_the_threshold_is_that_of_an_interferer_of_5_db_above_the_noise() -> None:
    made, level = Window(BEGIN_NS), 32.0
    for k in range(300):
        row = RNG.gamma(12, level / 12, (1, 100)).astype(np.float32)
        row[:, :40] *= 50  # UEs
        row[:, 99] = 0  # blanked
        made.count(BEGIN_NS + k)
        made.sample(row)
    assert made.threshold() == pytest.approx(MIN_POWER * level, rel=0.05)
    power, occupied = made.spectrum(100, made.threshold())
    assert occupied[:40].min() > 290
    assert occupied[40:].max() <= 1
    assert power[:40].mean() == pytest.approx(50 * level, rel=0.05)
    assert 300 // FLOOR_ROWS > 1


def test_a_window_keeps_a_bounded_number_of_rows_and_counts_all() -> None:
    made = Window(BEGIN_NS)
    for _ in range(5):
        made.count(BEGIN_NS, 4000)
        made.sample(np.ones((4000, 1), np.float32))
    assert (made.records, made.sampled) == (20_000, MAX_ROWS)


def test_what_a_symbol_and_what_slots_hold() -> None:
    samples = RNG.integers(-900, 900, (24, 2)).astype(np.int16)
    (one,) = observed(Spectrum(samples, 2, 30_000, 3.6e9, 5).encode())
    assert (one.observed_ns, one.records, one.first_prb) == (5, 1, 0)
    values = samples.astype(np.float64).reshape(2, 24)
    assert one.power is not None
    assert one.power[0] == pytest.approx((values**2).sum(axis=1) / 12, rel=1e-6)

    data = (np.stack([samples, samples[::-1]])[None] / 2048).astype(np.float16)
    slots = tuple(Slot(data, 1, 2, 0b11, at) for at in (16, 17))
    message = SlotSpectrum(51, 7, 2, (0,), 30_000, 3.6e9, 1 / 2048, slots=slots)
    sampled, other = observed(message.encode())
    assert (sampled.records, other.records, sampled.first_prb, other.power) == (2, 2, 7, None)
    assert sampled.power is not None
    assert sampled.power[0].tobytes() == symbol_power(samples[None])[0].tobytes()
    power = replace(message, content=Content.POWER, slots=(replace(slots[0], data=sampled.power[None]),))
    (again,) = observed(power.encode())
    assert again.power is not None
    assert again.power.tobytes() == sampled.power.tobytes()


def test_a_floor_of_nothing_is_the_noise_of_rounding() -> None:
    assert noise_floor(np.zeros((3, 4), np.float32)) == noise_floor(np.zeros((0, 4), np.float32)) == 1 / 6
