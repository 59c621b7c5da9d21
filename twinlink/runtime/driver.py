"""Drives a session: gives it what has arrived and the time, sends what it has to send, calls handlers."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..errors import TransportError
from ..events import Event, InternalError, PeerUp, Refused
from ..message import Message
from ..process import internal_errors
from ..process.signals import DeferSignals
from ..protocol.authentication import FrameAuthentication, epoch_prefix
from ..protocol.frames import AnyFrame, Kind
from ..protocol.limits import Limits
from ..protocol.rangeset import RangeSet
from ..protocol.session import PeerStream, ProbeResult, ReceiveFlow, SendFlow, Session
from ..stats import IdentityStats
from ..transports import Transport
from .callbacks import CallbackQueue
from .tap import TAPPED, Position, Tap, tapped
from .unread_flows import UnreadFlows

URGENT_FLOW = "control"  # of high priority unless its sender says otherwise
# Ctrl-C may come while frames of these kinds are taken in: their way is made for it, and deferring it takes 10 us.
INTERRUPTIBLE = frozenset(
    int(Kind[name])
    for name in ["DATA", "RETRANSMIT", "BUNDLE", "RUN", "FRAGMENT", "FRAGMENT_PROGRESS", "ACK", "ACK_RANGE"]
)
KIND_AT = 3  # in a frame

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns

logger = logging.getLogger("twinlink")


class _DeferringLock:
    """Defers signals (`DeferSignals`) while a lock is held.  What defers none takes the lock itself, by less steps."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self._signals = lock, DeferSignals()

    def __enter__(self) -> None:
        self._signals.__enter__()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._signals.__exit__()


class SessionDriver:
    """Between a session and its transport.  Handlers are called when no lock is held.

    Attributes:
        session: of which every method is called with ``lock`` held.
        lock: of the session.  A thread that holds it waits for nothing, and calls nothing outside the session.
        callbacks: calls of the application's functions.
        on_events: there are new events for the application.
        wake_transmit: has the queues of the flows transmitted.
        closed: nothing can be sent any more.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        node: str,
        epoch: int,
        limits: Limits,
    ) -> None:
        self.session = session = Session(
            node=node,
            epoch=epoch,
            limits=limits,
            path=transport,
            mono_ns=_monotonic_ns(),
            uninterrupted=DeferSignals,
            urgent_flow=URGENT_FLOW,
        )
        self.callbacks = CallbackQueue(session.deliveries, self)
        self.on_events: Callable[[], None] = lambda: None
        self.wake_transmit: Callable[[], None] = lambda: None
        self.closed = False
        self._node = node
        self._unread_flows = UnreadFlows(session.receiving)
        self._transport = transport
        self._foreign_connections = 0  # that were reported
        self._ended_connections: dict[str, int] = {}  # likewise, for a limit, by option
        self._errors_reported = {one: one.count for one in (transport.internal_errors, internal_errors.of_process)}
        self._errors_before = internal_errors.of_process.count
        self._authentication = FrameAuthentication()
        self._identity_version = 0
        self._receive = session.receive if transport.identity is None else self._receive_authenticated
        self._acks_due, self._outbox = session.acks_due, session.outbox
        self._deliveries = session.deliveries
        self._taps: tuple[Tap, ...] = ()
        self.new_locks()

    def new_locks(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent."""
        self.lock = threading.Lock()
        self._control_lock = threading.Lock()  # control frames leave in the order in which they are made

    # For the thread that leads

    def receive(self, topic: bytes, frame: AnyFrame, mono_ns: int, in_bulk: bool) -> None:
        """Take in a frame; what follows from it is sent, then handlers are called.

        ``in_bulk``: others are close behind, and acks wait for `flush_acks`.
        """
        session = self.session
        try:
            kind = frame[KIND_AT] if len(frame) > KIND_AT else None
            with self._control_lock if kind in INTERRUPTIBLE else _DeferringLock(self._control_lock):
                with self.lock:
                    self._receive(topic, frame, mono_ns, _time_ns(), in_bulk)
                    due = self._acks_due or self._outbox or session.hello_due
                    frames = session.frames_to_send(mono_ns, _time_ns()) if due else ()  # T3 of an ack is not its T2
                for to, one in frames:
                    self._transport.send(to, one)
            if session.has_new_events:
                self._tell_events()
            if session.transmit_due:
                self._transmit()
        finally:  # also where the transport fails: no message of the next frame may come before these
            if self._deliveries:
                self.callbacks.run()

    def _receive_authenticated(
        self, topic: bytes, frame: AnyFrame, mono_ns: int, now_ns: int, in_bulk: bool = False
    ) -> None:
        if self._authentication.admits(self._transport.sender, topic, frame):
            self.session.receive(topic, frame, mono_ns, now_ns, in_bulk)
        else:
            self.session.on_refused_frame(mono_ns, now_ns)

    def receive_ahead(self, topic: bytes, frame: AnyFrame, mono_ns: int) -> None:
        """As `receive`, while handlers are behind: none is called, and acks wait for `flush_acks`."""
        kind = frame[KIND_AT] if len(frame) > KIND_AT else None
        with self.lock if kind in INTERRUPTIBLE else _DeferringLock(self.lock):
            self._receive(topic, frame, mono_ns, _time_ns(), True)
        if self.session.has_new_events:
            self._tell_events()

    def flush_acks(self) -> None:
        """Acknowledge what came in bulk, and say what there was no room for."""
        self._send_due(flushes=True)

    def on_tick(self, mono_ns: int, drained_mono_ns: int) -> None:
        """To be called ten times a second or more; ``drained_mono_ns`` is when the transport was last found empty."""
        self._transport.tick()
        with DeferSignals():
            with self.lock:
                timeout_factor = self.session.on_tick(mono_ns, _time_ns(), drained_mono_ns)
                duplicates = self.session.take_duplicate_names()
            self._tell_events()
            self._report_refusals()
            self._report_connections()
            self._report_internal_errors()
        self._send_due()
        if timeout_factor is not None:
            self._transport.renew(timeout_factor)
        for name in duplicates:
            logger.warning(
                "two nodes are called %s, and one of them will be taken for the other's restart: give each a name of "
                "its own (node=, --node)",
                name,
            )
        self._unread_flows.on_tick(mono_ns, self._node)
        self.callbacks.run()

    def _report_refusals(self) -> None:
        """Report connections that were refused, and end the sessions of peers that are not trusted any more."""
        for refusal in self._transport.refusals.take():
            self.report(Refused(_time_ns(), *refusal))
        identity = self._transport.identity
        if identity is not None and identity.version != self._identity_version:
            self._identity_version = identity.version
            trusted = {epoch_prefix(name) for name in identity.names}
            with self.lock:
                self.session.end_untrusted(trusted)
            self._tell_events()

    def identity_stats(self) -> IdentityStats | None:
        """What was refused on a link with an identity.  Any thread may call it."""
        if self._transport.identity is None:
            return None
        refused = self._authentication.refused
        return {"refused_connections": self._transport.refusals.count, "refused_frames": dict(refused)}

    def _report_connections(self) -> None:
        """Report the connections that the transport has ended."""
        session, foreign = self.session, self._transport.foreign_connections
        ended_connections = dict(self._transport.limits_exceeded)
        if foreign == self._foreign_connections and ended_connections == self._ended_connections:
            return
        with self.lock:
            for _ in range(foreign - self._foreign_connections):
                session.count_malformed("transport")
            for option, ended in ended_connections.items():
                if ended > (reported := self._ended_connections.get(option, 0)):
                    session.count_exceeded(option, ended - reported)
        self._tell_events()
        self._foreign_connections, self._ended_connections = foreign, ended_connections

    def _report_internal_errors(self) -> None:
        for errors, reported in self._errors_reported.items():
            if (count := errors.count) == reported:
                continue
            self._errors_reported[errors] = count
            for one in errors.since(reported):
                if one.number <= count:  # else it comes next time
                    self.report(InternalError(_time_ns(), one.where, one.error, one.number))

    @property
    def internal_errors(self) -> int:
        """Exceptions in threads and callbacks of this link, or of none, since it was opened.  Any thread may ask."""
        return sum(errors.count for errors in self._errors_reported) - self._errors_before

    def on_probe_result(self, result: ProbeResult) -> bool:
        """The other side's port has answered while no peer is up; whether the transport was told to connect now."""
        with self.lock:
            timeout_factor = self.session.on_probe_result(result, _monotonic_ns())
        if timeout_factor is not None:
            self._transport.reached(timeout_factor)
        return timeout_factor is not None

    def report_undelivered(self) -> None:
        """Report what was not delivered and has not been reported yet: the link ends."""
        with self.lock:
            self.session.report_undelivered(_monotonic_ns(), _time_ns())
        self._tell_events()

    def report_losses(self) -> bool:
        """Report what has been lost and not been reported; whether some of it is left for the next call."""
        with DeferSignals(), self.lock:
            is_left = self.session.report_losses()
        self._tell_events()
        return is_left

    # For any thread

    def add_tap(self, tap: Tap) -> list[Position]:
        """Show a tap what the session takes in and sends from now on; returns where its flows stand."""
        with DeferSignals(), self.lock:
            self._set_taps((*self._taps, tap))
            return [Position(*position) for position in self.session.positions()]

    def remove_tap(self, tap: Tap) -> None:
        """Show a tap nothing more; of one that is not there, nothing changes."""
        with DeferSignals(), self.lock:
            self._set_taps(tuple(one for one in self._taps if one is not tap))

    def _set_taps(self, taps: tuple[Tap, ...]) -> None:
        session, self._taps = self.session, taps
        for name in TAPPED:  # these hide the methods, so that a message's path is as ever while there is no tap
            vars(session).pop(name, None)
        for tap in taps:
            vars(session).update(tapped(session, tap))
        if self._transport.identity is None:
            self._receive = session.receive

    def watch_peers(self, watcher: Callable[[Event], None]) -> None:
        """Call a function with each `PeerUp` and `PeerDown` from now on; of the peers that are up, one comes first."""
        with DeferSignals(), self.lock:
            known = self.session.known_peers()
            up = [PeerUp(_time_ns(), peer.node, peer.epoch) for peer in known if peer.up]
            self.session.watch_peers(watcher, up)

    def _tell_events(self) -> None:
        self.session.has_new_events = False
        self.on_events()

    def report(self, event: Event) -> None:
        """Give an event to the application."""
        with self.lock:
            self.session.report(event)
        self._tell_events()

    def _transmit(self) -> None:
        self.session.transmit_due = False
        self.wake_transmit()

    def _send_due(self, flushes: bool = False) -> None:
        """Send the control frames that are due; ``flushes``: as `flush_acks` says."""
        session = self.session
        with self._control_lock:
            with self.lock:
                if flushes:
                    session.flush_acks()
                frames = session.frames_to_send(_monotonic_ns(), _time_ns())
            for topic, frame in frames:
                self._transport.send(topic, frame)
        if session.transmit_due:
            self._transmit()

    def _send(self, make: Callable[..., tuple[bytes, bytes]], *arguments: Any) -> None:
        with self._control_lock:
            with self.lock:
                frame = make(*arguments)
            self._transport.send(*frame)

    def send_hello(self) -> None:
        """Say which peers are heard, and where the flows stand."""
        self._send(self.session.hello, _monotonic_ns(), _time_ns())

    def send_bye(self) -> None:
        """Say that this session ends."""
        self._send(self.session.bye, _time_ns())

    def on_timeout(self) -> int:
        """Say hello, and look what flows wait for, whichever is due; returns when to call again, in monotonic ns."""
        session = self.session
        with self._control_lock:
            now = _monotonic_ns()
            with self.lock:
                session.on_timeout(now, _time_ns())
                frames = session.frames_to_send(now, _time_ns()) if session.hello_due else ()
                due = session.next_timeout(now)
            for topic, frame in frames:
                self._transport.send(topic, frame)
        if session.transmit_due:
            self._transmit()
        return due

    def fits(self, flow: SendFlow, size: int) -> bool:
        """Whether a payload of ``size`` octets may be sent now."""
        with self.lock:
            return self.session.fits(flow, size, _monotonic_ns())

    def set_handler(self, receive_flow: ReceiveFlow, handler: Callable[[Message], None]) -> None:
        """From now on messages go to the handler; those held from before go first.  For the thread that leads."""
        with self.lock:
            self.session.set_handler(receive_flow, handler)
        self.callbacks.run()

    def take(self, receive_flow: ReceiveFlow, tells_end: bool = False) -> Message | None:
        """The next message of a flow, if one is here; the arguments are those of `ReceiveFlow.next_message`."""
        if not receive_flow.queue:
            return None
        with self.lock:
            taken = receive_flow.next_message(tells_end)
        if taken is None:
            return None
        message, stream = taken
        if stream is not None and not self.closed:
            self._send_credit_update(receive_flow.flow, stream)
        return message

    def take_many(self, receive_flow: ReceiveFlow, most: int, parts: list[Sequence[Message]]) -> bool:
        """Take the next messages of a flow that are here, at most so many, which are added to ``parts``; False: none.

        Where Ctrl-C ends the call, `put_back` is to be called with them.
        """
        if not receive_flow.queue:
            return False
        with self.lock:
            streams = receive_flow.next_parts(most, parts)
        for stream in streams if not self.closed else ():
            self._send_credit_update(receive_flow.flow, stream)
        return bool(parts)

    def put_back(self, receive_flow: ReceiveFlow, parts: Sequence[Sequence[Message]]) -> None:
        """The application did not get these, of a call of `take_many` or several: they come next again."""
        with DeferSignals(), self.lock:
            receive_flow.put_back(parts)

    def _send_credit_update(self, flow: str, stream: PeerStream) -> None:
        """Say how far a stream is consumed; where the transport fails the sender probes for it."""
        with suppress(TransportError, OSError):
            self._send(self.session.credit_update, flow, stream, _time_ns())

    def on_acks_reported(self, flow: str, count: int) -> None:
        """`on_ack` has been called with so many acks of a flow."""
        with self.lock:
            may_leave = self.session.sending[flow].on_acks_reported(count)
        if may_leave:
            self._transmit()

    # What is asked of the flows

    def is_settled(self) -> bool:
        """Whether nothing is outstanding that a peer that is up could still acknowledge."""
        with self.lock:
            return all(flow.is_settled for flow in self.session.sending.values())

    def feedback_progress(self) -> object:
        """Changes while feedback comes."""
        with self.lock:
            return [flow.feedback_progress for flow in self.session.sending.values()]

    def close_flows(self) -> list[tuple[str, str, RangeSet]]:
        """Keep no message any more; for the log: each flow, the peers that owe acks, what is outstanding or lost.

        Its frames go now: a link refers to itself, and Python's garbage collection may take long to find a closed one.
        """
        ended = []
        with self.lock:
            for flow in self.session.sending.values():
                unacked_by = flow.unacked_by
                flow.close()
                # Name the peers: what a session that died still owes, another peer may have acknowledged long ago.
                by = f" by {self.session.peer_names(unacked_by)}" if unacked_by else ""
                ended.append((flow.flow, by, flow.missing()))
        return ended
