"""A link: the one place where core, transport, clock and threads meet.

Who receives: whoever waits.  A thread in ``flush``, ``wait_ready`` or a receiver's loop takes the *lead* and reads
the transport itself, so that a message costs no hand-over between threads.  While nobody waits, the link's own thread
leads.  Exactly one thread leads at any time; handlers run on it, one at a time.
"""

import atexit
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Any, Self

from .errors import ConfigurationError, LinkClosed, PeerTimeout
from .events import Event
from .inbox import EventStream, Receiver
from .message import Ack, Message
from .outgoing import Outgoing
from .peers import HELLO_NS, SEARCH_NS
from .reception import Reception
from .sender import Sender
from .transports import Transport
from .wire import FLOW_NAME, MAX_ACK_RECORDS, Kind

BUSY_NS = 30_000  # messages closer together than this come in bulk: drain, and acknowledge many at once
LEAD_KEPT_S = 0.002  # a thread that stopped waiting will probably wait again; the link's own thread steps back so long
IDLE_S = 0.1  # the longest that anybody sits in the transport
LINGER_S = 0.5  # close waits this long for acks that are still outstanding

_FOR_EVER = float("inf")
_monotonic, _monotonic_ns = time.monotonic, time.monotonic_ns

logger = logging.getLogger("twinlink")
_open_links: "weakref.WeakSet[Link]" = weakref.WeakSet()


class Link:
    """One end of the channel; made by `twinlink.open`.  Every method may be called from any thread.

    Attributes:
        node: name of this node.
        epoch: the random 64-bit number of this session.
        transport_name, endpoint, listening: how it was opened; the endpoint as ``tcp/host:port``.
        closed: whether `close` was called.
    """

    def __init__(
        self, transport: Transport, *, name: str, node: str | None, window: int, send_timeout: float, max_payload: int
    ) -> None:
        self.transport_name = name
        self.endpoint = str(transport.endpoint)
        self.listening = transport.listening
        self.node = node or f"{socket.gethostname()}-{os.getpid()}"
        self.epoch = secrets.randbits(64)
        self.max_payload = max_payload
        self.send_timeout = send_timeout
        self.closed = False
        self._window = window
        self._transport = transport
        self._event_stream = EventStream(self)
        self.reception = Reception(transport, self.node, self.epoch, window, self._event_stream.put)
        self._receivers: dict[str, Receiver] = {}
        self._flows_lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._given_back = False
        self._lead = threading.Lock()
        self._leader = 0  # thread id
        self._led_at = 0.0
        self._waiters = 0
        self._progress = threading.Condition(threading.Lock())
        self._last_frame_ns = 0
        self._next_hello_ns = 0

        transport.open()
        self._thread = threading.Thread(target=self._serve, name=f"twinlink-{self.node}", daemon=True)
        self._thread.start()
        _open_links.add(self)

    # The public side

    def sender(self, flow: str, *, on_ack: Callable[[Ack], None] | None = None) -> Sender:
        """The sending end of a flow; asking again gives the same one (and sets ``on_ack`` where given).

        ``on_ack`` is called on the thread that receives; it must not block.
        """
        self._check_flow(flow)
        with self._flows_lock:
            sender = self.reception.senders.get(flow)
            if sender is None:
                sender = Sender(self, self._transport, Outgoing(flow, self._window))
                self.reception.add_sender(sender)
        if on_ack is not None:
            sender.on_ack = on_ack
        return sender

    def receiver(self, flow: str, *, handler: Callable[[Message], None] | None = None) -> Receiver:
        """The receiving end of a flow: iterate it, or give a handler.

        A handler is called for each message on the thread that receives, one at a time; it must not block.  What it
        raises is reported as HandlerError, and delivery goes on.
        """
        self._check_flow(flow)
        incoming = self.reception.flow(flow)
        incoming.claimed = True
        with self._flows_lock:
            receiver = self._receivers.setdefault(flow, Receiver(self, incoming))
        if handler is not None:
            self._with_lead(lambda: self._hand_over(receiver, handler))
        return receiver

    def _hand_over(self, receiver: Receiver, handler: Callable[[Message], None]) -> None:
        """From now on messages go to the handler; those held from before go first."""
        while (message := receiver.take()) is not None:
            self.reception.call(handler, message, receiver.flow)
        self.reception.flow(receiver.flow).handler = handler

    def wait_ready(self, timeout: float = 5.0) -> None:
        """Return once a peer has said hello and confirmed ours; what is sent from then on reaches it.

        Raises:
            PeerTimeout: nobody did within ``timeout`` seconds.
            LinkClosed: the link was closed.
        """
        peers = self.reception.peers
        self.wait(lambda: peers.up, timeout)
        self._check_open()
        if peers.up:
            return
        role, other = ("listening on", "connect") if self.listening else ("connecting to", "listen")
        first, count = self._transport.endpoint.port, self._transport.ports
        ports = f"port {first}" if count == 1 else f"ports {first} to {first + count - 1}"
        heard = ", ".join(peer.node for peer in peers.all())
        hint = (
            f"{heard} is heard but does not confirm hearing us: check the way back, {ports}"
            if heard
            else f"check that the other side runs with {other}= and transport {self.transport_name!r}, that the address"
            f" is right and that no firewall closes {ports}"
        )
        raise PeerTimeout(f"no peer within {timeout:g} s, {role} {self.endpoint} over {self.transport_name}: {hint}")

    def peers(self) -> list[str]:
        """Names of the nodes that are up."""
        return sorted(peer.node for peer in self.reception.peers.all() if peer.up)

    def events(self, *, handler: Callable[[Event], None] | None = None) -> EventStream:
        """Loss, gaps, peers that come and go: iterate it, or give a handler (`twinlink.events`).

        Events from before the first call are kept, up to a limit.
        """
        if handler is not None:
            self._event_stream.set_handler(handler)
        return self._event_stream

    def stats(self) -> dict[str, Any]:
        """Everything counted so far, as plain data: per flow sent and received, peers, malformed frames."""
        reception = self.reception
        return {
            "transport": self.transport_name,
            "endpoint": self.endpoint,
            "node": self.node,
            "epoch": f"{self.epoch:016x}",
            "peers": self.peers(),
            "sent": {flow: sender.stats() for flow, sender in list(reception.senders.items())},
            "received": {flow: incoming.stats() for flow, incoming in list(reception.flows.items())},
            "malformed": {reason: state[0] for reason, state in list(reception.malformed.items())},
            "acks_sent": reception.acks_sent,
            "handler_errors": reception.handler_errors,
            "events_dropped": self._event_stream.dropped,
        }

    def close(self) -> None:
        """Wait up to half a second for outstanding acks, say goodbye, and give everything back.

        Ends within a second from any state; a second call does nothing.  What stays unacknowledged is logged.
        """
        with self._close_lock:
            if self._given_back:
                return
            senders = list(self.reception.senders.values())
            if self.reception.peers.up and not self.leading:
                self.wait(lambda: all(sender.settled for sender in senders), LINGER_S)
            self.closed = True
            with self._progress:
                self._progress.notify_all()
            leading = self.leading  # called from a handler
            if leading or self._lead.acquire(timeout=2 * IDLE_S):
                self.reception.say(Kind.BYE)
                self._given_back = True
                self._transport.close()
            else:  # a handler blocks: its thread gives back when it comes to itself
                logger.warning("link to %s: a handler blocks, closing goes on when it returns", self.endpoint)
            if not leading:
                self._thread.join(timeout=2 * IDLE_S)
            for sender in senders:
                sender.log_unacknowledged()
            _open_links.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Waiting and leading

    @property
    def leading(self) -> bool:
        """Whether the calling thread leads, that is, whether we are inside a handler."""
        return self._leader == get_ident()

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        """Return when ``done()`` holds, after ``timeout`` seconds, or when the link closes; lead meanwhile."""
        if done():
            return
        deadline = _FOR_EVER if timeout is None else _monotonic() + timeout
        self._waiters += 1
        try:
            if self._lead.acquire(False):
                self._pump_as_leader(done, deadline)
            elif self._leader == get_ident():  # called from a handler
                self._pump_until(done, deadline)
            else:
                self._follow(done, deadline)
        finally:
            self._waiters -= 1

    def _pump_as_leader(self, done: Callable[[], object], deadline: float) -> None:
        self._leader = get_ident()
        try:
            self._pump_until(done, deadline)
        finally:
            self._leader = 0
            self._led_at = _monotonic()
            self._lead.release()
            if self._waiters > 1:
                with self._progress:
                    self._progress.notify_all()  # another one leads now

    def _follow(self, done: Callable[[], object], deadline: float) -> None:
        """Wait while another thread leads; take over when it stops."""
        while not done() and not self.closed:
            left = min(IDLE_S, deadline - _monotonic())
            if left <= 0:
                return
            if self._lead.acquire(False):
                self._pump_as_leader(done, deadline)
                return
            with self._progress:
                if not done():
                    self._progress.wait(left)

    def _pump_until(self, done: Callable[[], object], deadline: float) -> None:
        while not self.closed:
            left = deadline - _monotonic()
            if left <= 0:
                return
            self._pump(left if left < IDLE_S else IDLE_S)
            if done():
                return

    def _with_lead(self, act: Callable[[], None]) -> None:
        """Do something while no message can arrive."""
        if self.leading:
            act()
            return
        self._waiters += 1  # the link's own thread makes way
        try:
            with self._lead:
                self._leader = get_ident()
                try:
                    act()
                finally:
                    self._leader = 0
        finally:
            self._waiters -= 1

    def _serve(self) -> None:
        """The link's own thread: leads while nobody waits, and keeps the time."""
        while not self.closed:
            self._keep_time()
            if self._waiters or _monotonic() - self._led_at < LEAD_KEPT_S or not self._lead.acquire(False):
                time.sleep(LEAD_KEPT_S)
                continue
            self._leader = get_ident()
            try:
                while not self._waiters and not self.closed and _monotonic_ns() < self._next_hello_ns:
                    self._pump(IDLE_S if self.reception.peers.up else SEARCH_NS / 1e9)
            finally:
                self._leader = 0
                self._lead.release()

    def _keep_time(self) -> None:
        now = _monotonic_ns()
        if now >= self._next_hello_ns and not self.closed:
            self.reception.expire_peers(now)
            self._next_hello_ns = now + (HELLO_NS if self.reception.peers.up else SEARCH_NS)
            self.reception.say(Kind.HELLO)

    def _pump(self, timeout_s: float) -> None:
        """Receive and handle what comes within ``timeout_s``: one message, or a batch when they come in bulk."""
        received = self._transport.receive(timeout_s)
        if received is None:
            return
        now = _monotonic_ns()
        handle = self.reception.handle
        if now - self._last_frame_ns > BUSY_NS:
            self._last_frame_ns = now
            handle(received[0], received[1], now, True)
        else:
            receive = self._transport.receive
            for _ in range(MAX_ACK_RECORDS):
                handle(received[0], received[1], now, False)
                received = receive(0)
                now = _monotonic_ns()
                if received is None:
                    break
            else:
                handle(received[0], received[1], now, False)
            self._last_frame_ns = now
            self.reception.send_batch()
        if self._waiters > (self._leader != self._thread.ident):
            with self._progress:
                self._progress.notify_all()

    def _check_flow(self, flow: str) -> None:
        self._check_open()
        if not isinstance(flow, str) or not FLOW_NAME.fullmatch(flow):
            raise ConfigurationError(
                f"flow {flow!r}: a name has 1 to 63 letters, digits, dots, dashes or underscores "
                "and begins with a letter or digit"
            )

    def _check_open(self) -> None:
        if self.closed:
            raise LinkClosed(f"the link to {self.endpoint} is closed")


@atexit.register
def _close_all() -> None:
    for link in list(_open_links):
        link.close()
