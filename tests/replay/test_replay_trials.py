"""The twin tries its blocks: what leaves, what does not, and what is said of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_ran_emulator.interferer import Episode
from twinlink_replay.blocks.observer import Record
from twinlink_replay.trial import futures, trying
from twinlink_replay.trial.heard import STEP_NS, Rows
from twinlink_replay.twin.trials import Trials

from twinlink.appkit.journal import Journal
from twinlink.control import PrbBlock

from .cells import N_PRBS, interferer_rows, ue_rows

RECORDS = 300
FIRST_PRB = 10  # of the records, in the carrier
NEW = Episode(2.95, 1.0, 80, 8, 30)
OLD = Episode(0.5, 2.1, 20, 6, 30)  # has left 400 ms ago, and is still in the list
NEW_PRBS, OLD_PRBS = tuple(range(90, 98)), tuple(range(30, 36))


def record(number: int) -> Record:
    nothing = np.zeros((N_PRBS * 12, 2), np.int16)
    return Record(nothing, number, 1, number * STEP_NS, 0, 0, -1, 30_000, 3.6e9, FIRST_PRB)


def block(*prbs: int) -> PrbBlock:
    return PrbBlock("prb-block-1", prbs, 0, 2000)


class Run:
    """A twin that has heard three seconds."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.journal = Journal("test", log)

    def trials(self, interferer: Rows, *, enabled: bool = True, records: int = RECORDS) -> Trials:
        made = Trials(self.journal, enabled)
        made.follow(N_PRBS, FIRST_PRB)
        ue = ue_rows(1, RECORDS)
        for k in range(RECORDS - records, RECORDS):
            made.add([record(k)], (ue[k] | interferer[k])[None], interferer[k][None])
            made.run_ahead()
        return made

    def events(self, name: str) -> list[dict[str, object]]:
        self.journal.__exit__(None, None, None)
        return [one for one in map(json.loads, self.log.read_text().splitlines()) if one["event"] == name]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "log.jsonl")
    with made.journal:
        yield made


def test_the_block_of_an_interferer_leaves(run: Run) -> None:
    trials = run.trials(interferer_rows(RECORDS, NEW))
    assert trials.leaving(block(*NEW_PRBS)) == block(*NEW_PRBS)
    assert (trials.tried, trials.refused.total()) == (1, 0)
    assert trials.last is not None
    assert trials.last.outcome == "accepted"
    (said,) = run.events("block-tried")
    assert said["prbs"] == list(NEW_PRBS)
    assert said["length_ns"] == trials.total_ns == trials.most_ns > 0
    assert said["gain_prb_ms"]["ci95"][0] > 0  # type: ignore[index]


def test_a_block_that_does_harm_stays_and_the_refusal_says_why(run: Run) -> None:
    trials = run.trials(interferer_rows(RECORDS, NEW))
    assert trials.leaving(block(*range(50, 60))) is None
    assert trials.refused == {"worse": 1}
    assert trials.last is not None
    assert trials.last.outcome == "refused"
    assert trials.last.reason.startswith("worse: blocking PRBs 40-49 takes")
    (said,) = run.events("block-refused")
    assert said["refusal"]["rule"] == "worse"  # type: ignore[index]


def test_of_a_block_that_is_refused_as_a_whole_the_part_that_gains_leaves(run: Run) -> None:
    trials = run.trials(interferer_rows(RECORDS, NEW, OLD))
    leaves = trials.leaving(block(*OLD_PRBS, *range(50, 75), *NEW_PRBS))
    assert leaves is not None
    assert set(leaves.prbs) <= set(NEW_PRBS)
    assert len(leaves.prbs) > len(NEW_PRBS) / 2
    assert leaves.id == "prb-block-1"


def test_the_part_that_gains_more_than_the_whole_leaves_and_the_log_has_both(run: Run) -> None:
    """PRBs that the interferer has left are wanted for 400 ms: without them the block takes less."""
    trials = run.trials(interferer_rows(RECORDS, NEW, OLD))
    leaves = trials.leaving(block(*OLD_PRBS, *NEW_PRBS))
    assert leaves is not None
    assert set(leaves.prbs) <= set(NEW_PRBS)
    tried: Any = run.events("block-tried")
    assert len(tried) == 1
    part, (whole,) = tried[0], tried[0]["beside"]
    assert (part["policy"], whole["policy"]) == ("part of block", "block")
    assert part["gain_prb_ms"]["mean"] > whole["gain_prb_ms"]["mean"]


def test_an_end_leaves_untried_and_so_does_all_without_trials(run: Run) -> None:
    trials = run.trials(interferer_rows(RECORDS, NEW))
    assert trials.leaving(block()) == block()
    without = run.trials(interferer_rows(RECORDS, NEW), enabled=False)
    assert without.leaving(block(1, 2, 3)) == block(1, 2, 3)
    assert trials.tried == without.tried == 0


def test_until_enough_was_heard_nothing_leaves(run: Run) -> None:
    trials = run.trials(interferer_rows(RECORDS, NEW), records=10)
    assert trials.leaving(block(*NEW_PRBS)) is None
    assert trials.refused == {"model": 1}


def test_a_detector_that_finds_interference_everywhere_blocks_no_more_than_half(run: Run) -> None:
    trials = run.trials(np.ones((RECORDS, N_PRBS), np.bool_))
    assert trials.leaving(block(*range(FIRST_PRB, FIRST_PRB + N_PRBS))) is None
    assert trials.refused == {"capacity": 1}


def test_where_a_block_stands_no_ue_is_missed(run: Run) -> None:
    """PRBs that are blocked hide their UEs: the load of the cell is that of the others."""
    trials = Trials(run.journal, True)
    trials.follow(N_PRBS, FIRST_PRB)
    trials.on_air(tuple(range(FIRST_PRB + 53)))  # some are not among the records' PRBs
    ue = ue_rows(1, RECORDS)
    ue[:, :53] = False
    interferer = interferer_rows(RECORDS, Episode(2.95, 1.0, 10, 8, 30))
    for k in range(RECORDS):
        trials.add([record(k)], (ue[k] | interferer[k])[None], interferer[k][None])
    assert trials.leaving(block(*range(20, 28))) == block(*range(20, 28))


def test_nothing_is_left_to_be_made_by_the_first_trial(run: Run) -> None:
    made = futures._scheduled, futures._sequences, trying._draws
    for cache in made:
        cache.cache_clear()
    trials = run.trials(interferer_rows(RECORDS, NEW))
    before = [cache.cache_info().misses for cache in made]
    assert trials.leaving(block(*NEW_PRBS)) is not None
    assert trials.leaving(block(*range(50, 60))) is None
    assert [cache.cache_info().misses for cache in made] == before


def test_the_answers_do_not_depend_on_which_runs_were_made_before(run: Run) -> None:
    """A second replay of the same records gets those of the first one, which has made the runs ahead."""
    interferer, ue = interferer_rows(RECORDS, NEW), ue_rows(1, RECORDS, n_ues=12)
    trials = Trials(run.journal, True)

    def gains() -> list[tuple[int, str]]:
        found = []
        trials.follow(N_PRBS, FIRST_PRB)
        for k in range(110):
            trials.add([record(k)], (ue[k] | interferer[-1])[None], interferer[-1][None])
            trials.run_ahead()
            if k >= 40 and k % 5 == 0:
                trials.leaving(block(*NEW_PRBS))
                assert trials.last is not None
                found.append((k, trials.last.reason))
        return found

    futures._scheduled.cache_clear()
    first = gains()
    assert gains() == first
    assert len({reason for _, reason in first}) > 1
