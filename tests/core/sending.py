"""A sender's core, fed by hand."""

from types import SimpleNamespace
from typing import Any

from twinlink.protocol.fragmentation import FragmentReassembler
from twinlink.protocol.frames import AbandonReason, Kind, frame, parse
from twinlink.protocol.rangeset import RangeSet
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.in_flight import FRAMING_OCTETS
from twinlink.protocol.send.queue import BUNDLE_OCTETS
from twinlink.runtime.flow_endpoint import FlowEndpoint
from twinlink.runtime.sender import Sender
from twinlink.transports import Transport

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


def sender_on(transport: Transport, core: SendFlow, epoch: int) -> Sender:
    """A sender whose link has no threads: no thread waits, and the queue leaves by `Transmitter.transmit`."""
    link: Any = SimpleNamespace(
        epoch=epoch,
        max_payload=2**16,
        endpoint="way",
        closing=False,
        send_timeout=0.0,
        peer_manager=SimpleNamespace(up_names=list, alone=False, read_positions=lambda *_: {}),
        closed=lambda: False,
        in_callback=lambda: False,
        wait=lambda *_: None,
        wake_transmit=lambda: None,
    )
    return Sender(link, transport, FlowEndpoint(link, transport, core, "normal"))
