"""Payloads of flow ``kpm``, and how windows are counted."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.cli.payload_line import payload_line
from twinlink.digest import WINDOW_NS
from twinlink.errors import MalformedPayload
from twinlink.kpm import MIN_SLOTS, GnbUsage, Kpm, Source

BEGIN_NS = 1_800_000_000 * WINDOW_NS
KPM = Kpm(Source.TWIN, 106, 100, 3, BEGIN_NS, WINDOW_NS, 4240, 10600, 0xFEDCBA9876543210)


def test_the_octets_are_those_of_the_table() -> None:
    octets = f"0102006a000000640000000300000000{BEGIN_NS:016x}{WINDOW_NS:016x}"
    assert KPM.encode().hex() == octets + "00000000000010900000000000002968fedcba9876543210"
    assert Kpm.decode(KPM.encode()) == Kpm.decode(memoryview(KPM.encode())) == KPM
    assert payload_line(KPM.encode()) == "kpm twin, UL PRB usage 40.0 % of 100 slots, 3 missing, 106 PRBs"


@pytest.mark.parametrize(
    ("at", "octets", "says"),
    [
        (0, b"\x02", "version 2"),
        (1, b"\x03", "source 3"),
        (15, b"\x01", "is not known"),
        (2, b"\0\0", "carrier of 0"),
        (2, b"\x01\x14", "carrier of 276"),
        (16, b"\xff", "granularity period"),
        (24, bytes(8), "granularity period of 0"),
        (24, b"\xff", "granularity period"),
        (38, b"\xff", "PRBs of 10600"),
        (7, b"\x65", "in 101 slots"),
        (47, b"\x69", "of 10601"),
        (4, bytes(4), "in 0 slots"),
    ],
)
def test_each_field_is_checked(at: int, octets: bytes, says: str) -> None:
    payload = bytearray(KPM.encode())
    payload[at : at + len(octets)] = octets
    with pytest.raises(MalformedPayload, match=says):
        Kpm.decode(bytes(payload))


@given(st.binary(max_size=80) | st.binary(min_size=56, max_size=56))
def test_other_octets_are_refused_or_are_a_kpm(payload: bytes) -> None:
    try:
        assert Kpm.decode(payload).encode() == payload
    except MalformedPayload:
        return


@pytest.mark.parametrize("wrong", [{"used": 10601}, {"slots": -1}, {"n_prbs": 2**16}, {"begin_ns": 2**63}])
def test_what_does_not_fit_is_not_sent(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a KPM cannot be encoded"):
        replace(KPM, **wrong).encode()


def test_a_usage_of_few_slots_or_of_many_missing_ones_says_nothing() -> None:
    assert KPM.usage == 0.4
    assert replace(KPM, slots=MIN_SLOTS - 1).usage is None
    assert replace(KPM, missing=11).usage == 0.4
    assert replace(KPM, missing=12).usage is None


def test_the_gnbs_windows_are_whole_seconds_in_which_it_was_heard() -> None:
    usage = GnbUsage(10)
    assert usage.add(BEGIN_NS - 3, None) is None
    times = [BEGIN_NS + k * WINDOW_NS // 10 for k in range(5, 40)]
    found = [kpm for at, k in zip(times, range(5, 40), strict=True) if (kpm := usage.add(at, k // 10, k == 17))]
    assert [(one.begin_ns - BEGIN_NS, one.used, one.slots, one.missing) for one in found] == [
        (WINDOW_NS, 10, 10, 1), (2 * WINDOW_NS, 20, 10, 0),
    ]  # fmt: skip
    assert {one.available for one in found} == {100}


def test_a_gnb_that_tells_nothing_has_no_kpm_and_one_whose_clock_is_set_back_none_of_that_second() -> None:
    usage = GnbUsage(10)
    assert [usage.add(BEGIN_NS + k * WINDOW_NS, None) for k in range(5)] == [None] * 5
    assert [usage.add(BEGIN_NS + k * WINDOW_NS, 1) is None for k in (0, 1, -9, -8, -7)] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_a_window_whose_grants_are_not_known_is_missing() -> None:
    usage = GnbUsage(10)
    for k in range(2):
        usage.add(BEGIN_NS + k * WINDOW_NS, 1)
    usage.add(BEGIN_NS + WINDOW_NS + 5, None)
    (kpm,) = [usage.add(BEGIN_NS + 2 * WINDOW_NS, 1)]
    assert kpm
    assert (kpm.slots, kpm.missing) == (1, 1)


def test_more_missing_slots_than_a_message_can_tell_are_told_as_many_as_it_can() -> None:
    usage = GnbUsage(10)
    for k in range(2):
        usage.add(BEGIN_NS + k * WINDOW_NS, 1, missing=2**40)
    kpm = usage.add(BEGIN_NS + 2 * WINDOW_NS, 1)
    assert kpm
    assert Kpm.decode(kpm.encode()).missing == 2**32 - 1
