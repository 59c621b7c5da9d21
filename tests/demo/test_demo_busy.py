"""What a run on a busy machine may say: lateness, why a loop stayed open, and the choice of a slower pace."""

import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twinlink_ran_emulator.recording
from twinlink_demo import lateness, page
from twinlink_demo import verdict as demo_verdict
from twinlink_demo.control_loop import episodes
from twinlink_demo.evidence import Evidence
from twinlink_demo.folder import TransportFolder
from twinlink_demo.pace import LIMIT_NS, FirstSeconds
from twinlink_demo.progress import Progress
from twinlink_demo.session import Plan, Session

from tests.demo.synthetic import MS, PERIOD_NS, N, evidence, playout, rebuilt
from tests.demo.test_demo_verdict import verdict
from twinlink.appkit.console import Stop

ON_NS, OFF_NS = 100 * PERIOD_NS, 250 * PERIOD_NS  # of the interferer on PRBs 3-4


def late_run(late_ms: int = 400) -> Evidence:
    """A run in which the twin is late for half of the interferer, and no block is installed."""
    truth = playout()
    found = rebuilt(truth)
    found.analysed_ns[150:200] += late_ms * MS
    run = evidence(truth, found)
    run.events["exporter"].clear()
    return run


def test_lateness_counts_from_the_schedule_until_the_twin_has_analysed_a_record() -> None:
    truth = playout()
    truth.played_ns[0] += 30 * MS  # the first record is late itself
    truth.played_ns[200:] += 50 * MS
    found = rebuilt(truth, [k for k in range(N) if k != 7])
    late = lateness.late_ns(truth, found)
    assert late[[0, 1, 7, 199, 200]].tolist() == [32 * MS, 2 * MS, 0, 2 * MS, 52 * MS]
    assert lateness.played_late_ns(truth)[[0, 1, 200]].tolist() == [30 * MS, 0, 50 * MS]


def test_an_open_loop_on_a_late_machine_is_not_judged_and_fails_nothing() -> None:
    summary = verdict(late_run())
    assert (summary["verdict"], summary["exit_code"], summary["failed"]) == ("not judged", 0, [])
    assert summary["transports"]["zeromq"]["loop_closed"] is None
    assert summary["unjudged"] == [
        "zeromq: the loop stayed open for the interferer on PRBs 3-4 at 1.00 s (record 100): the block was not "
        "installed; records were analysed up to 402 ms late"
    ]
    text = demo_verdict.text(summary)
    last = text.splitlines()[-1]
    assert last.startswith("not judged: this machine was too busy to judge the whole path. Over zeromq, all 400 messa")
    assert "--pace 0.5" in last
    shares = [line.split()[-1] for line in text.splitlines() if line.startswith("loop not judged")]
    assert shares == ["1"]


def test_what_is_lost_on_a_late_machine_fails_all_the_same() -> None:
    run = late_run()
    assert run.rebuilt is not None
    run.rebuilt.samples[3, 0, 0] ^= 1
    summary = verdict(run)
    assert (summary["verdict"], summary["exit_code"]) == ("failed", 1)
    assert len(summary["failed"]) == len(summary["unjudged"]) == 1


def test_records_that_were_not_sent_while_a_late_twin_counted_as_gone_are_not_judged() -> None:
    def run(late_ms: int, without_twin: int) -> dict[str, Any]:
        truth = playout()
        found = rebuilt(truth, [*range(N - 5)])
        found.analysed_ns[50:90] += late_ms * MS
        exporter = {"spectrum": {"sent": N - 5}, "without_twin": without_twin}
        return verdict(replace(evidence(truth, found), exporter=exporter))

    summary = run(3000, 5)
    assert (summary["verdict"], summary["exit_code"], summary["failed"]) == ("not judged", 0, [])
    assert "5 of 400 records were not sent, as the twin had counted as gone" in summary["unjudged"][0]
    assert "all 395 messages that were sent arrived" in demo_verdict.text(summary)
    assert run(0, 5)["failed"] == ["zeromq: 5 of 400 messages lost, 5 as no twin was up"]
    assert run(3000, 2)["failed"] == ["zeromq: 3 of 400 messages lost"]


@pytest.mark.parametrize("late_ms", [0, LIMIT_NS // MS - 2])
def test_a_machine_that_is_late_within_the_limit_is_no_excuse(late_ms: int) -> None:
    summary = verdict(late_run(late_ms))
    assert (summary["verdict"], summary["exit_code"], summary["unjudged"]) == ("failed", 1, [])


def test_a_loop_that_closed_on_a_late_machine_counts_and_the_lateness_is_a_remark() -> None:
    truth = playout()
    found = rebuilt(truth)
    found.analysed_ns[150:200] += 400 * MS
    summary = verdict(evidence(truth, found))
    assert (summary["verdict"], summary["unjudged"]) == ("passed", [])
    assert summary["transports"]["zeromq"]["episodes"][0]["required"] is True
    assert "analysed up to 402 ms after they were due" in summary["notes"][0]


def test_a_decision_may_be_on_its_way_for_as_long_as_the_machine_was_late() -> None:
    def unanswered(run: Evidence) -> int:
        asked = {"event": "proposed", "time_ns": 2700 * MS, "id": "2", "prbs": [3, 4]}
        run.events["replay"].append(asked)
        run.events["replay"].append({"event": "summary", "time_ns": 4000 * MS})
        count: int = verdict(run)["transports"]["zeromq"]["decisions"]["unanswered"]
        return count

    assert (unanswered(late_run(0)), unanswered(late_run(400))) == (1, 0)


def sections(summary: dict[str, Any]) -> dict[str, list[str]]:
    """The indented lines of the text, by the title above them."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in demo_verdict.text(summary).splitlines():
        if line.startswith("  ") and title:
            found[title].append(line.strip())
        elif line.endswith(":"):
            title = line
            found[title] = []
    return found


def test_failures_and_remarks_stand_apart_and_each_open_loop_is_named() -> None:
    run = late_run()
    assert run.playout is not None
    run.playout.interferer[300:340, 8:10] = True  # short: no block is required
    assert run.rebuilt is not None
    run.rebuilt.samples[3, 0, 0] ^= 1
    summary = verdict(run)
    found = sections(summary)
    assert list(found) == ["Remarks:", "Not judged, as this machine was too busy:", "Failures:"]
    remarks, unjudged, failures = found.values()
    assert "PRBs 8-9 at 3.00 s (record 300): the twin did not detect it; no block was required" in remarks[1]
    assert "PRBs 3-4 at 1.00 s (record 100)" in unjudged[0]
    assert "rebuilt samples differ" in failures[0]
    told = page.html(summary, {"cells": []}, [])
    assert told.index("<h3>Failures</h3>") < told.index("<h3>Not judged") < told.index("<h3>Remarks</h3>")


def sees(prbs: list[int], record: int, after_ms: int = 0) -> dict[str, Any]:
    return {
        "event": "interference",
        "time_ns": record * PERIOD_NS + after_ms * MS,
        "first_record": record,
        "prbs": prbs,
    }


def asks(at_ns: int) -> dict[str, Any]:
    return {"event": "proposed", "time_ns": at_ns, "id": "1", "prbs": [3, 4]}


REJECTED = {"event": "block-result", "time_ns": 0, "id": "1", "status": "rejected", "reason": "age: 1"}


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "the twin did not detect it"),
        ([sees([3], 110)], "the twin detected it on PRBs 3 only"),
        ([sees([3, 4], 240, 300)], "the twin detected it 200 ms after it was gone"),
        ([sees([3, 4], 110), asks(OFF_NS + 20 * MS)], "the twin asked for the block 20 ms after it was gone"),
        ([sees([3, 4], 110), asks(OFF_NS + 2000 * MS)], "the twin detected it, and asked for no block"),  # the next one
        (
            [{"event": "sync", "time_ns": 900 * MS, "state": "stale"}, sees([3, 4], 110)],
            "the twin detected it, and took no decision as it was stale",
        ),
        (
            [asks(ON_NS + MS), REJECTED],
            "the exporter rejected the block (age: 1)",
        ),
        ([asks(ON_NS + MS)], "the block was not installed"),
    ],
)  # fmt: skip
def test_an_open_loop_has_the_step_that_did_not_come(events: list[dict[str, Any]], why: str) -> None:
    run = evidence(truth := playout(), rebuilt(truth))
    run.events["exporter"].clear()
    run.events["replay"][:] = events
    (episode,) = verdict(run)["transports"]["zeromq"]["episodes"]
    assert episode["open_because"] == why


def test_a_block_that_came_too_late_or_was_never_on_air_is_told_as_such() -> None:
    run = evidence(truth := playout(), rebuilt(truth))
    run.events["exporter"][0]["installed_ns"] = OFF_NS + 7 * MS
    assert verdict(run)["transports"]["zeromq"]["episodes"][0]["open_because"] == (
        "the block was installed 7 ms after it was gone"
    )
    truth.blocked[:] = False
    run = evidence(truth, rebuilt(truth))
    assert verdict(run)["transports"]["zeromq"]["episodes"][0]["open_because"].startswith("not on air")


@pytest.mark.parametrize("pace", [1.0, 0.5, 0.25])
def test_how_long_an_interferer_lasts_is_told_by_the_recording_at_any_pace(pace: float) -> None:
    truth = playout()
    truth.interferer[300:380, 8:10] = True
    truth.samples[300:380, 96:120] = 400
    truth = replace(
        truth, played_ns=np.rint(truth.played_ns / pace).astype(np.int64), period_ns=PERIOD_NS / pace, pace=pace
    )
    run = evidence(truth, rebuilt(truth))
    run.events["exporter"].clear()
    assert [each.waived for each in episodes(run)] == [None, "short"]


def looked(analysed_at: Any, pace: float = 1.0) -> FirstSeconds:
    """What the first seconds show if at that time (ms) so many records are analysed."""
    first_seconds = FirstSeconds(PERIOD_NS / pace)
    for time_ms in range(0, 5000, 100):
        first_seconds.look(time_ms * MS, analysed_at(time_ms))
    return first_seconds


def test_a_backlog_that_grows_asks_for_a_slower_pace_that_the_machine_keeps() -> None:
    assert looked(lambda time_ms: time_ms // 10 - 1).late is False
    paused = looked(lambda time_ms: 250 if 2500 <= time_ms < 3600 else time_ms // 10)  # made up for at once
    assert paused.late is False
    slow = looked(lambda time_ms: 0.7 * time_ms / 10)
    assert (slow.late, slow.slower(1.0)) == (True, 0.5)
    assert (slow.least_late_ns or 0) == pytest.approx(900 * MS, rel=0.01)
    assert looked(lambda time_ms: 0.4 * time_ms / 10).slower(1.0) == 0.25
    assert looked(lambda time_ms: 0.1 * time_ms / 10).slower(1.0) == 0.25
    assert looked(lambda time_ms: 0.6 * time_ms / 20, pace=0.5).slower(0.5) == 0.25


def test_a_machine_that_is_too_busy_to_look_in_time_is_late() -> None:
    first_seconds = FirstSeconds(PERIOD_NS)
    first_seconds.look(1000 * MS, 0)
    first_seconds.look(9000 * MS, 100)
    first_seconds.look(9100 * MS, 101)
    assert first_seconds.late is True


def test_a_twin_that_analyses_is_not_stuck_however_long_it_takes(tmp_path: Path) -> None:
    plan = Plan("zeromq", twinlink_ran_emulator.recording.read(twinlink_ran_emulator.recording.example()), 1)
    with Stop() as stop, Progress(1) as progress:
        session = Session(plan, TransportFolder(tmp_path), stop, progress)
        begin_s = time.monotonic()
        moving = count(1).__next__
        assert session._wait(lambda: time.monotonic() > begin_s + 0.6, "replay", "hangs", 0.3, progress=moving)
