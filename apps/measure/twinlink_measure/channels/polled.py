"""Systems in which only the client can begin an exchange: the Real World has the client, the Digital Twin the server.

Frames to the server are written.  Frames from the server, messages and answers, wait in a queue there until the client
polls; each poll takes one, and is told how many wait behind it, which are then polled for at once.
"""

import math
import queue
import time
from abc import abstractmethod
from collections import deque
from typing import Any

from twinlink.transports import Endpoint

from .base import TICK_S, TRAFFIC, PeerLost, RawChannel

ANSWER_S = 5.0  # a server that leaves a request unanswered for this long is lost
MOST_WAITING = 1000  # messages in the server's queue; then its sender waits
HOLD_S = 5.0  # how long
LOOK_S = 0.001
GOLDEN = (math.sqrt(5) - 1) / 2


class PolledChannel(RawChannel):
    """One end of such a system.  A backend fills `write` and `poll` for the client, and calls `arrived` in its server.

    Options:
        poll_ms: interval of the client's polls, at fixed times; 0: each poll follows the last.
        sweep_ms: the server handles requests at the end of its sweep (PLC scan cycle), at fixed times; 0: at once.

    Attributes:
        answers_wait: whether answers to the client's messages must be polled for.
        interval: the option that has the interval of polls.
        outgoing: frames that wait in the server.
        behind: number of frames that wait in the server, as the last poll told.
        inbox: frames that have arrived and are not read.
        reflects: whether this end answers messages.
    """

    answers_wait = True
    interval = "poll_ms"

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self.outgoing: deque[bytes] = deque()
        self.behind = 0
        self._poll_s = options[self.interval] / 1000
        self._sweep_s = options["sweep_ms"] / 1000
        self._part = 0.0  # of the poll interval, before the last message
        self._due = 0.0  # the next poll, on the monotonic clock
        self.inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.reflects = False

    @abstractmethod
    def write(self, topic: bytes, frame: bytes | bytearray) -> None:
        """At the client: write a frame to the server, which has confirmed it when this returns.  Raises PeerLost."""

    @abstractmethod
    def poll(self) -> bytes | None:
        """At the client: the frame that waits longest in the server, if any; sets `behind`.  Raises PeerLost."""

    def settings(self) -> dict[str, Any]:
        """The options."""
        return dict(self.options)

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Write the frame, or queue it for the client's polls.  Raises PeerLost."""
        if not self.listening:
            self.write(topic, frame)
            return
        end = time.monotonic() + HOLD_S
        while topic == TRAFFIC and len(self.outgoing) >= MOST_WAITING:
            if time.monotonic() > end:
                raise PeerLost(f"the client polled for nothing within {HOLD_S:g} s")
            time.sleep(LOOK_S)
        self.outgoing.append(bytes(frame))

    def get(self, wait: bool = True) -> Any:
        """The next frame that was written, or that a poll brings; the client sleeps until a poll is due."""
        if self.listening:
            return self.from_inbox(wait)
        if not self.behind:
            if not wait:
                return None
            left = self._due - time.monotonic()
            if left > 0:
                time.sleep(min(left, TICK_S))
            if left > TICK_S:
                return None
            self._schedule()
        return self.poll()

    def _schedule(self) -> None:
        """Set the time of the next poll; times that have passed are left out."""
        now = time.monotonic()
        if self._poll_s:
            since = now - self._due if self._due else 0.0
            self._due = now - since % self._poll_s + self._poll_s

    def from_inbox(self, wait: bool) -> bytes | None:
        """The next frame of `inbox`; None as in `get`."""
        try:
            return self.inbox.get(wait, TICK_S)
        except queue.Empty:
            return None

    def arrived(self, frame: bytes) -> None:
        """At the server: answer a frame that the client wrote, or keep it for `get`."""
        if self.reflects:
            self.answer(frame)
        else:
            self.inbox.put(frame)

    def sweep_left_s(self) -> float:
        """At the server: until the end of the sweep."""
        return self._sweep_s - math.fmod(time.monotonic(), self._sweep_s) if self._sweep_s else 0.0

    def exchange(self, timeout_s: float) -> bool:
        """Send the next message and return when it is answered.

        With polls, the message leaves after a part of their interval.  Otherwise each would be sent just after a poll,
        when the last was answered, and wait for all of the next interval (RFC 2330 section 11.1.1).  The parts follow
        the golden ratio, so that even a few are spread evenly.
        """
        if self._poll_s and (self.listening or self.answers_wait):
            self._part = (self._part + GOLDEN) % 1
            time.sleep(self._part * self._poll_s)
        return super().exchange(timeout_s)

    def reflect(self, octets: int, bulk: bool) -> None:
        """Start to answer: the server on the library's thread, one answer for each message; the client as it polls."""
        self.reflects = True
        if self.listening:
            self.expected = octets
        else:
            super().reflect(octets, bulk)

    def stop(self) -> None:
        """Stop answering."""
        self.reflects = False
        super().stop()
