"""The link's flows as cells of a run, also where a part left no record."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from twinlink_demo import flows
from twinlink_results import results
from twinlink_results.run import Run

import twinlink
from tests.recording.recordings import pair
from twinlink.appkit import records
from twinlink.testing import patience, wait_until

CONTENT: dict[str, Any] = {
    "started_ns": 1, "ended_ns": 2, "complete": False, "configuration": {"given": {}, "used": {}},
    "setting": "loopback", "rate_limit": None, "source": "twinlink",
    "system": {"real_world": None, "digital_twin": None}, "ntp": {"real_world": None, "digital_twin": None},
    "demo": {},
}  # fmt: skip


def sent(*octets: int, acknowledged: int) -> records.Table:
    rows = [
        (0, number, size, 10, 10, number < acknowledged, *((20, 21, 30, 20) if number < acknowledged else (0,) * 4))
        for number, size in enumerate(octets)
    ]
    return np.array(rows, records.SENT)


def computed(folder: Path, run: Run) -> dict[str, Any]:
    run.save()
    found, _ = results.tabulate(folder)
    jsonschema.Draft202012Validator(results.schema()).validate(json.loads((folder / "results.json").read_text()))
    return {cell["id"]: cell for cell in found["cells"]}


def begun(folder: Path, *transports: str) -> Run:
    run = Run(folder, CONTENT)
    for cell in flows.cells(transports):
        run.add_cell(cell)
    return run


def test_messages_of_many_sizes_are_one_row(tmp_path: Path) -> None:
    run = begun(tmp_path, "zeromq", "zenoh")
    nothing = {(flow, side): np.zeros(0, dtype) for flow in flows.FLOWS
               for side, dtype in (("sent", records.SENT), ("received", records.RECEIVED))}  # fmt: skip
    flows.add(run, "zeromq", {**nothing, ("control", "sent"): sent(90, 120, acknowledged=1)}, None)
    flows.add(run, "zenoh", {**nothing, ("control", "sent"): sent(100, acknowledged=1)}, None)
    cells = computed(tmp_path, run)
    assert [cells[f"{name}-control"]["octets"] for name in ("zeromq", "zenoh")] == [120, 120]
    statistics = cells["zeromq-control"]["statistics"]
    assert (statistics["n_sent"], statistics["n_acknowledged"], statistics["lost"]) == (2, 1, 1)
    assert cells["zeromq-spectrum"]["statistics"] is None
    assert cells["zeromq-spectrum"]["status"] == "done"
    rows = [line for line in (tmp_path / "table.md").read_text().splitlines() if "control, up to 120 B" in line]
    assert len(rows) == 1 + 2  # latencies of both; rate, goodput and loss of each
    assert results.compute(tmp_path, results.load(tmp_path))[0]["comparisons"] == {"anova": [], "paired": []}


def test_a_part_without_a_record_is_named(tmp_path: Path) -> None:
    run = begun(tmp_path, "zeromq", "zenoh")
    flows.add(run, "zeromq", {("control", "sent"): sent(90, acknowledged=1)}, None)
    cells = computed(tmp_path, run)
    assert cells["zeromq-control"]["status"] == "done"
    assert cells["zeromq-spectrum"]["reason"] == "the exporter left no record"
    assert {cells[f"{name}"]["status"] for name in cells if name.startswith("zenoh")} == {"skipped"}


def test_what_does_not_fit_is_damage(tmp_path: Path) -> None:
    run = begun(tmp_path, "zeromq")
    flows.add(run, "zeromq", {("control", "sent"): sent(90, 120, acknowledged=1)}, None)
    run.content["cells"][1]["octets"] = 119
    run.save()
    with pytest.raises(results.DamagedRun, match="line 3: 120 octets in a cell of 119"):
        results.tabulate(tmp_path)


def test_the_tables_are_those_of_the_recordings_that_are_there(tmp_path: Path) -> None:
    def recording(part: str) -> Path:
        return tmp_path / f"{part}.mcap"

    acks: list[twinlink.Ack] = []
    with (
        pair("memory", "tcp/flows:1") as (twin, gnb),
        gnb.record(recording("exporter")),
        twin.record(recording("replay")),
    ):
        gnb.receiver("control", handler=lambda message: None)
        twin.receiver("spectrum", handler=lambda message: None)
        control = twin.sender("control", on_ack=acks.append)
        gnb.sender("spectrum").send(b"power")
        control.send(b"block")
        control.flush(patience())
        wait_until(lambda: acks)
    found = flows.read(recording)
    assert {key: len(found_table) for key, found_table in found.items()} == {
        ("spectrum", "sent"): 1,
        ("spectrum", "received"): 1,
        ("control", "sent"): 1,
        ("control", "received"): 1,
        ("control-result", "sent"): 0,
        ("control-result", "received"): 0,
    }
    (row,) = found["control", "sent"]
    assert (row["octets"], row["acknowledged"], row["sent_ns"]) == (5, True, acks[0].sent_ns)
    whole = recording("exporter").read_bytes()
    recording("exporter").write_bytes(whole[:-9])  # its process was killed
    assert len(flows.read(recording)["spectrum", "sent"]) == 1
    recording("exporter").unlink()
    assert ("spectrum", "sent") not in flows.read(recording)
    assert len(flows.read(recording)["spectrum", "received"]) == 1
