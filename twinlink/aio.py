"""A link for programs on an asyncio event loop, made by `twinlink.open_async`.

The link's own thread receives, as for other programs, and wakes the event loop when what a coroutine waits for has
come.  A call that is cancelled loses nothing: a message that was not returned is returned by the next call.
"""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack

from .batch import Batch
from .events import Event
from .link import Link
from .message import Ack, Message
from .process.guarded_thread import GuardedThread
from .protocol.session import MAX_UNREPORTED_ACKS, Overflow, Pace, Priority, Reliability
from .runtime.arguments import check_callable, check_count, check_timeout
from .runtime.coroutine_handler import CoroutineHandler
from .runtime.coroutine_waiters import CoroutineWaiters
from .runtime.no_peer import met_or_refused
from .runtime.payload import Payload, octets_of
from .runtime.receiver import MAX_BATCH, Receiver
from .runtime.sender import Sender
from .stats import LinkStats, SenderStats
from .sync import Sync

if TYPE_CHECKING:
    from .npy import Array
    from .recording.options import RecordingOptions
    from .recording.recorder import Recorder
    from .state import Change, State

CALLS_S = 1.0  # that `AsyncLink.close` waits for calls of handlers

T = TypeVar("T")

logger = logging.getLogger("twinlink")


class AsyncReceiver(Generic[T]):
    """The messages of a flow, or the events of a link.  Iterating ends when the link closes.

    Several tasks may share one: each message goes to one of them.
    """

    def __init__(
        self, take: Callable[[], T | None], count: Callable[[], int], link: Link, waiters: CoroutineWaiters
    ) -> None:
        self._take = take
        self._count = count
        self._link = link
        self._waiters = waiters

    def __repr__(self) -> str:
        return f"<twinlink.aio.AsyncReceiver: {self._count()} waiting; of {self._link!r}>"

    async def receive(self, timeout: float | None = None) -> T | None:
        """The next one; None when ``timeout`` seconds pass without one, or the link is closed."""
        check_timeout(timeout)
        await self._waiters.checkpoint()
        until = None if timeout is None else time.monotonic() + timeout
        while await self._waiters.wait(self._is_due, timeout):
            taken = self._take()
            if taken is not None or self._link.closed:
                return taken
            timeout = None if until is None else until - time.monotonic()  # a thread that shares it was quicker
        return None

    def _is_due(self) -> bool:
        return bool(self._count()) or self._link.closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        received = await self.receive()
        if received is None:
            raise StopAsyncIteration
        return received


class AsyncMessageReceiver(AsyncReceiver[Message]):
    """The messages of a flow, one by one or many at a time."""

    def __init__(self, receiver: Receiver, link: Link, waiters: CoroutineWaiters) -> None:
        super().__init__(receiver.take, receiver.unread, link, waiters)
        self._receiver = receiver

    async def receive_many(self, max_messages: int = MAX_BATCH, timeout: float | None = None) -> Batch:
        """The messages that are here, at most so many; without any it waits for the first.

        Empty when ``timeout`` seconds pass without one, or the link is closed.
        """
        check_count(max_messages)
        receiver = self._receiver
        batches = AsyncReceiver(
            lambda: receiver.receive_many(max_messages, 0.0) or None, receiver.unread, self._link, self._waiters
        )
        return await batches.receive(timeout) or receiver.receive_many(max_messages, 0.0)


class AsyncSender:
    """The sending end of a flow; see `twinlink.Sender`, which is its attribute ``sender``."""

    def __init__(self, sender: Sender, link: Link, waiters: CoroutineWaiters) -> None:
        self.sender = sender
        self.flow = sender.flow
        self._waiters = waiters
        self._acks: deque[Ack] = deque()  # with which on_ack has not been called
        source = AsyncReceiver(self._take_ack, self._acks.__len__, link, waiters)
        callbacks = link._driver.callbacks
        self._on_ack = CoroutineHandler(source, self._acks.__len__, self.flow, callbacks, waiters.check)

    def __repr__(self) -> str:
        return f"<twinlink.aio.AsyncSender of {self.sender!r}>"

    def _take_ack(self) -> Ack | None:
        return self._acks.popleft() if self._acks else None

    def _set_on_ack(self, on_ack: Callable[[Ack], object]) -> None:
        self._on_ack.set(on_ack)
        self.sender.on_ack = self._acks.append

    def _has_room(self, size: int) -> bool:
        return self.sender._fits(size) and len(self._acks) < MAX_UNREPORTED_ACKS

    async def send(self, payload: Payload) -> int:
        """Send one message to every peer; returns its sequence number.  As `Sender.send`, except that it waits for
        room without holding up the event loop.

        When it is cancelled, nothing was sent.
        """
        await self._waiters.checkpoint()
        octets = payload if type(payload) is bytes else octets_of(payload)
        size, link = len(octets), self.sender._link
        if size <= self.sender.max_payload and not self._on_ack.runs_here():
            has_room = await self._waiters.wait(lambda: self._has_room(size) or link.closing, link.send_timeout)
            if not has_room:
                raise self.sender._full_error(on_ack_is_slow=len(self._acks) >= MAX_UNREPORTED_ACKS)
        return self.sender.send(octets)

    async def send_many(self, payloads: "Iterable[Payload] | Array") -> Sequence[int]:
        """Send several messages, as `Sender.send_many` does, without holding up the event loop while it waits for room.

        When it is cancelled, the first ones may have been sent.
        """
        sender, on_ack, link = self.sender, self._on_ack, self.sender._link
        await self._waiters.checkpoint()
        if on_ack.runs_here():
            return sender.send_many(payloads)
        batch = sender._batch(payloads)
        while not batch.is_sent:
            has_room = await self._waiters.wait(
                lambda: self._has_room(batch.next_size) or link.closing, link.send_timeout
            )
            if not has_room:
                raise sender._full_error(on_ack_is_slow=len(self._acks) >= MAX_UNREPORTED_ACKS, batch=batch)
            sender._send_run(batch)
            await self._waiters.checkpoint()
        return batch.numbers

    async def send_array(self, array: "Array") -> int:
        """Send a numpy array with its dtype and shape, as `Sender.send_array` does; otherwise as `send`."""
        return await self.send(self.sender._encoded(array))

    async def flush(self, timeout: float | None = 1.0) -> None:
        """Return when every message sent so far has been acknowledged by every peer.

        Raises what `Sender.flush` raises.
        """
        check_timeout(timeout)
        sender, on_ack = self.sender, self._on_ack
        end, waits_for_calls = sender._begin_flush(), not on_ack.runs_here()  # else it would wait for itself

        def is_flushed() -> bool:
            return sender._is_flushed(end) and not (waits_for_calls and on_ack.due)

        await self._waiters.wait(lambda: is_flushed() or sender._link.closed(), timeout)
        sender._end_flush(end, timeout)

    def stats(self) -> SenderStats:
        """Counters and delays of this flow, as `Sender.stats` gives them."""
        return self.sender.stats()


class AsyncLink:
    """One end of the channel.  Its methods are called on the thread of the event loop, and handlers as well.

    ``async with link:`` closes it at the end of the block.

    Attributes:
        link: the `twinlink.Link` under it, with all that does not wait, such as ``endpoint`` and ``identity``.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._waiters = CoroutineWaiters()
        self._senders: dict[str, AsyncSender] = {}
        self._handlers: dict[str, CoroutineHandler[Any]] = {}  # by flow; "" has that of the events
        link._leader_follower.serve_coroutines(self._waiters.check)

    def __repr__(self) -> str:
        return f"<twinlink.aio.AsyncLink of {self.link!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether the link was closed."""
        return self.link.closed

    def peers(self) -> list[str]:
        """Names of the nodes that are up."""
        return self.link.peers()

    def stats(self) -> LinkStats:
        """Everything counted so far, as `Link.stats` gives it."""
        return self.link.stats()

    def sender(
        self,
        flow: str,
        *,
        on_ack: Callable[[Ack], object] | None = None,
        reliability: Reliability | None = None,
        overflow: Overflow | None = None,
        priority: Priority | None = None,
        pace: Pace | None = None,
    ) -> AsyncSender:
        """The sending end of a flow, as `Link.sender` makes it.

        ``on_ack`` is called with each `Ack` on the event loop; it may be a coroutine function, which is awaited before
        the next call.  While 32,768 acks wait for it, `AsyncSender.send` waits.
        """
        check_callable("on_ack", on_ack)
        made = self.link.sender(flow, reliability=reliability, overflow=overflow, priority=priority, pace=pace)
        sender = self._senders.setdefault(flow, AsyncSender(made, self.link, self._waiters))
        if on_ack is not None:
            sender._set_on_ack(on_ack)
        return sender

    def receiver(
        self,
        flow: str,
        *,
        handler: Callable[[Message], object] | None = None,
        max_age: float | None = None,
        max_payload: int | None = None,
    ) -> AsyncMessageReceiver:
        """The messages of a flow, as `Link.receiver` gives them.

        ``handler`` is called with each on the event loop; it may be a coroutine function, which is awaited before the
        next call.  Messages that wait for it are unread: its flow's window holds.
        """
        check_callable("handler", handler)
        made = self.link.receiver(flow, max_age=max_age, max_payload=max_payload)
        receiver = AsyncMessageReceiver(made, self.link, self._waiters)
        self._set_handler(flow, receiver, handler)
        return receiver

    def events(self, *, handler: Callable[[Event], object] | None = None) -> AsyncReceiver[Event]:
        """Loss, gaps, peers that come and go, as `Link.events` reports them; ``handler`` as of `receiver`."""
        check_callable("handler", handler)
        made = self.link.events()
        receiver = AsyncReceiver(made._take, made._queue.__len__, self.link, self._waiters)
        self._set_handler("", receiver, handler)
        return receiver

    def _set_handler(self, flow: str, source: AsyncReceiver[T], handler: Callable[[T], object] | None) -> None:
        if handler is None:
            return
        if flow not in self._handlers:
            callbacks = self.link._driver.callbacks
            self._handlers[flow] = CoroutineHandler(source, source._count, flow, callbacks, self._waiters.check)
        self._handlers[flow].set(handler)

    def state(self, name: str) -> "State":
        """Desired and reported values by key; see `Link.state`.  Its calls do not wait, but for `State.flush`."""
        return self.link.state(name)

    def changes(self, name: str) -> "AsyncReceiver[Change]":
        """What others have changed in the state of this name, and what has expired, as `State.changes` returns it."""
        state = self.link.state(name)
        return AsyncReceiver(state._take_change, state._count_changes, self.link, self._waiters)

    def record(self, path: str | os.PathLike[str], **options: Unpack["RecordingOptions"]) -> "Recorder":
        """Record what this link sends and receives, as `Link.record` does, until it is closed.

        To end the recording before, ``await asyncio.to_thread(recorder.close)``, as that waits for the disk.
        """
        return self.link.record(path, **options)

    def sync(self, flow: str, *, stale_after: float = 0.5, out_after: float = 2.0, completeness: float = 0.99) -> Sync:
        """How fresh and how complete a flow is; see `Link.sync`."""
        return self.link.sync(flow, stale_after=stale_after, out_after=out_after, completeness=completeness)

    async def wait_ready(self, timeout: float | None = 5.0) -> None:
        """Return once a peer is up: both directions work.

        Raises:
            PeerTimeout: none was within ``timeout`` seconds.
            AuthenticationError: the listener and this side refuse each other; found out within two seconds.
            LinkClosed: the link was closed.
        """
        check_timeout(timeout)
        link = self.link
        await self._waiters.wait(met_or_refused(lambda: link.peers() or link.closed, link._transport), timeout)
        link._check_open()
        if not link.peers():
            raise await asyncio.to_thread(link._no_peer_error, timeout or 0.0)

    async def close(self) -> None:
        """Close the link, as `Link.close` does, which does not hold up the event loop.

        Handlers have a second more for what has come.  The link is closed also when this call is cancelled.
        """
        await asyncio.shield(asyncio.to_thread(self.link.close))
        handlers = [*self._handlers.values(), *(sender._on_ack for sender in self._senders.values())]
        with suppress(TimeoutError):
            async with asyncio.timeout(CALLS_S):
                for handler in handlers:
                    await handler.ended()
        if due := sum(handler.due for handler in handlers if not handler.runs_here()):
            logger.warning("link to %s closed; %d calls of handlers have not ended", self.link.endpoint, due)


class Opening:
    """A link that is not open yet: ``link = await`` opens it, ``async with`` also closes it at the end of its block."""

    def __init__(self, make: Callable[[], Link]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, None, AsyncLink]:
        return _opened(self._make).__await__()

    async def __aenter__(self) -> AsyncLink:
        self._link = await self
        return self._link

    def __enter__(self) -> NoReturn:
        raise TypeError(_NOT_OPEN)

    def __exit__(self, *_: object) -> None:
        """Never called."""

    async def __aexit__(self, *_: object) -> None:
        await self._link.close()

    def __repr__(self) -> str:
        return f"<twinlink.aio.Opening: {_NOT_OPEN}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{name!r}: {_NOT_OPEN}", name=name, obj=self)


_NOT_OPEN = (
    'the link is not open yet; write "link = await twinlink.open_async(...)", '
    'or "async with twinlink.open_async(...) as link:"'
)


async def _opened(make: Callable[[], Link]) -> AsyncLink:
    """The link that ``make`` opens, on another thread, as it may wait for name resolution.

    Where this is cancelled while ``make`` runs, the link is closed as soon as it is open.
    """
    made: list[Link] = []
    cancelled = threading.Event()

    def make_unless_cancelled() -> None:
        made.append(make())
        if cancelled.is_set():
            close_made()

    def close_made() -> None:
        with suppress(IndexError):  # it is not open yet, or the other thread closes it
            made.pop().close()

    try:
        await asyncio.to_thread(make_unless_cancelled)
    except asyncio.CancelledError:
        cancelled.set()
        GuardedThread(close_made, "twinlink-close", daemon=False).start()
        raise
    return AsyncLink(made[0])
