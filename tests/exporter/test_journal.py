import contextlib
import json
import os
from pathlib import Path

import pytest
from twinlink_exporter.journal import Journal


def test_who_read_stderr_may_leave(tmp_path: Path) -> None:
    """As in ``twinlink-exporter 2>&1 | head``: a block that stands must not lose its keeper."""
    reads, writes = os.pipe()
    os.close(reads)
    stderr = os.fdopen(writes, "w")
    with Journal(tmp_path / "log", stream=stderr) as journal:
        journal.event("started", "begins")
        journal.complaint("odd", "goes on", count=1)
    with contextlib.suppress(BrokenPipeError):
        stderr.close()
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(event["event"], event.get("count")) for event in events] == [("started", None), ("odd", 1)]


def test_what_others_chose_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The id of a block, or the name of a RAN, comes from whoever reaches the port."""
    Journal().event("odd", "block \x1b[2J\nnext é is odd")
    said = capsys.readouterr().err
    assert said.endswith("twinlink-exporter: block \\x1b[2J\\nnext é is odd\n")
    assert said.count("\n") == 1
