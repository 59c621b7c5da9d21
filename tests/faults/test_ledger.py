"""What stands in a ledger: what was written, and that it survives."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import twinlink
from twinlink.testing import base

from .ledger import ROW, Row, Writer, digest, read


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    ledger = Writer(tmp_path / "ledger")
    ledger.open(2**64 - 1, node="rw", role="connect", reliability="detect")
    ledger.flow("out", "sends")
    ledger.flow("in", "receives")
    for sequence in range(3):
        hashed = digest(bytes(sequence))
        ledger.begin("out", sequence, hashed)
        ledger.sent("out", sequence, sequence, hashed)
    ledger.begin("out", 3, 1)
    ledger.refused("out", 3, 1, twinlink.SendTimeout("full " * 100))
    ledger.begin("out", 4, 2)
    ledger.got("in", 2**63 + 5, 17, 1, 4, 2**64 - 2)
    ledger.acked("out", 5, 0, 2)
    ledger.unsettled("out", [(2, 3)])
    ledger.event(twinlink.Gap(1, "in", 2**63 + 5, 3, 9))
    session = read(tmp_path / "ledger")
    assert session is not None
    assert (session.epoch, session.role, session.reliability, session.ended) == (2**64 - 1, "connect", "detect", False)
    sends = session.sends["out"]
    assert sends.sequence.tolist() == [0, 1, 2]
    assert sends.digest.tolist() == [digest(bytes(sequence)) for sequence in range(3)]
    assert all(sends.begun_ns <= sends.sent_ns)
    assert [hashed for hashed, _ in sends.pending] == [2]
    deliveries = session.deliveries["in", 2**63 + 5]
    assert (deliveries.sequence.tolist(), deliveries.digest.tolist()) == ([17], [2**64 - 2])
    assert session.acked == {("out", 5): [(0, 2)]}
    assert session.unsettled == {"out": [(2, 3)]}
    gap = {"time_ns": 1, "flow": "in", "epoch": 2**63 + 5, "first": 3, "end": 9}
    assert [(one.name, one.fields) for one in session.events] == [("Gap", gap)]
    assert session.refused == 1
    ledger.closed(close_s=0.1)
    session = read(tmp_path / "ledger")
    assert session is not None
    assert session.ended


@pytest.mark.parametrize("torn", range(1, ROW.size))
def test_a_torn_row_is_passed_over(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "ledger"
    ledger = Writer(path)
    ledger.open(1, node="rw", role="connect")
    ledger.flow("out", "sends")
    ledger.begin("out", 1, 1)
    ledger.sent("out", 0, 1, 1)
    ledger.begin("out", 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-torn])
    session = read(path)
    assert session is not None
    assert session.sends["out"].sequence.tolist() == [0]
    assert session.sends["out"].pending == []


def test_a_text_that_was_cut_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Writer(path)
    ledger.open(1, node="rw", role="connect")
    ledger.note(what="whole")
    ledger.note(what="cut", more="x" * 200)
    octets = path.read_bytes()
    assert octets[-ROW.size] == Row.TEXT
    path.write_bytes(octets[: -2 * ROW.size])
    session = read(path)
    assert session is not None
    assert [note.name for note in session.notes] == ["whole"]


KILLED = """
import sys, time
from pathlib import Path
from tests.faults.ledger import Writer
ledger = Writer(Path(sys.argv[1]))
ledger.open(1, node="rw", role="connect")
ledger.flow("out", "sends")
for sequence in range(10**9):
    ledger.begin("out", 8, sequence)
    ledger.sent("out", sequence, 8, sequence)
    print(sequence, flush=True)
"""


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(base.patience(0.2))
        process.send_signal(signal.SIGKILL)
        last = int(process.stdout.read().split("\n")[-2])
    session = read(path)
    assert session is not None
    assert not session.ended
    count = len(session.sends["out"].sequence)
    assert session.sends["out"].sequence.tolist() == list(range(count))
    assert count >= last + 1
