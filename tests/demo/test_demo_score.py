"""Scores on a synthetic run with known answers."""

import numpy as np
import pytest
from twinlink_demo import freshness, score

from tests.demo.synthetic import MS, N, playout, rebuilt


def test_precision_and_recall_count_cells() -> None:
    truth = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
    found = np.array([[1, 0, 1, 0], [1, 0, 0, 0]], bool)
    result = score.score(truth, found)
    assert (result.hits, result.false, result.missed) == (2, 1, 1)
    assert result.precision == pytest.approx(2 / 3)
    assert result.recall == pytest.approx(2 / 3)


def test_nothing_found_has_no_precision_and_nothing_to_find_no_recall() -> None:
    nothing = np.zeros((3, 4), bool)
    assert score.score(~nothing, nothing).precision is None
    assert score.score(nothing, ~nothing).recall is None


def test_a_perfect_twin_scores_one() -> None:
    truth = playout()
    found = rebuilt(truth)
    assert score.detection(truth, found, found.interfered).as_dict() == {
        "precision": 1.0, "recall": 1.0, "hits": 300, "false": 0, "missed": 0,
    }  # fmt: skip
    assert score.occupancy(truth, found).recall == 1.0
    assert score.samples(truth, found)["bit_identical"] is True
    assert score.counts(truth, found, {"spectrum": {"sent": N}})["lost"] == 0


def test_a_record_that_never_came_counts_as_missed_and_lost() -> None:
    truth = playout()
    found = rebuilt(truth, [k for k in range(N) if k not in (150, 151)])
    assert score.detection(truth, found, found.interfered).missed == 4
    counts = score.counts(truth, found, {"spectrum": {"sent": N}})
    assert (counts["lost"], counts["duplicated"], counts["received"]) == (2, 0, N - 2)
    assert score.samples(truth, found)["bit_identical"] is True  # of what came


def test_what_the_exporter_never_sent_is_lost_too() -> None:
    truth = playout()
    assert score.counts(truth, rebuilt(truth, list(range(N - 3))), {"spectrum": {"sent": N - 3}})["lost"] == 3


def test_a_message_that_came_twice_is_a_duplicate() -> None:
    truth = playout()
    counts = score.counts(truth, rebuilt(truth, [*range(N), 7]), {"spectrum": {"sent": N}})
    assert (counts["lost"], counts["duplicated"]) == (0, 1)


def test_one_wrong_bit_is_found() -> None:
    truth = playout()
    found = rebuilt(truth)
    found.samples[200, 17, 1] ^= 1
    assert score.samples(truth, found)["different"] == 1
    assert score.samples(truth, found)["bit_identical"] is False


def test_messages_are_matched_by_record_and_not_by_order() -> None:
    truth = playout()
    found = rebuilt(truth, list(range(N))[::-1])
    assert score.samples(truth, found)["bit_identical"] is True
    assert score.detection(truth, found, found.interfered).recall == 1.0


def test_a_record_that_was_never_played_is_not_identical() -> None:
    truth = playout()
    found = rebuilt(truth)
    found.record[5] = N + 5
    assert score.samples(truth, found)["bit_identical"] is False


def test_age_grows_by_itself_and_drops_with_each_record() -> None:
    truth = playout()
    _, before, after = freshness.age(truth, rebuilt(truth))
    assert set(after) == {2 * MS}
    assert set(before[1:]) == {12 * MS}
    summary = freshness.age_summary(truth, rebuilt(truth))
    assert summary is not None
    assert summary["mean"] == 7 * MS


def test_age_of_records_analysed_at_once_is_that_of_the_newest() -> None:
    truth = playout()
    found = rebuilt(truth, [0, 1, 2, 3])
    found.analysed_ns[1:3] = found.analysed_ns[3]
    times, before, after = freshness.age(truth, found)
    assert len(times) == 2
    assert (before[1], after[1]) == (32 * MS, 2 * MS)
