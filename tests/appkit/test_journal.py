import contextlib
import io
import json
import logging
import os
from pathlib import Path

import pytest

from twinlink.appkit.journal import WAITING, Journal
from twinlink.testing import wait_until
from twinlink.testing.base import in_thread


def test_the_reader_of_stderr_may_leave(tmp_path: Path) -> None:
    """As in ``twinlink-exporter 2>&1 | head``: the exporter of a standing block must go on."""
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


def test_what_goes_on_as_before_is_all_in_the_file_and_summed_up_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    with Journal("test", tmp_path / "log", stream=said) as journal:
        for _ in range(3):
            journal.routine("renewed", "the block was renewed")
        monkeypatch.setattr("twinlink.appkit.journal._ROUTINE_NS", 0)
        journal.routine("renewed", "the block was renewed")
    assert len((tmp_path / "log").read_text().splitlines()) == 4
    (line,) = said.getvalue().splitlines()
    assert "test: the block was renewed (4 times in " in line


def test_text_from_a_peer_stays_on_its_line() -> None:
    """Any host that reaches the port chooses the id of a block or the name of a RAN."""
    said = io.StringIO()
    with Journal("test", stream=said) as journal:
        journal.event("odd", "block \x1b[2J\nnext é is odd")
    assert said.getvalue().split(" ", 1)[1] == "test: block \\x1b[2J\\nnext é is odd\n"


def test_a_reader_that_stalls_blocks_nothing(tmp_path: Path) -> None:
    """A log collector stalls: the program goes on, and the file has every event."""
    reads, writes = os.pipe()
    shown: list[str] = []
    with os.fdopen(reads) as said, os.fdopen(writes, "w") as stderr:
        with Journal("test", tmp_path / "log", stream=stderr) as journal:
            for number in range(5000):
                journal.event("odd", "x" * 100, number=number)  # a blocking write would stop here
            wait_until(lambda: len((tmp_path / "log").read_text().splitlines()) == 5000)
            reader = in_thread(lambda: shown.extend(said))
            wait_until(lambda: shown)
            journal.event("last", "goes on")
        stderr.close()
        reader.result()
    assert shown[-1].endswith("goes on\n")
    assert len(shown[:-2]) + int(shown[-2].split()[1]) == 5000


def test_dropped_events_are_counted(tmp_path: Path) -> None:
    """As on a disk that hangs."""
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reads = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    numbers: list[int] = []
    dropped = 0
    with Journal("test", fifo, stream=io.StringIO()) as journal, os.fdopen(reads) as log:
        os.set_blocking(reads, True)
        for number in range(2 * WAITING):
            journal.event("odd", "x", number=number)
        while len(numbers) + dropped < 2 * WAITING:
            event = json.loads(log.readline())
            numbers += [event["number"]] if event["event"] == "odd" else []
            dropped += event["count"] if event["event"] == "dropped" else 0
    assert numbers == sorted(set(numbers))
    assert dropped > 0


def test_a_warning_of_the_library_is_an_event(tmp_path: Path) -> None:
    with Journal("test", tmp_path / "log", stream=io.StringIO()):
        try:
            raise KeyError("of a handler")
        except KeyError:
            logging.getLogger("twinlink").exception("a handler raised")
    (event,) = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert event["event"] == "warning"
    assert "KeyError" in event["traceback"]


def test_a_journal_may_be_closed_twice(tmp_path: Path) -> None:
    with Journal("program", tmp_path / "log", io.StringIO()) as journal:
        journal.event("once", "written")
    journal.__exit__(None, None, None)
    assert (tmp_path / "log").read_text().count('"once"') == 1
