"""The commands `record` and `verify`, as a user runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

import twinlink
from tests.cli.calling import call
from tests.cli.running import Start
from tests.export import scene
from tests.recording.recordings import rows
from twinlink.testing import patience


def test_record_and_verify(endpoint: str, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run.mcap"
    run = start("record", "--listen", endpoint, "--out", str(out), "--flows", "x,y*", "--json")
    run.wait_for("records to")  # from then on
    with twinlink.open("zeromq", connect=endpoint, node="gnb") as gnb:
        gnb.wait_ready(patience())
        for flow in ("x", "y1", "z"):
            sender = gnb.sender(flow)
            for number in range(10):
                sender.send(f"{flow} {number}")
        for flow in ("x", "y1"):
            gnb.sender(flow).flush(patience())
    run.wait_for("peer gnb is gone")
    run.interrupt()
    code, (summary,) = run.code(), run.records()
    assert code == 0, (summary, run.err)
    assert (summary["messages"], summary["left_out"], summary["missing"]) == (20, 0, 0)
    assert summary["paths"] == [str(out)]
    assert {row.payload.decode() for row in rows(out, "received")} == {
        f"{f} {n}" for f in ("x", "y1") for n in range(10)
    }

    whole = start("verify", str(out))
    assert whole.code() == 0
    assert whole.out[0].startswith(f"{out}: complete")

    again = call("record", "--listen", endpoint, "--out", str(out))
    assert again.code() == 3
    assert "--overwrite" in again.err

    octets = out.read_bytes()
    out.write_bytes(octets[: len(octets) // 2])
    cut = call("verify", str(out), "--repair", "--json")
    assert cut.code() == 1
    (report,) = cut.records()
    assert (report["sound"], report["complete"]) == (False, False)
    made = Path(report["repaired_file"])
    assert made == tmp_path / "run.repaired.mcap"
    mended = call("verify", str(made))
    assert mended.code() == 1
    assert mended.out[0].startswith(f"{made}: sound, but not complete")
    refused = call("verify", str(out), "--repair")
    assert refused.code() == 3
    assert "--overwrite" in refused.err
    assert call("verify", str(out), "--repair", "--overwrite").code() == 1
    assert out.read_bytes() == octets[: len(octets) // 2]


def test_a_repaired_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    damaged, made = tmp_path / "run.mcap", tmp_path / "run.repaired.mcap"
    damaged.write_bytes(scene.write(tmp_path / "x.mcap", [(n, b"x") for n in range(9)]).read_bytes()[:-9])
    made.write_text("kept")
    run = call("verify", str(damaged), "--repair")
    assert run.code() == 3
    assert f"{made} exists: move it away, or replace it with --overwrite" in run.err
    assert made.read_text() == "kept"
    assert call("verify", str(damaged), "--repair", "--overwrite").code() in {0, 1}
    assert made.read_bytes() != b"kept"


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    other = tmp_path / "x.txt"
    other.write_text("text")
    no_recording, absent = call("verify", str(other)), call("verify", str(tmp_path / "absent.mcap"))
    assert (no_recording.code(), absent.code()) == (2, 2)
    assert "no MCAP file" in no_recording.err
    assert "absent.mcap" in absent.err


def test_a_recorder_that_meets_nobody_says_so(endpoint: str, start: Start, tmp_path: Path) -> None:
    run = start("record", "--listen", endpoint, "--out", str(tmp_path / "run.mcap"), "--time", "0.5")
    assert run.code() == 1
    assert "recorded 0 messages" in run.out[0]


@pytest.mark.parametrize("code", ["import twinlink.recording", "from twinlink.cli import main; main(['verify', 'x'])"])
def test_without_mcap_the_error_names_the_extra(code: str) -> None:
    blocked = f"import sys; sys.modules['mcap'] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert "pip install 'twinlink[recording]'" in done.stderr
