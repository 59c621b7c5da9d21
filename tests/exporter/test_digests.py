"""Digests as the exporter makes them; no I/O."""

from dataclasses import replace

import numpy as np
import pytest
from twinlink_exporter.digests import LATE_NS, Digests

from twinlink.digest import WINDOW_NS, Digest, Settings, slot_power
from twinlink.slots import Content, SlotSpectrum
from twinlink.spectrum import Spectrum

BEGIN_NS = 1_800_000_000 * WINDOW_NS
SETTINGS = Settings(2, 0, 2, 30_000, 3.6e9)
HEAD = SlotSpectrum(51, 7, 2, (0, 1), 30_000, 3.6e9, 1 / 2048, Content.POWER_DB, every=20)
IQ = (np.arange(2 * 3 * 24 * 2).reshape(2, 3, 24, 2) / 2048).astype(np.float16)


@pytest.fixture
def digests() -> Digests:
    return Digests(SETTINGS)


def symbol(at_ns: int) -> Spectrum:
    return Spectrum(np.full((24, 2), 3, np.int16), 2, 30_000, 3.6e9, BEGIN_NS + at_ns)


def test_a_window_is_ready_with_the_first_record_of_a_later_one(digests: Digests) -> None:
    for at_ns in (5, 6, WINDOW_NS - 1):
        digests.add_symbol(symbol(at_ns))
    assert digests.take(BEGIN_NS + WINDOW_NS) == []
    digests.add_symbol(symbol(WINDOW_NS))
    (one,) = digests.take(BEGIN_NS + WINDOW_NS + 1)
    assert (one.window_ns, one.first_ns, one.last_ns) == (BEGIN_NS, BEGIN_NS + 5, BEGIN_NS + WINDOW_NS - 1)
    assert (one.records, one.sampled, one.missed, one.settings) == (3, 3, 0, SETTINGS)
    assert one.power.tolist() == [18, 18]


def test_windows_without_a_record_have_a_digest_too(digests: Digests) -> None:
    assert digests.take(BEGIN_NS) == []
    assert digests.take(BEGIN_NS + WINDOW_NS + LATE_NS - 1) == []
    (one,) = digests.take(BEGIN_NS + WINDOW_NS + LATE_NS)
    assert (one.window_ns, one.records, one.sampled, one.threshold) == (BEGIN_NS, 0, 0, 0)
    Digest.decode(one.encode())
    (two,) = digests.take(BEGIN_NS + 60 * WINDOW_NS)  # it was stopped for a minute
    assert two.window_ns == BEGIN_NS + WINDOW_NS
    (three,) = digests.take(BEGIN_NS + 61 * WINDOW_NS)
    assert three.window_ns == BEGIN_NS + 58 * WINDOW_NS


def test_a_record_that_comes_after_the_digest_of_its_window_counts_in_the_next(digests: Digests) -> None:
    digests.add_symbol(symbol(WINDOW_NS + 5))
    digests.add_symbol(symbol(5))
    digests.add_symbol(symbol(2 * WINDOW_NS))
    (one,) = digests.take(BEGIN_NS + 2 * WINDOW_NS)
    assert (one.records, one.first_ns) == (2, BEGIN_NS + WINDOW_NS)
    Digest.decode(one.encode())


def test_slots_are_counted_by_symbols_and_sampled_by_their_time(digests: Digests) -> None:
    digests.add_slot(HEAD, BEGIN_NS + 16, IQ, 0)
    digests.add_slot(HEAD, BEGIN_NS + 17, IQ, 4)
    one = digests.answer(BEGIN_NS + 18)
    assert (one.records, one.sampled, one.missed, one.answer) == (6, 3, 12, True)
    assert one.settings == Settings(51, 7, 2, 30_000, 3.6e9, 2, False, 20)
    assert one.power.tobytes() == slot_power(HEAD, IQ, slot_mean=False).mean(axis=0).tobytes()
    assert digests.answer(BEGIN_NS + 18).records == 6


def test_what_is_sent_of_the_agent_may_change(digests: Digests) -> None:
    digests.add_symbol(symbol(5))
    digests.add_slot(HEAD, BEGIN_NS + 16, IQ, 0)
    digests.add_slot(HEAD, BEGIN_NS + WINDOW_NS, IQ, 0)
    (one,) = digests.take(BEGIN_NS + WINDOW_NS)
    assert (one.records, one.settings.first_prb) == (3, 7)


def test_symbols_may_follow_slots_of_other_prbs(digests: Digests) -> None:
    digests.add_slot(replace(HEAD, n_prbs=4), BEGIN_NS + 16, np.concatenate([IQ, IQ], axis=2), 0)
    digests.add_symbol(symbol(20))
    digests.add_symbol(symbol(WINDOW_NS))
    (one,) = digests.take(BEGIN_NS + WINDOW_NS)
    assert (one.records, one.settings) == (1, SETTINGS)
    Digest.decode(one.encode())


def test_slots_of_which_other_antennas_are_sent_are_in_the_same_window(digests: Digests) -> None:
    digests.add_slot(HEAD, BEGIN_NS + 16, IQ, 0)
    digests.add_slot(replace(HEAD, antennas=(0,)), BEGIN_NS + 32, IQ[:1], 0)
    assert digests.answer(BEGIN_NS + 33).records == 6


def test_values_that_are_no_numbers_count_as_0(digests: Digests) -> None:
    samples = IQ.copy()
    samples[0, 0, :12] = np.nan
    samples[0, 1, :12] = np.inf
    digests.add_slot(HEAD, BEGIN_NS + 16, samples, 0)
    answer = Digest.decode(digests.answer(BEGIN_NS + 17).encode())
    assert answer.sampled == 3
    assert answer.power[1] == slot_power(HEAD, IQ, slot_mean=False).mean(axis=0)[1]


def test_the_clock_may_be_set_back_while_nothing_is_heard(digests: Digests) -> None:
    digests.add_symbol(symbol(5))
    back_ns = BEGIN_NS - 3600 * WINDOW_NS
    assert [one.window_ns for one in digests.take(back_ns)] == [BEGIN_NS]
    assert [one.window_ns for one in digests.take(back_ns + WINDOW_NS + LATE_NS)] == [back_ns]
