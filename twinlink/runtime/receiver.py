"""What an application reads from: the receiving end of a flow, and the stream of events."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ..batch import Batch
from ..events import Event
from ..message import Message
from ..protocol.session import ReceiveFlow
from .arguments import check_count, check_timeout
from .callbacks import CallbackQueue
from .driver import SessionDriver

MAX_BATCH = 4096  # messages, unless the application says how many
MAX_EVENTS = 10_000  # held for a reader that is late; beyond it the oldest go, and are counted

T = TypeVar("T")


class Waiter(Protocol):
    """What a thread of the application waits with until something arrives.

    Attributes:
        closed: no thread begins to wait any more.
    """

    closed: bool

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        """Return when ``done()`` holds, after ``timeout`` seconds, or when the link closes."""


class Receiver:
    """Made by ``link.receiver(flow)``.  Iterating ends when the link closes.  Several threads may share one."""

    def __init__(
        self,
        waiter: Waiter,
        driver: SessionDriver,
        receive_flow: ReceiveFlow,
        describe: Callable[[], str],
    ) -> None:
        self.flow = receive_flow.flow
        self._waiter = waiter
        self._driver, self._take = driver, driver.take
        self._receive_flow = receive_flow
        self._describe = describe

    def __repr__(self) -> str:
        counters = self._receive_flow.stats()
        reads = "a handler reads" if self._receive_flow.handler else f"{counters['queued']} waiting"
        what = f"{counters['received']} received, {reads}, {counters['missing']} missing"
        return f"<twinlink.Receiver of flow {self.flow!r}: {what}; {self._describe()}>"

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when ``timeout`` seconds pass without one, or the link is closed.

        Raises:
            TransportError: the transport fails while this thread is the one that receives.
            ConfigurationError: ``timeout`` cannot be used.
        """
        return receive(self._waiter, self.unread, self.take, timeout)

    def receive_many(self, max_messages: int = MAX_BATCH, timeout: float | None = None) -> Batch:
        """The messages that are here, at most so many; without any it waits for the first.

        Empty when ``timeout`` seconds pass without one, or the link is closed.  Raises what `receive` raises.
        """
        check_count(max_messages)
        driver, receive_flow, parts = self._driver, self._receive_flow, list[Sequence[Message]]()
        try:
            receive(
                self._waiter, self.unread, lambda: driver.take_many(receive_flow, max_messages, parts) or None, timeout
            )
            batch = Batch(self.flow, *parts)
        except BaseException:
            driver.put_back(receive_flow, parts)
            raise
        return batch

    def unread(self) -> int:
        """How many messages wait."""
        return self._receive_flow.queued

    def take(self) -> Message | None:
        """The next message if one is here."""
        return self._take(self._receive_flow)

    def __iter__(self) -> Iterator[Message]:
        take, receive_flow = self._take, self._receive_flow
        while True:
            while (message := take(receive_flow)) is not None:
                yield message
            if self._waiter.closed:
                return
            self._waiter.wait(self.unread, None)


class EventStream:
    """Made by ``link.events()``.  Iterating ends when the link closes.

    Attributes:
        dropped: events that were dropped unread.
    """

    def __init__(self, waiter: Waiter, callbacks: CallbackQueue, events: deque[Event]) -> None:
        """``events``: to which the session adds."""
        self.dropped = 0
        self._waiter, self._callbacks = waiter, callbacks
        self._queue = events
        self._due = 0  # calls of the handler
        self._handler: Callable[[Event], None] | None = None

    def _set_handler(self, handler: Callable[[Event], None]) -> None:
        """Give every event, the held ones first, to ``handler``, on the thread that receives."""
        self._handler = handler
        self._on_events()
        self._callbacks.run()

    def _on_events(self) -> None:
        """There are new events: have the handler called with them.  Of too many the oldest are dropped."""
        while len(self._queue) > MAX_EVENTS:
            if self._take() is not None:
                self.dropped += 1
        if self._handler is not None and (more := len(self._queue) - self._due) > 0:
            self._due += more
            self._callbacks.enqueue(self._handle_next, range(more), "")

    def _handle_next(self, _: int) -> None:
        self._due = max(0, self._due - 1)
        if len(self._callbacks.pending) == 1:  # this one: Ctrl-C may have cut off others
            self._due = 0
        event = self._take()
        if self._queue and not self._due:
            self._on_events()
        if event is not None and self._handler is not None:
            self._handler(event)

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event; None when ``timeout`` seconds pass without one, or the link is closed.

        Raises ConfigurationError where ``timeout`` cannot be used.
        """
        return receive(self._waiter, self._queue.__len__, self._take, timeout)

    def _take(self) -> Event | None:
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def __iter__(self) -> Iterator[Event]:
        while (event := self.receive()) is not None:
            yield event


def receive(
    waiter: Waiter, arrived: Callable[[], int], take: Callable[[], T | None], timeout: float | None
) -> T | None:
    """Take what is there, or wait for it; another thread may be quicker, then wait for the next."""
    if timeout is not None and type(timeout) is not float:
        check_timeout(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    while (taken := take()) is None:
        left = None if deadline is None else deadline - time.monotonic()
        if waiter.closed or (left is not None and left <= 0):
            return None
        waiter.wait(arrived, left)
    return taken
