"""The sending side of one flow: what is under way, what was acknowledged, what is lost.  No I/O, no clock."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from .message import Ack
from .offset import clock_offset
from .ranges import RangeSet

MAX_IN_FLIGHT = 131_072  # messages; bounds a window full of tiny ones
SLACK_OCTETS = 256 * 1024  # a receiver announces consumption at least this often, so this little never blocks
SLACK_MESSAGES = 64
MAX_HISTORIES = 16  # peers gone whose delays are still shown
SAMPLES = 16384  # acks of each peer kept for percentiles: 4 MB

_new_ack = tuple.__new__  # a named tuple's own constructor takes three times as long


class Outgoing:
    """Feed it what is sent, acks and peers that come and go; ask it what fits, what is missing, how long it took.

    A message is *outstanding* (in ``awaited``) until every peer that was up when it was sent has acknowledged it, and
    *lost* when that can no longer happen: no peer was up, the peer went, or the peer is past it without having
    acknowledged it.  A lost message that is acknowledged after all is lost no more.

    A message is *in flight* until every peer's application has consumed it or skipped it; in-flight octets are
    bounded by ``window`` on every transport alike, which bounds the memory of both sides.
    """

    def __init__(self, flow: str, window: int) -> None:
        self.flow = flow
        self.window = window
        self.next = 0
        self.sent_octets = 0
        self.acknowledged = 0
        self.in_flight_octets = 0
        self.lost = RangeSet()
        self.unreported = RangeSet()  # lost since somebody was last told by flush
        self.acks: dict[int, deque[Ack]] = {}  # the latest of each peer
        self.awaited: dict[int, tuple[int, frozenset[int]]] = {}  # sequence -> monotonic ns sent, peers
        self._in_flight: deque[int] = deque()  # sizes; the first one's sequence is _in_flight_first
        self._in_flight_first = 0
        self._consumed: dict[int, int] = {}  # peer epoch -> every sequence below is done with there
        self._peers: frozenset[int] = frozenset()  # its keys

    def fits(self, size: int) -> bool:
        """Whether a payload of ``size`` octets may be sent now."""
        count = len(self._in_flight)
        if count == 0:
            return True
        octets = self.in_flight_octets
        return (octets + size <= self.window or octets <= SLACK_OCTETS) and (
            count < MAX_IN_FLIGHT or count <= SLACK_MESSAGES
        )

    def send(self, size: int, now_mono_ns: int) -> int:
        """Number a message."""
        sequence = self.next
        self.next = sequence + 1
        self.sent_octets += size
        if self._peers:
            self.awaited[sequence] = (now_mono_ns, self._peers)
            self._in_flight.append(size)
            self.in_flight_octets += size
        else:
            self._in_flight_first = self.next
            self._lose(sequence, self.next)
        return sequence

    def acknowledge(
        self,
        epoch: int,
        records: Sequence[Sequence[int]],
        t3_ns: int,
        t4_ns: int,
        t4_mono_ns: int,
    ) -> list[Ack]:
        """Peer ``epoch`` has these messages (sequence, T1, T2); returns acks for those that were awaited."""
        awaited = self.awaited
        acks = []
        for sequence, t1_ns, t2_ns in records:
            entry = awaited.get(sequence)
            if entry is None:
                if self.lost.remove(sequence):
                    self.unreported.remove(sequence)
                    self.acknowledged += 1
                continue
            sent_mono_ns, waiting = entry
            if epoch not in waiting:
                continue
            if len(waiting) > 1:
                awaited[sequence] = (sent_mono_ns, waiting - {epoch})
            else:
                del awaited[sequence]
                self.acknowledged += 1
            fields = (sequence, t4_mono_ns - sent_mono_ns, t1_ns, t2_ns, t3_ns, t4_ns, epoch, self.flow)
            acks.append(_new_ack(Ack, fields))
        if acks:
            self.acks[epoch].extend(acks)  # whoever was waited for has been up
        return acks

    def consume(self, epoch: int, consumed: int) -> RangeSet | None:
        """Peer ``epoch`` is done with every sequence below ``consumed``; what it thereby turned out to have lost."""
        known = self._consumed.get(epoch)
        if known is not None and known < consumed <= self.next:
            self._consumed[epoch] = consumed
            self._free_window()
        elif len(self._peers) < 2:
            return None
        return self._skipped() if self.awaited else None

    def _free_window(self) -> None:
        """Take out of flight what every peer is done with."""
        (done,) = self._consumed.values() if len(self._consumed) == 1 else (min(self._consumed.values()),)
        in_flight, first = self._in_flight, self._in_flight_first
        while first < done and in_flight:
            self.in_flight_octets -= in_flight.popleft()
            first += 1
        self._in_flight_first = first

    def _skipped(self) -> RangeSet | None:
        """Lose, from the oldest on, what everybody who is still waited for went past without acknowledging it."""
        lost = None
        awaited, consumed = self.awaited, self._consumed
        while awaited:
            sequence = next(iter(awaited))
            for epoch in awaited[sequence][1]:
                if consumed[epoch] <= sequence:
                    return lost
            del awaited[sequence]
            lost = lost or RangeSet()
            lost.add(sequence, sequence + 1)
            self._lose(sequence, sequence + 1)
        return lost

    def peer_up(self, epoch: int) -> None:
        """A peer joined: it owes nothing for what was sent before."""
        self._consumed.setdefault(epoch, self.next)
        self._peers = frozenset(self._consumed)
        if len(self.acks) >= MAX_HISTORIES:
            self.acks.pop(next((old for old in self.acks if old not in self._peers), epoch), None)
        self.acks.setdefault(epoch, deque(maxlen=SAMPLES))

    def peer_down(self, epoch: int) -> RangeSet:
        """A peer went; returns what nobody will acknowledge any more."""
        self._consumed.pop(epoch, None)
        self._peers = frozenset(self._consumed)
        lost = RangeSet()
        for sequence, (sent_mono_ns, waiting) in list(self.awaited.items()):
            if epoch not in waiting:
                continue
            if len(waiting) > 1:
                self.awaited[sequence] = (sent_mono_ns, waiting - {epoch})
                continue
            del self.awaited[sequence]
            lost.add(sequence, sequence + 1)
            self._lose(sequence, sequence + 1)
        if self._consumed:
            self._free_window()
        else:
            self._in_flight.clear()
            self._in_flight_first = self.next
            self.in_flight_octets = 0
        return lost

    def _lose(self, first: int, end: int) -> None:
        self.lost.add(first, end)
        self.unreported.add(first, end)

    def outstanding(self) -> RangeSet:
        """The sequences that are waited for."""
        return RangeSet((sequence, sequence + 1) for sequence in list(self.awaited))

    def owing(self) -> frozenset[int]:
        """The peers that are waited for."""
        return frozenset().union(*(waiting for _, waiting in self.awaited.values()))

    def stats(self) -> dict[str, Any]:
        """Counters, and delays in ns: percentiles of the last 16,384 acks of each peer."""
        return {
            "sent": self.next,
            "sent_octets": self.sent_octets,
            "acknowledged": self.acknowledged,
            "outstanding": len(self.awaited),
            "lost": self.lost.count(),
            "repaired": 0,  # a message is sent once; a link that repairs counts here
            "in_flight_octets": self.in_flight_octets,
            "peers": {f"{epoch:016x}": _delays(list(acks)) for epoch, acks in self.acks.items()},
        }


def _delays(acks: list[Ack]) -> dict[str, Any]:
    estimate = clock_offset(acks)
    if estimate is None:
        return {"rtt_ns": None, "one_way_ns": None, "clock_offset_ns": None}
    offset_ns, bound_ns = estimate
    return {
        "rtt_ns": _percentiles([ack.rtt_ns for ack in acks]),
        "one_way_ns": {
            **_percentiles([ack.peer_received_ns - ack.sent_ns - offset_ns for ack in acks]),
            "bound": bound_ns,
        },
        "clock_offset_ns": {"offset": offset_ns, "bound": bound_ns},
    }


def _percentiles(values: list[int]) -> dict[str, int]:
    """Nearest-rank percentiles of at least one value."""
    values.sort()
    last = len(values) - 1
    return {
        "n": len(values),
        "min": values[0],
        "p50": values[round(0.50 * last)],
        "p95": values[round(0.95 * last)],
        "p99": values[round(0.99 * last)],
        "max": values[last],
    }
