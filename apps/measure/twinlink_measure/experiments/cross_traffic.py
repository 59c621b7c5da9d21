"""A process that sends UDP datagrams at a rate until its stdin ends, as traffic beside what is measured.

Arguments: ``host`` and ``port`` to send to, ``octets`` of a datagram.  It sends nothing until it reads a line of JSON
with ``rate_mbit`` on the link (Mbit/s).  When it reads 0, it stops, and writes a line with the rate that it had,
``sent_mbit``.
"""

import contextlib
import json
import socket
import sys
import threading
import time

from twinlink.process.guarded_thread import GuardedThread

from .program import arguments, say

HEADERS = 14 + 20 + 8  # octets of Ethernet, IPv4 and UDP
_BEHIND_S = 0.05  # what is late by more is left out, so that it does not come as a burst
_STEP_S = 0.001


class Rate:
    """The rate that was read last; None when stdin has ended."""

    def __init__(self) -> None:
        self.mbit: float | None = 0.0
        self.changed = threading.Event()
        GuardedThread(self._read, "cross-traffic").start()

    def _read(self) -> None:
        for line in sys.stdin:
            self.mbit = json.loads(line)["rate_mbit"]
            self.changed.set()
        self.mbit = None
        self.changed.set()


def main() -> None:
    """Send."""
    given = arguments()
    payload, rate = bytes(given["octets"]), Rate()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        say(ready=True)
        began_s, due_s, sent, sends = 0.0, 0.0, 0, False
        while (mbit := rate.mbit) is not None:
            now_s = time.monotonic()
            if mbit == 0:
                if sends:
                    say(sent_mbit=8e-6 * sent * (len(payload) + HEADERS) / (now_s - began_s))
                    sends = False
                rate.changed.wait()
                rate.changed.clear()
                continue
            if not sends:
                began_s, due_s, sent, sends = now_s, now_s, 0, True
            due_s = max(due_s, now_s - _BEHIND_S)
            while due_s <= now_s:
                with contextlib.suppress(OSError):  # the queue is full
                    sender.sendto(payload, (given["host"], given["port"]))
                    sent += 1
                due_s += 8e-6 * (len(payload) + HEADERS) / mbit
            time.sleep(max(_STEP_S, due_s - now_s))


if __name__ == "__main__":
    main()
