"""The heartbeat thread: hellos on time, and a tick for every flow, whatever the application does.

It also reads while a handler takes long.  It never waits for a peer that takes nothing: it sends only droppable frames.
"""

import time
from collections.abc import Callable
from typing import ClassVar

from ..process.guarded_thread import GuardedThread
from ..process.wakeup import Wakeup
from ..transports import Transport
from .driver import SessionDriver

# A handler that has run between two checks takes long.
LOOK_NS = 50_000_000
STAND_IN_NS = 5_000_000  # while one does, or where they do
STALE_NS = 2 * LOOK_NS  # the thread that checks is held up, or has ended

NEVER = 2**62

_monotonic_ns = time.monotonic_ns


class HeartbeatThread:
    """Runs from `start` until `stop`.

    One of those of a process checks the handlers of all its links: a twin may have a hundred, and if each thread woke
    so often, it would spend more on that than on messages.  No lock guards which one it is: if two take it for theirs,
    handlers are checked twice.
    """

    _running: ClassVar[set["HeartbeatThread"]] = set()
    _checking: ClassVar["HeartbeatThread | None"] = None
    _checked_ns: ClassVar[int] = -STALE_NS

    def __init__(self, node: str, transport: Transport, driver: SessionDriver, stand_in: Callable[[], bool]) -> None:
        """``stand_in()`` reads what has come while a handler takes long, and returns whether to check again soon."""
        self._stand_in = stand_in
        self._stands_in = False  # checks its own link's handlers itself
        self._driver = driver
        self._callbacks = driver.callbacks
        self._stopping = False
        self._wakeup = Wakeup()
        self._callbacks.watch = self._watch
        name, errors = f"twinlink-{node}-heartbeat", transport.internal_errors
        # A transport that failed must not end it: the peers still count on us.
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._stopping)

    def start(self) -> None:
        """Begin to say hello."""
        HeartbeatThread._running.add(self)
        self._thread.start()
        self._watch()

    def stop(self, patience_s: float) -> None:
        """Nothing more will be said."""
        self.abandon()
        for one in (self, *list(HeartbeatThread._running)[:1]):  # another one takes over
            one._wakeup.wake()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def abandon(self) -> None:
        """Nothing more will be said; the thread may belong to another process."""
        self._stopping = True
        HeartbeatThread._running.discard(self)
        if HeartbeatThread._checking is self:
            HeartbeatThread._checking = None

    def _watch(self) -> None:
        """A handler of this link is called, after a time without: have handlers checked often."""
        for one in {self, HeartbeatThread._checking or self}:
            one._wakeup.wake()

    def _wait(self, due_mono_ns: int) -> None:
        """Return at this time, or when the thread is to stop; check handlers, and read while one takes long."""
        while not self._stopping and (left_ns := due_mono_ns - _monotonic_ns()) > 0:
            self._wakeup.wait(min(left_ns, self._period_ns()) / 1e9)
            if self._stands_in:
                self._stands_in = self._stand_in()
            if not self._stopping:
                self._check_handlers()

    def _period_ns(self) -> int:
        """How long to wait, but for the next heartbeat."""
        if self._stands_in:
            return STAND_IN_NS
        of = HeartbeatThread
        if of._checking is self and any(one._callbacks.is_watched for one in list(of._running)):
            return max(0, of._checked_ns + LOOK_NS - _monotonic_ns())
        return NEVER

    def _check_handlers(self) -> None:
        """If it is for this thread and time: find the links of which a handler takes long, and wake their threads."""
        of, now = HeartbeatThread, _monotonic_ns()
        of._checking = of._checking or self
        if now - of._checked_ns < (LOOK_NS if of._checking is self else STALE_NS):
            return
        of._checking, of._checked_ns = self, now
        for one in list(of._running):
            if one._callbacks.is_watched and not one._stands_in and one._callbacks.look():
                one._stands_in = True
                one._wakeup.wake()

    def _run(self) -> None:
        while not self._stopping:
            self._wait(self._driver.on_timeout())
        self.abandon()  # it may have taken the handlers for its own while it was stopped, and would keep its link
