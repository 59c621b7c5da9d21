import contextlib
import io
import json
import os
from pathlib import Path

from twinlink.cli.journal import Journal


def test_who_read_stderr_may_leave(tmp_path: Path) -> None:
    """As in ``twinlink-exporter 2>&1 | head``: a block that stands must not lose its keeper."""
    reads, writes = os.pipe()
    os.close(reads)
    stderr = os.fdopen(writes, "w")
    with Journal("test", tmp_path / "log", stream=stderr) as journal:
        journal.event("started", "begins")
        journal.complaint("odd", "goes on", count=1)
    with contextlib.suppress(BrokenPipeError):
        stderr.close()
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(event["event"], event.get("count")) for event in events] == [("started", None), ("odd", 1)]


def test_a_file_that_cannot_be_written_is_said_once_and_stops_nothing() -> None:
    said = io.StringIO()
    with Journal("test", Path("/dev/full"), stream=said) as journal:
        journal.event("first", "one")
        journal.event("second", "two")
    lines = [line.split(" ", 1)[1] for line in said.getvalue().splitlines()]
    assert lines == [
        "test: one",
        "test: no more events are written to /dev/full: No space left on device; make room there, or write elsewhere",
        "test: two",
    ]


def test_what_others_chose_stays_on_its_line() -> None:
    """The id of a block, or the name of a RAN, comes from whoever reaches the port."""
    said = io.StringIO()
    Journal("test", stream=said).event("odd", "block \x1b[2J\nnext é is odd")
    assert said.getvalue().split(" ", 1)[1] == "test: block \\x1b[2J\\nnext é is odd\n"
