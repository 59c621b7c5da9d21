"""A link for programs on an asyncio event loop, made by `twinlink.open_async`.

The link's own thread receives, as for other programs, and wakes the event loop when what a coroutine waits for has
come.  A call that is cancelled loses nothing: a message that was not returned is returned by the next call.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from .events import Event
from .link import Link
from .message import Message
from .process.guarded_thread import GuardedThread
from .protocol.send.endpoint import Priority, Reliability
from .protocol.send.overflow import Overflow
from .protocol.send.pace import Pace
from .runtime.coroutine_waiters import CoroutineWaiters
from .runtime.no_peer import met_or_refused
from .runtime.payload import Payload, octets_of
from .runtime.sender import Sender
from .sync import Sync

if TYPE_CHECKING:
    from .npy import Array

T = TypeVar("T")


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


class AsyncSender:
    """The sending end of a flow; see `twinlink.Sender`, which is its attribute ``sender``."""

    def __init__(self, sender: Sender, waiters: CoroutineWaiters) -> None:
        self.sender = sender
        self.flow = sender.flow
        self._waiters = waiters

    def __repr__(self) -> str:
        return f"<twinlink.aio.AsyncSender of {self.sender!r}>"

    async def send(self, payload: Payload) -> int:
        """Send one message to every peer; returns its sequence number.  As `Sender.send`, except that it waits for
        room without holding up the event loop.

        When it is cancelled, nothing was sent.
        """
        await self._waiters.checkpoint()
        view = payload if type(payload) is bytes else octets_of(payload)
        size, link = len(view), self.sender._link
        if size <= self.sender.max_payload:
            has_room = await self._waiters.wait(lambda: self.sender._fits(size) or link.closing, link.send_timeout)
            if not has_room:
                raise self.sender._full_error()
        return self.sender.send(view)

    async def send_array(self, array: "Array") -> int:
        """Send a numpy array with its dtype and shape, as `Sender.send_array` does; otherwise as `send`."""
        return await self.send(self.sender._encoded(array))

    async def flush(self, timeout: float = 1.0) -> None:
        """Return when every message sent so far has been acknowledged by every peer.

        Raises what `Sender.flush` raises.
        """
        sender = self.sender
        end = sender._begin_flush()
        await self._waiters.wait(lambda: sender._is_flushed(end) or sender._link.closed(), timeout)
        sender._end_flush(end, timeout)


class AsyncLink:
    """One end of the channel.  Its methods are called on the thread of the event loop.

    Attributes:
        link: the `twinlink.Link` under it, with all that does not wait: ``peers()``, ``stats()``, ``endpoint``.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._waiters = CoroutineWaiters()
        link._leader_follower.serve_coroutines(self._waiters.check)

    def __repr__(self) -> str:
        return f"<twinlink.aio.AsyncLink of {self.link!r}>"

    def sender(
        self,
        flow: str,
        *,
        reliability: Reliability | None = None,
        overflow: Overflow | None = None,
        priority: Priority | None = None,
        pace: Pace | None = None,
    ) -> AsyncSender:
        """The sending end of a flow, as `Link.sender` makes it."""
        made = self.link.sender(flow, reliability=reliability, overflow=overflow, priority=priority, pace=pace)
        return AsyncSender(made, self._waiters)

    def receiver(
        self, flow: str, *, max_age: float | None = None, max_payload: int | None = None
    ) -> AsyncReceiver[Message]:
        """The messages of a flow, as `Link.receiver` gives them."""
        made = self.link.receiver(flow, max_age=max_age, max_payload=max_payload)
        return AsyncReceiver(made.take, made._receive_flow.queue.__len__, self.link, self._waiters)

    def events(self) -> AsyncReceiver[Event]:
        """Loss, gaps, peers that come and go, as `Link.events` reports them."""
        made = self.link.events()
        return AsyncReceiver(made._take, made._queue.__len__, self.link, self._waiters)

    def sync(self, flow: str, *, stale_after: float = 0.5, out_after: float = 2.0, completeness: float = 0.99) -> Sync:
        """How fresh and how complete a flow is; see `Link.sync`."""
        return self.link.sync(flow, stale_after=stale_after, out_after=out_after, completeness=completeness)

    async def wait_ready(self, timeout: float = 5.0) -> None:
        """Return once a peer is up: both directions work.

        Raises:
            PeerTimeout: none was within ``timeout`` seconds.
            AuthenticationError: the listener and this side refuse each other; found out within two seconds.
            LinkClosed: the link was closed.
        """
        link = self.link
        await self._waiters.wait(met_or_refused(lambda: link.peers() or link.closed, link._transport), timeout)
        link._check_open()
        if not link.peers():
            raise await asyncio.to_thread(link._no_peer_error, timeout)

    async def close(self) -> None:
        """Close the link: as `Link.close`, at most a second, which does not hold up the event loop.

        The link is closed also when this call is cancelled.
        """
        await asyncio.shield(asyncio.to_thread(self.link.close))


@asynccontextmanager
async def opened(make: Callable[[], Link]) -> AsyncIterator[AsyncLink]:
    """The link that ``make`` opens, on another thread, as it may wait for name resolution; closed at the end.

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
    link = AsyncLink(made[0])
    try:
        yield link
    finally:
        await link.close()
