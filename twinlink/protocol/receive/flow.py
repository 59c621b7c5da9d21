"""The receiving side of one flow: order per sender session, and the queue for the application.  No I/O, no clock."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import islice, repeat, starmap, takewhile
from operator import itemgetter
from typing import Any, Protocol

from ...message import Message
from ...run import Run
from ...sync import Sync, Thresholds
from ..frames import MAX_PAYLOAD, AbandonReason
from ..rangeset import RangeSet
from .reorder_buffer import ReorderBuffer
from .sequence import SequenceTracker

# announced to the sender after consuming this much; half of the slack it grants (flow_control.py)
CREDIT_UPDATE_OCTETS = 128 * 1024
MESSAGE_WEIGHT_OCTETS = 512  # what a message counts for in that, beside its payload
MESSAGE_OVERHEAD_OCTETS = 1024  # what Python needs for a message that is held, beside its payload
_EPOCH = itemgetter(Message._fields.index("epoch"))
MAX_STREAMS = 1024  # sender sessions remembered per flow; a flood of invented ones must not take the memory


class GapHandler(Protocol):
    """What becomes of a message that is not simply the next one: there are two kinds of stream.

    One stands for all streams of a session whose senders retransmit on request, `SelectiveRepeat`, and one for the
    others, `GapDetection`.

    Attributes:
        requests: whether what is missing, or was refused, is requested.
    """

    requests: bool

    def receive(self, stream: "PeerStream", message: Message, retransmitted: bool) -> bool:
        """Take in a message; whether to acknowledge it.  Raises MalformedFrame."""

    def receive_run(self, stream: "PeerStream", messages: Sequence[Message], retransmitted: bool) -> bool:
        """Take in messages in a row; False: nothing is done, each is to be taken in by itself."""

    def reject(self, stream: "PeerStream", sequence: int) -> bool:
        """Go past a message that is rejected, which is no gap; False where it has been taken in before."""

    def skip(self, stream: "PeerStream", sequence: int) -> None:
        """Give up a message that this side cannot take: it is a gap."""

    def on_abandoned(
        self, stream: "PeerStream", reason: AbandonReason, ranges: list[tuple[int, int]], next_to_send: int
    ) -> None:
        """Take in what will not come, or a probe.  Everything below ``next_to_send`` was sent before."""

    def on_start_sequence(self, stream: "PeerStream", first: int, first_arrived: int) -> None:
        """The sender owes this side what it sent from ``first`` on, of which something has come already."""


@dataclass(slots=True, eq=False)
class PeerStream:
    """One sender session on one flow.

    Attributes:
        tracker: what came, and what came not; while ``reorder_buffer`` is not None, its ``next`` is past what is
            missing.
        consumed: every sequence below has been handed to the application, or will never be.
        acked: every sequence below that arrived has been acknowledged, and the ack is sent.
        receive_flow, gaps: its flow, and which kind of stream it is.
        reorder_buffer: what is held until what is missing has come; None while nothing is.
        superseded: a newer session has taken its place: what still comes is stale, and not acknowledged, as its sender
            may be alive.
        in_order: it is not, and there is no reorder buffer.  Stored, as each message asks: one look in place of two.
        first_arrived: the number that came first, until the sender has said from where on it owes us something.
        rejected: what this side does not take, and the sender has not said since that it will not come.
        waiting_octets: payload that is held, or queued for the application; ``granted_octets``: what that may be
            without another look at the limits; ``granted_as``: on which account.
        window_end, refused_end: where the receive window is closed, the first refused sequence number, and the end of
            the refused range.  ``refused_size``: octets of the last refused message; ``refused_octets``: of those that
            no refusal has announced yet.
        unreported_octets: octets consumed since that was last announced, MESSAGE_WEIGHT_OCTETS for each message among
            them.
        received_octets: payload that arrived, that of repeated messages included.
    """

    receive_flow: "ReceiveFlow"
    epoch: int
    node: str | None
    first: InitVar[int | None]
    gaps: GapHandler
    tracker: SequenceTracker = field(init=False)
    consumed: int = field(init=False)
    acked: int = field(init=False)
    reorder_buffer: ReorderBuffer | None = None
    superseded: bool = False
    in_order: bool = True
    first_arrived: int | None = None
    rejected: RangeSet = field(default_factory=RangeSet)
    waiting_octets: int = 0
    granted_octets: int = 0
    granted_as: int = 0
    window_end: int | None = None
    refused_end: int = 0
    refused_size: int = 0
    refused_octets: int = 0
    unreported_octets: int = 0
    received_octets: int = 0
    rejected_count: int = 0
    repaired: int = 0  # came on request
    repeated: int = 0  # came again, and was here already
    conflated: int = 0
    stale: int = 0

    def __post_init__(self, first: int | None) -> None:
        self.tracker = SequenceTracker(first)
        self.consumed = self.acked = first or 0


class UnreportedRanges:
    """What no event has reported yet, by session."""

    def __init__(self) -> None:
        self._ranges: dict[int, RangeSet] = {}

    def add(self, epoch: int, sequence: int) -> None:
        """An event is to report this number."""
        self._ranges.setdefault(epoch, RangeSet()).add(sequence, sequence + 1)

    def take(self) -> list[tuple[int, int, int]]:
        """Epoch, first and end of every range; from now on they count as reported."""
        of, self._ranges = self._ranges, {}
        return [(epoch, first, end) for epoch, ranges in of.items() for first, end in ranges]


class ReceiveFlow:
    """Messages of one flow between the transport and the application.

    A flow without a subscription is *unclaimed*: its messages are held, so that no order of starting matters, and
    rejected when the session holds too much.

    Attributes:
        subscribed: whether the application has subscribed to the flow.
        handler: what is to get each message, for `Context.deliveries`; without one they wait in ``queue``.
        queue: messages, and runs of them; ``runs``: how many runs.
        streams: by epoch.
        named_by: the peer that named it first; 0: a node that had not said hello, or this side.
        watched: whether each message is to be checked: its age or length has a limit, or the flow has ``sync``.
        max_payload: octets of the longest payload that the application takes; what is longer is rejected.
        stale: what was too old on arrival.
        rejected: messages that were too long, or came while the flow was unclaimed, and there was no room to hold them.
    """

    def __init__(self, flow: str) -> None:
        self.flow, self.ack_topic = flow, f"ack/{flow}".encode()
        self.subscribed = False
        self.handler: Callable[[Message], None] | None = None
        self.queue: deque[Any] = deque()
        self.runs = 0
        self.streams: dict[int, PeerStream] = {}
        self.named_by = 0
        self.watched = False
        self.max_age_ns: int | None = None
        self.max_payload = MAX_PAYLOAD
        self.sync: Sync | None = None
        self.stale = UnreportedRanges()
        self.rejected = UnreportedRanges()
        self._forgotten: Counter[str] = Counter()  # what forgotten sessions counted

    @property
    def queued(self) -> int:
        """How many messages wait in ``queue``."""
        of_runs = [one.length - 1 for one in tuple(self.queue) if type(one) is Run] if self.runs else ()
        return len(self.queue) + sum(of_runs)

    @property
    def queued_octets(self) -> int:
        """Octets of payload in ``queue``."""
        streams = list(self.streams.values())
        held = sum(stream.reorder_buffer.octets for stream in streams if stream.reorder_buffer is not None)
        return sum(stream.waiting_octets for stream in streams) - held

    def evictable_stream(self, up: frozenset[int]) -> PeerStream | None:
        """The session to forget before another one begins, if any; not one that is ``up``."""
        if len(self.streams) < MAX_STREAMS:
            return None
        return next((stream for epoch, stream in self.streams.items() if epoch not in up), None)

    def forget(self, stream: PeerStream) -> None:
        """Remember of this session only what it counted."""
        self._forgotten.update(_counters(self.streams.pop(stream.epoch)))

    def add_stream(self, epoch: int, node: str | None, first: int | None, gaps: GapHandler) -> PeerStream:
        """Begin a sender session; ``first`` is where it stood when we joined, if known."""
        stream = self.streams[epoch] = PeerStream(self, epoch, node, first, gaps)
        return stream

    def subscribe(self, max_age: float | None, max_payload: int | None) -> None:
        """From now on messages are delivered, but not what is older on arrival (in s), or longer; None: as before."""
        if max_age is not None:
            self.max_age_ns = int(max_age * 1e9)
        if max_payload is not None:
            self.max_payload = max_payload
        self.watched |= max_age is not None or max_payload is not None
        self.subscribed = True

    def watch(self, thresholds: Thresholds) -> Sync:
        """How fresh and complete the flow is, from the first call on; later calls' ``thresholds`` are not heeded."""
        if self.sync is None:
            self.sync = Sync(thresholds)
            self.watched = True
        return self.sync

    def drop_stale(self, stream: PeerStream, message: Message) -> None:
        """Count a message as too old: it is not delivered, and the sender learns that it is done with."""
        sequence = message.sequence
        stream.stale += 1
        self.stale.add(stream.epoch, sequence)
        if not self.queue and sequence >= stream.consumed:
            stream.consumed = sequence + 1
        stream.unreported_octets += len(message.payload) + MESSAGE_WEIGHT_OCTETS

    def consume_gaps(self, stream: PeerStream) -> None:
        """Take what will not come for consumed, once the application has taken all that came before it.

        On a flow without a subscription they are consumed at once, with all that is held: what was lost is not to fill
        the sender's window for the others, and what is held has a bound of its own.
        """
        if (not self.subscribed and stream.tracker.missing_count) or all(
            message.epoch != stream.epoch for message in tuple(self.queue)
        ):
            due = stream.reorder_buffer.next_due if stream.reorder_buffer else stream.tracker.next
            stream.consumed = stream.acked = max(stream.consumed, due)

    def next_message(self, tells_end: bool = False) -> tuple[Message, PeerStream | None] | None:
        """The next message, and the stream for which a credit update is due; None without a message.

        The stream is None where no update is due.  ``tells_end``: one is due when no message is left.
        """
        queue = self.queue
        if not queue:
            return None
        if self.runs and type(run := queue[0]) is Run:
            return self._next_of(run, tells_end)
        message = queue.popleft()
        payload, _, sequence, epoch, _, _, _ = message  # quicker than the names of a named tuple
        stream = self.streams.get(epoch)
        if stream is None:
            return message, None
        size = len(payload)
        stream.waiting_octets -= size
        if sequence >= stream.consumed:
            stream.consumed = sequence + 1
        stream.unreported_octets = unreported = stream.unreported_octets + size + MESSAGE_WEIGHT_OCTETS
        tells = unreported >= CREDIT_UPDATE_OCTETS or (tells_end and not queue)
        return message, stream if tells else None

    def _next_of(self, run: Run, tells_end: bool) -> tuple[Message, PeerStream | None]:
        """As `next_message`, of a run that comes next."""
        message = run[0]
        stream = self._take_of(run, 1, message, [])
        tells = tells_end and not self.queue and run.epoch in self.streams
        return message, self.streams[run.epoch] if tells else stream

    def _take_of(self, run: Run, count: int, taken: Any, parts: list[Any]) -> PeerStream | None:
        """Take so many messages of the run that comes next, which are ``taken`` and go to ``parts``.

        Returns its stream where a credit update is due for it.
        """
        stream, octets = self.streams.get(run.epoch), count * run.size
        unreported = octets + count * MESSAGE_WEIGHT_OCTETS + (stream.unreported_octets if stream is not None else 0)
        end = run.first + count
        if stream is not None:
            consumed = max(stream.consumed, end)
            stream.waiting_octets -= octets  # in a row, without a call: Ctrl-C comes where a call ends
            stream.unreported_octets = unreported
            stream.consumed = consumed
        parts += (taken,)
        if count == run.length:
            self.runs -= 1
            del self.queue[0]
        else:
            run.octets, run.first, run.length = run.octets[octets:], end, run.length - count
        return stream if unreported >= CREDIT_UPDATE_OCTETS else None

    def next_parts(self, most: int, parts: list[Sequence[Message]]) -> list[PeerStream]:
        """Take the next messages, at most so many, which are added to ``parts``; see `put_back`.

        Returns the streams for which a credit update is due.
        """
        due, left = dict[PeerStream, None](), most
        while left and self.queue:
            run = self.queue[0] if self.runs else None
            if type(run) is Run:
                count = min(left, run.length)
                stream = self._take_of(run, count, run.detached(count), parts)
                streams = [stream] if stream is not None else []
            else:
                streams = self._next_singles(left, parts)
                count = len(parts[-1])
            due |= dict.fromkeys(streams)
            left -= count
        return list(due)

    def put_back(self, parts: Sequence[Sequence[Message]]) -> None:
        """Ctrl-C has ended a call that took these, and the application did not get them: they come next again.

        What waits is summed up anew: not all of it need have been counted.
        """
        for part in reversed(parts):
            if isinstance(part, Run):
                self.queue.appendleft(part)
                self.runs += 1
            else:
                self.queue.extendleft(reversed(part))
        octets = Counter[int]()
        for one in self.queue:
            octets[one.epoch] += one.length * one.size if isinstance(one, Run) else len(one.payload)
        for epoch, stream in self.streams.items():
            held = stream.reorder_buffer
            stream.waiting_octets = octets[epoch] + (held.octets if held is not None else 0)

    def _next_singles(self, most: int, parts: list[Sequence[Message]]) -> list[PeerStream]:
        """As `next_parts`, of the messages before a run."""
        queue = self.queue
        messages: list[Any] = list(islice(queue, most))
        if self.runs:
            messages = list(takewhile(lambda one: type(one) is Message, messages))
        count, due, of = len(messages), list[PeerStream](), list(map(_EPOCH, messages))
        taking = starmap(queue.popleft, repeat((), count))
        for epoch in set(of):
            if (stream := self.streams.get(epoch)) is None:
                continue
            own = messages if of.count(epoch) == count else [one for one in messages if one[3] == epoch]
            size, consumed = sum([len(message[0]) for message in own]), max(stream.consumed, own[-1][2] + 1)
            unreported = stream.unreported_octets + size + len(own) * MESSAGE_WEIGHT_OCTETS
            if unreported >= CREDIT_UPDATE_OCTETS:
                due.append(stream)
            stream.waiting_octets -= size
            stream.unreported_octets = unreported
            stream.consumed = consumed
        parts += (messages,)  # these in a row, and all messages in one call: Ctrl-C comes where a call ends
        deque(taking, 0)
        return due

    def positions(self) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Of each sender session: epoch, one more than the highest number known, and what is missing below it."""
        return [(stream.epoch, *_position(stream)) for stream in self.streams.values()]

    def stats(self) -> dict[str, Any]:
        """Counters over all sender sessions, and what is queued."""
        totals = self._forgotten.copy()
        for stream in list(self.streams.values()):
            totals.update(_counters(stream))
        return {
            **{name: totals[name] for name in COUNTERS},
            "sessions": len(self.streams),
            "queued": self.queued,
            "queued_octets": self.queued_octets,
            "sync": self.sync.stats() if self.sync else None,
        }


COUNTERS = (
    "received", "missing", "gaps", "reordered", "duplicates", "unclaimed", "repaired", "repeated", "conflated", "stale",
    "held", "received_octets",
)  # fmt: skip


def _counters(stream: PeerStream) -> dict[str, int]:
    tracker = stream.tracker
    values = (
        tracker.received, tracker.missing_count, tracker.gaps, tracker.late, tracker.duplicates, stream.rejected_count,
        stream.repaired, stream.repeated, stream.conflated, stream.stale,
        stream.reorder_buffer.held if stream.reorder_buffer else 0, stream.received_octets,
    )  # fmt: skip
    return dict(zip(COUNTERS, values, strict=True))


def _position(stream: PeerStream) -> tuple[int, list[tuple[int, int]]]:
    held = stream.reorder_buffer
    if held is None:
        return stream.tracker.next, list(stream.tracker.missing)
    return max(stream.tracker.next, held.end), list(held.missing)
