"""What the thread that leads does over and over: read what has arrived, have it handled, keep the time."""

import time
from os import sched_yield

from ..engine.dispatch import Reception
from ..process import cgroups
from ..protocol.frames import Kind
from ..protocol.liveness import LOOK_NS, SEARCH_NS
from ..transports import Transport
from ..transports.base import Frame
from .busy_poll import LONGEST_NS, BusyPoll
from .port_probe import Scout

BUSY_NS = 30_000  # messages closer together than this come in bulk: drain, and acknowledge many at once
DRAIN_NS = 10_000_000  # but not for longer than this: acks and hellos wait meanwhile
SEARCH_S = SEARCH_NS / 1e9
HASTE_S, HASTE_NS = 0.005, 100_000_000  # who has come into reach is greeted this often, for so long
BRIEF_S = 0.001  # who waits for less does not look first: it would take too long

_monotonic_ns = time.monotonic_ns


class Pump:
    """Between the transport and the reception of one link; for the thread that leads."""

    def __init__(self, transport: Transport, reception: Reception, scout: Scout | None) -> None:
        """``scout``: of a connector whose transport has one."""
        self._transport = transport
        self._scout = scout
        self._hasty_until_ns = 0
        self._reception = reception
        self._company = reception.company
        self._calls = reception.calls
        self._last_frame_ns = 0
        self._next_look_ns = 0
        self._busy_poll = BusyPoll(not cgroups.cpu_is_limited())  # there a look is paid for by standing still later
        self._emptied_ns = _monotonic_ns()  # when the transport was last found with nothing to read

    def turn(self, timeout_s: float) -> None:
        """Receive and handle what comes within ``timeout_s``: one message, or a batch when they come in bulk."""
        if self._calls.due and not self._calls.running:
            self._calls.run()
            timeout_s = 0.0
        began = _monotonic_ns()
        received = self._poll(began) if self._busy_poll.polls and timeout_s > BRIEF_S else None
        if received is None:
            received = self._transport.receive(timeout_s) if self._company.up else self._search(timeout_s)
        now = _monotonic_ns()
        if received is None:
            self._emptied_ns = now
        else:
            if now - self._last_frame_ns > BUSY_NS:
                self._busy_poll.waited(now - began)
                self._reception.handle(received[0], received[1], now, True)
            else:
                self._busy_poll.rest()
                now = self._drain(received, now)
            self._last_frame_ns = now
        if now >= self._next_look_ns:
            self._keep_time(now)

    def _search(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        """What comes while nobody is up.  A connector sees meanwhile whether the other side comes into reach."""
        receive, scout, timeout_s = self._transport.receive, self._scout, min(timeout_s, SEARCH_S)
        if scout is None:
            return receive(timeout_s)
        hasty = _monotonic_ns() < self._hasty_until_ns
        received = receive(0 if not scout.answers else HASTE_S if hasty else timeout_s)
        if received is None:
            answer = scout.search(timeout_s)
            if answer is not None and self._company.answered(answer):
                self._hasty_until_ns = _monotonic_ns() + HASTE_NS
            elif hasty:
                self._company.say(Kind.HELLO)
        return received

    def _poll(self, began: int) -> tuple[bytes, Frame] | None:
        """What comes while we look again and again, and let others have the processor in between."""
        receive, until = self._transport.receive, began + LONGEST_NS
        while (received := receive(0)) is None and _monotonic_ns() < until:
            sched_yield()
        return received

    def _drain(self, received: tuple[bytes, Frame] | None, now: int) -> int:
        """Handle this message and what is behind it, and acknowledge all together; returns when it last looked."""
        reception, receive = self._reception, self._transport.receive
        until = now + DRAIN_NS
        while received is not None:
            reception.handle(received[0], received[1], now, False)
            if now > until:
                break
            received = receive(0)
            now = _monotonic_ns()
        else:
            self._emptied_ns = now
        reception.acks.send_batch()
        return now

    def _keep_time(self, now: int) -> None:
        if self._emptied_ns < now:  # what comes one at a time may have been waiting, or may not
            received, now = self._transport.receive(0), _monotonic_ns()
            if received is None:
                self._emptied_ns = now
            else:
                self._reception.handle(received[0], received[1], now, True)
        if self._scout is not None and self._company.up:
            self._scout.rest()
        self._reception.keep_time(now, self._emptied_ns)
        self._next_look_ns = now + LOOK_NS
