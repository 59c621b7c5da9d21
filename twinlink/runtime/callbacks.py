"""Calls of an application's functions: one at a time, and no error of theirs stops delivery."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ..errors import LinkClosed
from ..events import Event, HandlerError
from ..message import Message
from ..process import internal_errors
from ..protocol.session import ACKS, MESSAGES, QUEUED, Delivery, ReceiveFlow

RUN_S = 0.01  # then a thread that waits for something gets to check whether it is there
STAND_IN_S = 0.0005  # between two checks whether the other thread has done
IDLE_CHECKS = 20  # a second without a call, then the other thread checks no more until it is woken, which takes 10 us
LOG_INTERVAL_S = 1.0  # between two reports of a flow's handlers in the log

_monotonic = time.monotonic

logger = logging.getLogger("twinlink")


class Driver(Protocol):
    """Where a call comes from."""

    def take(self, receive_flow: ReceiveFlow, tells_end: bool = False) -> Message | None:
        """The next message of a flow, if one is here."""

    def on_acks_reported(self, flow: str, count: int) -> None:
        """`on_ack` has been called with so many acks of a flow."""

    def report(self, event: Event) -> None:
        """Give an event to the application."""


class CallbackQueue:
    """For the thread that leads, when it holds no lock.

    Attributes:
        pending: the calls that are due; one that is being made stays the first until it ends.
        running: whether one is being made.
        errors: how many raised.
        closing: whether the link is being closed.
        nested: whether the thread that leads receives from within a handler, as when that flushes.
        has_stand_in: whether another thread reads.
        is_watched: whether another thread checks often if a call takes long.
        watch: has it do so from now on; that thread is woken.

    While a handler takes long, another thread may read in place of the one that leads (`stand_in`), which waits for it
    before it goes on.
    """

    def __init__(self, pending: deque[Delivery], driver: Driver) -> None:
        self.pending = pending
        self.running = False
        self.errors = 0
        self.closing = False
        self.nested = False
        self.has_stand_in = False
        self.is_watched = True
        self.watch: Callable[[], None] = lambda: None
        self._driver = driver
        self._is_same_call = False  # set by `look`, cleared when a call ends
        self._idle_checks = 0  # of `look` in a row that found no call
        self._logged: dict[str, tuple[float, int]] = {}  # flow -> monotonic s, errors then

    def enqueue(self, function: Callable[[Any], None], arguments: Sequence[Any], flow: str) -> None:
        """Have a function called with each of these arguments when the frame at hand has been handled."""
        self.pending.append((function, arguments, flow, MESSAGES))

    def run(self, for_s: float = RUN_S) -> None:
        """Make the calls that are due, unless one is being made; those that there is no time for stay due.

        What is no Exception (sys.exit, Ctrl-C) goes through; the call that it interrupts is gone, those behind it stay
        due.
        """
        due, until = self.pending, 0.0
        if due and not self.is_watched:
            self.is_watched, self._is_same_call = True, False  # it is looked at as soon as it begins
            self.watch()
        while due and not self.running:
            function, arguments, flow, kind = due[0]
            several = len(arguments) > 1
            if not until and (several or len(due) > 1):  # a single call needs no clock
                until = _monotonic() + for_s
            call = partial(self._call_next, function) if kind == QUEUED else function
            self.running = True
            begun = 0
            try:
                for argument in arguments:
                    begun += 1
                    try:
                        call(argument)
                    except Exception as error:  # whatever an application does must not stop delivery
                        self._failed(error, flow)
                    self._is_same_call = False
                    if several and _monotonic() >= until:
                        break
            finally:  # no call before the first is what is left: Ctrl-C comes where a call ends
                self.running = False
                if arguments := arguments[begun:]:
                    due[0] = function, arguments, flow, kind
                else:
                    del due[0]
                if kind == ACKS:
                    self._driver.on_acks_reported(flow, begun)
            if self.has_stand_in:
                self.wait_for_stand_in()
            if until and _monotonic() >= until:
                return

    def _call_next(self, receive_flow: ReceiveFlow, _place: int) -> None:
        """Call the handler with what came before the handler was there, or while one was running."""
        message, handler = self._driver.take(receive_flow, True), receive_flow.handler
        if message is not None and handler is not None:
            handler(message)

    def look(self) -> bool:
        """Whether a call is being made that was being made at the last look.  For one other thread at a time."""
        is_same_call, self._is_same_call = self._is_same_call, True
        self._idle_checks = self._idle_checks + 1 if is_same_call and not self.running else 0
        self.is_watched = self._idle_checks < IDLE_CHECKS
        return is_same_call and self.running

    def stand_in(self, read: Callable[[], None]) -> bool:
        """Call ``read``, which may receive but calls no handler, if the same handler has run since the last `look`.

        Returns whether it did.  For one other thread.  Meanwhile the thread that leads calls handlers, or waits.  Each
        of the two first sets its own state (``has_stand_in``; ``running`` or ``nested``), then reads the other's.
        """
        if not self.look():
            return False
        self.has_stand_in = True
        try:
            if not self.running or self.nested:
                return False
            read()
            return True
        finally:
            self.has_stand_in = False

    def begin_nested(self) -> None:
        """The thread that leads is about to receive from within a handler: no other thread reads from now on."""
        self.nested = True
        self.wait_for_stand_in()

    def wait_for_stand_in(self) -> None:
        """Return when no other thread reads."""
        while self.has_stand_in:
            time.sleep(STAND_IN_S)

    @property
    def count(self) -> int:
        """How many calls are due."""
        return sum(len(arguments) for _, arguments, _, _ in list(self.pending))

    def _failed(self, error: Exception, flow: str) -> None:
        self.errors += 1
        if self.closing and isinstance(error, LinkClosed):  # it wanted to send: no news
            return
        internal_errors.note(f"a handler of {flow or 'events'}", error)
        self._log(flow)
        if flow:
            self._driver.report(HandlerError(time.time_ns(), flow, repr(error)))

    def _log(self, flow: str) -> None:
        """With its traceback, but not so often that writing it holds up delivery."""
        now = time.monotonic()
        logged_at, errors = self._logged.get(flow, (now - LOG_INTERVAL_S, 0))
        if now - logged_at >= LOG_INTERVAL_S:
            more = self.errors - errors - 1
            since = f" ({more} more handlers' errors since it was last said)" if errors and more else ""
            logger.exception("a handler of %s raised; delivery goes on%s", flow or "events", since)
            self._logged[flow] = now, self.errors
