"""A gNB with several cells, each of which takes a row in a slot: one is exported, and the others are not missing."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from twinlink_e3 import JSON_CODECS, MalformedPdu, SlotIndication
from twinlink_exporter.cells import OneCell
from twinlink_exporter.slot_reader import IndicatedSlot, SlotReader

from twinlink.appkit.journal import Journal
from twinlink.testing import wait_until

from .gnb_memory import GnbMemory

NESTED = JSON_CODECS["nested"]
NO_CLOCK = 1


@pytest.fixture
def choose(tmp_path: Path) -> Iterator[Callable[..., OneCell]]:
    with Journal("test", tmp_path / "log", stream=io.StringIO()) as journal:
        yield lambda cell_id=None: OneCell(cell_id, journal)


def wait_until_told(tmp_path: Path, cells: list[int | None]) -> None:
    """Wait until the log has an event of each of these cells, and no more."""
    log = tmp_path / "log"
    wait_until(lambda: [json.loads(line)["cell_id"] for line in log.read_text().splitlines()] == cells)


def named(*cells: int) -> SlotIndication:
    """An indication that names the rows of these cells."""
    each = [SlotIndication("/m", 0, row, 1, 0, 0, cell, n_cells=len(cells)) for row, cell in enumerate(cells)]
    return replace(each[0], others=tuple(each[1:]), names_cells=True)


def test_the_first_cell_is_kept_when_another_is_named_first(choose: Callable[..., OneCell], tmp_path: Path) -> None:
    cells = choose()
    assert cells.choose(named(41, 42)) == (named(41, 42), True)
    ours, found = cells.choose(named(42, 43, 41))
    assert (found, ours.cell_id, ours.fh_write_index) == (True, 41, 2)
    assert [each.cell_id for each in ours.others] == [42, 43]
    assert cells.choose(named(43)) == (named(43), False)
    wait_until_told(tmp_path, [42, 43])


def test_the_cell_that_is_asked_for_is_exported(choose: Callable[..., OneCell]) -> None:
    ours, found = choose(42).choose(named(41, 42))
    assert (found, ours.cell_id) == (True, 42)
    assert choose(7).choose(named(41)) == (named(41), False)


def test_a_cell_that_the_gnb_does_not_have_is_said_to_be_missing() -> None:
    stream = io.StringIO()
    with Journal("test", stream=stream) as journal:
        cells = OneCell(7, journal)
        cells.choose(named(41, 42))
        cells.choose(named(41, 7, 43))
    texts = stream.getvalue().splitlines()
    assert ["nothing is exported" in text and "--cell-id" in text for text in texts] == [True, True, False]


def test_rows_of_cells_are_of_one_shared_memory() -> None:
    slot = SlotIndication("/m", 1, 2, 3, 4, 5, 41, n_cells=2, names_cells=True)
    apart = replace(slot, others=(replace(slot, shm_name="/other", cell_id=42),))
    with pytest.raises(MalformedPdu, match="one shared memory"):
        NESTED.decode_structure(SlotIndication, NESTED.encode_structure(apart))


def test_an_agent_without_cells_has_one_and_one_that_only_counts_them_is_told_of_once(
    choose: Callable[..., OneCell], tmp_path: Path
) -> None:
    one = SlotIndication("/m", 0, 0, 1, 0, 0)
    assert choose(5).choose(one) == (one, True)
    cells = choose()
    for _ in range(3):
        assert cells.choose(replace(one, cell_id=41, n_cells=2))[1]
    wait_until_told(tmp_path, [None])


def test_rows_of_other_cells_are_not_missing_and_slots_without_ours_are_none() -> None:
    with GnbMemory(rows=16) as memory:
        reader = SlotReader(1_000_000)
        reader.open(memory.name)

        def slot(*cells: int, n_cells: int | None = None, ours: bool = True) -> IndicatedSlot:
            each = [replace(memory.indicate(NO_CLOCK), cell_id=cell) for cell in cells]
            first = replace(each[0], others=tuple(each[1:]), n_cells=n_cells or len(each))
            indicated = reader.indicated(first, 0, ours)
            assert indicated is not None
            return indicated

        slots = [slot(41, 42), slot(41, 42)]
        memory.written += 2  # a slot that is not indicated
        slots += [slot(42, ours=False), slot(41, 42)]
        assert [(each.order, each.skipped) for each in slots] == [(1, 0), (2, 0), (2, 0), (4, 1)]
        assert [(each.number, each.last) for each in slots] == [(1, 2), (3, 4), (7, 7), (8, 9)]
        for _ in range(40):  # comes round
            after = slot(41, 42)
            assert after.skipped == 0
        memory.written += 1  # of a cell whose row is not named
        assert slot(41, n_cells=2).skipped == 1
        memory.written += 1
        before = slot(41, n_cells=2)
        after = slot(41, n_cells=2)  # and one whose other cell has no row
        assert (before.skipped, after.skipped, after.number - before.number) == (0, 0, 1)
        reader.close()


def test_cells_in_json_are_read_as_they_are_written() -> None:
    slot = SlotIndication("/m", 1, 2, 3, 4, 5, 41, 4, 0x3FFF, n_cells=2)
    both = replace(slot, others=(replace(slot, fh_write_index=3, cell_id=42),), names_cells=True)
    assert NESTED.decode_structure(SlotIndication, NESTED.encode_structure(both)) == both
    assert NESTED.decode_structure(SlotIndication, NESTED.encode_structure(slot)) == slot
    alone = replace(slot, n_cells=1, names_cells=True)
    assert NESTED.decode_structure(SlotIndication, NESTED.encode_structure(alone)) == alone


@pytest.mark.parametrize(
    "cells", [[], [{}], [None, 5], [{"iq_samples": 5}], [{"iq_samples": {}}], [{"iq_samples": {}}] * 65, {}, "cells"]
)
def test_cells_that_are_none_are_malformed(cells: Any) -> None:
    octets = json.dumps({"timestamp": 1, "sfn": 0, "slot": 0, "cells": cells}).encode()
    with pytest.raises(MalformedPdu):
        NESTED.decode_structure(SlotIndication, octets)
