"""Processor time, memory and traffic of processes as series, a value each second.  Linux only."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from twinlink.process.guarded_thread import GuardedThread

from .. import usage

INTERVAL_S = 1.0


def rss_octets(pid: int) -> int:
    """Resident memory of a process; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def traffic(pid: int) -> tuple[int, int]:
    """Octets and packets, both ways, through the interfaces of a process's network namespace, without loopback."""
    octets = packets = 0
    for line in Path(f"/proc/{pid}/net/dev").read_text(errors="replace").splitlines()[2:]:
        name, _, fields = line.partition(":")
        if name.strip() != "lo":
            values = [int(each) for each in fields.split()]
            octets, packets = octets + values[0] + values[8], packets + values[1] + values[9]
    return octets, packets


class Series:
    """Takes samples on a thread, from entry to exit.

    Args:
        pids: of the processes, by name.
        watched: the name of the process that gives the namespace in which traffic is counted; None: it is not.

    Attributes:
        cpu_percent, rss_mib: by name; processor time as a share of one processor.
        octets, packets: of each interval.
        seconds: of each interval.
    """

    def __init__(self, pids: Mapping[str, int], watched: str | None = None) -> None:
        self._pids, self._watched = pids, watched
        self.cpu_percent: dict[str, list[float]] = {name: [] for name in pids}
        self.rss_mib: dict[str, list[float]] = {name: [] for name in pids}
        self.octets: list[int] = []
        self.packets: list[int] = []
        self.seconds: list[float] = []
        self._ending = threading.Event()
        self._thread = GuardedThread(self._run, "usage")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        before = self._now()
        while not self._ending.wait(INTERVAL_S):
            now = self._now()
            span_s = now[0] - before[0]
            self.seconds.append(span_s)
            for name, pid in self._pids.items():
                self.cpu_percent[name].append((now[1][name] - before[1][name]) / 1e9 / span_s * 100)
                self.rss_mib[name].append(rss_octets(pid) / 2**20)
            self.octets.append(now[2][0] - before[2][0])
            self.packets.append(now[2][1] - before[2][1])
            before = now

    def _now(self) -> tuple[float, dict[str, int], tuple[int, int]]:
        used = {name: usage.cpu_ns(pid) or 0 for name, pid in self._pids.items()}
        counted = traffic(self._pids[self._watched]) if self._watched else (0, 0)
        return time.monotonic(), used, counted
