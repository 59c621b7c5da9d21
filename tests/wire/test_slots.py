"""The payload of whole slots: octets, and what is refused."""

import math
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from twinlink import MalformedPayload
from twinlink.slots import (
    ALL_SYMBOLS,
    MAX_ANTENNAS,
    MAX_DATA_OCTETS,
    MAX_PRBS,
    MAX_SLOTS,
    MAX_SLOTS_READ,
    SYMBOLS,
    Clock,
    Content,
    Slot,
    SlotSpectrum,
    db_octets,
    is_slots,
    power_per_prb,
)
from twinlink.spectrum import Spectrum

RNG = np.random.default_rng(4)
BETA = 1 / 2048
# The message of `small`, written down from the table of the module.
GOLDEN = bytes.fromhex(
    "0000 02 00 00 01 0004 0006 0002 0001 0004 00007530 3a000000 41eaf71380000000" + 16 * "00"
    + "17979cfe362a0015 000000e8d4a51005 03ff 0013 0008 01 00 00000002 00000030" + 8 * "00"
    + "0100 0200" + 11 * "0000 003c"
)  # fmt: skip


def small() -> SlotSpectrum:
    values = np.zeros((1, 1, 12, 2), np.float16)
    values[..., 1] = 1.0
    values[0, 0, 0] = np.array((1, 2), np.uint16).view(np.float16)
    slot = Slot(values, 1023, 19, 8, 1_700_000_000_000_000_021, 1_000_000_000_005, Clock.MONOTONIC, 2)
    return SlotSpectrum(6, 2, 1, (2,), 30_000, 3.6192e9, BETA, every=4, slots=(slot,))


def iq(values: NDArray[np.int16]) -> SlotSpectrum:
    """A message with one slot of one antenna and one symbol, of these int16, ``(subcarriers, 2)``."""
    data = (values.astype(np.float32) * np.float32(BETA)).astype(np.float16)[None, None]
    n_prbs = len(values) // 12
    return SlotSpectrum(n_prbs, 0, n_prbs, (0,), 30_000, 3.6e9, BETA, slots=(Slot(data, 0, 0, 1, 1),))


def test_octets_are_those_of_the_table() -> None:
    assert small().encode() == GOLDEN
    read = SlotSpectrum.decode(GOLDEN)
    assert read.slots[0].data.tobytes() == small().slots[0].data.tobytes()
    assert (read.every, read.first_prb, read.antennas, read.centre_hz) == (4, 2, (2,), 3.6192e9)
    assert (read.slots[0].missing, read.slots[0].clock) == (2, Clock.MONOTONIC)
    assert SlotSpectrum.decode(memoryview(GOLDEN)).encode() == GOLDEN


def test_old_payloads_are_told_apart() -> None:
    old = Spectrum(np.zeros((12, 2), np.int16), 1, 30_000, 3.6e9, 1).encode()
    assert not is_slots(old)
    assert is_slots(GOLDEN)
    with pytest.raises(MalformedPayload):
        SlotSpectrum.decode(old)
    with pytest.raises(MalformedPayload):
        Spectrum.decode(GOLDEN)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(("largest", "exact"), [(2048, True), (32767, False)])
def test_iq_keeps_its_bits(compress: bool, largest: int, exact: bool) -> None:
    values = RNG.integers(-largest, largest + 1, (1272, 2)).astype(np.int16)
    message = iq(values)
    read = SlotSpectrum.decode(message.encode(compress=compress))
    lsb = read.in_lsb(read.slots[0])
    again = (lsb * np.float32(BETA)).astype(np.float16)
    assert again.tobytes() == message.slots[0].data.tobytes()
    assert np.array_equal(lsb[0, 0], values) == exact


@pytest.mark.parametrize("beta", [BETA, 1 / 128, 1.0, 0.001, 2.0**-14, 2.0**-20, 1e-6, 3e4])
def test_each_float16_is_divided_by_beta_and_rounded_once(beta: float) -> None:
    halves = np.arange(65536).astype(np.uint16).view(np.float16)
    message = SlotSpectrum(1, 0, 1, (0,), 30_000, 3.6e9, float(np.float32(beta)))
    finite = halves[np.isfinite(halves)]
    for values in (halves, finite):
        with np.errstate(invalid="ignore"):
            expected = values.astype(np.float32) / np.float32(beta)
        assert np.array_equal(message.float16_in_lsb(values), expected, equal_nan=True)
    assert np.signbit(message.float16_in_lsb(finite)).tolist() == np.signbit(finite).tolist()


def test_negative_zeros_and_what_is_no_number_survive_compression() -> None:
    bits = np.array([0x8000, 0x7C00, 0xFC00, 0x7E01, 0x0001, 0x03FF] * 4, np.uint16).reshape(1, 1, 12, 2)
    message = SlotSpectrum(1, 0, 1, (0,), 30_000, 3.6e9, BETA, slots=(Slot(bits.view(np.float16), 0, 0, 1, 1),))
    read = SlotSpectrum.decode(message.encode(compress=True))
    assert read.slots[0].data.tobytes() == bits.tobytes()


def test_compression_makes_weak_signals_smaller() -> None:
    message = iq(np.rint(RNG.normal(0, 20, (1272, 2))).astype(np.int16))
    assert len(message.encode(compress=True)) < len(message.encode()) / 2


def test_power_is_the_mean_of_the_subcarriers() -> None:
    values = RNG.integers(-500, 500, (24, 2)).astype(np.int16)
    message = iq(values)
    expected = (values.astype(float) ** 2).sum(axis=1).reshape(2, 12).mean(axis=1)
    assert np.allclose(message.power(message.slots[0])[0, 0], expected, rtol=1e-6)


def test_decibels_are_half_a_step_off_at_most() -> None:
    power = (10 ** RNG.uniform(-3, 9.7, 1000)).astype(np.float32)
    data = db_octets(power).reshape(1, 10, 100)
    slot = Slot(data, 0, 0, 0x3FF, 1)
    message = SlotSpectrum(100, 0, 100, (0,), 30_000, 3.6e9, BETA, Content.POWER_DB, slots=(slot,))
    read = SlotSpectrum.decode(message.encode())
    ratio = read.power(read.slots[0]).ravel() / power
    assert abs(10 * np.log10(ratio)).max() < 0.26
    assert db_octets(np.array([0.0, 1e-9, 1e30], np.float32)).tolist() == [0, 0, 255]


@settings(max_examples=60)
@given(data=st.data(), compress=st.booleans())
def test_what_is_encoded_decodes_to_the_same(data: st.DataObject, compress: bool) -> None:
    content, mean = data.draw(st.sampled_from(Content)), data.draw(st.booleans())
    antennas = tuple(sorted(data.draw(st.sets(st.integers(0, 15), min_size=1, max_size=3))))
    n_prbs, first = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 5))
    head = SlotSpectrum(
        data.draw(st.integers(n_prbs + first, 275)), first, n_prbs, antennas, data.draw(st.integers(1, 2**32 - 1)),
        data.draw(st.floats(1, 1e11)), BETA, content, mean, data.draw(st.integers(1, 65535)),
    )  # fmt: skip
    slots = []
    for _ in range(data.draw(st.integers(1, 3))):
        symbols = data.draw(st.integers(1, ALL_SYMBOLS))
        shape: tuple[int, ...] = (len(antennas), 1 if mean else symbols.bit_count(), n_prbs)
        if content is Content.IQ:
            bits = RNG.integers(0, 65536, (*shape[:2], n_prbs * 12, 2)).astype(np.uint16)
            values: NDArray[np.generic] = bits.view(np.float16)
        else:
            values = RNG.integers(0, 256, shape).astype(np.uint8 if content is Content.POWER_DB else np.float32)
        number = st.integers(0, 65535)
        times = st.integers(0, 2**63 - 1)
        slots.append(
            Slot(
                values, data.draw(number), data.draw(number), symbols, data.draw(times), data.draw(times),
                data.draw(st.sampled_from(Clock)), data.draw(st.integers(0, 2**32 - 1)),
            )
        )  # fmt: skip
    message = replace(head, slots=tuple(slots))
    read = SlotSpectrum.decode(message.encode(compress=compress))
    for name in head.__slots__[:-1]:
        assert getattr(read, name) == getattr(message, name)
    for got, sent in zip(read.slots, slots, strict=True):
        assert (got.data.shape, got.data.tobytes()) == (sent.data.shape, sent.data.tobytes())
        assert all(getattr(got, name) == getattr(sent, name) for name in sent.__slots__[1:])


def test_power_of_several_slots_is_as_long_as_it_must_be() -> None:
    slot = Slot(np.zeros((1, 1, 106), np.uint8), 0, 0, ALL_SYMBOLS, 1)
    message = SlotSpectrum(106, 0, 106, (0,), 30_000, 3.6e9, BETA, Content.POWER_DB, slot_mean=True, slots=(slot,) * 4)
    assert len(message.encode()) == 48 + 4 * (40 + 106)


@settings(max_examples=300)
@given(st.integers(0, 183), st.integers(0, 255))
def test_changed_octets_are_read_or_refused(position: int, value: int) -> None:
    changed = bytearray(GOLDEN)
    changed[position % len(changed)] = value
    try:
        read = SlotSpectrum.decode(bytes(changed))
    except MalformedPayload:
        return
    assert math.isfinite(read.centre_hz)


@pytest.mark.parametrize("length", range(0, len(GOLDEN), 7))
def test_a_part_of_a_payload_is_refused(length: int) -> None:
    with pytest.raises(MalformedPayload):
        SlotSpectrum.decode(GOLDEN[:length])


def test_compressed_data_that_claims_more_is_refused_before_it_is_unpacked() -> None:
    message = iq(np.zeros((1272, 2), np.int16)).encode(compress=True)
    claims_less = bytearray(message)
    struct.pack_into(">HHH", claims_less, 8, 105, 0, 105)
    with pytest.raises(MalformedPayload, match="claims"):
        SlotSpectrum.decode(bytes(claims_less))
    with pytest.raises(MalformedPayload):
        SlotSpectrum.decode(message[:-20] + bytes(20))


def largest(n_slots: int) -> bytes:
    """A message with so many slots, each as long as possible, whose data is nothing but zeros."""
    antennas = tuple(range(MAX_ANTENNAS))
    data = np.zeros((MAX_ANTENNAS, SYMBOLS, MAX_PRBS * 12, 2), np.float16)
    slot = Slot(data, 0, 0, ALL_SYMBOLS, 1)
    one = SlotSpectrum(MAX_PRBS, 0, MAX_PRBS, antennas, 30_000, 3.6e9, BETA, slots=(slot,)).encode(compress=True)
    whole = bytearray(one[:48] + one[48:] * n_slots)
    whole[5] = n_slots
    return bytes(whole)


@pytest.mark.parametrize("n_slots", [34, 35, MAX_SLOTS_READ])
def test_much_data_in_a_short_payload_is_refused_before_it_is_decompressed(n_slots: int) -> None:
    limit, payload = MAX_DATA_OCTETS, largest(n_slots)
    assert len(payload) < 10_000
    tracemalloc.start()
    try:
        if n_slots * 16 * 14 * 275 * 12 * 2 * 2 <= limit:
            assert len(SlotSpectrum.decode(payload).slots) == n_slots
        else:
            with pytest.raises(MalformedPayload, match=f"the data of the message exceeds {limit} octets"):
                SlotSpectrum.decode(payload)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * limit
    finally:
        tracemalloc.stop()


def test_many_slots_are_read_and_fewer_encoded() -> None:
    slot = Slot(np.zeros((1, 1, 106), np.uint8), 0, 0, ALL_SYMBOLS, 1)
    head = SlotSpectrum(106, 0, 106, (0,), 30_000, 3.6e9, BETA, Content.POWER_DB, slot_mean=True)
    for number in (0, MAX_SLOTS + 1):
        with pytest.raises(ValueError, match=f"1 to {MAX_SLOTS} slots, not {number}"):
            replace(head, slots=(slot,) * number).encode()
    most = replace(head, slots=(slot,) * MAX_SLOTS).encode()
    assert len(SlotSpectrum.decode(most).slots) == MAX_SLOTS
    former = bytearray(most + most[48:])
    former[5] = MAX_SLOTS_READ
    assert len(SlotSpectrum.decode(bytes(former)).slots) == MAX_SLOTS_READ


def test_times_that_no_clock_has_are_refused() -> None:
    for position in (48, 56):
        changed = bytearray(GOLDEN)
        changed[position] = 0x80
        with pytest.raises(MalformedPayload, match="times"):
            SlotSpectrum.decode(bytes(changed))


def test_data_of_another_shape_is_not_encoded() -> None:
    slot = Slot(np.zeros((1, 2, 12, 2), np.float16), 0, 0, 1, 1)
    with pytest.raises(ValueError, match="shape"):
        SlotSpectrum(1, 0, 1, (0,), 30_000, 3.6e9, BETA, slots=(slot,)).encode()


def test_power_per_prb_of_a_batch() -> None:
    assert power_per_prb(np.full((2, 3, 24, 2), 2, np.float32)).tolist() == [[[8, 8]] * 3] * 2
