"""Which PRBs of a record the gNB's MAC left free, and what that tells of a stream of power."""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from twinlink_replay.blocks.observer import Record
from twinlink_replay.twin import free_ranges
from twinlink_replay.twin.free_ranges import FreeRanges

import twinlink
from twinlink.control import PrbBlock
from twinlink.sensing import FreeRange, SensingRanges
from twinlink.slots import ALL_SYMBOLS, Content, Slot, SlotSpectrum
from twinlink.testing import patience, wait_until

from .test_replay_command import Replay

N_PRBS, EPOCH, NOW_NS = 51, 5, 1_700_000_000_000_000_000
RECORD = Record(
    np.zeros((0, 2), np.int16), 0, EPOCH, NOW_NS, 0, 0, 0, 30_000, 3.6e9, 10, np.zeros(20, np.float32),
    (7, 3, ALL_SYMBOLS),
)  # fmt: skip


def taken(*ranges: FreeRange, sfn: int = 7, slot: int = 3, epoch: int = EPOCH) -> FreeRanges:
    found = FreeRanges()
    take(found, SensingRanges(sfn, slot, ranges, NOW_NS, missing=2), epoch)
    return found


def take(found: FreeRanges, ranges: SensingRanges, epoch: int = EPOCH) -> None:
    message: Any = SimpleNamespace(epoch=epoch, payload=ranges.encode())
    found.take(message)


def test_prbs_are_free_that_a_range_covers_in_all_symbols_of_the_record() -> None:
    found = taken(FreeRange(0, 14, 5, 8), FreeRange(0, 14, 28, 40), FreeRange(3, 2, 18, 4))
    assert (found.slots, found.missing) == (1, 2)
    free = found.of(RECORD)
    assert free is not None
    assert (np.flatnonzero(free) + 10).tolist() == [10, 11, 12, 28, 29]
    for symbol, prbs in ((3, [18, 19, 20, 21]), (4, [18, 19, 20, 21]), (5, [])):
        free = found.of(replace(RECORD, place=(7, 3, 1 << symbol)))
        assert free is not None
        assert (np.flatnonzero(free) + 10).tolist() == [10, 11, 12, *prbs, 28, 29]


def test_the_ranges_of_another_slot_session_or_round_of_the_frame_number_do_not_count() -> None:
    whole = FreeRange(0, 14, 0, 51)
    for found in (taken(whole, sfn=8), taken(whole, slot=4), taken(whole, epoch=6), FreeRanges()):
        assert found.of(RECORD) is None
    assert taken(whole).of(replace(RECORD, observed_ns=NOW_NS + 10_240_000_000)) is None
    assert taken(whole).of(replace(RECORD, place=None)) is None


def test_old_slots_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ranges, "SLOTS", 3)
    found = taken(FreeRange(0, 14, 0, 51))
    for slot in (4, 5, 3, 6, 7):
        take(found, SensingRanges(7, slot, (), NOW_NS))
    assert [found.of(replace(RECORD, place=(7, slot, 1))) is not None for slot in range(3, 8)] == [
        True, False, False, True, True,
    ]  # fmt: skip


def test_power_where_the_mac_left_prbs_free_is_interference(endpoint: str, tmp_path: Path) -> None:
    """PRBs 10 to 12 are free and not silent; in 20 to 22 there is a UE.

    The records come at the pace of their times: the twin's model of the cell needs 200 ms of them.
    """
    twin = Replay(tmp_path, "--listen", endpoint, "--count", "200")
    rng = np.random.default_rng(4)
    free = (FreeRange(0, 14, 0, 20), FreeRange(0, 14, 23, 28))
    asked: list[PrbBlock] = []
    with closing(twin), twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.receiver("control", handler=lambda message: asked.append(PrbBlock.decode(message.payload)))
        gnb.wait_ready(patience())
        sensing, spectrum = gnb.sender("sensing"), gnb.sender("spectrum")
        start_ns = time.time_ns()
        for number in range(200):
            observed_ns, sfn, slot = start_ns + number * 10_000_000, number // 20, number % 20
            time.sleep(max(observed_ns - time.time_ns(), 0) / 1e9)
            sensing.send(SensingRanges(sfn, slot, free, observed_ns).encode())
            sensing.flush(patience())
            power = (30 * rng.gamma(12, 1 / 12, (1, 1, N_PRBS))).astype(np.float32)
            power[..., [10, 11, 12, 20, 21, 22]] *= 30
            slots = (Slot(power, sfn, slot, ALL_SYMBOLS, observed_ns),)
            message = SlotSpectrum(
                N_PRBS, 0, N_PRBS, (0,), 30_000, 3.6e9, 1 / 2048, Content.POWER, slot_mean=True, slots=slots
            )
            spectrum.send(message.encode())
        wait_until(lambda: asked)
        assert twin.end()[0] == 0
    assert asked[0].prbs == (10, 11, 12)
    assert twin.events("power-only")
    assert twin.events("sensing")
    assert twin.events("summary")[0]["sensing"] == 200
    found = np.load(twin.out / "observations.npz")
    assert found["free"].shape == (200, N_PRBS)
    assert np.flatnonzero(found["interfered"][-1]).tolist() == [10, 11, 12]
    assert np.flatnonzero(found["occupied"][-1]).tolist() == [10, 11, 12, 20, 21, 22]
