"""Calls of an application's handlers: one at a time, and none may stop delivery."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import LinkClosed
from ..events import Event, HandlerError

RUN_S = 0.01  # then whoever waits for something looks whether it is there
LOG_INTERVAL_S = 1.0  # between two reports of a flow's handlers in the log

_monotonic = time.monotonic

logger = logging.getLogger("twinlink")


class CallbackQueue:
    """For the thread that leads, when it holds no lock.

    Attributes:
        pending: calls to be made when the frame at hand has been dealt with.
        running: whether a handler is running.
        errors: how many raised.
        closing: whether the link is being closed.
    """

    def __init__(self, report: Callable[[Event], None]) -> None:
        self.pending: deque[tuple[Callable[[Any], None], Any, str]] = deque()
        self.running = False
        self.errors = 0
        self.closing = False
        self._report = report
        self._logged: dict[str, tuple[float, int]] = {}  # flow -> monotonic s, errors then

    def call(self, handler: Callable[[Any], None], argument: Any, flow: str) -> None:
        """Call a handler; not inside another one: while a handler waits, the next gets its turn afterwards."""
        self.call_each(handler, (argument,), flow)

    def call_each(self, handler: Callable[[Any], None], arguments: Sequence[Any], flow: str) -> None:
        """Call a handler several times; after the calls that are due, if there are any.

        What is no Exception (sys.exit, Ctrl-C) goes through; the calls that it cuts off are due, and so are those that
        there is no time for.
        """
        if self.running or self.pending:
            for argument in arguments:
                self.enqueue(handler, argument, flow)
            return
        self.running, begun = True, 0
        try:
            several = len(arguments) > 1
            until = _monotonic() + RUN_S if several else 0.0
            for begun, argument in enumerate(arguments, 1):
                try:
                    handler(argument)
                except Exception as error:  # whatever an application does must not stop delivery
                    self._failed(error, flow)
                if several and _monotonic() >= until:
                    self._requeue(handler, arguments[begun:], flow)
                    return
        except BaseException:  # the peer has been told that all of these are here
            self._requeue(handler, arguments[begun:], flow)
            raise
        finally:
            self.running = False

    def _failed(self, error: Exception, flow: str) -> None:
        self.errors += 1
        if self.closing and isinstance(error, LinkClosed):  # it wanted to send: no news
            return
        self._log(flow)
        if flow:
            self._report(HandlerError(time.time_ns(), flow, repr(error)))

    def _requeue(self, handler: Callable[[Any], None], arguments: Sequence[Any], flow: str) -> None:
        """Call it with these before what is due already; not twice, where Ctrl-C comes at the end of this."""
        if arguments and not (self.pending and self.pending[0][1] is arguments[0]):
            self.pending.extendleft([(handler, argument, flow) for argument in reversed(arguments)])

    def _log(self, flow: str) -> None:
        """With its traceback, but not so often that writing it holds up delivery."""
        now = time.monotonic()
        logged_at, errors = self._logged.get(flow, (now - LOG_INTERVAL_S, 0))
        if now - logged_at >= LOG_INTERVAL_S:
            more = self.errors - errors - 1
            since = f" ({more} more handlers' errors since it was last said)" if errors and more else ""
            logger.exception("a handler of %s raised; delivery goes on%s", flow or "events", since)
            self._logged[flow] = now, self.errors

    def enqueue(self, handler: Callable[[Any], None], argument: Any, flow: str) -> None:
        """Call a handler when the frame at hand has been dealt with."""
        self.pending.append((handler, argument, flow))

    def run(self, for_s: float = RUN_S) -> None:
        """Make the calls that are due, unless one is being made; those that it has no time for stay due."""
        due, until = self.pending, _monotonic() + for_s
        while due and not self.running:
            self.running = True
            handler, argument, flow = due[0]
            try:
                del due[0]  # not popleft: Ctrl-C comes where a call ends, and this one would be gone
                handler(argument)
            except Exception as error:
                self._failed(error, flow)
            finally:
                self.running = False
            if _monotonic() >= until:
                return
