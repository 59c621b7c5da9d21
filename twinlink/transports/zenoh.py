"""Zenoh in peer mode with static endpoints: no router, no scouting, no gossip.

A frame is the payload of a put on the key expression ``traffic/<flow>`` or ``ack/<flow>``.  Acks and hellos have a
priority of their own above the data.
"""

import contextlib
import json
import math
import os
import re
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import zenoh

from ..errors import TransportError
from ..heap import trim
from ..wire import HEADER_OCTETS, HELLO_TOPIC
from .base import Frame, Options, Transport, advice, check_descriptors

# One thread to read and one to write: a round trip takes a tenth less than with Zenoh's own choice on two cores.  More
# to connect and accept, because they may wait (see LINGER).  A ZENOH_RUNTIME in the environment wins.
RUNTIME = "(net: (worker_threads: 4), acc: (worker_threads: 2), rx: (worker_threads: 1), tx: (worker_threads: 1))"
# Zenoh has its sockets linger: closing that of a peer which has gone without a word holds the thread that does it, and
# all whom it serves, for these 10 s.
LINGER = struct.Struct("ii")  # on or off, seconds
ZENOHS_LINGER = LINGER.pack(1, 10)
TICK_S = 0.05
# Each message that was sent alone takes 64 KiB until it is read.  So while nobody reads, because a handler takes its
# time, some are copied in each tick; as long as that lasts a reader has to wait.
STOWED_IN_A_TICK = 256
# What a stall held up takes tens of MiB at once, and glibc's arenas keep their highest level.  It is given back when
# traffic has been interrupted anyway: this long after a connection came or went.
CALM_S = 2.0
POLL_S = 0.0005
# Zenoh sends a message in fragments when it does not fit the rest of a batch, and 1.10 glues the head of one to the
# tail of the next when a connection ends between them: right header, right length, wrong payload.  So a frame is
# followed by a seal, its time once more, which the tail of another message does not end with.
SEAL = slice(24, 32)
SEAL_OCTETS = 8
SEALED_OCTETS = HEADER_OCTETS + SEAL_OCTETS
ACCEPT_PENDING = 1000  # of Zenoh's own 100, connections that say nothing would take all for the time that is given them
FIFO_MESSAGES = 1_000_000  # beyond what seven full flows hold; a full one would hold Zenoh's network thread
DESCRIPTORS = 16  # of files and sockets, with one peer
THREADS = 12  # with one peer
THREADS_THAT_STAY = 7  # of them, when a session ends
FORKED = (
    "zenoh cannot be used here: this process was forked from one that has used it, and lacks the threads that Zenoh "
    "started there; fork before the first link is opened, or start a new interpreter: "
    'multiprocessing.get_context("spawn")'
)
CLOSE_S = 0.25  # session.close() may hang on a lossy link; past this it goes on in a daemon thread


@dataclass(frozen=True)
class ZenohOptions(Options):
    """Options of transport ``zenoh``."""

    shared_memory: bool = False  # payloads of 3072 octets and more bypass TCP between peers on one host
    # Batches of 64 KiB in the data priorities; 2 is Zenoh's default, 16 is quicker from 100 KB.
    data_queue: int = field(default=16, metadata={"most": 16})
    lease_ms: int = 2000  # silence after which Zenoh gives a connection up
    block_before_close_ms: int = 700  # a peer that does not take a message, or part, for this long is disconnected
    drop_after_ms: int = 20  # an ack or hello that finds the queue full for so long goes: the next one says as much
    reconnect_ms: int = 30
    reconnect_max_ms: int = 30  # always the same
    open_timeout_ms: int = 120  # at first, see renew: four round trips must fit; TCP would try again after 1, 3, 7 s
    accept_timeout_ms: int = 4000  # two round trips
    os_send_buffer: int = 0  # octets; 0 leaves it to the kernel
    os_receive_buffer: int = 0


class ZenohTransport(Transport):
    """eclipse-zenoh >= 1.9."""

    options_class = ZenohOptions
    options: ZenohOptions
    _process: ClassVar[int | None] = None  # which first used Zenoh: a fork of it would connect to nobody
    _patience = 1  # see renew
    scouts = True
    added_octets = SEAL_OCTETS
    # What its data queue holds while a batch, of 48 or 64 KiB, is being written.  A message that waits in it for
    # ``block_before_close_ms`` ends the connection, though it moves.
    direct_octets = 15 * 48 * 1024
    whole_octets = 17 * 64 * 1024

    @property
    def threads(self) -> int:
        return THREADS if ZenohTransport._process is None else THREADS - THREADS_THAT_STAY

    def open(self) -> None:
        ZenohTransport._process = ZenohTransport._process or os.getpid()
        if ZenohTransport._process != os.getpid():
            raise TransportError(FORKED)
        check_descriptors(DESCRIPTORS)
        self._publishers: dict[bytes, zenoh.Publisher] = {}
        self._publishers_lock = threading.Lock()
        self._preferred: set[bytes] = set()
        self._ticks_left = 0  # until a recv is ended
        self._reading = threading.Lock()
        self._stowed: deque[tuple[bytes, Frame]] = deque()  # read by the ticker, before all that is read next
        self._closing = threading.Event()
        self._left = False
        self.gives_up_ns = (self.options.lease_ms + self.options.block_before_close_ms) * 1_000_000
        os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
        try:
            self._open_session()
        except zenoh.ZError as error:
            what = "listen on" if self.listening else "connect to"
            reason = _reason(error)
            raise TransportError(f"zenoh cannot {what} {self.endpoint}: {reason}{advice(reason)}") from error
        self._ticker = threading.Thread(target=self._tick, name="twinlink-zenoh-tick", daemon=True)
        try:
            self._ticker.start()
        except BaseException:  # Ctrl-C as well
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
        connections = session.info.declare_link_events_listener(zenoh.handlers.RingChannel(1), history=True)
        # One subscriber, so that one blocking recv sees everything: traffic/<flow>, ack/<flow> and the wake-up.
        subscriber = session.declare_subscriber("*/*", zenoh.handlers.FifoChannel(FIFO_MESSAGES))
        waker = session.declare_publisher(f"wake/{session.zid()}", allowed_destination=zenoh.Locality.SESSION_LOCAL)
        # All of them, or none where one fails.
        self._connections, self._subscriber, self._waker = connections, subscriber, waker
        self._connected = False  # when renew was last called
        with self._publishers_lock:
            self._session = session
            self._publishers = {}

    def renew(self, patience: int) -> None:
        # When a connection ends and the next one with the same peer is there at once, Zenoh 1.10 may take the new one's
        # routes away with the old: connected, alive, and nothing gets through.  A session has its own identity.
        if self.listening:
            return
        connected, self._connected = self._connected, bool(self._session.info.peers_zid())
        if patience == self._patience and not (connected and self._connected):
            return
        self._reopen(patience)

    def reached(self, patience: int) -> None:
        if not self._session.info.peers_zid():  # else its own attempt has just succeeded
            self._reopen(patience)

    def _reopen(self, patience: int) -> None:
        old, before = self._session, self._patience
        self._patience = patience  # the session is opened with it
        try:
            self._open_session()
        except zenoh.ZError:
            self._patience = before
            return  # asked again soon
        closer = threading.Thread(target=old.close, name="twinlink-zenoh-close", daemon=True)
        try:
            closer.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            old.close()  # type: ignore[no-untyped-call]

    def _tick(self) -> None:
        """Look after new connections, and end a recv that has waited long enough by a message to ourselves; at the end,
        leave: Zenoh's close may take long, and no thread can be started for it while the interpreter ends.

        Zenoh's recv has no time limit.  What is looked at may be of a session that is being closed, see renew.
        """
        trim_at = math.inf
        while not self._closing.wait(TICK_S):
            with contextlib.suppress(zenoh.ZError):
                if self._connections.try_recv() is not None:
                    clear_linger()
                    trim_at = min(trim_at, time.monotonic() + CALM_S)
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

    def _stow(self) -> None:
        for _ in range(STOWED_IN_A_TICK):
            sample = self._subscriber.try_recv()
            if sample is None:
                break
            if (taken := _taken(sample)) is not None:  # a wake-up that nobody waits for is of no use later
                self._stowed.append(taken)

    def config(self) -> zenoh.Config:
        """The session's configuration, every choice explicit."""
        options = self.options
        endpoints = [str(self.endpoint)]
        retry = {
            "period_init_ms": options.reconnect_ms,
            "period_max_ms": options.reconnect_max_ms,
            "period_increase_factor": 1.5,
        }
        queues = {
            name: options.data_queue if name in {"data", "interactive_high"} else 2
            for name in (
                "control", "real_time", "interactive_high", "interactive_low", "data_high", "data", "data_low",
                "background",
            )
        }  # fmt: skip
        settings = {
            "mode": "peer",
            "listen/endpoints": endpoints if self.listening else [],
            "connect/endpoints": [] if self.listening else endpoints,
            "connect/timeout_ms": -1,
            "connect/exit_on_failure": False,
            "connect/retry": retry,
            # Else open, and with it renew, would last half a second while nobody is there.
            "open/return_conditions/connect_scouted": False,
            "open/return_conditions/declares": False,
            "listen/timeout_ms": 0,
            "listen/exit_on_failure": True,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "transport/unicast/open_timeout": options.open_timeout_ms * self._patience,
            "transport/unicast/accept_timeout": options.accept_timeout_ms,
            "transport/unicast/accept_pending": ACCEPT_PENDING,
            "transport/shared_memory/enabled": options.shared_memory,
            "transport/link/tx/lease": options.lease_ms,
            "transport/link/tx/queue/size": queues,
            "transport/link/tx/queue/congestion_control/block/wait_before_close": options.block_before_close_ms * 1000,
            "transport/link/tx/queue/congestion_control/drop/wait_before_drop": options.drop_after_ms * 1000,
            "transport/link/rx/max_message_size": self.max_frame + 4096,
        }
        if options.os_send_buffer:
            settings["transport/link/tcp/so_sndbuf"] = options.os_send_buffer
        if options.os_receive_buffer:
            settings["transport/link/tcp/so_rcvbuf"] = options.os_receive_buffer
        config = zenoh.Config()
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        return config

    def _publisher(self, topic: bytes) -> zenoh.Publisher:
        with self._publishers_lock:
            if topic not in self._publishers:
                control = zenoh.CongestionControl
                data = topic.startswith(b"traffic/") and topic != HELLO_TOPIC
                self._publishers[topic] = self._session.declare_publisher(
                    topic.decode(),
                    reliability=zenoh.Reliability.RELIABLE,
                    # The thread that receives must not wait for a peer that takes nothing.
                    congestion_control=control.BLOCK if data else control.DROP,
                    priority=zenoh.Priority.DATA
                    if data and topic not in self._preferred
                    else zenoh.Priority.INTERACTIVE_HIGH,
                    express=False,  # a message alone in a batch occupies 64 KiB at the receiver, and is no quicker
                    allowed_destination=zenoh.Locality.REMOTE,  # our own subscriber matches the key expression too
                )
            return self._publishers[topic]

    def join(self, header: bytes, payload: bytes | memoryview) -> bytes:
        return b"".join((header, payload, header[SEAL]))  # here, because one more copy of a megabyte takes its time

    def send(self, topic: bytes, frame: bytes) -> None:
        if len(frame) != int.from_bytes(frame[4:8]) + SEALED_OCTETS:  # not from join
            frame += frame[SEAL]
        publisher = None
        try:
            publisher = self._publishers.get(topic) or self._publisher(topic)
            publisher.put(frame)
        except zenoh.ZError as error:
            if not self._closing.is_set() and self._publishers.get(topic) is publisher:  # else it was renewed
                raise TransportError(f"zenoh could not send on {topic.decode()}: {_reason(error)}") from error

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
                sample = self._subscriber.try_recv() or self._poll(timeout_s)
            else:
                self._ticks_left = int(timeout_s / TICK_S)
                sample = self._subscriber.recv()
                self._ticks_left = 0
        return None if sample is None else _taken(sample)

    def _poll(self, timeout_s: float) -> zenoh.Sample | None:
        """Wait for less than a tick."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            sample = self._subscriber.try_recv()
            if sample is not None:
                return sample
        return None

    def close(self) -> None:
        self._closing.set()
        if self._ticker.ident is None:  # it could not be started
            self._leave()
        else:
            self._ticker.join(CLOSE_S)

    def _leave(self) -> None:
        # Zenoh 1.10 keeps 20 KB for good of a session that still has a publisher when it is closed.
        with self._publishers_lock:
            left, self._left = self._left, True
            publishers, self._publishers = self._publishers, {}
        if left:  # Ctrl-C, while the ticker was being started, had whoever opens do it
            return
        publishers.clear()  # outside the lock, for which a thread that sends may wait
        del self._waker
        self._session.close()  # type: ignore[no-untyped-call]


def _taken(sample: zenoh.Sample) -> tuple[bytes, Frame] | None:
    """Topic and frame; None for a wake-up."""
    topic = str(sample.key_expr)
    if topic.startswith("wake/"):
        return None
    frame = sample.payload.to_bytes()
    if frame[-SEAL_OCTETS:] != frame[SEAL]:
        return b"", b""
    return topic.encode(), memoryview(frame)[:-SEAL_OCTETS]


def clear_linger() -> None:
    """Have the sockets of this process that linger as Zenoh's do close at once, as sockets do by default."""
    try:
        entries = list(Path("/proc/self/fd").iterdir())
    except OSError:  # no descriptor is left to look with: the next connection is another occasion
        return
    for entry in entries:
        with contextlib.suppress(OSError):  # not a socket, or closed by now
            found = socket.socket(fileno=int(entry.name))
            try:
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.size) == ZENOHS_LINGER:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.pack(0, 0))
            finally:
                found.detach()


def _reason(error: zenoh.ZError) -> str:
    """The part of Zenoh's message that a person can use: the system's reason, if there is one."""
    found = re.search(r"([A-Z][^:\[\]]*) \(os error \d+\)", str(error))
    return found[1] if found else str(error).split(" at ")[0]
