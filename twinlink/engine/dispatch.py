"""What happens to a frame that has arrived: the receiving half of a link, called by the thread that leads.

data -> order checked -> queue -> ack sent -> handler;  a gap -> ask sent;  gone -> gap reported;
ack, ask, progress -> `Feedback`;  hello, bye -> `Company`.
"""

import logging
import struct
import threading
import time
from collections.abc import Callable
from itertools import repeat

from .. import events as ev
from ..events import Event
from ..message import Message
from ..options import URGENT_FLOW
from ..process.signals import undisturbed
from ..protocol.fragmentation import Parts
from ..protocol.frames import (
    ACK_WORD,
    AGAIN_WORD,
    BUNDLE_WORD,
    DATA_WORD,
    FLOW_NAME,
    HEADER,
    HEADER_OCTETS,
    HELLO_TOPIC,
    MAX_ACK_ROW,
    MAX_SEQUENCE,
    Bundle,
    Kind,
    Malformed,
    check,
    parse_bundle,
    parse_gone,
)
from ..protocol.receive.flow import MESSAGE_OCTETS, Incoming, Stream
from ..protocol.receive.reorder_buffer import Reassembly
from ..protocol.send.flow_control import MAX_IN_FLIGHT
from ..transports import Transport
from ..transports.base import Frame
from .acks import Acks
from .callbacks import Calls
from .delivery_checks import Freshness, Gaps
from .feedback import Feedback
from .nak import Repair
from .peers import Company
from .unclaimed import Refusals

MAX_FLOWS = 1024  # flows each way; strangers can make us remember no more
UNCLAIMED_OCTETS = MAX_IN_FLIGHT * MESSAGE_OCTETS * 7 // 8  # below what a flow may have in flight, all tiny

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns
_new = tuple.__new__  # a named tuple's own constructor takes three times as long
_unpack_header = HEADER.unpack_from

logger = logging.getLogger("twinlink")


class Reception:
    """Flows, peers and counters of one link.

    `handle`, `keep_time` and all they call run on the leading thread; the dictionaries are only added to, under a
    lock, so that other threads may read them.  Handlers, of events too, are called when no lock is held.

    Attributes:
        company: who is at the other end.
        acks: those that this side sends.
        calls: those of the application's handlers.
        feedback: for what peers say about what this side has sent.
    """

    def __init__(
        self,
        transport: Transport,
        node: str,
        epoch: int,
        window: int,
        max_payload: int,
        report: Callable[[Event], None],
    ) -> None:
        self.company = Company(transport, node, epoch, max_payload, report, self._give_up)
        self._heard = self.company.peers.heard
        self._freshness = Freshness(report)
        self._gaps = Gaps(report)
        self._repair = Repair(transport, epoch, report, self._gaps, self._deliver)
        self.acks = Acks(transport, epoch)
        self._parts = Parts(transport.max_frame)
        self.flows: dict[str, Incoming] = {}
        # Below the window of a sender like us by a whole message: who is refused must not be held up before.
        held_octets = min(max(window - max_payload, window // 8), UNCLAIMED_OCTETS)
        self._refusals = Refusals(self.flows, held_octets, self.company, self._gaps, self._repair, self.acks, report)
        self._flows_lock = threading.Lock()
        self.malformed: dict[str, list[int]] = {}  # reason -> count, monotonic ns of the last event
        self._epoch = epoch
        self._report = report
        self._on_data: dict[bytes, tuple[Incoming, bytes]] = {}  # topic -> flow, its ack topic
        self.calls = Calls(report)
        self.feedback = Feedback(epoch, self.company, self.calls)
        self._ack = self.feedback.ack  # on the path of every message

    # The path of a message

    def handle(self, topic: bytes, frame: Frame, mono_ns: int, at_once: bool) -> None:
        """Take in a frame that arrived at ``mono_ns``; its ack goes out at once, or with `Acks.send_batch`."""
        try:
            word, length, epoch, sequence, sent_ns = _unpack_header(frame)
            if length != len(frame) - HEADER_OCTETS:
                check(frame)
            if epoch in self._heard:
                self._heard[epoch] = mono_ns
            again = word == AGAIN_WORD
            if word == DATA_WORD or again:
                incoming, ack_topic = self._on_data.get(topic) or self._new_flow(topic)
                if not again or epoch in incoming.streams:  # else it is for another peer
                    payload = memoryview(frame)[HEADER_OCTETS:]
                    at_once = at_once or incoming.handler is not None  # which may take its time
                    self._data(incoming, ack_topic, payload, epoch, sequence, sent_ns, _time_ns(), at_once, again)
            elif word == ACK_WORD:
                self._ack(topic, frame, epoch, sent_ns, mono_ns)
            elif word == BUNDLE_WORD:
                self._bundle(topic, frame, epoch, at_once)
            else:
                kind = check(frame)
                if kind is Kind.ASK:
                    self.feedback.ask(topic, frame, epoch, sent_ns, mono_ns)
                elif kind is Kind.ACK_ROW:
                    self._ack(topic, frame, epoch, sent_ns, mono_ns, in_row=True)
                elif kind is Kind.GONE:
                    self._gone(topic, frame, epoch, sequence)
                elif kind is Kind.PART:
                    self._part(topic, frame, epoch, sent_ns, mono_ns)
                elif kind is Kind.PROGRESS:
                    self.feedback.progress(topic, frame, epoch, mono_ns)
                elif topic == HELLO_TOPIC:
                    self._greeting(kind, frame, epoch, sequence, mono_ns)
                else:
                    raise Malformed("topic")
        except struct.error:
            self._count_malformed("truncated", mono_ns)
        except Malformed as error:
            self._count_malformed(error.args[0], mono_ns)
        finally:  # also when a transport fails: nothing of the next frame may come before
            if self.calls.due:
                self.calls.run()

    def _data(
        self,
        incoming: Incoming,
        ack_topic: bytes,
        payload: Frame,
        epoch: int,
        sequence: int,
        sent_ns: int,
        received_ns: int,
        at_once: bool,
        again: bool,
    ) -> None:
        stream = incoming.streams.get(epoch) or self._join(incoming, epoch, sequence)
        handler, size = incoming.handler, len(payload)
        if (
            handler is None
            and not incoming.claimed
            and not self._refusals.has_room(size)
            and self._refusals.refuse(incoming, ack_topic, stream, sequence, sent_ns)
        ):
            return
        calls, tracker = self.calls, stream.tracker
        message = _new(Message, (payload, incoming.flow, sequence, epoch, stream.node, sent_ns, received_ns))
        new = is_next = sequence == tracker.next and stream.pending is None
        if not is_next:
            if stream.retired:
                stream.stale += 1
            elif stream.repairs:
                if sequence in stream.declined:
                    self._refusals.refuse(incoming, ack_topic, stream, sequence, sent_ns)
                    return
                if not self._repair.take(incoming, ack_topic, stream, message, again):
                    return  # its sender counts it as lost, and so does this side
            else:
                new = self._gaps.arrive(incoming, stream, sequence)
        if new and incoming.watched:
            new = self._freshness.admits(incoming, stream, message)
        waits = new and (handler is None or calls.running or bool(calls.due or incoming.queue))
        if waits and handler is not None:
            calls.later(self.take_next, incoming, incoming.flow)
        # In a row, without a call that ends in between: there Ctrl-C comes, and the message would be gone.
        if is_next:
            tracker.next = sequence + 1
            tracker.received += 1
        if waits:
            incoming.queued_octets += size
            incoming.queue.append(message)
        elif new and sequence >= stream.consumed:
            stream.consumed = sequence + 1
        # The ack goes out last, except that a handler may take its time: what a thread still does after sending
        # keeps the transport's own threads off the processor, and costs a round trip several times what it takes.
        try:
            if at_once:
                self.acks.at_once(ack_topic, stream, sequence, sent_ns, received_ns)
            else:
                self.acks.later(ack_topic, stream, (sequence, sent_ns, received_ns))
        finally:  # whether or not a transport fails, it has been taken
            if new and handler is not None and not waits:
                call = calls.call if at_once else calls.later
                call(handler, message, incoming.flow)

    def _bundle(self, topic: bytes, frame: Frame, epoch: int, at_once: bool) -> None:
        """What came together is acknowledged together."""
        incoming, ack_topic = self._on_data.get(topic) or self._new_flow(topic)
        received_ns = _time_ns()
        bundle = parse_bundle(frame, epoch)
        stream = incoming.streams.get(epoch)
        if stream is None or not self._row(incoming, ack_topic, stream, bundle, received_ns):
            for word, sequence, sent_ns, payload in zip(*bundle, strict=True):
                again = word == AGAIN_WORD
                if not again or epoch in incoming.streams:
                    self._data(incoming, ack_topic, payload, epoch, sequence, sent_ns, received_ns, False, again)
        if at_once or self.calls.due:
            self.acks.send_batch()

    def _row(self, incoming: Incoming, ack_topic: bytes, stream: Stream, bundle: Bundle, received_ns: int) -> bool:
        """What `_data` does, for all of a bundle at once: that costs half, in bulk and in a repair.

        False, and nothing is done, unless the messages are in a row and there is nothing else to think of.
        """
        words, sequences, sent_ns, payloads = bundle
        if not 0 < len(words) <= MAX_ACK_ROW or not incoming.claimed or incoming.watched:
            return False
        first, count = sequences[0], len(sequences)
        end = first + count
        if sequences != tuple(range(first, end)):
            return False
        tracker = stream.tracker
        plain = stream.pending is None
        if plain and first != tracker.next:
            return False
        flow, epoch, node, handler = incoming.flow, stream.epoch, stream.node, incoming.handler
        fields = zip(payloads, repeat(flow), sequences, repeat(epoch), repeat(node), sent_ns, repeat(received_ns))
        messages = list(map(_new, repeat(Message), fields))
        waits = plain and (handler is None or self.calls.running or bool(self.calls.due or incoming.queue))
        if plain:
            octets = sum(map(len, payloads))
            if waits and handler is not None:
                for _ in messages:
                    self.calls.later(self.take_next, incoming, flow)
            tracker.next = end  # in a row, as above
            tracker.received += count
            if waits:
                incoming.queued_octets += octets
                incoming.queue += messages
            elif end > stream.consumed:
                stream.consumed = end
        elif words.count(words[0]) != count or not self._repair.take_row(
            incoming, stream, messages, words[0] == AGAIN_WORD
        ):
            return False
        try:
            self.acks.row(ack_topic, stream, first, end, received_ns)
        finally:
            if plain and not waits and handler is not None:
                self.calls.call_each(handler, messages, flow)
        return True

    # Off the path: what else arrives

    def _deliver(self, incoming: Incoming, stream: Stream, pending: Reassembly, message: Message) -> None:
        """A message whose turn has come in a repair goes to the application, to its handler when the frame is done."""
        if incoming.watched and not self._freshness.admits(incoming, stream, message):
            pending.due += 1
            return
        if incoming.handler is not None:
            self.calls.later(self.take_next, incoming, incoming.flow)
        size = len(message.payload)
        pending.due += 1  # in a row, as above
        incoming.queued_octets += size
        incoming.queue.append(message)

    def take_next(self, incoming: Incoming) -> None:
        """Call the handler with what has come before it was there, or while one was running, which fills the window."""
        taken, handler = incoming.take(), incoming.handler
        if taken is None or handler is None:
            return
        message, stream = taken
        if stream is None and not incoming.queue:  # its acks have left, and none may follow
            stream = incoming.streams.get(message.epoch)
        if stream is not None:
            self.acks.announce(f"ack/{incoming.flow}".encode(), stream)
        handler(message)

    def _part(self, topic: bytes, frame: Frame, epoch: int, sent_ns: int, mono_ns: int) -> None:
        _, ack_topic = self._on_data.get(topic) or self._new_flow(topic)
        known = epoch in self._heard
        there = self._parts.take(topic, frame, known)
        if isinstance(there, memoryview):
            self.handle(topic, there, mono_ns, True)  # parts come close together, messages of that length do not
        elif known:
            self.acks.progress(ack_topic, epoch, sent_ns, there)

    @undisturbed
    def _gone(self, topic: bytes, frame: Frame, epoch: int, unsent: int) -> None:
        why, ranges = parse_gone(frame)
        if unsent > MAX_SEQUENCE:
            raise Malformed("sequence")
        incoming, ack_topic = self._on_data.get(topic) or self._new_flow(topic)
        stream = incoming.streams.get(epoch)
        if stream is None:
            if self.company.known(epoch) is None:
                return
            stream = self._join(incoming, epoch, unsent)
        if stream.repairs:
            self._repair.gone(incoming, ack_topic, stream, why, ranges, unsent)
        elif not ranges and 0 <= stream.tracker.next < unsent:  # nothing comes later that would show the gap
            self._gaps.pass_over(incoming, stream, stream.tracker.next, unsent)
        if not ranges:
            self.acks.send_batch()
            incoming.pass_gaps(stream)
            self.acks.send(ack_topic, stream, [])  # how far it is consumed may have been lost as well

    @undisturbed
    def _greeting(self, kind: Kind, frame: Frame, epoch: int, number: int, mono_ns: int) -> None:
        if epoch == self._epoch:
            raise Malformed("reflected")
        greeted = self.company.greeting(kind, epoch, number, frame, mono_ns)
        if greeted is None:
            return
        hello, new = greeted
        if self.company.place(epoch, hello, mono_ns):
            self._place(epoch)
        for flow in hello.detect & self.flows.keys():
            if (stream := self.flows[flow].streams.get(epoch)) is not None and stream.repairs:
                stream.repairs = False  # data has overtaken the hello that says so: what is missing is not asked for
                self._repair.give_up(self.flows[flow], stream)
        for incoming in list(self.flows.values()) if new else ():  # data may overtake the first one, too
            if (stream := incoming.streams.get(epoch)) is not None:
                stream.node = hello.node
                stream.repairs = hello.repairs and incoming.flow not in hello.detect
                if not stream.repairs:  # what is missing will not be asked for
                    self._repair.give_up(incoming, stream)

    def _place(self, epoch: int) -> None:
        """A peer has said from where on it owes us something, after some of it has come."""
        for incoming in list(self.flows.values()):
            stream = incoming.streams.get(epoch)
            if stream is not None and stream.began is not None:
                first, began, stream.began = self.company.joined_at(epoch, incoming.flow), stream.began, None
                if stream.repairs:
                    self._repair.place(incoming, stream, min(first, began))
                elif first < began:
                    self._gaps.pass_over(incoming, stream, first, began)
            if stream is not None and stream.repairs:
                self._repair.ask_again(f"ack/{incoming.flow}".encode(), stream)

    def _give_up(self, epoch: int, successor: int | None) -> None:
        """A session will not come back: what is missing of it is a gap, and what is held behind that is delivered.

        But not after messages of its ``successor``, which may be here before it is known to be one; and whatever still
        comes of a session that has one is stale.
        """
        self._parts.forget(epoch)
        for incoming in list(self.flows.values()):
            if (stream := incoming.streams.get(epoch)) is not None:
                newer = None if successor is None else incoming.streams.get(successor)
                self._repair.give_up(incoming, stream, delivers=newer is None or not newer.tracker.received)
                if successor is not None:
                    stream.retired = True
                    stream.tracker.next = MAX_SEQUENCE + 1  # nothing is simply the next one any more

    # Off the path: flows, time

    def flow(self, name: str) -> Incoming:
        """The receiving side of a flow, made when it is first named here or by a peer."""
        with self._flows_lock:
            incoming = self.flows.get(name)
            if incoming is None:
                incoming = self.flows[name] = Incoming(name)
                self.company.urgent |= name == URGENT_FLOW
                self._on_data[f"traffic/{name}".encode()] = (incoming, f"ack/{name}".encode())
            return incoming

    def _new_flow(self, topic: bytes) -> tuple[Incoming, bytes]:
        """A flow that a peer has named first, and its ack topic.  Raises Malformed."""
        prefix, _, name = bytes(topic).partition(b"/")
        flow = name.decode("ascii", "replace")
        if prefix != b"traffic" or not FLOW_NAME.fullmatch(flow):
            raise Malformed("topic")
        if len(self.flows) >= MAX_FLOWS:
            raise Malformed("flows")
        self.flow(flow)
        return self._on_data[bytes(topic)]

    def _join(self, incoming: Incoming, epoch: int, sequence: int) -> Stream:
        """Begin a sender session on a flow with the message that has come first."""
        if epoch == self._epoch:
            raise Malformed("reflected")
        peer = self.company.known(epoch)
        if (gone := incoming.makes_way(self.company.up)) is not None:
            self._repair.give_up(incoming, gone)
            incoming.forget(gone)
        if peer is None:
            return incoming.join(epoch, None, None, False)
        first, placed = self.company.joined_at(epoch, incoming.flow), self.company.placed(epoch)
        repairs = peer.repairs and incoming.flow not in peer.detect
        if repairs or placed:
            first = min(first, sequence)  # a hello may overtake data
        elif peer.repairs:
            first = sequence  # what is missing before it shows when the peer has said what it owes us
        stream = incoming.join(epoch, peer.node, first, repairs)
        stream.began = sequence if peer.repairs and not placed else None
        return stream

    def keep_time(self, now_mono_ns: int, emptied_mono_ns: int) -> None:
        """To be called ten times a second or more; ``emptied_mono_ns`` is when the transport was last found empty."""
        self.company.keep_time(now_mono_ns, emptied_mono_ns)
        self._refusals.look(now_mono_ns)
        for incoming in list(self.flows.values()):
            if incoming.watched:
                self._freshness.look(incoming)
            if incoming.handler is not None and not self.calls.due:
                for _ in range(len(incoming.queue)):  # Ctrl-C has cut off a call
                    self.calls.later(self.take_next, incoming, incoming.flow)
        self.calls.run()
        if not self.calls.due and not self.calls.running:
            self.feedback.nothing_is_due()

    def tell(self) -> None:
        """Report what was not delivered and has not been reported yet: the link ends."""
        self._refusals.tell()
        for incoming in list(self.flows.values()):
            self._freshness.look(incoming)

    def _count_malformed(self, reason: str, mono_ns: int) -> None:
        state = self.malformed.setdefault(reason, [0, 0])
        state[0] += 1
        if state[0] == 1 or mono_ns - state[1] > 1_000_000_000:
            state[1] = mono_ns
            self._report(ev.Malformed(_time_ns(), reason, state[0]))
