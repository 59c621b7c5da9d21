"""Two network namespaces connected by a veth pair, or by a path with a delay, in place of two hosts.

They have no names and are held by two processes that end with this one; the kernel then removes the namespaces and the
cable.  Traffic passes through both network stacks, unlike on loopback, and its octets are counted.  This needs root,
and unshare, nsenter, ip and tc (util-linux, iproute2).  With a delay, the path is `delay_line.py`, between TUN devices.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from .channels import PORTS
from .delay_line import DEVICES
from .setting import DIGITAL_TWIN, REAL_WORLD, Pair, Setting, SettingError, start_relay

# 198.18.0.0/15 is reserved for such measurements (RFC 2544, RFC 6890).
ADDRESSES = ("198.18.0.1", "198.18.0.2")  # Real World, Digital Twin
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
CABLE = DEVICES
MTU, QUEUE = 1500, 5000  # octets, packets: of a TUN device
FIRST_PORT, LAST_PORT = 7450, 7700
BURST_S = 0.004  # size of the token bucket, as a time at the rate limit
LEAST_BURST = 64 * 1024  # octets: the longest packet before segmentation
QUEUE_S = 0.1  # length of the queue, as a time at the rate limit
WAIT_S = 5.0


class Namespaces(Setting):
    """Creates the namespaces on entry and removes them on exit.

    Args:
        rate_limit: of each direction, in tc's notation (``100mbit``), or None.
        delay_ms: of each direction; 0 for a veth pair.
    """

    name = "netns"

    def __init__(self, rate_limit: str | None = None, delay_ms: float = 0) -> None:
        super().__init__()
        self.counts_wire = not delay_ms  # a TUN device has no Ethernet headers
        self._rate_limit = rate_limit
        self._delay_ns = int(delay_ms * 1e6)
        self._line: subprocess.Popen[bytes] | None = None
        self._holders: list[subprocess.Popen[bytes]] = []
        self._port = FIRST_PORT

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise SettingError("network namespaces need root: run it with sudo, or with --setting loopback")
        missing = [name for name in ("unshare", "nsenter", "ip", "tc") if shutil.which(name) is None]
        if missing:
            raise SettingError(f"network namespaces need {', '.join(missing)}: install iproute2 and util-linux")
        try:
            for _ in range(2):
                self._holders.append(
                    subprocess.Popen(
                        ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE, start_new_session=True,
                    )
                )  # fmt: skip
            for holder in self._holders:
                self._wait_for(holder)
            self._lay_cable()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._line is not None:
            self._line.kill()
            self._line.communicate()
            self._line = None
        for holder in self._holders:
            with contextlib.suppress(OSError):
                assert holder.stdin is not None
                holder.stdin.close()
            try:
                holder.wait(1)
            except subprocess.TimeoutExpired:
                holder.kill()
                holder.wait()
            if holder.stderr is not None:
                holder.stderr.close()
        self._holders = []

    def _wait_for(self, holder: "subprocess.Popen[bytes]") -> None:
        """Return when a holder process is in its own namespace."""
        ours = Path("/proc/self/ns/net").readlink()
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if holder.poll() is not None:
                assert holder.stderr is not None
                told = holder.stderr.read().decode(errors="replace").strip()
                raise SettingError(f"no network namespace can be made here: {told}: run it with --setting loopback")
            with contextlib.suppress(OSError):
                if Path(f"/proc/{holder.pid}/ns/net").readlink() != ours:
                    return
            time.sleep(0.005)
        raise SettingError(f"no network namespace within {WAIT_S:g} s")

    def _lay_cable(self) -> None:
        first, second = (str(holder.pid) for holder in self._holders)
        # Created inside the first namespace, so that it is never visible outside.
        if self._delay_ns:
            delay = str(self._delay_ns)
            command = [sys.executable, "-m", "twinlink_measure.delay_line", first, second, delay, delay]
            self._line = start_relay(command)
            if self._line.poll() is not None:
                raise SettingError("no path with a delay can be made here: its error is on stderr; --delay needs TUN")
        else:
            ends = ("type", "veth", "peer", "name", CABLE[1], "netns", second)
            _call(*_inside(first), "ip", "link", "add", CABLE[0], *ends)
        for number, pid in enumerate((first, second)):
            own, other = CABLE[number], 1 - number
            enter = _inside(pid)
            # No IPv6 address and no ARP, so that the counters see the sweep alone.
            how = ("mtu", str(MTU), "txqueuelen", str(QUEUE)) if self._delay_ns else ("address", MACS[number])
            _call(*enter, "ip", "link", "set", own, "addrgenmode", "none", *how, "up")
            _call(*enter, "ip", "link", "set", "lo", "up")
            _call(*enter, "ip", "address", "add", f"{ADDRESSES[number]}/30", "dev", own)
            if not self._delay_ns:
                _call(
                    *enter, "ip", "neighbour", "replace", ADDRESSES[other], "lladdr", MACS[other],
                    "nud", "permanent", "dev", own,
                )  # fmt: skip
            if self._rate_limit is not None:
                burst = max(LEAST_BURST, int(octets_per_s(self._rate_limit) * BURST_S))
                limit = max(2 * burst, int(octets_per_s(self._rate_limit) * QUEUE_S))
                _call(
                    *enter, "tc", "qdisc", "add", "dev", own, "root", "tbf",
                    "rate", self._rate_limit, "burst", str(burst), "limit", str(limit),
                )  # fmt: skip

    def start(self) -> Pair:
        """New workers, one in each namespace."""
        for name, holder in zip((REAL_WORLD, DIGITAL_TWIN), self._holders, strict=True):
            if (code := holder.poll()) is not None:  # otherwise the failure would name another cause
                how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
                raise SettingError(f"the {name}'s network namespace is gone: the process that held it {how}")
        port = self._port
        self._port = port + PORTS if port + 2 * PORTS <= LAST_PORT else FIRST_PORT
        return self._local((ADDRESSES[1], port), self.prefix(0), self.prefix(1))

    def prefix(self, side: int) -> list[str]:
        """The prefix that runs a command in the Real World's (0) or the Digital Twin's (1) namespace."""
        return _inside(str(self._holders[side].pid))

    def describe(self) -> dict[str, object]:
        """The addresses."""
        return {"addresses": dict(zip(("real_world", "digital_twin"), ADDRESSES, strict=True))}


def _inside(pid: str) -> list[str]:
    return ["nsenter", "--target", pid, "--net"]


def _call(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="backslashreplace", check=False, timeout=WAIT_S
    )
    if done.returncode != 0:
        raise SettingError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def octets_per_s(rate: str) -> float:
    """Octets per second of a rate in tc's notation, such as ``100mbit``.  Raises ValueError."""
    number = rate.lower().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = rate.lower()[len(number) :]
    try:
        octets = float(number) * _UNITS[unit] / 8
    except (ValueError, KeyError):
        octets = 0.0
    if not 0 < octets < float("inf"):
        raise ValueError(f"{rate!r} is no rate such as 100mbit or 1gbit")
    return octets
