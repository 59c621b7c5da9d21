"""A path with a known delay between two network namespaces: a TUN device in each, and this process between them.

`python -m twinlink_measure.delay_line FIRST_PID SECOND_PID FORWARD_NS BACK_NS` makes a device named `tl-rw` in the
network namespace of the first process and `tl-dt` in that of the second, and passes each IP packet on after a fixed
time.  TCP is not ended here, so windows, acknowledgements and retransmission timers behave as on a path of that delay.
The line itself adds some 0.05 ms each way.  It ends when stdin does.  It needs root.
"""

import contextlib
import ctypes
import fcntl
import functools
import os
import struct
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path

from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.readiness import is_readable

from .send_modes import precise_sleep

DEVICES = ("tl-rw", "tl-dt")
_CLONE_NEWNET = 0x40000000  # sched.h
_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
PACKET = 65536  # octets: the longest that a device hands over
WAITING = 20_000  # packets under way in one direction; more are dropped, as by a full queue


def main() -> None:
    """Pass packets on until stdin ends."""
    pids, delays_ns = sys.argv[1:3], [int(each) for each in sys.argv[3:5]]
    own = Path("/proc/self/ns/net").open("rb")  # noqa: SIM115  (open as long as this process)
    first, second = (_device(pid, name) for pid, name in zip(pids, DEVICES, strict=True))
    _enter(own.fileno())
    for source, sink, delay_ns in ((first, second, delays_ns[0]), (second, first, delays_ns[1])):
        GuardedThread(partial(_pass_on, source, sink, delay_ns), f"delay-line-{source}", again=lambda: True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:  # Python has os.setns from 3.12 on
        raise OSError(ctypes.get_errno(), "a network namespace cannot be entered")


def _device(pid: str, name: str) -> int:
    """A TUN device in the network namespace of a process; returns its descriptor."""
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        _enter(namespace.fileno())
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _pass_on(source: int, sink: int, delay_ns: int) -> None:
    """Read packets as they come, and write each when its time has come; their order stays."""
    precise_sleep()
    waiting: deque[tuple[int, bytes]] = deque()
    while True:
        left_s = max(0.0, (waiting[0][0] - time.monotonic_ns()) / 1e9) if waiting else None
        readable = is_readable(source, left_s)
        now_ns = time.monotonic_ns()
        while waiting and waiting[0][0] <= now_ns:
            _write(sink, waiting.popleft()[1])
        if not readable:
            continue
        try:
            while True:
                packet = os.read(source, PACKET)
                if len(waiting) < WAITING:
                    waiting.append((time.monotonic_ns() + delay_ns, packet))
                else:
                    _tell_full()
                if waiting[0][0] <= time.monotonic_ns():
                    break
        except BlockingIOError:
            pass


@functools.cache  # once is enough
def _tell_full() -> None:
    print(f"the path of the delay holds {WAITING:,} packets: it drops further ones", file=sys.stderr, flush=True)


def _write(sink: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # the device is not up yet, or its queue is full: lost, as on a path
        os.write(sink, packet)


if __name__ == "__main__":
    main()
