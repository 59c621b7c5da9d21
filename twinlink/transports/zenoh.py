"""Zenoh with static endpoints, no scouting, no gossip: between peers, or as a client of routers.

In mode ``peer`` the connectors connect to the listener.  In mode ``client`` every node connects to one of the routers
it was given, and the namespace says which nodes belong together.

A frame is the payload of a put on the key expression ``traffic/<flow>`` or ``ack/<flow>``.  Acks and hellos have a
priority of their own above the data.
"""

import contextlib
import functools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import zenoh

from ..errors import ConfigurationError, TransportError
from ..process.malloc import trim
from ..protocol.frames import HEADER_OCTETS, HELLO_TOPIC
from .base import Endpoint, Frame, Transport, check_descriptors
from .zenoh_absent import AbsentSession, AbsentSubscriber
from .zenoh_config import ZenohOptions, check, configuration
from .zenoh_connections import ZenohConnections, clear_linger
from .zenoh_errors import FORKED, not_opened, reason, shared_memory_problem
from .zenoh_locators import Locators

# One thread to read and one to write: a round trip takes a tenth less than with Zenoh's default on two cores.  More
# threads connect and accept, because they may block (see LINGER).  ZENOH_RUNTIME in the environment has precedence.
RUNTIME = "(net: (worker_threads: 4), acc: (worker_threads: 2), rx: (worker_threads: 1), tx: (worker_threads: 1))"
TICK_S = 0.05
# A message that was sent alone occupies 64 KiB until it is read.  So while no thread reads, because of a long handler,
# each tick copies some; a reader waits meanwhile.
STOWED_IN_A_TICK = 256
# The backlog of a stall takes tens of MiB, and glibc's arenas keep their peak.  Memory is returned when traffic is
# interrupted anyway: this long after a connection came or went.
CALM_S = 2.0
POLL_S = 0.0005
# Zenoh sends a message in fragments when it does not fit the rest of a batch, and 1.10 glues the head of one to the
# tail of the next when a connection ends between them: right header, right length, wrong payload.  So a frame is
# followed by a seal, a copy of its timestamp, which the tail of another message does not have.
SEAL = slice(24, 32)
SEAL_OCTETS = 8
SEALED_OCTETS = HEADER_OCTETS + SEAL_OCTETS
PUT_OCTETS = 12  # of Zenoh's own for each frame
FIFO_MESSAGES = 1_000_000  # more than seven full flows hold; a full one would block Zenoh's network thread
MAX_PUBLISHERS = 8192  # far more than a link has flows
DESCRIPTORS = 16  # of files and sockets, with one peer
THREADS = 12  # with one peer
THREADS_THAT_STAY = 7  # of them, when a session ends
CLOSE_S = 0.25  # session.close() may hang on a lossy link; past this it goes on in a daemon thread


class ZenohTransport(Transport):
    """eclipse-zenoh >= 1.9."""

    options_class = ZenohOptions
    options: ZenohOptions
    _process: ClassVar[int | None] = None  # that first used Zenoh: a fork of it could not connect
    _patience = 1  # see renew
    added_octets = SEAL_OCTETS
    # The content of its data queue while a batch of 48 or 64 KiB is being written.  A message that waits in it for
    # ``block_before_close_ms`` ends the connection, although data flow.
    direct_octets = 15 * 48 * 1024
    whole_octets = 17 * 64 * 1024

    def __init__(self, endpoint: Endpoint, listening: bool, max_frame: int, options: ZenohOptions) -> None:
        super().__init__(endpoint, listening, max_frame, options)
        check(options, listening)
        self._client = options.mode == "client"
        self.scouts = not self._client  # a router that answers proves nothing about a peer

    def alternatives(self, endpoints: Sequence[Endpoint]) -> None:
        if not self._client:
            raise ConfigurationError(
                "zenoh connects to one listener; to give several routers, add the options mode=client and namespace"
            )
        self.endpoints = (self.endpoint, *endpoints)

    @property
    def threads(self) -> int:
        return THREADS if ZenohTransport._process is None else THREADS - THREADS_THAT_STAY

    def open(self) -> None:
        ZenohTransport._process = ZenohTransport._process or os.getpid()
        if ZenohTransport._process != os.getpid():
            raise TransportError(FORKED)
        check_descriptors(DESCRIPTORS)
        self._publishers: dict[bytes, zenoh.Publisher] = {}
        self._others: dict[bytes, zenoh.Publisher] = {}  # those of the other congestion control
        self._drops = False  # whether data are dropped for a peer that does not take them, see _let_drop
        self._publishers_lock = threading.Lock()
        self._preferred: set[bytes] = set()
        self._ticks_left = 0  # until a recv is woken
        self._reading = threading.Lock()
        self._stowed: deque[tuple[bytes, Frame]] = deque()  # read by the ticker, before all later frames
        self._read_octets = self._read_messages = 0
        self._drained = False  # whether everything was read since the connections were checked
        self._closing = threading.Event()
        self._left = False
        self._problem: str | None = None  # of the last attempt to connect to a router, where the reason is on this host
        self.gives_up_ns = (self.options.lease_ms + self.options.block_before_close_ms) * 1_000_000
        os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
        try:
            if self._client:
                self._be_without_session()  # the ticker connects, since that may take long
            else:
                self._open_session()
        except (zenoh.ZError, OSError) as error:  # OSError: of the resolver
            what = f"{'listen on' if self.listening else 'connect to'} {self.endpoint}"
            raise TransportError(not_opened(what, error)) from error
        self._ticker = threading.Thread(target=self._tick, name="twinlink-zenoh-tick", daemon=True)
        try:
            self._ticker.start()
        except BaseException:  # Ctrl-C included
            self.close()
            raise

    def _open_session(self) -> None:
        session = zenoh.open(self.config())
        try:
            self._declare(session)
        except BaseException:
            session.close()  # type: ignore[no-untyped-call]
            raise

    def _declare(self, session: zenoh.Session) -> None:
        connections = session.info.declare_link_events_listener(zenoh.handlers.RingChannel(8), history=True)
        # One subscriber, so that one blocking recv sees everything: traffic/<flow>, ack/<flow> and the wake-up.
        subscriber = session.declare_subscriber("*/*", zenoh.handlers.FifoChannel(FIFO_MESSAGES))
        waker = session.declare_publisher(f"wake/{session.zid()}", allowed_destination=zenoh.Locality.SESSION_LOCAL)
        # All of them, or none if one fails.
        self._connections, self._subscriber, self._waker = connections, subscriber, waker
        self._connected = False  # when renew was last called
        with self._publishers_lock:
            self._session = session
            self._publishers, self._others = {}, {}

    def renew(self, patience: int) -> None:
        # When a connection ends and the next one with the same peer is there at once, Zenoh 1.10 may take the new one's
        # routes away with the old: connected, alive, and nothing gets through.  A session has its own identity.
        if self._client:
            self._patience = patience  # of the next attempt, see _keep_router
            return
        if self.listening:
            return
        connected, self._connected = self._connected, bool(self._session.info.peers_zid())
        moved = not self._connected and self._locators.move()
        if patience == self._patience and not moved and not (connected and self._connected):
            return
        self._reopen(patience)

    def reached(self, patience: int) -> None:
        if not self._session.info.peers_zid():  # otherwise its own attempt has just succeeded
            self._locators.move()
            self._reopen(patience)

    def _reopen(self, patience: int) -> None:
        old, before = self._session, self._patience
        self._patience = patience  # the session is opened with it
        try:
            self._open_session()
        except (zenoh.ZError, OSError):
            self._patience = before
            return  # retried soon
        self._close_aside(old)

    def _close_aside(self, old: zenoh.Session) -> None:
        """Close a session on a thread of its own, because it may take long."""
        closer = threading.Thread(target=old.close, name="twinlink-zenoh-close", daemon=True)
        try:
            closer.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            old.close()  # type: ignore[no-untyped-call]

    def _tick(self) -> None:
        """Handle new connections, wake a recv after two ticks by a message to ourselves, and close the session at the
        end.

        Zenoh's recv has no time-out.  Its close may take long, and no thread can be started for it while the
        interpreter ends.  The session may be closed meanwhile, see renew.
        """
        trim_at = math.inf
        options = self.options
        limits = options.connections, options.handshakes, options.unread_octets
        connections = ZenohConnections(f"zenoh {self.endpoint}", self.endpoint.port, limits, self.limits_exceeded)
        if self._client:
            self._keep_router([])
        while not self._closing.wait(TICK_S):
            changes = self._connection_changes()
            if changes:
                clear_linger()
                trim_at = min(trim_at, time.monotonic() + CALM_S)
            if self._client:
                self._keep_router(changes)
            elif self.listening:
                if changes:
                    self._let_drop(len(self._session.info.peers_zid()) > 1)
                drained, self._drained = self._drained, False
                self.foreign_connections += connections.check(
                    (self._read_octets, self._read_messages), drained, bool(changes)
                )
            if time.monotonic() > trim_at:
                trim_at = math.inf
                trim()
            if self._ticks_left:
                self._ticks_left -= 1
                if not self._ticks_left:
                    with contextlib.suppress(zenoh.ZError):
                        self._waker.put(b"")
            if self._reading.acquire(blocking=False):
                try:
                    with contextlib.suppress(zenoh.ZError):
                        self._stow()
                finally:
                    self._reading.release()
        self._leave()

    def _let_drop(self, drops: bool) -> None:
        """Set whether data are dropped for a peer that does not take them for a moment; else `send` waits for it.

        A peer that stops reading must not delay the others.  Repair delivers what was dropped.
        """
        with self._publishers_lock:
            if drops != self._drops:
                self._drops = drops
                self._publishers, self._others = self._others, self._publishers

    def _connection_changes(self) -> list[zenoh.SampleKind]:
        """PUT for each connection made, DELETE for each that ended, since the last call."""
        changes: list[zenoh.SampleKind] = []
        with contextlib.suppress(zenoh.ZError):
            while (event := self._connections.try_recv()) is not None:
                changes.append(event.kind)
        return changes

    def _keep_router(self, changes: list[zenoh.SampleKind]) -> None:
        """In mode client: connect to a router that answers, with a new session after each connection.

        A Zenoh session would reconnect by itself, but may then lack its routes, see renew.
        """
        if zenoh.SampleKind.DELETE in changes:
            old, waker = self._session, self._waker
            self._be_without_session()
            with contextlib.suppress(zenoh.ZError):
                waker.put(b"")  # wakes a recv on the session that is closed next
            self._close_aside(old)
        if isinstance(self._session, AbsentSession):
            waker = self._waker
            self._locators.move()
            try:
                self._open_session()
                waker.put(b"")
            except (zenoh.ZError, OSError) as error:  # no router answers: the next tick tries again
                self._problem = shared_memory_problem(error)

    def _be_without_session(self) -> None:
        absent: Any = AbsentSubscriber(TICK_S)
        self._connections, self._subscriber, self._waker = absent, absent, absent
        with self._publishers_lock:
            self._session = cast(zenoh.Session, AbsentSession())
            self._publishers, self._others = {}, {}

    def why_alone(self) -> str | None:
        if not self._client:
            return None
        if isinstance(self._session, AbsentSession):
            return self._problem or (
                "no Zenoh router answers there: check that one runs, that the address is right, and the firewalls"
            )
        return (
            "the router answers, but no peer does: check that the other side is connected to the same router network "
            f"with the same namespace, {self.options.namespace!r} here"
        )

    def _stow(self) -> None:
        for _ in range(STOWED_IN_A_TICK):
            sample = self._subscriber.try_recv()
            if sample is None:
                self._drained = not self._stowed
                break
            if (taken := self._taken(sample)) is not None:  # a wake-up without a waiting reader is discarded
                self._stowed.append(taken)

    @functools.cached_property
    def _locators(self) -> Locators:
        return Locators(self.endpoints, self.listening)

    def config(self) -> zenoh.Config:
        """The session's configuration, every choice explicit."""
        return configuration(self.options, self._locators.current(), self.listening, self.max_frame, self._patience)

    def _publisher(self, topic: bytes) -> zenoh.Publisher:
        with self._publishers_lock:
            if topic not in self._publishers:
                if len(self._publishers) >= MAX_PUBLISHERS:  # a foreign program may name any number of flows
                    oldest = next(iter(self._publishers))
                    self._publishers.pop(oldest).undeclare()  # type: ignore[no-untyped-call]
                control = zenoh.CongestionControl
                data = topic.startswith(b"traffic/") and topic != HELLO_TOPIC
                self._publishers[topic] = self._session.declare_publisher(
                    topic.decode(),
                    reliability=zenoh.Reliability.RELIABLE,
                    # The receiving thread must not wait for a peer that reads nothing.
                    congestion_control=control.BLOCK if data and not self._drops else control.DROP,
                    priority=zenoh.Priority.DATA
                    if data and topic not in self._preferred
                    else zenoh.Priority.INTERACTIVE_HIGH,
                    express=False,  # a message alone in a batch occupies 64 KiB at the receiver, and is no quicker
                    allowed_destination=zenoh.Locality.REMOTE,  # our own subscriber matches the key expression too
                )
            return self._publishers[topic]

    def join(self, header: bytes, payload: bytes | memoryview) -> bytes:
        return b"".join((header, payload, header[SEAL]))  # here, because one more copy of a megabyte takes long

    def send(self, topic: bytes, frame: bytes) -> None:
        if len(frame) != int.from_bytes(frame[4:8]) + SEALED_OCTETS:  # not from join
            frame += frame[SEAL]
        publisher = None
        try:
            publisher = self._publishers.get(topic) or self._publisher(topic)
            publisher.put(frame)
        except zenoh.ZError as error:
            if not self._closing.is_set() and self._publishers.get(topic) is publisher:  # otherwise it was renewed
                raise TransportError(f"zenoh could not send on {topic.decode()}: {reason(error)}") from error

    def offer(self, topic: bytes, frame: bytes) -> None:
        if len(frame) != int.from_bytes(frame[4:8]) + SEALED_OCTETS:  # not from join
            frame += frame[SEAL]
        with contextlib.suppress(zenoh.ZError):
            self._session.put(
                topic.decode(),
                frame,
                congestion_control=zenoh.CongestionControl.DROP,
                priority=zenoh.Priority.INTERACTIVE_HIGH if topic in self._preferred else zenoh.Priority.DATA,
                allowed_destination=zenoh.Locality.REMOTE,
            )

    def prefer(self, topic: bytes) -> None:
        self._preferred.add(topic)

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        with self._reading:
            if self._stowed:
                return self._stowed.popleft()
            if timeout_s < TICK_S:
                sample = self._subscriber.try_recv()
                if sample is None:
                    self._drained = True
                    sample = self._poll(timeout_s)
            else:
                self._ticks_left = int(timeout_s / TICK_S)
                sample = self._subscriber.recv()
                self._ticks_left = 0
        return None if sample is None else self._taken(sample)

    def _poll(self, timeout_s: float) -> zenoh.Sample | None:
        """Wait for less than a tick."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            sample = self._subscriber.try_recv()
            if sample is not None:
                return sample
        return None

    def _taken(self, sample: zenoh.Sample) -> tuple[bytes, Frame] | None:
        """Topic and frame; None for a wake-up."""
        topic = str(sample.key_expr)
        if topic.startswith("wake/"):
            return None
        frame = sample.payload.to_bytes()
        self._read_octets += len(frame) + PUT_OCTETS
        self._read_messages += 1
        if frame[-SEAL_OCTETS:] != frame[SEAL]:
            return b"", b""
        return topic.encode(), memoryview(frame)[:-SEAL_OCTETS]

    def close(self) -> None:
        self._closing.set()
        if self._ticker.ident is None:  # it could not be started
            self._leave()
        else:
            self._ticker.join(CLOSE_S)

    def _leave(self) -> None:
        # Zenoh 1.10 leaks 20 KB of a session that still has a publisher when it is closed.
        with self._publishers_lock:
            left, self._left = self._left, True
            publishers, self._publishers = [*self._publishers.values(), *self._others.values()], {}
            self._others = {}
        if left:  # after Ctrl-C during the start of the ticker, the opening thread closed it
            return
        publishers.clear()  # outside the lock, for which a sending thread may wait
        del self._waker
        self._session.close()  # type: ignore[no-untyped-call]
