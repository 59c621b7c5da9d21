"""The protocol of one session: frames, messages and time come in; frames, deliveries and events go out.

No I/O, no clock, no thread, no lock: calls of a session and its flows are made one at a time.
"""

import struct
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .. import events as ev
from .context import ACKS, MESSAGES, QUEUED, Context, Delivery
from .frames import (
    ACK_WORD,
    BUNDLE_WORD,
    DATA_WORD,
    HEADER,
    HEADER_OCTETS,
    HELLO_TOPIC,
    RETRANSMIT_WORD,
    AnyFrame,
    Frame,
    Kind,
    MalformedFrame,
    MessageFrame,
    SplitFrame,
    check,
    whole,
)
from .limits import LimitCounters, Limits
from .liveness import HELLO_INTERVAL_NS, SEARCH_INTERVAL_NS, TICK_NS, Peer, PeerState
from .path import Path
from .peers import PeerManager
from .receive.flow import PeerStream, ReceiveFlow
from .receive.flows import MAX_FLOWS
from .receive.receiver import MessageReceiver
from .reconnect import ProbeResult
from .rtt import stats as rtt_stats
from .send.feedback import FeedbackDispatcher
from .send.flow import SendFlow
from .send.flow_control import MAX_UNREPORTED_ACKS
from .send.flows import SendFlows
from .send.loss import NO_PEER, NOT_TAKEN, SKIPPED
from .send.options import FlowOptions, Overflow, Pace, Priority, Reliability
from .send.record import Missing
from .send.sent import FULL, OFFER, TRANSMIT, TRANSMIT_BUNDLE, TRANSMIT_QUEUE, UNSENT, Sent
from .send.single import sends_single

# What the driver of a session names beside it.
__all__ = [
    "ACKS", "FULL", "MAX_FLOWS", "MAX_UNREPORTED_ACKS", "MESSAGES", "NOT_TAKEN", "NO_PEER", "OFFER", "QUEUED",
    "SEARCH_INTERVAL_NS", "SKIPPED", "TICK_NS", "TRANSMIT", "TRANSMIT_BUNDLE", "TRANSMIT_QUEUE", "UNSENT",
    "Delivery", "FlowOptions", "Missing", "Overflow", "Pace", "Peer", "PeerState", "PeerStream", "Priority",
    "ProbeResult", "ReceiveFlow", "Reliability", "SendFlow", "Sent", "Session", "rtt_stats",
]  # fmt: skip

FLOW_TICK_NS = 200_000_000
MALFORMED_INTERVAL_NS = 1_000_000_000  # between two events for the same reason
BUNDLE_CHECK_MESSAGES = 8  # of messages that come in bulk, at each such it is checked whether they make up a bundle

_unpack_header = HEADER.unpack_from


class Session(Context):
    """Peers, flows and counters of one session.

    Its driver

    - calls `receive` with each frame, `send` with each message, `on_timeout` at `next_timeout`, and `on_tick` ten times
      a second when it has read what there is;
    - then takes what is in ``events`` and ``deliveries``, sends `frames_to_send` where there are ``acks_due``, an
      ``outbox`` or ``hello_due``, and transmits the queues of the flows (`transmit_order`, `next_frame`) where
      ``transmit_due`` is set.

    Attributes:
        peer_manager: the peers.
        messages: the receiving side of all flows.
        send_flows: the sending side of all flows.
        sending, receiving: the flows of each, by name.
        acks_due: acks that are to be sent.
        limit_counters: how often something was refused, by limit.
        malformed: by reason, the count and the monotonic time of the last event.
    """

    def __init__(
        self,
        *,
        node: str,
        epoch: int,
        limits: Limits,
        path: Path,
        mono_ns: int,
        uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
        urgent_flow: str = "",
    ) -> None:
        """``urgent_flow``: bulk data must not delay the acks of this flow for long."""
        super().__init__(epoch, uninterrupted)
        self.limit_counters = LimitCounters(self)
        self.peer_manager = PeerManager(self, path, node, limits, self.limit_counters, mono_ns)
        self.messages = MessageReceiver(self, self.peer_manager, limits, self.limit_counters)
        self.send_flows = SendFlows(self, path, self.peer_manager)
        self.feedback = FeedbackDispatcher(self, self.peer_manager, self.send_flows)
        self.malformed: dict[str, list[int]] = {}
        self._window, self._urgent_flow = limits.window, urgent_flow
        self._heartbeat_mono_ns = self._flow_tick_mono_ns = mono_ns  # when each was last due
        self._sessions = self.peer_manager.peers.sessions
        self.sending, self.receiving = self.send_flows.flows, self.messages.flows
        self.acks_due = self.messages.acks.due
        self._on_message, self._on_ack = self.messages.on_message, self.feedback.on_ack  # on the path of every message

    # Frames

    def receive(self, topic: bytes, frame: AnyFrame, mono_ns: int, now_ns: int, in_bulk: bool = False) -> None:
        """Take in a frame that arrived at this time.

        ``in_bulk``: others are close behind it, so acks may wait for `flush_acks`.
        """
        self.mono_ns, self.now_ns = mono_ns, now_ns
        try:
            begin = frame.header if type(frame) is SplitFrame else frame
            word, length, epoch, sequence, sent_ns = _unpack_header(begin)
            if length != len(frame) - HEADER_OCTETS:
                check(whole(frame))
            peer = self._sessions.get(epoch)
            if peer is not None:
                peer.heard_mono_ns = mono_ns
            if word == DATA_WORD:
                self._on_message(topic, frame, epoch, sequence, sent_ns, False, in_bulk)
            elif word == ACK_WORD:
                self._on_ack(topic, frame, epoch, sent_ns)  # type: ignore[arg-type]  # no `SplitFrame` has an ack
            elif word == BUNDLE_WORD:
                self.messages.on_bundle(topic, frame, epoch, in_bulk)  # type: ignore[arg-type]  # nor a bundle
            elif word == RETRANSMIT_WORD:
                self._on_message(topic, frame, epoch, sequence, sent_ns, True, in_bulk)
            else:
                frame = whole(frame)
                self._on_other(check(frame), topic, frame, epoch, sequence, sent_ns)
        except struct.error:
            self.count_malformed("truncated")
        except MalformedFrame as error:
            self.count_malformed(error.args[0])

    def _on_other(self, kind: Kind, topic: bytes, frame: Frame, epoch: int, sequence: int, sent_ns: int) -> None:
        if kind is Kind.RUN:
            self.messages.on_run(topic, frame, epoch, sequence, sent_ns)
        elif kind is Kind.NAK:
            self.feedback.on_nak(topic, frame, epoch, sent_ns)
        elif kind is Kind.ACK_RANGE:
            self.feedback.on_ack(topic, frame, epoch, sent_ns, is_range=True)
        elif kind is Kind.ABANDONED:
            self.messages.on_abandoned(topic, frame, epoch, sequence)
        elif kind is Kind.FRAGMENT:
            known = self.peer_manager.peers.get(epoch) is not None
            joined = self.messages.on_fragment(topic, frame, epoch, sent_ns, known)
            if joined is not None:  # messages of that length are rare, so its ack does not wait
                self.receive(topic, joined, self.mono_ns, self.now_ns)
        elif kind is Kind.REFUSED:
            self.feedback.on_refused(topic, frame, epoch)
        elif kind is Kind.FRAGMENT_PROGRESS:
            self.feedback.on_fragment_progress(topic, frame, epoch)
        elif topic == HELLO_TOPIC:
            self._on_hello(kind, frame, epoch, sequence)
        else:
            raise MalformedFrame("topic")

    def _on_hello(self, kind: Kind, frame: Frame, epoch: int, number: int) -> None:
        if epoch == self.epoch:
            raise MalformedFrame("reflected")
        if kind is Kind.BYE:
            self.peer_manager.on_bye(epoch)
            self._apply_transitions()
            return
        mono_ns = self.mono_ns
        if self.peer_manager.revive(epoch, number, mono_ns):
            self.messages.on_session_revived(epoch)
        received = self.peer_manager.on_hello(epoch, number, frame, mono_ns)
        self._apply_transitions()
        if received is None:
            return
        hello = received.hello
        self.send_flows.on_hello(received.interrupted)
        if self.peer_manager.on_start_sequence(epoch, hello, mono_ns):
            self.messages.on_start_sequence(epoch)
        self.messages.on_hello(epoch, hello, received.new)

    def _apply_transitions(self) -> None:
        """Tell the flows, then the application by events, which peers came and went."""
        transitions, self.peer_manager.transitions = self.peer_manager.transitions, []
        for transition in transitions:
            peer = transition.peer
            if transition.reason is not None and not peer.is_suspended:
                self.messages.on_session_end(peer.epoch, transition.successor)
            self.send_flows.on_transition(transition)
        for peer, reason, successor, ended in transitions:
            if reason is None:
                self.report(ev.PeerUp(self.now_ns, peer.node, peer.epoch))
            elif not ended:
                self.report(ev.PeerDown(self.now_ns, peer.node, peer.epoch, reason))
                if successor is not None:
                    self.report(ev.Restarted(self.now_ns, peer.node, peer.epoch, successor))
        if transitions:
            self.send_flows.report_losses()

    def on_refused_frame(self, mono_ns: int, now_ns: int) -> None:
        """A frame arrived that its sender could not prove to be its own, or may not send."""
        self.mono_ns, self.now_ns = mono_ns, now_ns
        self.count_malformed("identity")
        self.messages.acks.flush()  # a flood of such frames must not delay the acks of true peers

    def count_malformed(self, reason: str) -> None:
        """Something that arrived cannot be used; reported at most once a second for each reason."""
        state = self.malformed.setdefault(reason, [0, 0])
        state[0] += 1
        if state[0] == 1 or self.mono_ns - state[1] > MALFORMED_INTERVAL_NS:
            state[1] = self.mono_ns
            self.report(ev.Malformed(self.now_ns, reason, state[0]))

    def count_exceeded(self, limit: str, times: int) -> None:
        """The transport has refused something for this limit, so many times."""
        self.limit_counters.exceeded(limit, times)

    def flush_acks(self) -> None:
        """Have what came in bulk acknowledged, and refusals sent for what there was no room for."""
        self.messages.acks.flush()
        self.messages.report_refused()

    def frames_to_send(self, mono_ns: int, now_ns: int) -> list[tuple[bytes, bytes]]:
        """Topic and frame of each control frame that is due.  They must leave in this order, before later ones."""
        acks, outbox = self.messages.acks, self.outbox
        if outbox:
            acks.flush()  # what has arrived leaves before a nak, or its sender would take it for given up
        frames = acks.frames(now_ns)
        if outbox:
            frames += outbox
            outbox.clear()
        if self.hello_due:
            frames.append(self.hello(mono_ns, now_ns))
        return frames

    def hello(self, mono_ns: int, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame of a hello.  It must leave before later control frames, as `frames_to_send`."""
        return self.peer_manager.hello(mono_ns, now_ns, self.send_flows)

    def bye(self, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame that say that this session ends."""
        return self.peer_manager.bye(now_ns)

    # Peers

    @property
    def up(self) -> frozenset[int]:
        """Epochs of the peers that are up."""
        return self.peer_manager.up

    def peer(self, epoch: int) -> Peer | None:
        """A peer, also one that is suspended."""
        return self.peer_manager.find(epoch)

    def known_peers(self) -> list[Peer]:
        """Every session that is known, with its state."""
        return list(self._sessions.values())

    def peer_names(self, epochs: frozenset[int]) -> str:
        """Names of these peers, for a person."""
        return self.peer_manager.names(epochs)

    def up_names(self) -> list[str]:
        """Names of the nodes that are up."""
        return self.peer_manager.up_names()

    def smaller_limits(self, size: int) -> str:
        """What does not take a payload of so many octets, for a person."""
        return self.peer_manager.smaller_limits(size)

    def take_duplicate_names(self) -> list[str]:
        """Names that two nodes have, and that have not been reported yet."""
        to_report = self.peer_manager.duplicate_names.to_report
        names = sorted(to_report)
        to_report.clear()
        return names

    # Time

    def next_timeout(self, mono_ns: int) -> int:
        """The monotonic time at which `on_timeout` is to be called: the next heartbeat.

        Hellos that leave in between do not put it off: a peer that is suspected is waited for until then.
        """
        settled = self.peer_manager.up and not self.peer_manager.peers.any_suspect(mono_ns)
        return self._heartbeat_mono_ns + (HELLO_INTERVAL_NS if settled else SEARCH_INTERVAL_NS)

    def on_timeout(self, mono_ns: int, now_ns: int) -> None:
        """A heartbeat: have a hello sent, and five times a second a tick made for the flows."""
        if mono_ns < self.next_timeout(mono_ns):
            return
        self._heartbeat_mono_ns = mono_ns
        self.hello_due = True
        if mono_ns >= self._flow_tick_mono_ns + FLOW_TICK_NS or not self.up:
            self.on_flow_tick(mono_ns, now_ns)

    def on_flow_tick(self, mono_ns: int, now_ns: int) -> None:
        """Probes, and what may be in flight."""
        self.mono_ns, self.now_ns = mono_ns, now_ns
        self._flow_tick_mono_ns = mono_ns
        unread = any(peer.up and peer.behind for peer in self.peer_manager.peers.all())
        self.send_flows.on_tick(unread, self._urgent_flow in self.messages.flows)

    def on_tick(self, mono_ns: int, now_ns: int, drained_mono_ns: int) -> int | None:
        """To be called ten times a second or more; ``drained_mono_ns`` is when the transport was last found empty.

        Returns a multiple of the usual connection time-out where the transport is to connect anew, else None.
        """
        self.mono_ns, self.now_ns = mono_ns, now_ns
        self.send_flows.on_path()
        timeout_factor = self.peer_manager.on_tick(drained_mono_ns)
        self._apply_transitions()
        self.send_flows.report_losses()
        self.send_flows.report_pace()
        self.messages.on_tick()
        if not self.deliveries:
            self.send_flows.on_nothing_due()
        return timeout_factor

    def on_probe_result(self, result: ProbeResult, mono_ns: int) -> int | None:
        """As `PeerManager.on_probe_result`."""
        return self.peer_manager.on_probe_result(result, mono_ns)

    def end_untrusted(self, trusted: Set[bytes]) -> None:
        """End the sessions of peers that are no longer trusted: their epochs begin with none of these octets."""
        self.peer_manager.end_untrusted(trusted)
        self._apply_transitions()

    def report_undelivered(self, mono_ns: int, now_ns: int) -> None:
        """Report what was not delivered and has not been reported yet: the session ends."""
        self.mono_ns, self.now_ns = mono_ns, now_ns
        self.messages.report_undelivered()

    def report_losses(self) -> bool:
        """Report what has been lost and not been reported; whether some of it is left for the next call."""
        return self.send_flows.report_losses()

    # Messages that this side sends

    def open_flow(self, name: str, retention: int, options: FlowOptions, added_octets: int) -> SendFlow:
        """The sending side of a flow, which has none; ``added_octets``: by the transport, to a frame."""
        self.hello_due = True  # peers are told of the flow before its first message
        return self.send_flows.open(name, self._window, retention, options, HEADER_OCTETS + added_octets)

    def send(self, flow: SendFlow, frame: MessageFrame, size: int, mono_ns: int) -> Sent:
        """Take in the next message of a flow: its frame, and the octets of its payload."""
        queue = flow.queue
        had_pending = queue.has_pending
        try:
            if not had_pending and flow.is_awake and sends_single(flow, frame, size, mono_ns):
                return TRANSMIT
            if not flow.is_awake:
                self.send_flows.wake(flow)
            transmits = flow.send(frame, size, mono_ns)
        except BaseException:
            flow.recover_after_interrupt()
            raise
        if transmits:
            if flow.receivers.all:
                return TRANSMIT
            return OFFER if self.peer_manager.alone else UNSENT  # else it would be ahead of what is owed to a node
        if transmits is None:
            return FULL
        if not had_pending:
            return TRANSMIT_QUEUE
        if queue.next_sequence % BUNDLE_CHECK_MESSAGES == 1 and queue.bundle_is_ready(size, mono_ns):
            return TRANSMIT_BUNDLE
        return UNSENT

    def send_many(
        self, flow: SendFlow, frames: Sequence[MessageFrame], sizes: Sequence[int], mono_ns: int
    ) -> tuple[int, Sent]:
        """Take in the next messages of a flow, as `send` does with one: as many as there is room for.

        Returns how many, and what is to be done with them: FULL for none; never TRANSMIT.
        """
        self.send_flows.wake(flow)
        try:
            count = flow.send_many(frames, sizes, mono_ns)
        except BaseException:
            flow.recover_after_interrupt()
            raise
        if not count:
            return 0, FULL
        if flow.receivers.all:
            return count, TRANSMIT_BUNDLE
        return count, OFFER if self.peer_manager.alone else UNSENT

    def send_run(self, flow: SendFlow, frame: bytes, count: int, size: int, mono_ns: int) -> bool:
        """As `SendFlow.send_run`.  They wait in the queue."""
        self.send_flows.wake(flow)
        try:
            return flow.send_run(frame, count, size, mono_ns)
        except BaseException:
            flow.recover_after_interrupt()
            raise

    def skip(self, flow: SendFlow, count: int) -> None:
        """The next so many numbers of a flow are of no message.  The caller has the queues transmitted."""
        self.send_flows.wake(flow)
        flow.skip(count)

    def transmit_order(self) -> list[SendFlow]:
        """The flows with something to transmit: those of high priority first, the others in turns."""
        return self.send_flows.transmit_order()

    def next_frame(self, flow: SendFlow, now_ns: int, may_block: bool) -> MessageFrame | None:
        """The frame to transmit next; None: nothing waits, or may go now.  As `SendQueue.next_frame`."""
        return self.send_flows.next_frame(flow, now_ns, may_block)

    def fits(self, flow: SendFlow, size: int, mono_ns: int) -> bool:
        """Whether a payload of ``size`` octets may be sent now."""
        return self.send_flows.fits(flow, size, mono_ns)

    def positions(self) -> list[tuple[str, int, int, list[tuple[int, int]]]]:
        """Of each flow, as far as known: name, the sender's epoch, its next number, what is missing before that."""
        sent = [(flow.flow, self.epoch, flow.next_sequence, list[tuple[int, int]]()) for flow in self.sending.values()]
        received = [(flow.flow, *one) for flow in self.receiving.values() for one in flow.positions()]
        return sent + received

    def stats(self) -> dict[str, Any]:
        """The counters of the session, and of the flows that it receives."""
        return {
            "received": {name: receive_flow.stats() for name, receive_flow in self.receiving.items()},
            "malformed": {reason: count for reason, (count, _) in self.malformed.items()},
            "limits_exceeded": dict(self.limit_counters.counts),
            "acks_sent": self.messages.acks.sent,
        }

    # Messages that this side receives

    def receive_flow(self, name: str) -> ReceiveFlow:
        """The receiving side of a flow, made when it is first named here or by a peer."""
        self.messages.awaits_tick = True
        return self.messages.flow(name)

    def set_handler(self, receive_flow: ReceiveFlow, handler: Any) -> None:
        """From now on messages are delivered to this handler; those that wait go first."""
        receive_flow.handler = handler
        self.messages.deliver_queued(receive_flow)

    def credit_update(self, flow: str, stream: PeerStream, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame that say how far a stream is consumed.  As `frames_to_send`."""
        return f"ack/{flow}".encode(), self.messages.acks.credit_update(stream, now_ns)
