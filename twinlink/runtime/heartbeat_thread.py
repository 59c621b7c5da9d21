"""The heartbeat thread: hellos on time, and a tick for every flow, whatever the application does.

It also reads while a handler takes long.  It never waits for a peer that takes nothing: it sends only droppable frames.
"""

import time
from collections.abc import Callable

from ..process.guarded_thread import GuardedThread
from ..process.wakeup import Wakeup
from ..transports import Transport
from .driver import SessionDriver

# A handler that has run between two checks takes long.
LOOK_NS = 50_000_000
STAND_IN_NS = 5_000_000  # while one does, or where they do


class HeartbeatThread:
    """Runs from `start` until `stop`."""

    def __init__(self, node: str, transport: Transport, driver: SessionDriver, stand_in: Callable[[], bool]) -> None:
        """``stand_in()`` reads what has come while a handler takes long, and returns whether to check again soon."""
        self._stand_in = stand_in
        self._driver = driver
        self._callbacks = driver.callbacks
        self._stopping = False
        self._wakeup = Wakeup()
        self._callbacks.watch = self._wakeup.wake
        name, errors = f"twinlink-{node}-heartbeat", transport.internal_errors
        # A transport that failed must not end it: the peers still count on us.
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._stopping)

    def start(self) -> None:
        """Begin to say hello."""
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Nothing more will be said."""
        self._stopping = True
        self._wakeup.wake()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _wait(self, due_mono_ns: int) -> None:
        """Return at this time, or when the thread is to stop; read meanwhile while a handler takes long."""
        look_ns = LOOK_NS
        while not self._stopping and (left_ns := due_mono_ns - time.monotonic_ns()) > 0:
            wait_ns = min(left_ns, look_ns) if self._callbacks.is_watched else left_ns
            woken = self._wakeup.wait(wait_ns / 1e9)
            look_ns = LOOK_NS if woken or not self._stand_in() else STAND_IN_NS

    def _run(self) -> None:
        while not self._stopping:
            self._wait(self._driver.on_timeout())
