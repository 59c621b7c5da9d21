"""A sender's core, fed by hand."""

from collections.abc import Callable, Sequence
from typing import Any

from twinlink import SendTimeout
from twinlink.protocol.fragmentation import FragmentReassembler
from twinlink.protocol.frames import AbandonReason, Kind, data_headers, frame, parse, run_header
from twinlink.protocol.rangeset import RangeSet
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.in_flight import FRAMING_OCTETS
from twinlink.protocol.send.queue import BUNDLE_OCTETS
from twinlink.protocol.session import Sent, Session

WINDOW = 300_000
RETENTION = 2 * WINDOW
TRANSIT = 50_000
FULL = TRANSIT - FRAMING_OCTETS  # of payload


def numbers(ranges: RangeSet | None) -> set[int]:
    return {sequence for first, end in ranges or () for sequence in range(first, end)}


def send(core: SendFlow, size: int, now: int = 1) -> bool | None:
    return core.send(frame(Kind.DATA, 7, core.queue.next_sequence, now, bytes(size)), size, now)


def acknowledge(core: SendFlow, epoch: int, sequences: list[int], now: int = 10) -> list[int]:
    acks = core.on_ack(epoch, [(sequence, 1, 2) for sequence in sequences], 3, 4, now)
    return [ack.sequence for ack in acks]


def taken(core: SendFlow) -> list[int | tuple[AbandonReason, list[tuple[int, int]]]]:
    """All of the queue that may go now: numbers of messages, announcements of what is gone.

    Of a frame in fragments, every peer says at once how much of it is there.
    """
    out: list[int | tuple[AbandonReason, list[tuple[int, int]]]] = []
    reassembler = FragmentReassembler(2**24)
    while several := core.queue.next_frame():
        kind, what = several
        if kind is Kind.FRAGMENT:
            there = reassembler.receive(b"", what, True)
            if isinstance(there, memoryview):
                out.append(number(bytes(there)))
            else:
                for epoch in core.receivers.up:
                    core.queue.fragments.on_progress(epoch, parse(what)[3], there)
            continue
        assert_is_one_frame(*several)
        out += [what] if kind is Kind.ABANDONED else map(number, what)
    return out


def number(octets: bytes) -> int:
    return int.from_bytes(octets[16:24])


def assert_is_one_frame(kind: Kind, what: Any) -> None:
    """One announcement, one message of any size, or a bundle."""
    if kind is not Kind.ABANDONED and len(what) > 1:
        assert sum(map(len, what)) <= BUNDLE_OCTETS


def adopt(session: Session, core: SendFlow) -> SendFlow:
    """Have the session send on a flow that a test has made, with limits of its own."""
    session.send_flows.add(core)
    session.hello_due = True
    return core


class FlowSender:
    """What a `twinlink.Sender` and the transmit thread do with a flow, without threads."""

    def __init__(
        self, session: Session, core: SendFlow, transmit: Callable[[bytes, bytes], None], now: Callable[[], int]
    ) -> None:
        """``now()``: monotonic and Unix time in one."""
        self.core = core
        self._session = session
        self._topic = f"traffic/{core.flow}".encode()
        self._transmit = transmit
        self._now = now

    def send(self, payload: bytes) -> int:
        sequence, now = self.core.next_sequence, self._now()
        octets = frame(Kind.DATA, self._session.epoch, sequence, now, payload)
        sent = self._session.send(self.core, octets, len(payload), now)
        if sent is Sent.FULL and self.fits(len(payload)):
            sent = self._session.send(self.core, octets, len(payload), now)
        if sent is Sent.FULL:
            raise SendTimeout(f"{self.core.flow} is full")
        if sent is Sent.TRANSMIT:
            self._transmit(self._topic, bytes(octets))
        elif sent is Sent.TRANSMIT_BUNDLE:
            self.transmit_bundle()
        elif sent is Sent.TRANSMIT_QUEUE:
            self._session.transmit_due = True
        return sequence

    def send_many(self, payloads: Sequence[bytes]) -> int:
        """As many of these as there is room for; returns how many.  What is as long and can goes in runs."""
        sent = 0
        while sent < len(payloads) and (count := self._send_next(payloads[sent:])):
            sent += count
        return sent

    def _send_next(self, payloads: Sequence[bytes]) -> int:
        first, now, sizes = self.core.next_sequence, self._now(), list(map(len, payloads))
        count = min(len(payloads), self.core.run_room(sizes[0]))
        if count > 1 and sizes.count(sizes[0]) == len(sizes):
            run = run_header(count, sizes[0], self._session.epoch, first, now) + b"".join(payloads[:count])
            assert self._session.send_run(self.core, run, count, sizes[0], now)
            self._transmit_queue()
            return count
        headers = data_headers(sizes, self._session.epoch, first, now)
        frames = list(map(bytes.__add__, headers, payloads))
        count, sent = self._session.send_many(self.core, frames, sizes, now)
        if sent is Sent.TRANSMIT_BUNDLE:
            self._transmit_queue()
        return count

    def _transmit_queue(self) -> None:
        while (octets := self._session.next_frame(self.core, self._now(), may_block=False)) is not None:
            self._transmit(self._topic, bytes(octets))

    def fits(self, size: int) -> bool:
        return self._session.fits(self.core, size, self._now())

    def transmit_bundle(self) -> None:
        if (octets := self._session.next_frame(self.core, self._now(), may_block=False)) is not None:
            self._transmit(self._topic, bytes(octets))

    def transmit(self) -> None:
        """The queue, as far as it may go."""
        while (octets := self._session.next_frame(self.core, self._now(), may_block=True)) is not None:
            self._transmit(self._topic, bytes(octets))

    def stats(self) -> dict[str, Any]:
        return self.core.stats()
