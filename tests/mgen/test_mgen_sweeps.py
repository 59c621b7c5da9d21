"""mgen-scripts/run as a user starts it, in a network namespace of its own, as its ports are fixed."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twinlink.testing.base import patience, wait_until

SCRIPTS = Path(__file__).parents[2] / "mgen-scripts"
BIN = Path(sys.executable).parent
MARK = "MGEN_SWEEP_TEST"  # in the environment of whatever a test starts, so that it can be found again
CELLS = [f"{way}-{size}" for way in ("rw-dt", "dt-rw") for size in ("100B", "1KB", "8KB", "10KB", "100KB", "1MB")]


class Sweep:
    """One run of the script, in ``folder``, with what it leaves."""

    def __init__(self, folder: Path, command: list[str], path: str) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._said = folder.with_suffix(".said")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINLINK_")}
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                ["/usr/bin/env", "--default-signal=HUP", *command],  # nohup has it ignored, and bash could not trap it
                cwd=folder,
                env=environment | {"PATH": path, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._said.read_text()

    def interrupt(self) -> None:
        """As from a terminal, to the whole group; bash passes over one that comes as its child ends by itself."""
        deadline = time.monotonic() + patience()
        while self.process.poll() is None and time.monotonic() < deadline:
            os.killpg(self.process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)

    def code(self) -> int:
        return self.process.wait(patience())

    def alive(self) -> list[int]:
        """Processes that are left."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self._mark}".encode() in (place / "environ").read_bytes():
                    found.append(int(place.name))
            except OSError:
                continue
        return found

    def left(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


Run = Callable[..., Sweep]


def begin(
    folder: Path,
    *arguments: str,
    scripts: Path = SCRIPTS,
    before: str = "",
    path: str | None = None,
    alone: bool = True,
) -> Sweep:
    """Starts the script in a new folder: begin(folder, "zenoh", scripts=..., before=..., path=...)."""
    folder.mkdir()
    command = [str(scripts / "run"), *arguments]
    if alone:
        command = ["unshare", "-n", "bash", "-c", f'ip link set lo up; {before}\nexec "$@"', "bash", *command]
    return Sweep(folder, command, f"{BIN}:{os.environ['PATH']}" if path is None else path)


def end(runs: Iterable[Sweep]) -> None:
    for one in runs:
        for pid in one.alive():
            os.kill(pid, signal.SIGKILL)
        one.process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts the script as `begin` does, in a folder of this test."""
    runs: list[Sweep] = []

    def _run(*arguments: str, **kwargs: Any) -> Sweep:
        runs.append(begin(tmp_path / f"run-{len(runs)}", *arguments, **kwargs))
        return runs[-1]

    yield _run
    end(runs)


@pytest.fixture(scope="module")
def needs() -> None:
    """The real mgen, and a namespace."""
    if shutil.which("mgen") is None:
        pytest.skip("mgen is not installed (apt install mgen): nothing is tried against the real one")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("SKIPPED: network namespaces need root")


def scripts_of(folder: Path, count: int, rate_hz: int) -> Path:
    """The scripts, but so many messages each, at this rate."""
    shutil.copytree(SCRIPTS, folder)
    for path in folder.glob("*/*.mgn"):
        path.write_text(re.sub(r"\[20 ", f"[{rate_hz} ", path.read_text().replace("COUNT 100", f"COUNT {count}")))
    return folder


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """The scripts, but five messages each, fast."""
    return scripts_of(tmp_path / "mgen-scripts", 5, 50)


SWEEPS = [("zeromq", "periodic"), ("zenoh", "poisson"), ("zeromq", "burst")]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
KEPT = "mkdir -p mgen-out/zeromq-periodic; echo kept >mgen-out/zeromq-periodic/report.txt"


@pytest.fixture(scope="module")
def begun(needs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sweep]]:
    """The runs that take seconds, begun at the same time: they mostly wait, each in a network namespace of its own."""
    folder = tmp_path_factory.mktemp("begun")
    short = scripts_of(folder / "short", 5, 50)
    lossy = scripts_of(folder / "lossy", 5, 50)
    long = scripts_of(folder / "long", 2000, 20)  # a cell takes 100 s: the middle lasts until its test comes
    script = lossy / "rw-dt" / "periodic-1KB.mgn"
    script.write_text(script.read_text().replace("127.0.0.1/5001", "127.0.0.1/5999"))
    runs = {
        "bridge dies": begin(folder / "dies", scripts=scripts_of(folder / "medium", 40, 20)),
        "message lost": begin(folder / "lost", scripts=lossy),
        "kept": begin(folder / "kept", scripts=long, before=KEPT),
    }
    for transport, pattern in SWEEPS:
        name = f"{transport}-{pattern}"
        runs[name] = begin(folder / name, transport, pattern, "out dir/of mine", scripts=short)
    for number in SIGNALS:
        runs[number.name] = begin(folder / number.name, "zeromq", "periodic", "a/b", scripts=long)
    yield runs
    end(runs.values())


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)>(\S+)", line))


# First those that must be met in the middle


def test_a_bridge_that_dies(begun: dict[str, Sweep]) -> None:
    one = begun["bridge dies"]
    wait_until(lambda: any("SEND" in path.read_text() for path in one.folder.rglob("*.tx.drc")))
    for pid in one.alive():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the script's own commands come and go
            if b"--connect" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    assert one.code() == 2
    assert "rw-bridge has ended: " in one.said()
    assert one.alive() == []
    assert one.left() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_the_end_in_the_middle(begun: dict[str, Sweep], number: signal.Signals) -> None:
    """SIGINT goes to the whole group, as from a terminal; the others to the script."""
    one = begun[number.name]
    wait_until(lambda: any("SEND" in path.read_text() for path in one.folder.rglob("*.tx.drc")))
    if number == signal.SIGINT:
        one.interrupt()
    else:
        os.kill(one.process.pid, number)
    assert one.code() == 130
    assert "interrupted in zeromq, periodic, " in one.said()
    assert "Traceback" not in one.said()
    assert one.alive() == []
    assert one.left() == []


def test_what_an_earlier_sweep_left_stays(begun: dict[str, Sweep]) -> None:
    one = begun["kept"]
    wait_until(lambda: any(one.folder.rglob("*.tx.drc")))
    one.interrupt()
    assert one.code() == 130
    assert one.left() == ["mgen-out", "mgen-out/zeromq-periodic", "mgen-out/zeromq-periodic/report.txt"]


# Then those that come to their end


@pytest.mark.parametrize(("transport", "pattern"), SWEEPS)
def test_a_sweep(begun: dict[str, Sweep], transport: str, pattern: str) -> None:
    one = begun[f"{transport}-{pattern}"]
    assert one.code() == 0, one.said()
    assert one.alive() == []
    folder = one.folder / "out dir/of mine" / f"{transport}-{pattern}"
    logs = [*(f"{cell}.tx.drc" for cell in CELLS), "rw.rx.drc", "dt.rx.drc"]
    said = [f"{side}-{end}.txt" for side in ("rw", "dt") for end in ("mgen", "bridge")]
    drawn = [f"{name}.{kind}" for name in ("delay", "delay-parts") for kind in ("png", "svg")]
    names = [*logs, *said, "rw.csv", "dt.csv", "report.txt", *drawn]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names), one.said()
    assert all((folder / name).stat().st_size > 5000 for name in drawn)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]  # nothing hidden either
    table = {line.split()[0]: line.split()[1:5] for line in one.said().splitlines() if line.startswith(("rw-", "dt-"))}
    assert table == {cell: ["5", "5", "0", "0"] for cell in CELLS}
    assert one.said().count("30 sent over the link, 30 acknowledged; nothing lost") == 2
    assert (folder / "report.txt").read_text().count("5 of 5 received, 0 RERR") == len(CELLS)
    for side in ("rw", "dt"):  # by counting fragments
        lines = (folder / f"{side}.rx.drc").read_text().splitlines()
        found = [fields(line) for line in lines if " RECV " in line]
        assert sum(int(one["size"]) for one in found) == 5 * (100 + 1024 + 8192 + 10240 + 102400 + 1048576)
        assert len(found) == 5 * (4 + 2 + 17)
        assert not any(" RERR " in line for line in lines)


def test_a_message_that_does_not_arrive(begun: dict[str, Sweep]) -> None:
    one = begun["message lost"]
    assert one.code() == 1
    assert re.search(r"^rw-dt-1KB +5 +0 +0 +0", one.said(), re.MULTILINE)
    assert re.search(r"^dt-rw-1KB +5 +5 +0 +0", one.said(), re.MULTILINE)
    assert one.alive() == []


def test_a_port_that_another_mgen_has(needs: None, run: Run) -> None:
    """mgen would share it silently."""
    other = (
        'mgen flush event "LISTEN UDP 6003" output ../other.drc & until grep -q LISTEN ../other.drc; do sleep .1; done'
    )
    one = run(before=other)
    assert one.code() == 2
    assert "port 6003 is in use (`ss -lntup sport = :6003` shows by which program)" in one.said()
    assert one.left() == []
    assert len(one.alive()) == 1  # the other


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mqtt",), "no transport mqtt: zeromq, zenoh or all"),
        (("zeromq", "jitter"), "no pattern jitter: periodic, poisson, burst or all"),
        (("zeromq", "periodic", "out", "more"), "too many arguments: more"),
    ],
)
def test_wrong_arguments(run: Run, arguments: tuple[str, ...], says: str) -> None:
    one = run(*arguments, alone=False)
    assert one.code() == 3
    assert says in one.said()
    assert one.left() == []


def test_help(run: Run) -> None:
    one = run("--help", alone=False)
    assert one.code() == 0
    assert "mgen-scripts/run [zeromq|zenoh|all [periodic|poisson|burst|all [DIR]]]" in one.said()
    assert one.left() == []


def test_without_mgen(run: Run, tmp_path: Path) -> None:
    one = run(path=str(tmp_path), alone=False)
    assert one.code() == 2
    assert "mgen is not installed; `apt install mgen` brings it" in one.said()
    assert one.left() == []


def test_without_twinlink(needs: None, run: Run, short: Path, tmp_path: Path) -> None:
    (tmp_path / "mgen").symlink_to(str(shutil.which("mgen")))
    one = run(scripts=short, path=str(tmp_path), alone=False)
    assert one.code() == 2
    assert "twinlink is not installed: neither in .venv/" in one.said()
    assert one.left() == []


def test_where_nothing_can_be_written(needs: None, run: Run) -> None:
    one = run("zeromq", "periodic", "/proc/x/y")
    assert one.code() == 2
    assert "/proc/x" in one.said()
    assert one.alive() == []
