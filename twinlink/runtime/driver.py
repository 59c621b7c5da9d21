"""Drives a session: gives it what has arrived and the time, sends what it has to send, calls handlers."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import TransportError
from ..events import Event, InternalError, Refused
from ..process import internal_errors
from ..process.signals import DeferSignals
from ..protocol.authentication import FrameAuthentication, epoch_prefix
from ..protocol.frames import Frame
from ..protocol.limits import Limits
from ..protocol.receive.flow import PeerStream, ReceiveFlow
from ..protocol.reconnect import ProbeResult
from ..protocol.session import Session
from ..stats import IdentityStats
from ..transports import Transport
from .callbacks import CallbackQueue
from .flow_endpoint import FlowEndpoint
from .unread_flows import UnreadFlows

URGENT_FLOW = "control"  # of high priority unless its sender says otherwise

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class SessionDriver:
    """Between a session and its transport.

    For the thread that leads, except `add_sender`, `send_hello` and `send_credit_update`.  Handlers are called when no
    lock is held.

    Attributes:
        senders: by flow.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        node: str,
        epoch: int,
        limits: Limits,
        report: Callable[[Event], None],
    ) -> None:
        self.senders: dict[str, FlowEndpoint] = {}
        self.callbacks = CallbackQueue(report)
        self.session = Session(
            node=node,
            epoch=epoch,
            limits=limits,
            path=transport,
            calls=self.callbacks,
            call_next=self.call_next,
            report=report,
            mono_ns=_monotonic_ns(),
            uninterrupted=DeferSignals,
            urgent_flow=URGENT_FLOW,
        )
        self._node = node
        self._unread_flows = UnreadFlows(self.session.messages.flows)
        self._transport = transport
        self._report = report
        self._foreign_connections = 0  # that were reported
        self._ended_connections: dict[str, int] = {}  # likewise, for a limit, by option
        self._errors_reported = {one: one.count for one in (transport.internal_errors, internal_errors.of_process)}
        self._errors_before = internal_errors.of_process.count
        self._peer_manager = self.session.peer_manager
        self._authentication = FrameAuthentication()
        self._identity_version = 0
        identified = transport.identity is not None
        self._receive_frame = self._receive_authenticated if identified else self.session.receive_frame
        self._acks_due = self.session.messages.acks.due
        self._outbox = self.session.outbox
        self._hello_lock = threading.Lock()  # an older hello must not leave after a newer one

    def add_sender(self, sender: FlowEndpoint) -> None:
        """Have a sender told of peers and acks, and peers told of its flow before its first message."""
        self.senders[sender.flow] = sender
        self.session.add_sender(sender)
        self.send_hello()

    def receive(self, topic: bytes, frame: Frame, mono_ns: int, in_bulk: bool) -> None:
        """Take in a frame; what follows from it is sent, then handlers are called.

        ``in_bulk``: others are close behind, and acks wait for `flush_acks`.
        """
        try:
            self._receive_frame(topic, frame, mono_ns, _time_ns(), in_bulk)
            if self._acks_due or self._outbox or self._peer_manager.hello_due:
                self._send_due()
        finally:  # also where the transport fails: no message of the next frame may come before these
            if self.callbacks.pending:
                self.callbacks.run()

    def _receive_authenticated(
        self, topic: bytes, frame: Frame, mono_ns: int, now_ns: int, in_bulk: bool = False
    ) -> None:
        if self._authentication.admits(self._transport.sender, topic, frame):
            self.session.receive_frame(topic, frame, mono_ns, now_ns, in_bulk)
        else:
            self.session.on_refused_frame(mono_ns, now_ns)
            self.session.messages.acks.flush()  # a flood of such frames must not delay the acks of true peers

    def receive_ahead(self, topic: bytes, frame: Frame, mono_ns: int) -> None:
        """As `receive`, while handlers are behind: none is called, and acks wait for `flush_acks`."""
        self._receive_frame(topic, frame, mono_ns, _time_ns(), True)

    def flush_acks(self) -> None:
        """Acknowledge what came in bulk, and say what there was no room for."""
        self.session.messages.acks.flush()
        self.session.messages.report_refused()
        self._send_due()

    def on_tick(self, mono_ns: int, drained_mono_ns: int) -> None:
        """To be called ten times a second or more; ``drained_mono_ns`` is when the transport was last found empty."""
        self._transport.tick()
        timeout_factor = self.session.on_tick(mono_ns, _time_ns(), drained_mono_ns)
        self._report_refusals()
        self._report_connections()
        self._report_internal_errors()
        self._unread_flows.on_tick(mono_ns, self._node)
        self._send_due()
        if timeout_factor is not None:
            self._transport.renew(timeout_factor)
        self.callbacks.run()
        if not self.callbacks.pending and not self.callbacks.running:
            self.session.feedback.calls_done()

    def _report_refusals(self) -> None:
        """Report connections that were refused, and end the sessions of peers that are not trusted any more."""
        for refusal in self._transport.refusals.take():
            self._report(Refused(_time_ns(), *refusal))
        identity = self._transport.identity
        if identity is not None and identity.version != self._identity_version:
            self._identity_version = identity.version
            trusted = {epoch_prefix(name) for name in identity.names}
            with DeferSignals():
                self._peer_manager.end_untrusted(trusted)

    def identity_stats(self) -> IdentityStats | None:
        """What was refused on a link with an identity.  Any thread may call it."""
        if self._transport.identity is None:
            return None
        refused = self._authentication.refused
        return {"refused_connections": self._transport.refusals.count, "refused_frames": dict(refused)}

    def _report_connections(self) -> None:
        """Report the connections that the transport has ended."""
        transport, session = self._transport, self.session
        while self._foreign_connections < transport.foreign_connections:
            self._foreign_connections += 1
            session.count_malformed("transport")
        for option, ended in list(transport.limits_exceeded.items()):
            if ended > (reported := self._ended_connections.get(option, 0)):
                self._ended_connections[option] = ended
                session.limit_counters.exceeded(option, ended - reported)

    def _report_internal_errors(self) -> None:
        for errors, reported in self._errors_reported.items():
            if (count := errors.count) == reported:
                continue
            self._errors_reported[errors] = count
            for one in errors.since(reported):
                if one.number <= count:  # else it comes next time
                    self._report(InternalError(_time_ns(), one.where, one.error, one.number))

    @property
    def internal_errors(self) -> int:
        """Exceptions in threads and callbacks of this link, or of none, since it was opened.  Any thread may ask."""
        return sum(errors.count for errors in self._errors_reported) - self._errors_before

    def on_probe_result(self, result: ProbeResult) -> bool:
        """The other side's port has answered while no peer is up; whether the transport was told to connect now."""
        timeout_factor = self._peer_manager.on_probe_result(result, _monotonic_ns())
        if timeout_factor is not None:
            self._transport.reached(timeout_factor)
        return timeout_factor is not None

    def _send_due(self) -> None:
        send = self._transport.send
        for topic, frame in self.session.frames_to_send(_time_ns()):
            send(topic, frame)
        if self._peer_manager.hello_due:
            with DeferSignals():  # an interrupt could leave the lock taken
                self.send_hello()

    def send_hello(self) -> None:
        """Say which peers are heard, and where the flows stand.  May be called by any thread."""
        with self._hello_lock:
            self._transport.send(*self._peer_manager.hello(_monotonic_ns(), _time_ns()))

    def send_bye(self) -> None:
        """Say that this session ends.  May be called by any thread."""
        with self._hello_lock:
            self._transport.send(*self._peer_manager.bye(_time_ns()))

    def send_credit_update(self, flow: str, stream: PeerStream) -> None:
        """Say how far a stream is consumed; where the transport fails the sender probes for it.  Any thread may."""
        with suppress(TransportError, OSError):
            self._transport.send(f"ack/{flow}".encode(), self.session.messages.acks.credit_update(stream, _time_ns()))

    def call_next(self, receive_flow: ReceiveFlow) -> None:
        """Call the handler with what came before the handler was there, or while one was running."""
        taken, handler = receive_flow.next_message(), receive_flow.handler
        if taken is None or handler is None:
            return
        message, stream = taken
        if stream is None and not receive_flow.queue:  # its acks have left, and none may follow
            stream = receive_flow.streams.get(message.epoch)
        if stream is not None:
            self.send_credit_update(receive_flow.flow, stream)
        handler(message)

    def report_undelivered(self) -> None:
        """Report what was not delivered and has not been reported yet: the link ends."""
        self.session.report_undelivered(_monotonic_ns(), _time_ns())
