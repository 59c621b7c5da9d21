"""Shows observers what passes a link: a link of its own for them, and a thread that fills its only flow.

The observed link waits for none of it.  Frames wait for the thread in a bounded queue, and for slow observers in the
bounded queue of the flow, which repairs nothing; what does not fit is left out, counted and named.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol, Self, TypedDict

from .. import options
from ..errors import LinkClosed, TransportError
from ..events import Event, InternalError, Refused
from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors
from ..protocol.frames import MAX_PAYLOAD, Frame
from ..protocol.limits import Limits
from ..protocol.session import Overflow, Reliability
from ..runtime.capture import Capture, FrameItem, Item, LeftOutItem, octets_of
from ..runtime.driver import SessionDriver
from ..runtime.sender import Sender
from .entries import MIRROR_FLOW, frame_entry, head, left_out_entries, peers_entry

OBSERVERS_OCTETS = 16 * 1024 * 1024  # that may be on their way to observers, and as much that waits for them
LOOK_S = 0.02
IDLE_LOOK_S = 0.2  # while no observer is there
PEERS_S = 1.0  # between two lists of the peers that are up
BATCH_OCTETS = 64 * 1024
PAUSE_S = 0.0001  # after each batch: the threads of the link get the interpreter


class ObserversLink(Protocol):
    """What a mirror needs of the link for observers, a `twinlink.Link`."""

    endpoint: str

    def sender(self, flow: str, *, reliability: Reliability, overflow: Overflow) -> Sender:
        """The sending end of a flow."""

    def peers(self) -> list[str]:
        """Names of the nodes that are up."""

    def events(self, *, handler: Callable[[Event], None]) -> object:
        """Have the handler called with each event."""

    def close(self) -> None:
        """End it."""


class MirrorStats(TypedDict):
    """What a mirror has counted.

    ``observers`` are up; ``frames`` were shown, and ``left_out`` were not, as the queue was full; ``lost`` are messages
    of the mirror, of many frames each, that some observer was too slow for, or the transport did not take.
    """

    observers: int
    frames: int
    left_out: int
    lost: int


class Mirror:
    """Made by `Link.mirror`; shows what passes the link until it is closed, or the link is.

    Without an observer nothing of it is on the way of a message.

    Attributes:
        endpoint: where observers connect.
    """

    def __init__(
        self, node: str, driver: SessionDriver, link: ObserversLink, errors: InternalErrors, queue_octets: int
    ) -> None:
        """``driver`` is of the observed link, ``link`` the one for observers, which the mirror closes."""
        self.endpoint = link.endpoint
        self._driver, self._link = driver, link
        self._head = head(node, driver.session.epoch)
        self._capture = Capture(queue_octets)
        self._is_attached = False
        self._frames = self._left_out = self._unsent = 0
        self._peers_due_s = 0.0
        self._sender = link.sender(MIRROR_FLOW, reliability="detect", overflow="drop-oldest")
        link.events(handler=self._on_event)
        self._ending = threading.Event()
        name = f"twinlink-{node}-mirror"
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._ending.is_set())
        self._thread.start()

    def stats(self) -> MirrorStats:
        """What was counted so far.  Any thread may call it."""
        return {
            "observers": len(self._link.peers()),
            "frames": self._frames,
            "left_out": self._left_out,
            "lost": self._sender.stats()["lost"] + self._unsent,
        }

    def close(self) -> None:
        """Show nothing more.  A second call does nothing."""
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Refused | InternalError):  # events of the observed link, too: its owner can repair them
            self._driver.report(event)

    # On the thread of the mirror

    def _run(self) -> None:
        try:
            while not self._ending.wait(LOOK_S if self._is_attached else IDLE_LOOK_S):
                if not self._link.peers():
                    self._detach()
                    continue
                if not self._is_attached:
                    self._is_attached = True
                    self._driver.add_tap(self._capture)
                self._show()
        except LinkClosed:
            if not self._ending.is_set():
                raise
        finally:
            self._detach()

    def _detach(self) -> None:
        if not self._is_attached:
            return
        self._driver.remove_tap(self._capture)
        self._is_attached = False
        self._capture = Capture(self._capture.limit)

    def _show(self) -> None:
        """Send what is queued, in messages of some 64 KiB."""
        batch = _Batch(self._head, self._send)
        if time.monotonic() >= self._peers_due_s:
            self._peers_due_s = time.monotonic() + PEERS_S
            peers = [(peer.epoch, peer.node) for peer in self._driver.session.known_peers() if peer.up]
            batch.add(peers_entry(peers, time.time_ns()))
        items = self._capture.items
        while items:
            item = items.popleft()
            self._capture.taken_octets += octets_of(item)
            self._take(item, batch)
        batch.end()

    def _take(self, item: Item, batch: "_Batch") -> None:
        if isinstance(item, FrameItem):
            before, frame = frame_entry(item)
            if len(self._head) + len(before) + len(frame) > MAX_PAYLOAD:
                self._left_out += 1
                return
            self._frames += 1
            batch.add(before, frame)
        elif isinstance(item, LeftOutItem):
            self._left_out += item.others + sum(ranges.count() for ranges in item.ranges.values())
            for entry in left_out_entries(item):
                batch.add(entry)

    def _send(self, message: bytes) -> None:
        try:
            self._sender.send(message)
        except TransportError:
            self._unsent += 1
        time.sleep(PAUSE_S)


class _Batch:
    """Entries for one message after the other."""

    def __init__(self, begin: bytes, send: Callable[[bytes], None]) -> None:
        self._begin, self._send = begin, send
        self._parts: list[Frame] = [begin]
        self._octets = len(begin)

    def add(self, *parts: Frame) -> None:
        """Add the parts of an entry; sends what is enough for a message."""
        octets = sum(map(len, parts))
        if self._octets + octets > BATCH_OCTETS:
            self.end()
        self._parts += parts
        self._octets += octets

    def end(self) -> None:
        if len(self._parts) > 1:
            self._send(b"".join(self._parts))
            self._parts, self._octets = [self._begin], len(self._begin)


def open_mirror(
    make: Callable[..., ObserversLink],
    transport: str,
    listen: str,
    node: str,
    identity: str,
    driver: SessionDriver,
    errors: InternalErrors,
    queue_octets: int,
) -> Mirror:
    """Open the link for observers, and its mirror; with an identity, it admits peers with the role ``observer`` alone.

    ``make`` is the class of links; ``driver`` and ``errors`` are of the observed link.  The other arguments are those
    of `twinlink.open` and `Mirror`; raises what `twinlink.open` raises.
    """
    limits = {"max_payload": MAX_PAYLOAD, "window": OBSERVERS_OCTETS}
    rest = {"retention": OBSERVERS_OCTETS, "send_timeout": 0.05, "busy_poll": False}
    prepared = options.make_transport(
        transport, listen=listen, connect=None, node=None, identity=identity, options={**limits, **rest}
    )
    options.warn_if_open(prepared, transport)
    if prepared.identity is not None:
        prepared.identity.admit_only("observer")
    link = make(prepared, name=transport, node=node, limits=Limits(max_frame=prepared.max_frame, **limits), **rest)
    try:
        return Mirror(node, driver, link, errors, queue_octets)
    except BaseException:
        link.close()
        raise
