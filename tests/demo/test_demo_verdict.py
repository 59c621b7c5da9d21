"""When the loop counts as closed, and what the verdict is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from twinlink_demo import verdict as demo_verdict
from twinlink_demo.control_loop import episodes
from twinlink_demo.evidence import Evidence

from tests.demo.synthetic import MS, N, evidence, playout, rebuilt
from twinlink.appkit import records


def test_a_closed_loop() -> None:
    truth = playout()
    (episode,) = episodes(evidence(truth, rebuilt(truth)))
    assert (episode.prbs, episode.first_record, episode.end_record) == ((3, 4), 100, 250)
    assert episode.time_to_block_ns == 95 * MS
    assert episode.applied_record == 110
    assert (episode.freed_cells, episode.freed_busy) == (80, 0)
    assert episode.end_seen_ns == 2900 * MS
    assert episode.inr_db == pytest.approx(40, abs=1)
    assert episode.required
    assert episode.closed


def test_a_loop_without_an_installed_block_is_open() -> None:
    truth = playout()
    found = evidence(truth, rebuilt(truth))
    found.events["exporter"].clear()
    (episode,) = episodes(found)
    assert not episode.closed


def test_a_block_that_the_gnb_does_not_apply_leaves_the_loop_open() -> None:
    truth = playout()
    truth.blocked[:] = False
    (episode,) = episodes(evidence(truth, rebuilt(truth)))
    assert not episode.closed


def test_a_twin_that_sees_no_change_leaves_the_loop_open() -> None:
    truth = playout()
    found = evidence(truth, rebuilt(truth))
    assert found.rebuilt is not None
    found.rebuilt.occupied[:] = True
    found.events["replay"].pop()
    (episode,) = episodes(found)
    assert episode.freed_busy == episode.freed_cells == 80
    assert not episode.closed


def verdict(found: Evidence, failure: dict[str, Any] | None = None, interrupted: bool = False) -> dict[str, Any]:
    fact = {"exit_codes": {}, "failure": failure, "interrupted": interrupted}
    facts = {
        "started_ns": 0, "ended_ns": 1, "interrupted": interrupted, "configuration": {"transports": ["zeromq"]},
        "versions": {}, "system": {}, "transports": {"zeromq": fact},
    }  # fmt: skip
    sent = np.zeros(3, records.SENT)
    sent["rtt_ns"], sent["acknowledged"] = [7, 5, 0], [True, True, False]
    return demo_verdict.summarise(facts, {"zeromq": found}, {"zeromq": sent})


def test_a_perfect_run_passes() -> None:
    truth = playout()
    found = evidence(truth, rebuilt(truth))
    summary = verdict(found)
    assert (summary["verdict"], summary["exit_code"], summary["failed"]) == ("passed", 0, [])
    assert summary["transports"]["zeromq"]["interferer_on_to_block_ns"] == 95 * MS
    assert summary["transports"]["zeromq"]["rtt_ns"] == {"n": 2, "min": 5, "p50": 5, "p95": 7, "p99": 7, "max": 7}
    *table, last = demo_verdict.text(summary).splitlines()
    assert last.startswith(f"passed: over zeromq, all {N:,} messages arrived")
    assert "In the one appearance of the interferer that required a block its PRBs were blocked, 95.0 ms (zer" in last
    assert "more did not" not in last
    assert max(map(len, table)) <= 46  # of two transports, 60


@pytest.mark.parametrize(
    ("strong", "waived", "why"),
    [(False, "weak", "1 weaker than 6 dB over the noise"), (True, "short", "1 shorter than 1 s as recorded")],
)
def test_an_interferer_that_need_not_be_blocked_is_counted_apart_with_the_reason(
    strong: bool, waived: str, why: str
) -> None:
    """A pass with a loop that stayed open says why it is one."""
    truth = playout()
    truth.interferer[300:340, 8:10] = True  # 0.4 s
    if strong:
        truth.samples[300:340, 96:120] = 400
    summary = verdict(evidence(truth, rebuilt(truth)))
    found = summary["transports"]["zeromq"]
    assert [(each["required"], each["closed"], each["waived"]) for each in found["episodes"]] == [
        (True, True, None),
        (False, False, waived),
    ]
    assert summary["verdict"] == "passed"
    *table, last = demo_verdict.text(summary).splitlines()
    assert f"1 more did not require one ({why}); in 0 of these the loop closed." in last
    shares = {line[:32].strip(): line[32:].strip() for line in table}
    assert (shares["loop closed, where required"], shares["loop closed, where not required"]) == (
        "yes, 1 of 1",
        "0 of 1",
    )


def test_a_block_whose_effect_could_not_be_seen_is_not_told_as_one_that_worked() -> None:
    truth = playout()
    truth.interferer[250:, 3:5] = truth.blocked[290:, 3:5] = True  # to the end of the run
    summary = verdict(evidence(truth, rebuilt(truth)))
    (episode,) = summary["transports"]["zeromq"]["episodes"]
    assert (episode["closed"], episode["effect_seen"]) == (True, None)
    assert "The run ended too soon to see the effect of 1 of these blocks." in demo_verdict.text(summary)


def test_what_is_wrong_is_said() -> None:
    truth = playout()
    wrong = rebuilt(truth, [*range(N - 2), 5])
    wrong.samples[3, 0, 0] ^= 1
    summary = verdict(evidence(truth, wrong))
    assert summary["exit_code"] == 1
    assert summary["failed"] == [
        "zeromq: 2 of 400 messages lost",
        "zeromq: 1 of 400 messages duplicated",
        f"zeromq: 1 of {(N - 1) * 144} rebuilt samples differ from what the gNB heard",
    ]


def test_what_was_lost_on_e3_is_a_part_of_what_was_played() -> None:
    truth = playout()
    found = replace(evidence(truth, rebuilt(truth, [*range(N - 100)])), exporter={"spectrum": {"sent": N - 100}})
    assert verdict(found)["failed"][0] == "zeromq: 100 of 400 messages lost"


def test_an_unanswered_decision_is_reported() -> None:
    truth = playout()
    found = evidence(truth, rebuilt(truth))
    found.events["replay"] = [event for event in found.events["replay"] if event["event"] != "block-result"]
    summary = verdict(found)
    assert summary["failed"] == ["zeromq: 1 of 1 decisions were not answered"]


def test_an_open_loop_is_not_passed() -> None:
    truth = playout()
    found = evidence(truth, rebuilt(truth))
    found.events["exporter"].clear()
    summary = verdict(found)
    assert summary["exit_code"] == 1
    assert summary["failed"] == [
        "zeromq: the loop stayed open for the interferer on PRBs 3-4 at 1.00 s (record 100): "
        "the block was not installed"
    ]


def test_a_part_that_died_is_worse_than_what_is_missing_by_it() -> None:
    failure = {"part": "replay", "reason": "ended (killed by SIGKILL) while it was needed", "last_lines": []}
    nothing = Evidence(playout(), None, {"emulator": [], "exporter": [], "replay": []}, {}, 12)
    summary = verdict(nothing, failure)
    assert (summary["verdict"], summary["exit_code"]) == ("broken off", 2)
    assert summary["failed"][0] == "zeromq: the replay ended (killed by SIGKILL) while it was needed"
    assert summary["transports"]["zeromq"]["lost"] is None
    assert "-" in demo_verdict.text(summary)


def test_what_an_emulator_took_with_it_is_not_blamed_on_the_recording() -> None:
    failure = {"part": "emulator", "reason": "ended (killed by SIGKILL) while it was needed", "last_lines": []}
    found = replace(evidence(truth := playout(), rebuilt(truth)), playout=None)
    assert verdict(found, failure)["failed"] == [
        "zeromq: the emulator ended (killed by SIGKILL) while it was needed",
        "zeromq: the rebuilt samples could not be compared: the emulator left no record of its playout",
        "zeromq: it is unknown whether the loop closed: the emulator left no record of its playout",
    ]


def test_an_interrupted_run_is_not_passed() -> None:
    truth = playout()
    summary = verdict(evidence(truth, rebuilt(truth)), interrupted=True)
    assert summary["exit_code"] == 1
    assert "interrupted before the end" in summary["failed"]
