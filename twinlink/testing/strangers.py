"""Frames of foreign programs are counted, and change nothing else."""

# ruff: noqa: D102  (a test's name is its sentence)

import random
from collections import Counter
from typing import Any

import pytest

import twinlink
from twinlink.protocol.frames import (
    MAX_ACK_RANGE,
    MAX_ACK_RECORDS,
    MAX_RUN,
    MAX_SEQUENCE,
    RUN_HEAD,
    Kind,
    ack_body,
    ack_range_body,
    frame,
)

from .base import Conformance, ForeignPeer, MakeForeign, Open, Pair, drain, malformed, patience, receive_all, wait_until

EPOCH = 0x0123456789ABCDEF
GOOD = frame(Kind.DATA, EPOCH, 0, 1, b"payload")

# reason -> topic, octets
GARBAGE: dict[str, list[tuple[str, bytes]]] = {
    "truncated": [("traffic/flow", b""), ("traffic/flow", b"T"), ("traffic/flow", GOOD[:31]), ("ack/flow", b"hello")],
    "magic": [("traffic/flow", b"XX" + GOOD[2:]), ("ack/flow", bytes(100)), ("traffic/_link", b"{" * 100)],
    "version": [("traffic/flow", GOOD[:2] + b"\x02" + GOOD[3:]), ("traffic/flow", GOOD[:2] + b"\x00" + GOOD[3:])],
    "kind": [("traffic/flow", GOOD[:3] + b"\x00" + GOOD[4:]), ("traffic/flow", GOOD[:3] + b"\x0e" + GOOD[4:])],
    "length": [("traffic/flow", GOOD[:-1]), ("traffic/flow", GOOD + b"x"), ("ack/flow", GOOD[:32])],
    "topic": [
        ("traffic/_other", GOOD),
        ("ack/flow", GOOD),
        ("traffic/" + "x" * 64, GOOD),
        ("traffic/flow", frame(Kind.HELLO, EPOCH, 0, 1, b"{}")),
        ("ack/flow", frame(Kind.BYE, EPOCH, 0, 1, b"")),
    ],
    "ack": [
        ("ack/flow", frame(Kind.ACK, EPOCH, 0, 1, b"")),
        ("ack/flow", frame(Kind.ACK, EPOCH, 0, 1, bytes(17))),
        ("ack/flow", frame(Kind.ACK, EPOCH, 0, 1, ack_body(0, 0, [(0, 0, 0)] * (MAX_ACK_RECORDS + 1)))),
    ],
    "ack_range": [
        ("ack/flow", frame(Kind.ACK_RANGE, EPOCH, 0, 1, body))
        for body in (
            b"", bytes(39), ack_range_body(0, 0, 3, 3, 1), ack_range_body(0, 0, 3, 4, 0),
            ack_range_body(0, 0, 0, MAX_ACK_RANGE + 1, 1), ack_range_body(0, 0, MAX_SEQUENCE, MAX_SEQUENCE + 1, 1),
        )
    ],
    "run": [
        ("traffic/flow", frame(Kind.RUN, EPOCH, sequence, 1, body))
        for sequence, body in (
            (0, b""), (0, bytes(8)), (0, RUN_HEAD.pack(0, 4)), (0, RUN_HEAD.pack(3, 4) + bytes(11)),
            (0, RUN_HEAD.pack(2**31, 2**31) + bytes(64)), (0, RUN_HEAD.pack(MAX_RUN + 1, 1) + bytes(MAX_RUN + 1)),
            (MAX_SEQUENCE, RUN_HEAD.pack(2, 4) + bytes(8)),
        )
    ],
    "fragment": [
        ("traffic/flow", frame(Kind.FRAGMENT, EPOCH, 0, 1, GOOD[:31])),
        ("traffic/flow", frame(Kind.FRAGMENT, EPOCH, 0, 1, GOOD + b"x")),
        ("traffic/flow", frame(Kind.FRAGMENT, EPOCH, 0, 1, frame(Kind.FRAGMENT, EPOCH, 0, 1, GOOD))),
    ],
    "refused": [
        ("ack/flow", frame(Kind.REFUSED, EPOCH, 0, 1, b"")),
        ("ack/flow", frame(Kind.REFUSED, EPOCH, 0, 1, bytes(17))),
    ],
    "fragment_progress": [
        ("ack/flow", frame(Kind.FRAGMENT_PROGRESS, EPOCH, 0, 1, b"")),
        ("ack/flow", frame(Kind.FRAGMENT_PROGRESS, EPOCH, 0, 1, bytes(25))),
    ],
    "hello": [
        ("traffic/_link", frame(Kind.HELLO, EPOCH, 0, 1, body))
        for body in (
            b"", b"\xff\xfe\xfd", b"[]", b"{}", b"null", b'{"node":1,"heard":{},"flows":{}}',
            b'{"node":"x","heard":{"no":1},"flows":{}}', b'{"node":"x","heard":{},"flows":[]}',
            b'{"node":"x","heard":[],"flows":{}}', b'{"node":"x","heard":{"0123456789abcdef":-1},"flows":{}}',
            b'{"node":"x","heard":{},"flows":{"a":-1}}', b'{"node":"x","heard":{},"flows":{"a":true}}',
            b'{"node":"x","heard":{},"flows":{"a":18446744073709551616}}', b'{"node":"","heard":{},"flows":{}}',
            b"[" * 10_000, b'{"node":"' + b"x" * 70_000 + b'","heard":{},"flows":{}}',
        )
    ],
}  # fmt: skip


class Strangers(Conformance):
    """Garbage, and foreign orders of messages."""

    @pytest.mark.parametrize("reason", list(GARBAGE))
    def test_garbage_is_counted_and_changes_nothing_else(
        self, opening: Open, foreign: MakeForeign, reason: str
    ) -> None:
        listener, connector = self.ready_pair(opening)
        outbox, inbox = connector.sender("flow"), listener.receiver("flow")
        listener.sender("flow")  # so that acks on it have a destination
        stranger = foreign()
        self.reach(stranger, listener)
        before = self.plain(listener)
        count = len(GARBAGE[reason])
        for topic, octets in GARBAGE[reason]:
            own = octets.replace(EPOCH.to_bytes(8), stranger.epoch.to_bytes(8))  # else dropped with identities
            stranger.send(topic, own)
            outbox.send(b"ours")
        outbox.flush(patience())
        wait_until(lambda: self.since(before, listener).total() >= count)
        counted = self.since(before, listener)
        assert counted.total() == count
        assert reason in counted or self.identities
        assert set(counted) <= {reason, *(["identity"] if self.identities else [])}
        receive_all(inbox, count)
        after = self.plain(listener)
        changed = {key for key in after if after[key] != before[key]}
        assert changed <= {"acks_sent", "identity", "malformed", "received"}
        assert after["received"]["flow"] == {
            **after["received"]["flow"],
            "received": count,
            "missing": 0,
            "sessions": 1,
        }
        events = drain(listener)
        ours = [event for event in events if getattr(event, "node", None) != stranger.node]
        assert {type(event).__name__ for event in ours} <= {"PeerUp", "Malformed"}
        assert set(counted) <= {event.reason for event in events if isinstance(event, twinlink.Malformed)}

    def test_random_octets(self, pair: Pair, role: str, foreign: MakeForeign) -> None:
        listening, other_end = pair if role == "listen" else pair[::-1]
        outbox, inbox = other_end.sender("flow"), listening.receiver("flow")
        stranger = foreign()
        self.reach(stranger, listening)
        before, chance = sum(malformed(listening).values()), random.Random(1)
        for _ in range(500):
            octets = bytearray(GOOD if chance.random() < 0.5 else chance.randbytes(chance.randrange(200)))
            if octets[:3] == GOOD[:3]:
                octets[chance.choice((0, 1, 2, 4, 5, 6))] ^= chance.randrange(1, 256)
            stranger.send(chance.choice(("traffic/flow", "ack/flow", "traffic/_link")), bytes(octets))
            outbox.send(b"ours")
        outbox.flush(patience())
        wait_until(lambda: sum(malformed(listening).values()) == before + 500)
        assert [message.sequence for message in receive_all(inbox, 500)] == list(range(500))

    def test_the_highest_numbers_there_are(self, opening: Open, foreign: MakeForeign) -> None:
        """Well-formed, but must not end the link either."""
        listener, connector = self.ready_pair(opening)
        outbox = listener.sender("flow")
        handled: list[int] = []
        listener.receiver("handled", handler=lambda message: handled.append(message.sequence))
        inbox = listener.receiver("queued")
        stranger = foreign()
        self.reach(stranger, listener)
        highest = 2**64 - 1
        for flow in ("handled", "queued"):
            for sequence in [MAX_SEQUENCE - 1, *[MAX_SEQUENCE + 1] * 100, *[highest] * 100]:
                stranger.data(flow, sequence)
        records = [(highest, highest, highest)] * MAX_ACK_RECORDS
        for epoch in range(200):
            body = ack_body(listener.epoch, highest, records)
            stranger.send("ack/flow", frame(Kind.ACK, epoch, highest, highest, body))
        for _ in range(100):
            outbox.send(b"")
        outbox.flush(patience())
        receive_all(connector.receiver("flow"), 100)
        wait_until(lambda: malformed(listener).get("sequence") == 400)
        assert handled == [message.sequence for message in receive_all(inbox, 1)] == [MAX_SEQUENCE - 1]
        stats = outbox.stats()
        assert (stats["acknowledged"], stats["lost"], list(stats["peers"])) == (100, 0, [f"{connector.epoch:016x}"])
        assert listener.peers() == ["second"]

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_gaps_duplicates_and_reordering_are_exact(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        inbox = link.receiver("flow")
        peer = foreign()
        peer.meet(link)
        for sequence in (0, 1, 5, 6, 3, 3, 0, 10, 2, 4, 11):
            peer.data("flow", sequence, b"%d" % sequence)
        messages = receive_all(inbox, 9)
        assert [(message.sequence, bytes(message.payload)) for message in messages] == [
            (sequence, b"%d" % sequence) for sequence in (0, 1, 5, 6, 3, 10, 2, 4, 11)
        ]
        events = drain(link, twinlink.Gap, twinlink.Duplicate, twinlink.Reordered)
        assert [(type(event).__name__, *numbers(event)) for event in events] == [
            ("Gap", 2, 5),
            ("Reordered", 3),
            ("Duplicate", 3),
            ("Duplicate", 0),
            ("Gap", 7, 10),
            ("Reordered", 2),
            ("Reordered", 4),
        ]
        counted = link.stats()["received"]["flow"]
        assert {name: counted[name] for name in ("received", "missing", "gaps", "reordered", "duplicates")} == {
            "received": 9, "missing": 3, "gaps": 2, "reordered": 3, "duplicates": 2,
        }  # fmt: skip

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_a_hello_says_where_a_flow_stands(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        inbox = link.receiver("flow")
        peer = foreign()
        peer.flows = {"flow": 100}
        peer.meet(link)
        peer.data("flow", 100)
        peer.data("flow", 103)
        receive_all(inbox, 2)
        assert [(gap.first, gap.end) for gap in drain(link, twinlink.Gap)] == [(101, 103)]

    def reach(self, stranger: ForeignPeer, link: twinlink.Link) -> None:
        """Return when frames of the foreign program arrive, without it becoming a peer."""

        def arrives(octets: bytes, reason: str) -> bool:
            stranger.send("traffic/reach", octets)
            return malformed(link).get(reason, 0) > 0

        wait_until(lambda: arrives(b"?", "identity" if self.identities else "truncated"))
        stranger.send("traffic/reach", bytes(8) + stranger.epoch.to_bytes(8) + bytes(16))  # after all the others
        wait_until(lambda: malformed(link).get("magic", 0) > 0)

    def since(self, before: dict[str, Any], link: twinlink.Link) -> Counter[str]:
        """Malformed frames that the link has dropped since these counters, by reason."""
        return Counter(malformed(link)) - Counter(before["malformed"])


def numbers(event: Any) -> tuple[int, ...]:
    """The sequence numbers of an event."""
    return (event.first, event.end) if isinstance(event, twinlink.Gap) else (event.sequence,)
