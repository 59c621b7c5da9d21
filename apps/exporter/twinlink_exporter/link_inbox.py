"""Decisions and events of the link, queued by the link's thread for the exporter's."""

import os
import threading
from collections import Counter, deque
from collections.abc import Iterator

import twinlink
from twinlink.process.readiness import is_readable

from .counters import Counters

SIZE = 1024  # items; a twin decides a few times a second


class LinkInbox:
    """A bounded queue that wakes a poller; when it is full, the oldest decision of the busiest sender is dropped.

    Args:
        counters: ``decisions_dropped`` is counted there.

    Attributes:
        descriptor: an eventfd, readable while there may be something to take.
    """

    def __init__(self, counters: Counters) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self._counters = counters
        self._items: deque[twinlink.Message | twinlink.Event] = deque()
        self._waiting: Counter[int | None] = Counter()  # decisions by session; None: all that have not said hello
        self._lock = threading.Lock()
        self._open = True
        self._wake_lock = threading.RLock()  # a signal handler may interrupt the thread that holds it

    def put(self, item: twinlink.Message | twinlink.Event) -> None:
        """Queue an item and wake the poller; may be called from any thread."""
        with self._lock:
            self._items.append(item)
            if isinstance(item, twinlink.Message):
                self._waiting[_sender(item)] += 1
            if len(self._items) > SIZE:
                self._drop_oldest_decision()
        self.wake()

    def wake(self) -> None:
        """Make `descriptor` readable; may be called from any thread and from a signal handler."""
        with self._wake_lock:
            if self._open:
                os.eventfd_write(self.descriptor, 1)

    def wait(self, timeout_ns: int) -> None:
        """Return when `descriptor` is readable, or after that long."""
        if timeout_ns > 0:
            is_readable(self.descriptor, timeout_ns / 1e9)

    def rest(self) -> None:
        """Make `descriptor` unreadable until the next item; call it when it is readable, before `take`."""
        os.eventfd_read(self.descriptor)

    def take(self) -> Iterator[twinlink.Message | twinlink.Event]:
        """The items, oldest first, until there are none."""
        while self._items:
            with self._lock:
                item = self._items.popleft()
                if isinstance(item, twinlink.Message):
                    self._forget(item)
            yield item

    def close(self) -> None:
        """Close the descriptor; `wake` does nothing from then on."""
        with self._wake_lock:
            self._open = False
            os.close(self.descriptor)

    def _drop_oldest_decision(self) -> None:
        """Each is a full list, which the sender's next one replaces; events are never dropped."""
        busiest = max(self._waiting, key=self._waiting.__getitem__, default=None)
        for k, item in enumerate(self._items):
            if isinstance(item, twinlink.Message) and _sender(item) == busiest:
                del self._items[k]
                self._forget(item)
                self._counters.decisions_dropped += 1
                return

    def _forget(self, message: twinlink.Message) -> None:
        sender = _sender(message)
        self._waiting[sender] -= 1
        if not self._waiting[sender]:
            del self._waiting[sender]


def _sender(message: twinlink.Message) -> int | None:
    """A sender that has not said hello may use any number of sessions."""
    return None if message.node is None else message.epoch
