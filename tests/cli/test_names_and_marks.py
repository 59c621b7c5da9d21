"""Names of files and hosts in any octets, and text files that begin with a byte order mark."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.identity.nodes import make
from twinlink import cli
from twinlink.identity import Identity, trust
from twinlink.testing import patience

LATIN_1 = os.fsdecode(b"m\xfchle")  # as an old disk has it: no UTF-8
MARK = "\ufeff"
RECORDING = Path(__file__).parents[2] / "examples" / "recordings" / "uplink-106prb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path / LATIN_1).mkdir()
    return made


def run(program: str, *arguments: object, code: int = 0) -> str:
    """What it wrote to stdout; stderr if it had to fail."""
    command = [str(Path(sys.executable).with_name(program)), *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINLINK_")}
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=patience(60), env=environment | {"LC_ALL": "C.UTF-8"}
    )
    out, err = done.stdout.decode(), done.stderr.decode()  # each is UTF-8, whatever a file is called
    assert done.returncode == code, err
    assert "bug in twinlink" not in err
    return err if code else out


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("twinlink-exporter", ["--log", "l.jsonl", "--summary", "s.json", "--record", "run.mcap"]),
        ("twinlink-replay", ["--out", "out", "--log", "l.jsonl"]),
        ("twinlink-ran-emulator", ["--recording", "r", "--log", "l.jsonl", "--heard", "heard"]),
    ],
)
def test_a_program_says_what_it_would_do_with_such_files(program: str, options: list[str], folder: Path) -> None:
    for end in ("meta", "data"):
        shutil.copy(f"{RECORDING}.sigmf-{end}", folder / f"r.sigmf-{end}")
    given = [one if one.startswith("--") else folder / one for one in options]
    assert "m\\xfchle" in run(program, "--check", *given)


def test_a_sweep_and_its_report_are_in_such_a_folder(folder: Path) -> None:
    once = ("--payloads", 100, "--directions", "rw-dt", "--count", 2, "--rounds", 1, "--warm-up", 1)
    run("twinlink", "sweep", "--subjects", "raw-tcp", *once, "--out", folder / "sweep")
    assert (folder / "sweep" / "report.html").read_text("utf-8")
    told = json.loads(run("twinlink", "report", folder / "sweep", "--json").splitlines()[-1])
    json.dumps(told, ensure_ascii=False).encode()


def test_an_identity_is_in_such_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = make(folder, "router-1", "router")
    node.trust(make(folder, "gnb-1", "gnb"))
    assert cli.main(["doctor", "--identity", str(node.folder)]) in {0, 1}
    assert cli.main(["key", "router", "twinlink/c=gnb-1", "--identity", str(node.folder)]) == 3
    assert "whose name is UTF-8: rename" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a host another name")
def test_a_host_with_such_a_name_meets_its_peer(endpoint: str) -> None:
    code = """
import socket, sys, twinlink
from twinlink.testing import patience
socket.sethostname(b"h\\xfcb\\nner")
with twinlink.open("zeromq", listen=sys.argv[1]) as listener, twinlink.open("zeromq", connect=sys.argv[1]) as connector:
    connector.wait_ready(patience())
    print(*connector.peers())
"""
    done = subprocess.run(
        ["unshare", "--uts", sys.executable, "-c", code, endpoint],
        capture_output=True, text=True, check=False, timeout=patience(60),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("h\\xfcb\\nner-")


def test_a_configuration_may_begin_with_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"{MARK}[exporter]\nnode = 'cell-7'\n", "utf-8")
    assert " as cell-7\n" in run("twinlink-exporter", "--check", "--config", file)
    file.write_bytes(b"[exporter]\nnode = '\xfc'\n")
    assert "c.toml is not TOML: line 2 is no UTF-8" in run("twinlink-exporter", "--check", "--config", file, code=3)


def test_key_lines_may_have_marks(tmp_path: Path) -> None:
    twin, gnb, other = (make(tmp_path, name, role) for name, role in (("t", "twin"), ("g", "gnb"), ("o", "observer")))  # type: ignore[arg-type]
    assert cli.main(["key", "trust", f"{MARK}{gnb.identity.line}", "--as", "g", "--identity", str(twin.folder)]) == 0
    for file in ("trusted", "secret"):
        (twin.folder / file).write_text(MARK + (twin.folder / file).read_text("utf-8"), "utf-8")
    with (twin.folder / "trusted").open("a", encoding="utf-8") as trusted:
        trusted.write(f"{MARK}observer {MARK}{other.identity.line}\n")  # what an editor, or `cat`, has put together
    assert [peer.name for peer in Identity.load(twin.folder).trusted] == ["g", "o"]
    assert [peer.name for peer in trust.revoke(twin.folder, "g")] == ["g"]


def test_logs_of_mgen_may_begin_with_a_mark(tmp_path: Path) -> None:
    sent = [
        f"10:00:00.00010{n} SEND proto>UDP flow>1 seq>{n} srcPort>5100 dst>10.0.0.5/5200 size>100" for n in range(3)
    ]
    received = [
        f"10:00:00.00030{n} RECV proto>UDP flow>1 seq>{n} src>10.0.0.4/5100 dst>10.0.0.5/5200 "
        f"sent>10:00:00.00010{n} size>100"
        for n in range(3)
    ]
    for name, lines in (("tx", sent), ("rx", received)):
        (tmp_path / name).write_text(MARK + "\n".join(lines) + "\n", "utf-8")
    assert run("twinlink", "mgen", "join", "--tx", tmp_path / "tx", "--rx", tmp_path / "rx").startswith("3 of 3 ")
