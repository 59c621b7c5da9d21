"""`twinlink sweep --systems`: what is measured, what a protocol's limit leaves out, and what the table says."""

import json
from pathlib import Path
from typing import Any

import pytest
from twinlink_measure.channels import SUBJECTS, SYSTEMS
from twinlink_results import summary, table

from tests.cli.calling import call
from tests.cli.running import Run


def sweep(folder: Path, *arguments: str) -> Run:
    return Run(["sweep", "--setting", "loopback", "--out", str(folder), *arguments])


def test_a_payload_beyond_the_limit_is_left_out_with_its_reason_and_is_no_failure(tmp_path: Path) -> None:
    run = sweep(
        tmp_path / "out", "--systems", "s7", "--payloads", "100,64K", "--directions", "dt-rw", "--count", "2",
        "--rounds", "2", "--option", "raw-s7.poll_ms=5",
    )  # fmt: skip
    assert run.code() == 0, run.err
    printed = " ".join(" ".join(run.out).split())
    reason = "its greatest payload is 65,496 octets: a data block has 64 KiB"
    assert f"Not measured: raw S7 ({reason})" in printed
    polled = (
        "Polls and publishing: raw S7 (poll_ms 5, sweep_ms 0). "
        "From DT to RW, the one-way delay is an age: it includes the wait for them."
    )
    assert polled in printed
    assert polled in (tmp_path / "out" / "table.md").read_text()
    assert polled in (tmp_path / "out" / "report.html").read_text()
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    done, skipped = found["cells"]
    assert (done["status"], done["round_trips"]) == ("done", 2)
    assert (skipped["status"], skipped["reason"]) == ("skipped", reason)
    assert found["configuration"]["used"]["subject_options"]["raw-s7"] == {"poll_ms": 5, "sweep_ms": 0}
    assert summary.unfinished(found) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--systems", "s7,profinet"], "'profinet' is none of zeromq, zenoh, tcp, mqtt"),
        (["--systems", "s7", "--subjects", "raw-s7"], "--systems is a short form of --subjects: give one of them"),
        (["--systems", "s7", "--option", "raw-s7.no_delay=true"], "no option no_delay; it takes poll_ms, sweep_ms"),
        (
            ["--systems", "http", "--option", "raw-http.poll_ms=often"],
            "poll_ms must be a number of ms from 0 to 10,000",
        ),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: list[str], told: str, tmp_path: Path) -> None:
    run = call("sweep", "--setting", "loopback", "--out", str(tmp_path / "out"), *arguments)
    assert run.code() == 3
    assert told in run.err


def test_every_subject_belongs_to_one_system() -> None:
    assert sorted(name for names in SYSTEMS.values() for name in names) == sorted(SUBJECTS)


def test_a_table_names_the_intervals_of_its_polled_subjects_only() -> None:
    options: dict[str, dict[str, Any]] = {
        "raw-http": {"poll_ms": 50, "sweep_ms": 2.5, "no_delay": True},
        "raw-tcp": {"no_delay": True},
    }
    block = table.Block("closed", None, [*options], [], {}, 10, options)
    assert block.notes(["raw-tcp", "of another package"]) == []
    (note,) = block.notes(["raw-tcp", "raw-http"])
    assert note.startswith("Polls and publishing: raw HTTP (poll_ms 50, sweep_ms 2.5). From DT to RW, ")
