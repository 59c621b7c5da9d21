"""Queueing disciplines: the commands of tc, and drops by place.  The guest is run by hand (docs/experiments.md)."""

from pathlib import Path
from typing import Any

import pytest
from twinlink_measure.experiments import pubsub, qdisc_program, qdiscs

from tests.measure.experimenting import quiet

PART = {"cycle_ms": 20, "offset_ms": 8, "lead_ms": 5, "variables": 30, "window_ms": 6, "idleslope": 0.8}
MAP = "1 1 1 1 1 1 1 0 1 1 1 1 1 1 1 1"


@pytest.mark.parametrize(
    ("name", "more", "lines"),
    [
        ("fq_codel", {}, ["root handle 2: fq_codel"]),
        (
            "taprio",
            {},
            [
                f"root handle 2: taprio num_tc 2 map {MAP} queues 1@0 1@1 base-time 0 sched-entry S 02 8000000 "
                "sched-entry S 01 6000000 sched-entry S 02 6000000 clockid CLOCK_TAI"
            ],
        ),
        (  # 8 * (302 + 42) bit each 20 ms are 137.6 kbit/s, of which 80 % are 110
            "cbs",
            {},
            [
                f"root handle 2: mqprio num_tc 2 map {MAP} queues 1@0 1@1 hw 0",
                "parent 2:1 handle 3: cbs idleslope 110 sendslope -9999890 hicredit 1 locredit -1522",
            ],
        ),
        (
            "etf",
            {},
            [
                f"root handle 2: mqprio num_tc 2 map {MAP} queues 1@0 1@1 hw 0",
                "parent 2:1 handle 3: etf clockid CLOCK_TAI delta 2000000",
            ],
        ),
        (
            "mqprio",
            {"rate_mbit": 3},
            [
                "root handle 1: tbf rate 3mbit burst 4k limit 60k",
                f"parent 1:1 handle 2: prio bands 2 priomap {MAP}",
            ],
        ),
    ],
)
def test_the_commands_of_tc(name: str, more: dict[str, Any], lines: list[str]) -> None:
    found = qdisc_program.qdisc({**PART, **more}, name).commands("eth0")
    assert found == [f"qdisc add dev eth0 {line}" for line in lines]


def test_a_message_is_dropped_by_the_first_place_that_the_next_has_not_had_it_from(tmp_path: Path) -> None:
    run = quiet(tmp_path, "pubsub-bridge", {"cycles": 10}, lambda part: part["case"]["setting"] == "E+CBS")
    (part,) = run.experiment.parts
    start_ns, ms = 1_000_000_000, 1_000_000
    due = {number: start_ns + (20 * number + 8) * ms for number in range(10)}
    heard = [number for number in range(9) if number not in (4, 5)]  # nine of ten reached the bridge, two less the host
    back = [number + 1 for number in heard[:6]]
    found = {
        "start_ns": start_ns,
        "publisher": {
            "sent": [[number, at] for number, at in due.items()], "late": 0, "wake_ns": [0] * 10, "octets": 302,
            "received": [[value, due[value - 1] + 40 * ms] for value in back[:5]],
        },
        "loopback": {
            "received": [[number, due[number] + (1 if number else 16) * ms] for number in heard], "late": 1,
            "sent": [[value, due[value - 1] + 20 * ms] for value in back], "wake_ns": [300 * ms], "octets": 302,
        },
        "at_bridge": [9, 5], "statistics": "qdisc etf",
    }  # fmt: skip
    row, spacing_ms = qdiscs.row_by_place(run, part, found)
    assert (row.n, row.figures["mean"], row.figures["cycles"]) == (5, 40, 2)
    places = ("publisher", "bridge", "loopback", "sum")
    assert [row.figures[f"drop_{place}"] for place in places] == pytest.approx([10, 20, 20, 50])
    assert (row.figures["one_way_p50"], row.figures["phase"], row.figures["in_window"]) == (1, 9, None)
    assert len(spacing_ms) == len(heard) - 1
    assert run.notes == ["XII, E+CBS, none: the guest stood still for up to 0.3 s"]
    assert (tmp_path / "records" / "XII-E+CBS-none-tc.txt").read_text() == "qdisc etf"
    gated = {**part, "qdisc": "taprio", "window_ms": 6}
    again, _ = qdiscs.row_by_place(run, gated, found)  # the first arrived in the next cycle's first 4 ms: in no window
    assert again.figures["in_window"] == pytest.approx(100 * 6 / 7)


def test_a_quick_run_has_the_first_and_the_last_case_of_each_table(tmp_path: Path) -> None:
    run = quiet(tmp_path, "pubsub-qdiscs", {"cycles": 60, "cases": (0, -1)})
    chosen = [part["case"]["setting"] for part in pubsub.chosen(run) if part["case"]["table"] in ("XI", "X")]
    assert chosen == ["FQ_CoDel", "TAPRIO", "window 1 ms", "window 6 ms"]
