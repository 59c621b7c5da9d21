"""A process: one node of cyclic OPC UA PubSub, over UDP.

Its publisher wakes ``lead_ms`` before each cycle and takes what there is to send.  The message is due ``offset_ms``
after the cycle's beginning, and ``release`` says what keeps it until then:

- ``program`` (default): the publisher sleeps.  If it wakes after that time, what it had to send is dropped, as a
  queueing discipline with launch times drops it;
- ``at once``: nothing does, it is sent when the publisher has woken;
- ``gate``: a queueing discipline with gates (TAPRIO);
- ``txtime``: one with launch times (ETF); the message tells it when it is due.

A subscriber takes what has come at the beginning of each cycle; an arrival has the kernel's time.

Arguments: ``role``: ``publisher`` sends a counter in each cycle, ``loopback`` what its subscriber has taken, each value
increased by 1; ``host``, ``port`` of its own, ``peer_host``, ``peer_port``; ``cycle_ms``, ``offset_ms``, ``lead_ms``,
``cycles``, ``variables``; ``release``; ``priority`` (SO_PRIORITY, default 0).  When it is ready it reads lines of JSON.
Each is a run, with ``start_ns`` of the first cycle, Unix time, and what differs from the arguments.

At the end of a run it writes one line: ``sent`` and ``received`` (lists of counter and time in ns; with ``gate`` and
``txtime``, sent is when the message was due), ``late`` (number of messages dropped here), ``wake_ns`` (how late it
woke, for each cycle) and ``octets`` of a message.
"""

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.readiness import is_readable

from ..send_modes import precise_sleep
from ..uadp import BuiltIn, DataSetMessage, NetworkMessage, UadpError, Variant, decode, encode
from .program import arguments, say

PRIORITY = 80  # of SCHED_FIFO, as in the paper; without root the thread has no priority
WRITER_GROUP, WRITER, PUBLISHER = 100, 62541, 2234
_SO_TIMESTAMPNS, _SO_TXTIME = 35, 61  # asm-generic/socket.h
PROGRAM, AT_ONCE, GATE, TXTIME = "program", "at once", "gate", "txtime"
_BEYOND = 10  # cycles beyond the last, for what is under way
_TIMESPEC = struct.Struct("@qq")
_EPOCH = 116_444_736_000_000_000  # 1970-01-01 as 100 ns since 1601


class Node:
    """Publisher and subscriber in a run."""

    def __init__(self, given: dict[str, Any], bound: socket.socket) -> None:
        self.given = given
        self._loops_back = given["role"] == "loopback"
        self._socket = bound
        self._release = given.get("release", PROGRAM)
        # A socket with launch times keeps them, and TAPRIO would then drop what has none.
        self._sender = _with_launch_times(given["priority"]) if self._release == TXTIME else bound
        self._peer = (given["peer_host"], given["peer_port"])
        self._cycle_ns, self._offset_ns, self._lead_ns = (
            int(given[name] * 1e6) for name in ("cycle_ms", "offset_ms", "lead_ms")
        )
        self._pending: list[int] = []  # counters that the loopback host has to send
        self._lock = threading.Lock()
        self.sent: list[tuple[int, int]] = []
        self.received: list[tuple[int, int]] = []
        self.wake_ns: list[int] = []
        self.late = 0
        self.octets = message_octets(given["variables"])

    def _cycles(self, beyond: int) -> Iterator[tuple[int, int]]:
        """Number and beginning of each cycle, and of some beyond the last, which begin now if the process is late."""
        begins_ns, cycles = self.given["start_ns"], self.given["cycles"]
        for number in range(cycles + beyond):
            if number == cycles:
                begins_ns += max(0, time.time_ns() - begins_ns) // self._cycle_ns * self._cycle_ns
            yield number, begins_ns
            begins_ns += self._cycle_ns

    def publish(self) -> None:
        """All cycles of the publisher."""
        _real_time()
        for number, begins_ns in self._cycles(_BEYOND - 1 if self._loops_back else 0):
            wake_ns, due_ns = begins_ns - self._lead_ns, begins_ns + self._offset_ns
            free_ns = time.time_ns()  # after `wake_ns` where the offset of the last cycle reaches into the lead time
            _sleep_until(wake_ns)
            self.wake_ns.append(time.time_ns() - max(wake_ns, free_ns))
            counters = self._take() if self._loops_back else [number]
            messages = [(each, _message(each, self.given["variables"])) for each in counters]
            if self._release == PROGRAM:
                if time.time_ns() > due_ns:
                    self.late += len(messages)
                    continue
                _sleep_until(due_ns)
            for counter, message in messages:
                self.sent.append((counter, due_ns if self._release in (GATE, TXTIME) else time.time_ns()))
                with contextlib.suppress(OSError):  # the peer is not there, or a buffer is full: lost
                    self._sender.sendmsg([message], self._ancillary(due_ns), 0, self._peer)

    def _ancillary(self, due_ns: int) -> list[tuple[int, int, bytes]]:
        if self._release != TXTIME:
            return []
        return [(socket.SOL_SOCKET, _SO_TXTIME, struct.pack("@Q", due_ns + _tai_ahead_ns()))]

    def _take(self) -> list[int]:
        with self._lock:
            taken, self._pending = self._pending, []
        return taken

    def subscribe(self) -> None:
        """All cycles of the subscriber, and some more for what is under way."""
        _real_time()
        for _, begins_ns in self._cycles(_BEYOND):
            _sleep_until(begins_ns)
            while is_readable(self._socket.fileno()):
                self._receive()

    def _receive(self) -> None:
        try:
            octets, ancillary, _, _ = self._socket.recvmsg(65_507, 64)
            message = decode(octets)
        except (OSError, UadpError):
            return
        came_ns = time.time_ns()
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, nanoseconds = _TIMESPEC.unpack(value)
                came_ns = seconds * 10**9 + nanoseconds
        counter = int(message.messages[0].fields[0].value)
        self.received.append((counter, came_ns))
        if self._loops_back:
            with self._lock:
                self._pending.append(counter + 1)


def bind(given: dict[str, Any]) -> socket.socket:
    """The socket of a node.  Raises OSError."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, given.get("priority", 0))
    bound.bind((given["host"], given["port"]))
    bound.setblocking(False)
    return bound


def _with_launch_times(priority: int) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
    sender.setsockopt(socket.SOL_SOCKET, _SO_TXTIME, struct.pack("@iI", time.CLOCK_TAI, 0))  # struct sock_txtime
    sender.setblocking(False)
    return sender


def message_octets(variables: int) -> int:
    """Octets of a message in UADP with so many variables."""
    return len(_message(0, variables))


def _message(counter: int, variables: int) -> bytes:
    data_set = DataSetMessage(
        writer_id=WRITER, sequence_number=counter & 0xFFFF, timestamp=time.time_ns() // 100 + _EPOCH,
        major_version=1, minor_version=1, fields=(Variant(BuiltIn.INT64, counter),) * variables,
    )  # fmt: skip
    return encode(NetworkMessage(publisher_id=PUBLISHER, writer_group_id=WRITER_GROUP, messages=(data_set,)))


def _tai_ahead_ns() -> int:
    """International Atomic Time less UTC, whole seconds; 0 until an NTP client has told the kernel."""
    return round((time.clock_gettime_ns(time.CLOCK_TAI) - time.time_ns()) / 1e9) * 10**9


def _real_time() -> None:
    precise_sleep()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))


def _sleep_until(at_ns: int) -> None:
    left_ns = at_ns - time.time_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def main() -> None:
    """Take part in all cycles of each run."""
    given = arguments()
    bound = bind(given)
    say(ready=True)
    for line in sys.stdin:
        with contextlib.suppress(BlockingIOError):
            while True:  # what is left of the run before
                bound.recv(1)
        node = Node({**given, **json.loads(line)}, bound)
        threads = [
            GuardedThread(body, f"pubsub-{body.__name__}", daemon=False) for body in (node.publish, node.subscribe)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(sent=node.sent, received=node.received, late=node.late, wake_ns=node.wake_ns, octets=node.octets)


if __name__ == "__main__":
    main()
