"""The protocol of one link: frames and time come in; frames, calls and events come out.  No I/O, no clock."""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain

from .. import events as ev
from ..events import Event
from .context import Calls, Context
from .frames import (
    ACK_WORD,
    BUNDLE_WORD,
    DATA_WORD,
    HEADER,
    HEADER_OCTETS,
    HELLO_TOPIC,
    RETRANSMIT_WORD,
    Frame,
    Kind,
    MalformedFrame,
    check,
)
from .limits import LimitCounters, Limits
from .path import Path
from .peers import PeerManager
from .receive.flow import ReceiveFlow
from .receive.receiver import MessageReceiver
from .send.endpoint import SendEndpoint
from .send.feedback import FeedbackDispatcher

MALFORMED_INTERVAL_NS = 1_000_000_000  # between two events for the same reason

_unpack_header = HEADER.unpack_from


class Session:
    """Peers, flows and counters of one link.

    Its driver calls `receive_frame`, sends `frames_to_send`, and makes the ``calls`` that are pending.  It calls
    `on_tick` ten times a second.  One thread at a time does that.

    Attributes:
        peer_manager: the peers, and the senders of this side.
        messages: the receiving side of all flows.
        feedback: what peers say of what this side has sent.
        outbox: frames to send, without acks.
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
        calls: Calls,
        call_next: Callable[[ReceiveFlow], None],
        report: Callable[[Event], None],
        mono_ns: int,
        uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
        urgent_flow: str = "",
    ) -> None:
        """``call_next(flow)`` calls the flow's handler with the next message of its queue.

        ``urgent_flow``: bulk data must not delay its acks for long.
        """
        context = self._context = Context(epoch, report, uninterrupted)
        self.limit_counters = LimitCounters(context)
        self.peer_manager = PeerManager(
            context, path, node, limits, self.limit_counters, mono_ns, self._on_session_end, urgent_flow
        )
        self.messages = MessageReceiver(
            context,
            self.peer_manager,
            calls,
            call_next,
            limits,
            self.limit_counters,
        )
        self.feedback = FeedbackDispatcher(context, self.peer_manager, calls)
        self.outbox = context.outbox
        self.malformed: dict[str, list[int]] = {}
        self._sessions = self.peer_manager.peers.sessions
        self._on_message, self._on_ack = self.messages.on_message, self.feedback.on_ack  # on the path of every message

    def receive_frame(self, topic: bytes, frame: Frame, mono_ns: int, now_ns: int, in_bulk: bool = False) -> None:
        """Take in a frame that arrived at this time.

        ``in_bulk``: others are close behind it, so acks may wait for `AckQueue.flush`.
        """
        context = self._context
        context.mono_ns, context.now_ns = mono_ns, now_ns
        try:
            word, length, epoch, sequence, sent_ns = _unpack_header(frame)
            if length != len(frame) - HEADER_OCTETS:
                check(frame)
            peer = self._sessions.get(epoch)
            if peer is not None:
                peer.heard_mono_ns = mono_ns
            if word == DATA_WORD:
                self._on_message(topic, frame, epoch, sequence, sent_ns, False, in_bulk)
            elif word == ACK_WORD:
                self._on_ack(topic, frame, epoch, sent_ns)
            elif word == BUNDLE_WORD:
                self.messages.on_bundle(topic, frame, epoch, in_bulk)
            elif word == RETRANSMIT_WORD:
                self._on_message(topic, frame, epoch, sequence, sent_ns, True, in_bulk)
            else:
                self._on_other(check(frame), topic, frame, epoch, sequence, sent_ns)
        except struct.error:
            self.count_malformed("truncated")
        except MalformedFrame as error:
            self.count_malformed(error.args[0])

    def _on_other(self, kind: Kind, topic: bytes, frame: Frame, epoch: int, sequence: int, sent_ns: int) -> None:
        context = self._context
        if kind is Kind.NAK:
            self.feedback.on_nak(topic, frame, epoch, sent_ns)
        elif kind is Kind.ACK_RANGE:
            self.feedback.on_ack(topic, frame, epoch, sent_ns, is_range=True)
        elif kind is Kind.ABANDONED:
            with context.uninterrupted():
                self.messages.on_abandoned(topic, frame, epoch, sequence)
        elif kind is Kind.FRAGMENT:
            whole = self.messages.on_fragment(
                topic, frame, epoch, sent_ns, self.peer_manager.peers.get(epoch) is not None
            )
            if whole is not None:  # messages of that length are rare, so its ack does not wait
                self.receive_frame(topic, whole, context.mono_ns, context.now_ns)
        elif kind is Kind.REFUSED:
            self.feedback.on_refused(topic, frame, epoch)
        elif kind is Kind.FRAGMENT_PROGRESS:
            self.feedback.on_fragment_progress(topic, frame, epoch)
        elif topic == HELLO_TOPIC:
            with context.uninterrupted():
                self._on_hello(kind, frame, epoch, sequence)
        else:
            raise MalformedFrame("topic")

    def _on_hello(self, kind: Kind, frame: Frame, epoch: int, number: int) -> None:
        if epoch == self._context.epoch:
            raise MalformedFrame("reflected")
        if kind is Kind.BYE:
            self.peer_manager.on_bye(epoch)
            return
        mono_ns = self._context.mono_ns
        if self.peer_manager.revive(epoch, number, mono_ns):
            self.messages.on_session_revived(epoch)
        received = self.peer_manager.on_hello(epoch, number, frame, mono_ns)
        if received is None:
            return
        hello, new = received
        if self.peer_manager.on_start_sequence(epoch, hello, mono_ns):
            self.messages.on_start_sequence(epoch)
        self.messages.on_hello(epoch, hello, new)

    def _on_session_end(self, epoch: int, successor: int | None) -> None:
        self.messages.on_session_end(epoch, successor)

    def frames_to_send(self, now_ns: int) -> Iterator[tuple[bytes, bytes]]:
        """Topic and frame of each frame that is due, in order.

        A hello may be due besides (`PeerManager.hello_due`).
        """
        acks = self.messages.acks
        if not self.outbox:
            return acks.frames(now_ns)
        acks.flush()  # what has arrived leaves before a nak, or its sender would take it for given up
        return chain(acks.frames(now_ns), _drain(self.outbox))

    def add_sender(self, sender: SendEndpoint) -> None:
        """Have a sender told of peers and acks.  May be called by any thread."""
        self.peer_manager.add_sender(sender)
        self.feedback.add_sender(sender)

    def on_tick(self, mono_ns: int, now_ns: int, drained_mono_ns: int) -> int | None:
        """To be called ten times a second or more; ``drained_mono_ns`` is when the transport was last found empty.

        Returns a multiple of the usual connection time-out where the transport is to connect anew, else None.
        """
        self._context.mono_ns, self._context.now_ns = mono_ns, now_ns
        timeout_factor = self.peer_manager.on_tick(drained_mono_ns)
        self.messages.on_tick()
        return timeout_factor

    def report_undelivered(self, mono_ns: int, now_ns: int) -> None:
        """Report what was not delivered and has not been reported yet: the session ends."""
        self._context.mono_ns, self._context.now_ns = mono_ns, now_ns
        self.messages.report_undelivered()

    def on_refused_frame(self, mono_ns: int, now_ns: int) -> None:
        """A frame arrived that its sender could not prove to be its own, or may not send."""
        self._context.mono_ns, self._context.now_ns = mono_ns, now_ns
        self.count_malformed("identity")

    def count_malformed(self, reason: str) -> None:
        """Something that arrived cannot be used; reported at most once a second for each reason."""
        context = self._context
        state = self.malformed.setdefault(reason, [0, 0])
        state[0] += 1
        if state[0] == 1 or context.mono_ns - state[1] > MALFORMED_INTERVAL_NS:
            state[1] = context.mono_ns
            context.report(ev.Malformed(context.now_ns, reason, state[0]))


def _drain(outbox: deque[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    while outbox:
        yield outbox.popleft()
