"""Does the exporter stay below its memory limit while the twin stalls?

As root: ``.venv/bin/python -m tests.containers.memory_soak``.  The exporter runs with the options of
k8s/base/twinlink.toml in a restricted container of its own, in a memory control group with the limit of the sidecar,
at 2000 records of 5 KB a second.  In the middle the twin (`twinlink sub`, which needs less of the processor than
GNU Radio) is stopped for a minute, and then, for another, stopped and continued so often that it counts as up but
takes less than comes.

Prints what is used meanwhile, and the peak.  Exit code 0 when the exporter stayed below the limit and ended well.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import restricted
from .path import ENDPOINT
from .pod import Pod
from .program import Program

LIMIT_MIB = 256
CONFIG = restricted.CHECKOUT / "k8s/base/twinlink.toml"
RECORDED_RATE = 100  # records a second in the example recording
OCTETS_MIB = 1024 * 1024
TELL_S = 10
STOPPED_S, GOING_S = 1.2, 0.05  # a peer is down after 1.5 s


class ControlGroup:
    """A memory control group (version 1 or 2) with a limit; empty when the ``with`` block ends."""

    def __init__(self) -> None:
        one = Path("/sys/fs/cgroup/memory")
        self._old = one.exists()
        self._folder = (one if self._old else Path("/sys/fs/cgroup")) / f"twinlink-soak-{os.getpid()}"

    def __enter__(self) -> "ControlGroup":
        self._folder.mkdir()
        limit = self._folder / ("memory.limit_in_bytes" if self._old else "memory.max")
        limit.write_text(str(LIMIT_MIB * OCTETS_MIB))
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    @property
    def before(self) -> list[str]:
        """The head of a command that runs in the group."""
        return ["sh", "-c", f'echo $$ >{self._folder}/cgroup.procs && exec "$@"', "sh"]

    def peak_mib(self) -> float:
        """Of the whole group: what its processes use, the files they have read, and what the kernel holds for them."""
        octets = int((self._folder / ("memory.max_usage_in_bytes" if self._old else "memory.peak")).read_text())
        if self._old:  # version 2 counts socket buffers in
            octets += int((self._folder / "memory.kmem.tcp.max_usage_in_bytes").read_text())
        return octets / OCTETS_MIB


def main(argv: Sequence[str] | None = None) -> int:
    """The script; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("zeromq", "zenoh"), default="zenoh")
    parser.add_argument("--seconds", type=float, default=600, help="in all (600)")
    parser.add_argument(
        "--stall", type=float, default=60, help="of them the twin is stopped; and so long it is slow (60)"
    )
    parser.add_argument("--rate", type=float, default=2000, help="records a second (2000)")
    parser.add_argument("--option", action="append", default=[], help="of the link, instead of those of the file")
    given = parser.parse_args(argv)
    if os.geteuid() != 0:
        print("memory_soak: needs root: it makes namespaces and a control group", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="twinlink-soak-") as folder,
        Pod(Path(folder)) as pod,
        ControlGroup() as group,
    ):
        return _soak(given, pod, group)


def _soak(given: argparse.Namespace, pod: Pod, group: ControlGroup) -> int:
    link = ["--config", str(CONFIG), "--transport", given.transport]
    link += [text for option in given.option for text in ("--option", option)]
    twin = restricted.start(
        pod, "twinlink", "sub", *link, "--listen", ENDPOINT, "--flow", "spectrum", "--print", "none"
    )
    log = ("--log", "/dev/stdout")
    exporter = restricted.start(pod, "twinlink-exporter", *link, "--connect", ENDPOINT, *log, before=group.before)
    exporter.wait_for("peer-up")
    pace = ["--pace", f"{given.rate / RECORDED_RATE:g}", "--loop", "0"]
    emulator = restricted.start(pod, "twinlink-ran-emulator", *pace, *log)
    exporter.wait_for("subscribed")

    begin = time.monotonic()
    quiet_s = max(0.0, given.seconds - 2 * given.stall) / 2
    for stage, seconds in (("going", quiet_s), ("stopped", given.stall), ("slow", given.stall), ("going", quiet_s)):
        for _ in _stage(stage, seconds, twin):
            _tell(exporter, stage, time.monotonic() - begin)
    seconds = time.monotonic() - begin
    peak_mib = _status_mib(exporter, "VmHWM")

    exporter.send(signal.SIGTERM)
    code = exporter.code()
    for program in (emulator, twin):
        program.send(signal.SIGTERM)
        program.code()
    if code != 0:
        print(f"FAIL  the exporter ended with {code}: {exporter.err}")
        return 1
    (summary,) = exporter.events("summary")
    spectrum = summary["spectrum"]
    rate = summary["indications"] / seconds
    print(
        f"{given.transport}: {summary['indications']} records in {seconds:.0f} s ({rate:.0f}/s), "
        f"{summary['exported']} exported, {summary['without_twin']} while no twin was up, {spectrum['lost']} lost, "
        f"{spectrum['repaired']} repaired, out of sync {summary['out_of_sync']} times"
    )
    held = peak_mib < LIMIT_MIB
    print(f"peak: {peak_mib:.0f} MiB resident; {group.peak_mib():.0f} MiB in the control group, files read included")
    if rate < 0.95 * given.rate:
        print(f"FAIL  this machine made {rate:.0f} records a second instead of {given.rate:.0f}: nothing is shown")
        return 1
    print(f"ok    below {LIMIT_MIB} MiB" if held else f"FAIL  not below {LIMIT_MIB} MiB")
    return 0 if held else 1


def _stage(name: str, seconds: float, twin: Program) -> Iterator[None]:
    """Treat the twin so for so long; yields every ten seconds or so."""
    end = time.monotonic() + seconds
    told = time.monotonic()
    if name == "stopped":
        twin.send(signal.SIGSTOP)
    while (left := end - time.monotonic()) > 0:
        if name == "slow":
            twin.send(signal.SIGSTOP)
            time.sleep(min(left, STOPPED_S))
            twin.send(signal.SIGCONT)
            time.sleep(GOING_S)
        else:
            time.sleep(min(left, TELL_S))
        if time.monotonic() - told >= TELL_S - 1:
            told = time.monotonic()
            yield
    twin.send(signal.SIGCONT)


def _tell(exporter: Program, stage: str, seconds: float) -> None:
    now, peak = _status_mib(exporter, "VmRSS"), _status_mib(exporter, "VmHWM")
    print(f"{seconds:5.0f} s  twin {stage:7}  {now:5.0f} MiB, peak {peak:.0f}", flush=True)


def _status_mib(program: Program, name: str) -> float:
    for line in Path(f"/proc/{program.first_pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {name}: the exporter has ended; it said: {program.err}")


if __name__ == "__main__":
    sys.exit(main())
