"""Decisions and events of the link, queued by the link's thread for the exporter's."""

import os
import threading
from collections import deque
from collections.abc import Iterator

import twinlink

from .counters import Counters

SIZE = 1024  # items; a twin decides a few times a second


class LinkInbox:
    """A bounded queue that wakes a poller; when it is full, the oldest decision is dropped.

    Args:
        counters: ``decisions_dropped`` is counted there.

    Attributes:
        descriptor: an eventfd, readable while there may be something to take.
    """

    def __init__(self, counters: Counters) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self._counters = counters
        self._items: deque[twinlink.Message | twinlink.Event] = deque()
        self._lock = threading.Lock()
        self._open = True
        self._wake_lock = threading.RLock()  # a signal handler may interrupt the thread that holds it

    def put(self, item: twinlink.Message | twinlink.Event) -> None:
        """Queue an item and wake the poller; may be called from any thread."""
        with self._lock:
            self._items.append(item)
            if len(self._items) > SIZE:
                self._drop_oldest_decision()
        self.wake()

    def wake(self) -> None:
        """Make `descriptor` readable; may be called from any thread and from a signal handler."""
        with self._wake_lock:
            if self._open:
                os.eventfd_write(self.descriptor, 1)

    def rest(self) -> None:
        """Make `descriptor` unreadable until the next item; call it when it is readable, before `take`."""
        os.eventfd_read(self.descriptor)

    def take(self) -> Iterator[twinlink.Message | twinlink.Event]:
        """The items, oldest first, until there are none."""
        while self._items:
            with self._lock:
                item = self._items.popleft()
            yield item

    def close(self) -> None:
        """Close the descriptor; `wake` does nothing from then on."""
        with self._wake_lock:
            self._open = False
            os.close(self.descriptor)

    def _drop_oldest_decision(self) -> None:
        """Each is a full list, which the next one replaces; events are never dropped."""
        for k, item in enumerate(self._items):
            if isinstance(item, twinlink.Message):
                del self._items[k]
                self._counters.decisions_dropped += 1
                return
