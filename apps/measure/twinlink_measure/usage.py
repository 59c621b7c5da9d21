"""Resource usage of a process: processor time, memory, octets on the wire.  Linux only; absent values are None."""

import contextlib
import time
from pathlib import Path
from typing import Any

_RESET_PEAK = "5"  # proc(5), clear_refs: resets the peak of the resident memory


def cpu_ns(pid: int) -> int | None:
    """Processor time of all threads of another process, in ns."""
    try:
        files = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in files)
    except (OSError, ValueError, IndexError):
        return None


def begin_peak(pid: int | str = "self") -> None:
    """Reset the peak of a process's memory, which only its owner may do."""
    with contextlib.suppress(OSError):  # then the peak is that since the process started
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def peak_rss_octets(pid: int | str = "self") -> int | None:
    """Peak resident memory since `begin_peak`."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def transmitted() -> tuple[int, int, int]:
    """Octets, packets and TCP segments that left through the interfaces, without loopback.

    With segmentation offload (TSO, GSO) an interface counts packets of up to 64 KiB; the wire carries segments.  The
    kernel counts segments for all interfaces together, so each packet on loopback, where a broker may be, is counted
    as one segment.
    """
    octets = packets = segments = 0
    try:
        for line in Path("/proc/self/net/dev").read_text(errors="replace").splitlines()[2:]:
            name, _, fields = line.partition(":")
            values = fields.split()
            if name.strip() == "lo":
                segments -= int(values[9])
            else:
                octets, packets = octets + int(values[8]), packets + int(values[9])
        lines = Path("/proc/self/net/snmp").read_text().splitlines()
        names, counts = (line.split() for line in lines if line.startswith("Tcp:"))
        segments += int(counts[names.index("OutSegs")])
    except (OSError, ValueError, IndexError):
        pass
    return octets, packets, segments


class Usage:
    """Usage of this process and its broker since construction."""

    def __init__(self, broker_pid: int | None) -> None:
        self._broker = broker_pid
        for pid in ("self", broker_pid):
            if pid is not None:
                begin_peak(pid)
        self._broker_cpu = cpu_ns(broker_pid) if broker_pid else None
        self._transmitted = transmitted()
        self._cpu = time.process_time_ns()

    def report(self) -> dict[str, Any]:
        """The usage, ready for JSON."""
        cpu = time.process_time_ns() - self._cpu
        octets, packets, segments = (now - before for now, before in zip(transmitted(), self._transmitted, strict=True))
        broker_now = cpu_ns(self._broker) if self._broker else None
        known = self._broker_cpu is not None and broker_now is not None
        return {
            "cpu_ns": cpu,
            "peak_rss_octets": peak_rss_octets(),
            "broker_cpu_ns": broker_now - self._broker_cpu if known else None,  # type: ignore[operator]
            "broker_peak_rss_octets": peak_rss_octets(self._broker) if self._broker else None,
            "sent_octets": octets,
            "sent_packets": packets,
            "sent_segments": segments,
        }
