"""Build both images and run the path in them.

As root: ``.venv/bin/python -m tests.containers.image_check``.  It needs buildah, crun and mmdebstrap, 10 GiB of memory
for a tmpfs, and a way to Debian's and Python's packages; no container registry and no daemon.

It builds what is committed as `make image` does, on a base made here, from wheels fetched beforehand, and runs the
images with crun as a pod under OpenShift's restricted-v2: uid 1000680000, gid 0, no capability, a read-only root, the
seccomp profile of RuntimeDefault, no /dev/shm and no HOME.

Prints a line for each check.  Exit code 0 when all hold, 1 when one does not, 2 when it cannot go on.
"""

import argparse
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twinlink import __version__
from twinlink.testing import wait_until

from . import bundle
from .path import ENDPOINT, ended, walk
from .pod import TOOLS, Pod, Start
from .program import Program
from .workshop import Workshop, own_mounts

NEEDED = (*TOOLS, "buildah", "crun", "mmdebstrap", "make", "git")
IMAGES = {"exporter": "twinlink-exporter", "replay": "twinlink-replay"}
EXPECTED = {"User": "10001:0", "StopSignal": "SIGTERM", "Cmd": None, "WorkingDir": "/opt/twinlink"}
LOG = ("--log", "/dev/stdout")
# The shell fills /tmp before it becomes the program.
FILL = ("sh", "-c", 'cat /dev/zero >/tmp/fill 2>/dev/null; exec "$@"', "sh")


class Report:
    """A line a check."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, what: str, look: Callable[[], str]) -> None:
        """Run a check: its errors are what does not hold, its answer is what was seen."""
        begin = time.monotonic()
        try:
            seen = look()
        except (AssertionError, RuntimeError, subprocess.SubprocessError, OSError) as error:
            self.failed += 1
            print(f"FAIL  {what}: {error}", flush=True)
        else:
            print(f"ok    {what}: {seen} ({time.monotonic() - begin:.0f} s)", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The script; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(argv)
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if not bundle.PROFILE.exists():
        missing.append(str(bundle.PROFILE))
    if os.geteuid() != 0 or missing:
        print("image_check: " + (f"missing: {', '.join(missing)}" if missing else "needs root"), file=sys.stderr)
        return 2
    report = Report()
    with own_mounts() as folder:
        workshop = Workshop(folder)
        try:
            base = workshop.make_base()
            print(f"ok    base: {base}", flush=True)
            print(f"ok    make image: both, of {workshop.build(base)}", flush=True)
            images = {kind: (workshop.config(name), workshop.mount(name)) for kind, name in IMAGES.items()}
        except RuntimeError as error:
            print(f"image_check: {error}", file=sys.stderr)
            return 2
        for kind, (config, root) in images.items():
            report.check(f"{IMAGES[kind]}, configuration", partial(_config, kind, config))
            report.check(f"{IMAGES[kind]}, files", partial(_files, root))
        for what, look in RUNS.items():
            report.check(what, partial(_in_pod, folder, images, look))
    print(f"{report.failed} do not hold" if report.failed else "all hold")
    return 1 if report.failed else 0


def _config(kind: str, config: dict[str, Any]) -> str:
    seen = {key: config.get(key) for key in EXPECTED}
    assert seen == EXPECTED, seen
    assert config["Entrypoint"] == [IMAGES[kind]], config["Entrypoint"]
    assert sorted(config["ExposedPorts"]) == ["7447/tcp", "7448/tcp", "9464/tcp"], config["ExposedPorts"]
    labels = {name.rpartition(".")[2]: text for name, text in config["Labels"].items() if "opencontainers" in name}
    assert labels["title"] == IMAGES[kind], labels
    assert labels["version"] == __version__, labels
    assert len(labels["revision"]) == 40, labels
    assert {"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"} <= set(config["Env"]), config["Env"]
    assert not [text for text in config["Env"] if text.startswith("HOME=")], config["Env"]
    return f"user {config['User']}, {config['StopSignal']}, version {labels['version']}"


def _files(root: Path) -> str:
    sizes: dict[int, int] = {}  # by inode: many files have several names
    privileged, writable, hidden = [], [], []
    for folder, _, names in os.walk(root):
        if Path(folder) == root / "dev":
            continue  # of the base; a runtime covers it with its own
        for path in map(Path(folder).joinpath, ["", *names]):
            found = path.lstat()
            kind = stat.S_IFMT(found.st_mode)
            if kind == stat.S_IFREG:
                sizes[found.st_ino] = found.st_size
                if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
                    privileged.append(str(path))
            if kind != stat.S_IFLNK and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                writable.append(str(path))
            if path.is_relative_to(root / "opt/twinlink") and (found.st_gid != 0 or not found.st_mode & stat.S_IRGRP):
                hidden.append(str(path))
    assert not privileged, f"set-uid or set-gid: {privileged}"
    assert not writable, f"writable for all: {writable}"
    assert not hidden, f"not readable for group 0: {hidden}"
    return f"{sum(sizes.values()) / 1e6:.0f} MB, nothing set-uid or writable for all, all of ours readable for group 0"


Run = Callable[..., Program]  # program, arguments; `before` goes in front, what else is named goes to `bundle.write`


def _in_pod(folder: Path, images: dict[str, tuple[dict[str, Any], Path]], look: Callable[[Run], str]) -> str:
    """Run a check with what starts containers in a pod of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as name, Pod(Path(name)) as pod:

        def run(program: str, *arguments: str, before: Sequence[str] = (), **given: Any) -> Program:
            place = pod.folder_for_next()
            config, root = images["replay" if program == IMAGES["replay"] else "exporter"]
            command = [*before, program, *arguments]
            if command[0] in config["Entrypoint"]:  # what the image runs by itself
                del command[0]
            bundle.write(place, config, root, pod.dapps, pod.network, command, **given)
            crun = ["crun", "--root", str(folder / "crun"), "--cgroup-manager", "disabled", "run"]
            return pod.start([*crun, "--bundle", str(place), f"{pod.folder.name}-{place.name}"])

        return look(run)


def _full(run: Run) -> Start:
    return lambda program, *arguments: run(program, *arguments, before=FILL, tmp_size="1m")


def _doctor(run: Run) -> str:
    seen = []
    for image in IMAGES.values():
        program = run(image, before=("sh", "-c", "exec twinlink doctor --json", "sh"))
        code = program.code()
        (found,) = map(json.loads, program.out)
        assert code == 0, [f"{row['check']}: {row['seen']}" for row in found["rows"] if row["status"] == "fail"]
        seen.append(f"{image}: {len(found['rows'])} rows, none failed")
    return "; ".join(seen)


def _wrong_configuration(run: Run) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write('[exporter]\nprotect-prb = "0-3"\n')
        file.flush()
        Path(file.name).chmod(0o644)
        program = run(IMAGES["exporter"], config=Path(file.name))
        code = program.code()
    assert code == 3, f"exit code {code}: {program.err}"
    assert "did you mean protect-prbs" in program.err, program.err
    return f"exit code 3, {program.err.splitlines()[0]!r}"


def _no_twin(run: Run) -> str:
    exporter = run(IMAGES["exporter"], "--connect", ENDPOINT, *LOG)
    exporter.wait_for("no-peer")
    exporter.wait_for("e3-setup-request")
    _end(exporter)
    return "the exporter goes on asking for both sides, and ends with 0 on SIGTERM"


def _twin_killed(run: Run) -> str:
    def twin() -> Program:
        return run(IMAGES["replay"], "--listen", ENDPOINT, *LOG)

    first = twin()
    first.wait_for("started")
    exporter = run(IMAGES["exporter"], "--connect", ENDPOINT, "--insecure-control", "--max-age-ms", "5000", *LOG)
    exporter.wait_for("peer-up")
    emulator = run("twinlink-ran-emulator", "--loop", "0", *LOG)
    exporter.wait_for("block-installed")
    first.send(signal.SIGKILL)
    exporter.wait_for("peer-down")
    exporter.wait_for("block-cleared")
    second = twin()
    wait_until(lambda: len(exporter.events("peer-up")) == 2)
    second.wait_for("first-record")
    for program in (exporter, second, emulator):
        _end(program)
    asked = [event["prbs"] for event in emulator.events("control")]
    assert asked[-1] == [], "the block stands although the exporter has ended"
    reasons = [event["reason"] for event in exporter.events("block-cleared")]
    return f"block cleared ({reasons[0]}), the next twin took over"


def _end(program: Program) -> None:
    program.send(signal.SIGTERM)
    ended(program)


RUNS: dict[str, Callable[[Run], str]] = {
    "the path over zeromq": lambda run: walk(run, "zeromq"),
    "the path over zenoh": lambda run: walk(run, "zenoh"),
    "the path with /tmp full": lambda run: walk(_full(run), "zeromq"),
    "twinlink doctor": _doctor,
    "a wrong configuration": _wrong_configuration,
    "no twin": _no_twin,
    "the twin killed and started again": _twin_killed,
}


if __name__ == "__main__":
    sys.exit(main())
