"""Records a link: a thread writes what the tap has queued (`series`), or keeps it until it is triggered (`trigger`).

Neither a slow disk nor a full one holds up the link: what is not recorded is counted, and named in the manifest.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors
from ..process.signals import DeferSignals
from ..runtime.capture import MAX_STREAMS, Capture, octets_of
from ..runtime.driver import SessionDriver
from .mirrored import MirrorFilter
from .options import RecorderOptions
from .series import Series
from .trigger import Trigger

LOOK_S = 0.05  # how often the queue is looked at
# Messages at a time, some 4 us each, then the threads of the link get the interpreter: more where more are queued.
SLICE, MAX_SLICE, QUEUED_PART = 4, 128, 32
SLICE_PAUSE_S = 0.0001


class Recorder:
    """Made by ``link.record(FILE)``; records until it is closed, or the link is.

    Attributes:
        path: of the first file.
        files: that were begun, in order.
    """

    def __init__(
        self,
        driver: SessionDriver,
        errors: InternalErrors,
        path: Path,
        options: RecorderOptions,
        configuration: dict[str, Any],
        stats: Callable[[], Any],
    ) -> None:
        """Raises OSError, FileExistsError included.

        ``configuration`` is of the link, as the manifest has it; one that connects may be that of an observer.
        """
        observes = not configuration["listening"]
        self.path, self._driver = path, driver
        self._capture = Capture(options.queue_octets)
        self._slice_left = SLICE
        self._series = Series(path, options, configuration, driver.session.epoch, stats, self._pause)
        self.files = self._series.files
        self._trigger: Trigger | None = None
        if options.before_s is not None:
            limits = options.before_s, options.after_s, options.queue_octets
            self._trigger = Trigger(self._series, options.on, *limits)
        self._sink = self._trigger or self._series
        self._filter = MirrorFilter(self._series, self._sink) if observes else None
        self._triggers: deque[tuple[str, int]] = deque()
        self._closing, self._close_lock, self._wake = False, threading.Lock(), threading.Event()
        name = f"twinlink-{configuration['node']}-record"
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._closing)
        positions, peers = driver.add_tap(self._capture), driver.session.known_peers()[:MAX_STREAMS]
        self._series.begin_at(positions, {peer.epoch: peer.node for peer in peers})
        self._thread.start()

    def trigger(self, reason: str = "") -> None:
        """Write what is kept, and what follows, with the reason; a recording that runs gets it as a mark.

        Any thread may call it, and a signal handler.  After `close` it does nothing.
        """
        self._triggers.append((str(reason), time.time_ns()))

    def close(self) -> None:
        """Write what is queued and the manifest.  A second call does nothing.  What fails is logged: `problem`."""
        with DeferSignals(), self._close_lock:
            if not self._closing:
                self._driver.remove_tap(self._capture)
                self._capture.tell_left_out()
                self._closing = True
                self._wake.set()
        self._thread.join()

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the link closed."""
        return self._closing

    @property
    def problem(self) -> str | None:
        """Why something is not, or was not, written, for a person; None: nothing was wrong."""
        return self._series.problem

    @property
    def failed(self) -> bool:
        """Whether a file has no manifest."""
        return self._series.failed

    @property
    def triggered(self) -> str | None:
        """Why the last file was begun, if `before_s` was given and something has triggered it."""
        return self._trigger.reason if self._trigger is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> dict[str, int]:
        """Of all files: messages and octets recorded, messages left out by the recorder, and missing otherwise.

        As it stood a second ago or less; after `close`, at the end.
        """
        return {"files": len(self.files), **self._series.counted}

    # On the thread that writes

    def _run(self) -> None:
        capture, items, sink, mirror = self._capture, self._capture.items, self._sink, self._filter
        take = sink.take if mirror is None else mirror.take
        while True:
            closing = self._closing
            while items:
                item = items.popleft()
                capture.taken_octets += octets_of(item)
                take(item)
                if mirror is None or mirror.is_decided:
                    sink.look()
            if mirror is not None and not mirror.is_decided:
                if closing:
                    mirror.decide()
                else:
                    self._wake.wait(LOOK_S)
                    continue
            while self._triggers:
                sink.trigger(*self._triggers.popleft())
            sink.look()
            if closing:
                self._series.end()
                return
            self._wake.wait(LOOK_S)

    def _pause(self) -> None:
        self._slice_left -= 1
        if not self._slice_left:
            time.sleep(SLICE_PAUSE_S)
            self._slice_left = min(MAX_SLICE, max(SLICE, len(self._capture.items) // QUEUED_PART))
