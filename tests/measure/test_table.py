"""The table in the paper's shape."""

import copy
import csv
import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from twinlink_measure.channels import SUBJECTS
from twinlink_results import figures, page, reference_results, results, summary, table, table_csv

from tests.measure import synthetic_run
from twinlink.appkit import formatting, records


def lines(markdown: str, title: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    part = markdown.split(f"## {title}", 1)[1].split("\n## ", maxsplit=1)[0]
    return [[field.strip() for field in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"]


def computed(folder: Path) -> dict[str, Any]:
    return results.compute(folder, results.load(folder))[0]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sweep")
    synthetic_run.write(folder, subjects=("zeromq", "raw-tcp", "zenoh"), payloads=(1048576, 100), rounds=2)
    return computed(folder)


def test_shape_of_the_papers_table(found: dict[str, Any]) -> None:
    head, _, *rows = lines(table.markdown(found), "Closed loop: twinlink")
    assert head[:2] == ["Direction", "Payload"]
    assert [title for title in head if title.endswith("latency (ms)")] == ["Zenoh latency (ms)", "ZeroMQ latency (ms)"]
    assert [row[:2] for row in rows] == [
        ["RW→DT", "100 B"], ["RW→DT", "1 MB"], ["DT→RW", "100 B"], ["DT→RW", "1 MB"],
    ]  # fmt: skip
    theirs = head.index("published latency / RTT / throughput (ms, ms, MB/s)")
    assert rows[1][theirs] == "12.57 / 13.75 / 83.42"
    assert all("±" in row[theirs - 1] for row in rows)
    head, _, *rows = lines(table.markdown(found), "Closed loop: baselines")
    assert head[2:] == ["raw TCP latency (ms)", "clock", "raw TCP RTT (ms)", "raw TCP throughput (MB/s)"]


def test_text_has_the_same_figures_within_80_columns(found: dict[str, Any]) -> None:
    head, _, *rows = lines(table.markdown(found), "Closed loop: twinlink")
    text = table.text(found)
    parts = {part.splitlines()[0]: part.splitlines()[1:] for part in text.split("\n\n")}
    for direction in ("RW→DT", "DT→RW"):
        for short, what in (("RTT", "mean RTT"), ("latency", "mean one-way delay")):
            part = parts[f"Closed loop, {direction}: {what} in ms, ± how far its CI95 reaches"]
            assert [line.split("  ")[1].split()[0] for line in part[1:]] == ["Zenoh", "ZeroMQ", "raw"]
            (zenoh,) = (line for line in part if line.lstrip().startswith("Zenoh"))
            expected = [row[head.index(f"Zenoh {short} (ms)")] for row in rows if row[0] == direction]
            assert " ".join(zenoh.split()[1:]) == " ".join(expected)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("mode", "rate_hz"), [("closed", None), ("open", 50.0)])
def test_every_subject_and_payload_fits_80_columns(found: dict[str, Any], mode: str, rate_hz: float | None) -> None:
    """With wide intervals too: what does not fit stands below, and nothing is left out."""
    cells = []
    for number, (name, octets) in enumerate(itertools.product(SUBJECTS, synthetic_run.PAYLOADS)):
        cell = copy.deepcopy(found["cells"][0]) | {"subject": name, "octets": octets, "mode": mode, "rate_hz": rate_hz}
        for delay in (cell["statistics"][key] for key in ("rtt_ns", "one_way_delay_ns", "open_loop_delay_ns")):
            if delay:
                mean = 1.23e6 + 1e4 * number
                delay |= {"mean": mean, "p50": mean, "p95": 9 * mean, "ci95": [0.7 * mean, 1.9 * mean]}
        cells.append(cell)
    text = table.text(found | {"cells": cells})
    assert max(map(len, text.splitlines())) <= 80
    for cell in cells:
        figures = cell["statistics"]
        assert (table.rtt(figures, short=True) if mode == "closed" else table.scheduled(cell)[2]) in text


def test_csv_holds_the_figures(found: dict[str, Any]) -> None:
    rows = list(csv.DictReader(table_csv.csv_text(found).splitlines()))
    assert len(rows) == len(found["cells"]) * len(table_csv.UNITS)
    for cell in found["cells"]:
        figures, mine = cell["statistics"], metrics_of(found, cell)
        assert mine.keys() == table_csv.UNITS.keys()
        rtt, latency = mine["rtt"], mine["latency"]
        assert (rtt["setting"], rtt["mode"], rtt["status"], rtt["unit"]) == ("netns", "closed", "done", "ms")
        assert float(rtt["value"]) == pytest.approx(figures["rtt_ns"]["mean"] / 1e6, rel=1e-5)
        assert float(rtt["ci95_low"]) < float(rtt["value"]) < float(rtt["ci95_high"])
        assert int(rtt["n"]) == figures["rtt_ns"]["n"]
        assert (latency["value"] != "") == figures["one_way_delay_ns"]["usable"]
        assert float(mine["goodput"]["value"]) == pytest.approx(figures["goodput_mb_s"], rel=1e-5)
        assert (mine["loss_ratio"]["value"], mine["loss_ratio"]["unit"]) == ("0", "1")
        ours = reference_results.row(cell["subject"], cell["direction"], cell["octets"])
        assert latency["published"] == (f"{ours.latency_ms:.6g}" if ours else "")
        assert mine["throughput"]["published"] == (f"{ours.throughput_mb_s:.6g}" if ours else "")


def metrics_of(found: dict[str, Any], cell: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The rows of a cell in the CSV, by metric."""
    place = (cell["subject"], cell["mode"], cell["direction"], str(cell["octets"]))
    return {
        row["metric"]: row
        for row in csv.DictReader(table_csv.csv_text(found).splitlines())
        if (row["subject"], row["mode"], row["direction"], row["payload_octets"]) == place
    }


def statistics(mean_ns: float, bound_ns: float, usable: bool) -> dict[str, Any]:
    spread = {"n": 100, "mean": mean_ns, "ci95": [0.98 * mean_ns, 1.02 * mean_ns]}
    return {
        "one_way_delay_ns": {**spread, "bound_ns": bound_ns, "usable": usable, "flags": []},
        "rtt_ns": {**spread, "mean": 2 * mean_ns, "ci95": [1.96 * mean_ns, 2.04 * mean_ns]},
        "paper_throughput_mb_s": 1048576 / mean_ns * 1e3,
    }


def test_a_delay_stands_with_its_bound_or_not_at_all() -> None:
    """12.57 ms at 1 MB is the paper's 83.42 MB/s."""
    good = statistics(12.57e6, 200e3, usable=True)
    assert (table.latency(good), table.bound(good), table.rtt(good)) == ("12.6 ±0.3", "±200 µs", "25.1 ±0.5")
    assert table.throughput(good) == "83.4 ±1.7"
    lopsided = {**good["rtt_ns"], "mean": 2.4e6, "ci95": [0.38e6, 7.58e6]}
    assert table.with_interval(lopsided) == "2.40 -2.02 +5.18"
    assert table.with_interval(lopsided, short=True) == "2.40 -2.02 +5.18"  # ±5.18 would reach below 0
    assert table.with_interval({"mean": 2.4e6, "ci95": [2.0e6, 4.0e6]}, short=True) == "2.40 ±1.60"
    assert table.with_interval({"mean": 1.42e6, "ci95": [0.21e6, 3.2e6]}) == "1.42 -1.21 +1.78"
    assert table.with_interval({"mean": 1.42e6, "ci95": [-0.3e6, 3.0e6]}) == "1.42 ±1.72"  # it does reach below
    good["one_way_delay_ns"]["ci95"] = [0.2 * 12.57e6, 3 * 12.57e6]
    assert table.throughput(good) == "83.4 -55.6 +333.7"
    bad = statistics(0.89e6, 200e3, usable=False)
    assert (table.latency(bad), table.bound(bad)) == ("RTT only", "±200 µs")
    assert table.throughput(bad) == "-"
    bad["one_way_delay_ns"]["flags"] = ["negative", "stepped"]
    assert table.bound(bad) == "negative and stepped"


def test_a_cell_that_was_broken_off_is_marked_in_every_table(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, subjects=("zeromq", "raw-tcp"), payloads=(100, 1024), rounds=2, lost=3)
    synthetic_run.without_receiver(tmp_path, run, 0)
    found = computed(tmp_path)
    _, _, *rows = lines(table.markdown(found), "Closed loop: twinlink")
    assert [row[2][0] == "†" for row in rows] == [True, False, False, False]
    note = "† peer lost, 34 of 40 messages: ZeroMQ 100 B RW→DT"
    written = page.html(found, [])
    for text in (table.markdown(found), table.text(found), written):
        assert note in text
    assert table.markdown(found).count("†") == 2
    (zeromq, *_) = (line for line in table.text(found).splitlines() if line.startswith("  ZeroMQ"))
    assert [field[0] == "†" for field in zeromq.split() if field[0] != "±"] == [False, True, False]
    assert written.count("<td>†") == 2  # at a glance, and of the subject
    assert "†" not in table_csv.csv_text(found)
    assert {row["status"] for row in metrics_of(found, found["cells"][0]).values()} == {"peer lost"}
    found["cells"][0]["mode"] = "open"
    found["cells"][0]["rate_hz"] = 50.0
    for text in (table.markdown(found), table.text(found), page.html(found, [])):
        assert "†50" in text
        assert note in text


def test_clocks_too_vague_for_one_way_delays(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq",), payloads=(100,), rounds=2)
    found = computed(tmp_path)
    for cell in found["cells"]:
        cell["statistics"]["one_way_delay_ns"] |= {"bound_ns": 500_000, "usable": False}
    _, _, *rows = lines(table.markdown(found), "Closed loop: twinlink")
    assert [row[2:4] for row in rows] == [["RTT only", "±500 µs"]] * 2
    mine = metrics_of(found, found["cells"][0])
    assert [mine[metric]["value"] for metric in ("latency", "throughput", "clock_bound")] == ["", "", "0.5"]
    assert mine["rtt"]["value"]


def test_modes_and_rates_have_tables_of_their_own(tmp_path: Path) -> None:
    closed = synthetic_run.write(tmp_path / "a", subjects=("zeromq",), payloads=(100,), rounds=2)
    synthetic_run.write(tmp_path / "b", subjects=("zeromq",), payloads=(100,), rounds=2, mode="open", rate_hz=50.0)
    other = json.loads((tmp_path / "b" / "run.json").read_text())
    for path in (tmp_path / "b" / "records").iterdir():
        path.rename(tmp_path / "a" / "records" / path.name)
    (tmp_path / "a" / "run.json").write_text(json.dumps(closed | {"cells": closed["cells"] + other["cells"]}))
    found = computed(tmp_path / "a")
    assert [(block.mode, block.rate_hz) for block in table.blocks(found)] == [("closed", None), ("open", 50.0)]
    text = table.markdown(found)
    assert "## Open loop, 50 messages/s: twinlink" in text
    assert "published" not in text.split("## Open loop")[1].split("\n\n")[1]  # the paper's were a closed loop
    assert {row["mode"] for row in csv.DictReader(table_csv.csv_text(found).splitlines())} == {"closed", "open"}
    assert "delay counts from when a message should have been sent" in text
    assert "highest rate" not in text  # nothing was searched for
    assert "should have been sent" not in table.markdown(found | {"cells": found["cells"][:2]})
    assert "Published: " in text
    assert "Published: " not in table.markdown(found | {"cells": found["cells"][2:]})  # there is no such column


def test_beside_a_highest_rate_stands_what_the_trial_that_carried_it_brought(tmp_path: Path) -> None:
    run = synthetic_run.write(
        tmp_path, subjects=("zeromq",), payloads=(1024,), directions=("rw-dt",), rounds=3, mode="saturation",
        rate_hz=1000.0, round_noise=1.0,
    )  # fmt: skip
    (cell,) = run["cells"]
    steps = [(0, 900.0, True), (0, 1800.0, False), (1, 700.0, True), (1, 800.0, True), (2, 700.0, True)]
    cell |= {
        "rate_hz": None,
        "search": {
            "steps": [
                {"round": number, "rate_hz": rate_hz, "sent": 20, "received": 20, "lost": 0, "lossless": lossless}
                for number, rate_hz, lossless in steps
            ],
            "rounds_hz": [900.0, 800.0, 700.0],
            "highest_loss_free_hz": 800.0,
        },
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    found = computed(tmp_path)
    jsonschema.validate(found, results.schema())
    (measured,) = found["cells"]
    received = records.read(tmp_path / "records" / f"{cell['id']}.received.csv.gz")
    times = received["received_ns"][received["round"] == 1]
    mb_s = (len(times) - 1) * 1024 / (times.max() - times.min()) * 1e3
    trial = measured["statistics"]["at_highest_rate"]
    assert (trial["round"], trial["n_sent"]) == (1, 20)
    assert trial["goodput_mb_s"] == pytest.approx(mb_s)
    assert measured["statistics"]["goodput_mb_s"] != pytest.approx(mb_s)
    (row,) = lines(table.markdown(found), "Saturation: rate, goodput and loss")[2:]
    delay = trial["open_loop_delay_ns"]
    middle_and_high = f"{formatting.ms(delay['p50'])} / {formatting.ms(delay['p95'])}"
    assert row[3:] == ["800 (700 to 900 in 3 searches)", formatting.decimal(mb_s), "0 %", middle_and_high]
    assert float(metrics_of(found, measured)["goodput"]["value"]) == pytest.approx(mb_s, rel=1e-5)
    assert figures.rate_hz(measured) == 800.0
    found_rate = "Highest without loss, in messages/s: ZeroMQ 1 KB RW→DT 800 (700 to 900 in 3 searches)."
    assert found_rate in summary.text(found)
    for text in (table.markdown(found), page.html(found, [])):
        assert "700 to 900 in 3 searches" in text
        assert "goodput, loss and delay beside it are of the trial that carried it" in text
    assert all(len(line) <= 80 for line in table.text(found).splitlines())
    measured["search"]["rounds_hz"] = [800.0]
    assert lines(table.markdown(found), "Saturation: rate, goodput and loss")[2][3] == "800 (one search)"


def test_flagged_delays_are_not_said_to_have_too_wide_a_bound(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq",), payloads=(100, 1024), rounds=2)
    found = computed(tmp_path)
    for cell in found["cells"][:3]:
        cell["statistics"]["one_way_delay_ns"] |= {"usable": False, "flags": ["stepped"], "bound_ns": 123_000}
    text = summary.text(found)
    assert "123 µs" not in text  # it says nothing where a clock was set
    assert "delays of 3 of 4 cells are flagged as stepped, and only the RTT is given there" in text
    assert "more than 20 %" not in text
    found["cells"][3]["statistics"]["one_way_delay_ns"] |= {"usable": False, "flags": ["negative"]}
    assert "Clocks: Look at the clocks: delays of 4 of 4 cells are flagged as negative and" in summary.text(found)
    found["cells"][3]["statistics"]["one_way_delay_ns"] |= {"flags": [], "bound_ns": None}
    assert "Clocks: Look at the clocks: delays of 3 of 3 cells are flagged" in summary.text(found)


def test_the_papers_throughput_is_payload_over_latency() -> None:
    assert len(reference_results.TABLE_I) == 20
    for (_, _, octets), row in reference_results.TABLE_I.items():
        exact = octets / row.latency_ms / 1e3
        assert 0.99 * exact - 0.01 < row.throughput_mb_s < 1.04 * exact + 0.01  # rounded; a mean of ratios is larger


@pytest.mark.parametrize(
    ("octets", "text"),
    [(100, "100 B"), (1024, "1 KB"), (10240, "10 KB"), (1048576, "1 MB"), (1500, "1.5 KB"), (0, "0 B")],
)
def test_payloads_are_written_as_the_paper_does(octets: int, text: str) -> None:
    assert formatting.payload(octets) == text


def test_a_cell_that_misses_a_round_is_not_said_to_be_unmeasured(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq", "raw-tcp"), payloads=(100,), directions=("rw-dt",), rounds=2)
    found = computed(tmp_path)
    for cell in found["cells"]:
        cell |= {"status": "skipped", "reason": f"of {cell['subject']}"}
    found["cells"][1]["rounds"] = []
    text = summary.text(found)
    assert "Not measured: raw TCP (of raw-tcp). Not in every round: ZeroMQ (of zeromq)." in text


def test_a_reason_is_said_once_for_all_cells_that_it_concerns(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq", "raw-tcp"), payloads=(100, 1024, 10240), rounds=1)
    found = computed(tmp_path)
    for number, cell in enumerate(found["cells"]):
        if cell["subject"] == "zeromq":
            cell |= {"status": "peer lost", "reason": f"round {number % 2 + 1} of 2: no peer, and advice at length"}
        else:
            cell |= {"status": "failed", "reason": "round 2 of 2: no room"}
    state = dict(summary.statements(found))["State"]
    assert state == (
        "12 cells failed: ZeroMQ 100 B RW→DT, ZeroMQ 100 B DT→RW, ZeroMQ 1 KB RW→DT (and 3 more): "
        "round 1 of 2 and round 2 of 2: no peer, and advice at length; "
        "raw TCP 100 B RW→DT, raw TCP 100 B DT→RW, raw TCP 1 KB RW→DT (and 3 more): round 2 of 2: no room."
    )


def of_one_cell(found: dict[str, Any], **one_way: Any) -> tuple[str, dict[str, str]]:
    """A cell's throughput as the table and as the CSV have it, with other figures of the one-way delay."""
    cell = copy.deepcopy(found["cells"][0])
    cell["statistics"]["one_way_delay_ns"] |= one_way
    return table.throughput(cell["statistics"]), metrics_of(found | {"cells": [cell]}, cell)["throughput"]


def test_a_throughput_has_the_interval_that_its_latency_has(found: dict[str, Any]) -> None:
    mean = found["cells"][0]["statistics"]["one_way_delay_ns"]["mean"]
    text, row = of_one_cell(found, ci95=None)
    assert "±" not in text
    assert row["value"]
    assert row["ci95_low"] == row["ci95_high"] == ""
    text, row = of_one_cell(found, ci95=[-mean / 2, 2.5 * mean])
    assert text.endswith("+∞")
    assert float(row["ci95_low"]) == pytest.approx(float(row["value"]) / 2.5, rel=1e-4)
    assert row["ci95_high"] == ""


def test_what_arrived_without_an_answer_arrived(found: dict[str, Any]) -> None:
    cell = copy.deepcopy(found["cells"][0])
    cell["statistics"]["rtt_ns"] = None
    for text in (table.markdown(found | {"cells": [cell]}), page.html(found | {"cells": [cell]}, [])):
        assert "nothing arrived" not in text
