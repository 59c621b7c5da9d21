"""Selective repeat: NAKs, retransmission, reports of losses, bounded buffers, sessions."""

# ruff: noqa: D102  (a test's name is its sentence)

import threading
import time
from collections.abc import Iterator

import pytest

import twinlink
from twinlink.protocol.frames import (
    HEADER_OCTETS,
    AbandonReason,
    Kind,
    abandoned_body,
    frame,
    nak_body,
    parse,
    parse_abandoned,
    parse_ack,
    parse_nak,
)
from twinlink.protocol.send import queue as send_queue

from .base import Conformance, ForeignPeer, MakeForeign, Open, drain, malformed, patience, receive_all, wait_until


class Repairing(Conformance):
    """The link's repair, against a foreign peer."""

    @pytest.fixture
    def link(self, opening: Open) -> twinlink.Link:
        return opening("listen", node="ours", retention=1024 * 1024)

    @pytest.fixture
    def peer(self, link: twinlink.Link, foreign: MakeForeign) -> ForeignPeer:
        peer = foreign()
        peer.repairs = True
        peer.meet(link)
        return peer

    @pytest.fixture
    def greeting(self, link: twinlink.Link, peer: ForeignPeer) -> Iterator[threading.Event]:
        """Keeps the peer up until it is set."""
        over = threading.Event()

        def greet() -> None:
            while not over.wait(0.2):
                peer.hello(link.epoch)

        thread = threading.Thread(target=greet)
        thread.start()
        yield over
        over.set()
        thread.join()

    def gone(self, peer: ForeignPeer, flow: str, unsent: int, *ranges: tuple[int, int]) -> None:
        body = abandoned_body(AbandonReason.EVICTED, ranges)
        peer.send(f"traffic/{flow}", frame(Kind.ABANDONED, peer.epoch, unsent, time.time_ns(), body))

    def ask(self, peer: ForeignPeer, link: twinlink.Link, flow: str, known: int, *missing: tuple[int, int]) -> None:
        body = nak_body(link.epoch, known, missing)
        peer.send(f"ack/{flow}", frame(Kind.NAK, peer.epoch, 0, time.time_ns(), body))

    @pytest.mark.usefixtures("greeting")
    def test_a_gap_is_asked_for_and_filled_in_order(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        inbox = link.receiver("flow")
        for sequence in (0, 1, 4, 5):
            peer.data("flow", sequence)
        assert parse_nak(peer.next(Kind.NAK)) == (peer.epoch, 2, [(2, 4)])
        assert [message.sequence for message in receive_all(inbox, 2)] == [0, 1]
        for sequence in (3, 2, 2):
            peer.send("traffic/flow", frame(Kind.RETRANSMIT, peer.epoch, sequence, 7, b"again"))
        rest = receive_all(inbox, 4)
        assert [(message.sequence, message.sent_ns == 7) for message in rest] == [
            (2, True), (3, True), (4, False), (5, False),
        ]  # fmt: skip
        wait_until(lambda: link.stats()["received"]["flow"]["repeated"] == 1)
        counted = link.stats()["received"]["flow"]
        assert {key: counted[key] for key in ("received", "repaired", "missing", "duplicates", "held")} == {
            "received": 6, "repaired": 2, "missing": 0, "duplicates": 0, "held": 0,
        }  # fmt: skip
        assert drain(link, twinlink.Gap, twinlink.Duplicate, twinlink.Reordered) == []

    @pytest.mark.usefixtures("greeting")
    def test_what_will_not_come_is_a_gap_and_the_rest_goes_on(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        inbox = link.receiver("flow")
        for sequence in (0, 5):
            peer.data("flow", sequence)
        self.gone(peer, "flow", 6, (1, 3))
        peer.send("traffic/flow", frame(Kind.RETRANSMIT, peer.epoch, 3, 7, b""))
        peer.send("traffic/flow", frame(Kind.RETRANSMIT, peer.epoch, 4, 7, b""))
        assert [message.sequence for message in receive_all(inbox, 4)] == [0, 3, 4, 5]
        assert [(gap.first, gap.end) for gap in drain(link, twinlink.Gap)] == [(1, 3)]
        assert link.stats()["received"]["flow"]["missing"] == 2

    @pytest.mark.usefixtures("greeting")
    def test_what_comes_after_it_was_given_up_is_not_acknowledged(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        """The sender has lost it, and so has this side."""
        inbox = link.receiver("flow")
        peer.data("flow", 0)
        self.gone(peer, "flow", 5, (1, 3))  # 3 and 4 are still missing, so the abandoned ones behind them wait
        self.gone(peer, "flow", 5, (4, 5))
        for sequence in (2, 4, 3, 0):
            peer.data("flow", sequence)
        acked: list[int] = []
        while acked.count(0) < 2:
            acked += [sequence for sequence, _, _ in parse_ack(peer.next(Kind.ACK))[2]]
        assert acked == [0, 3, 0]
        assert [message.sequence for message in receive_all(inbox, 2)] == [0, 3]
        assert [(gap.first, gap.end) for gap in drain(link, twinlink.Gap)] == [(1, 3), (4, 5)]

    @pytest.mark.usefixtures("greeting")
    def test_the_question_what_is_missing_is_answered(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        link.receiver("flow")
        peer.data("flow", 0)
        self.gone(peer, "flow", 3)
        assert parse_nak(peer.next(Kind.NAK)) == (peer.epoch, 3, [(1, 3)])
        self.gone(peer, "other", 2)  # nothing of this flow has ever arrived
        assert parse_nak(peer.next(Kind.NAK)) == (peer.epoch, 2, [(0, 2)])

    def test_a_session_that_ends_owes_nothing_any_more(
        self, link: twinlink.Link, peer: ForeignPeer, greeting: threading.Event
    ) -> None:
        inbox = link.receiver("flow")
        peer.data("flow", 0)
        peer.data("flow", 2)
        greeting.set()
        # The goodbye may overtake what is sent before it.
        wait_until(lambda: link.stats()["received"]["flow"]["held"] == 1)
        peer.send("traffic/_link", frame(Kind.BYE, peer.epoch, 0, 1, b""))
        assert [message.sequence for message in receive_all(inbox, 2)] == [0, 2]
        assert [(gap.first, gap.end) for gap in drain(link, twinlink.Gap)] == [(1, 2)]

    @pytest.mark.usefixtures("greeting")
    def test_what_a_peer_asks_for_is_sent_again(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        acks: list[twinlink.Ack] = []
        outbox = link.sender("flow", on_ack=acks.append)
        for number in range(5):
            outbox.send(bytes([number]) * 100)
        first = [peer.next(Kind.DATA) for _ in range(5)]
        self.ask(peer, link, "flow", 5, (1, 3))
        for original in first[1:3]:
            again = peer.next(Kind.RETRANSMIT)
            assert parse(again)[1:] == parse(original)[1:]
            assert again[HEADER_OCTETS:] == original[HEADER_OCTETS:]
        peer.ack(link, "flow", 3, 1, 2)
        outbox.flush(patience())
        assert sorted(ack.sequence for ack in acks) == [0, 1, 2, 3, 4]
        counted = outbox.stats()
        assert (counted["acknowledged"], counted["repaired"], counted["kept_octets"]) == (5, 2, 0)

    @pytest.mark.usefixtures("greeting")
    def test_a_bundle_is_taken_apart(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        inbox = link.receiver("flow")
        kinds = {0: Kind.DATA, 2: Kind.DATA, 1: Kind.RETRANSMIT, 3: Kind.DATA}
        frames = [frame(kind, peer.epoch, number, number, b"%d" % number) for number, kind in kinds.items()]
        for body in (frames[0][:-1], frames[0] + b"TL", b"", b"".join(frames)):
            peer.send("traffic/flow", frame(Kind.BUNDLE, peer.epoch, 0, time.time_ns(), body))
        messages = receive_all(inbox, 4)
        assert [(message.sequence, message.sent_ns, bytes(message.payload)) for message in messages] == [
            (number, number, b"%d" % number) for number in range(4)
        ]
        acked: list[int] = []
        while len(acked) < 4:
            acked += [sequence for sequence, _, _ in parse_ack(peer.next(Kind.ACK))[2]]
        assert acked == [0, 2, 1, 3]
        assert malformed(link) == {"bundle": 2}
        assert link.stats()["received"]["flow"]["repaired"] == 1

    @pytest.mark.usefixtures("greeting")
    def test_parts_are_put_together(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        inbox = link.receiver("flow")
        wholes = [frame(Kind.DATA, peer.epoch, number, 100 + number, bytes([number]) * 1000) for number in range(2)]
        for whole in wholes:
            for at in range(0, len(whole), 400):
                peer.send("traffic/flow", frame(Kind.FRAGMENT, peer.epoch, at, parse(whole)[3], whole[at : at + 400]))
        messages = receive_all(inbox, 2)
        assert [(message.sequence, message.sent_ns, bytes(message.payload)) for message in messages] == [
            (number, 100 + number, bytes([number]) * 1000) for number in range(2)
        ]
        assert malformed(link) == {}

    @pytest.mark.usefixtures("no_peer_falls_silent")
    @pytest.mark.parametrize("repairs", [True, False])
    def test_messages_in_bulk_share_frames_if_every_peer_reads_bundles(
        self, opening: Open, foreign: MakeForeign, monkeypatch: pytest.MonkeyPatch, repairs: bool
    ) -> None:
        monkeypatch.setattr(send_queue, "BULK_NS", 10**9)  # these come in bulk on a slow machine, too
        link = opening("listen")
        peer = foreign()
        peer.repairs = repairs
        peer.meet(link)
        outbox = link.sender("flow")
        numbers = list(range(1024))
        for number in numbers:
            outbox.send(number.to_bytes(2))
        received = [peer.next(Kind.DATA) for _ in numbers]
        assert [parse(octets)[2] for octets in received] == numbers
        assert [int.from_bytes(octets[HEADER_OCTETS:]) for octets in received] == numbers
        assert (peer.bundles > 0) == repairs

    def test_a_silent_peer_that_returns_has_missed_nothing(
        self, link: twinlink.Link, peer: ForeignPeer, greeting: threading.Event
    ) -> None:
        outbox = link.sender("flow")
        greeting.set()
        wait_until(lambda: link.peers() == [])
        for _ in range(3):
            outbox.send(b"meanwhile")
        with pytest.raises(twinlink.AckTimeout, match="may return"):
            outbox.flush(0.05)
        peer.meet(link)
        assert parse_abandoned(peer.next(Kind.ABANDONED, Kind.DATA)) == (AbandonReason.EVICTED, [])
        assert [parse(peer.next(Kind.DATA))[2] for _ in range(3)] == [0, 1, 2]
        peer.ack(link, "flow", 3, 0, 1, 2)
        outbox.flush(patience())
        assert [event.reason for event in drain(link, twinlink.PeerDown, twinlink.Lost)] == ["silent"]

    def test_what_a_peer_lacks_that_is_on_its_way_to_it_is_not_lost(
        self, link: twinlink.Link, peer: ForeignPeer, greeting: threading.Event
    ) -> None:
        outbox = link.sender("flow")
        for _ in range(4):
            outbox.send(bytes(10_000))
        for _ in range(4):
            peer.next(Kind.DATA)
        greeting.set()
        wait_until(lambda: link.peers() == [])
        for _ in range(20):
            outbox.send(bytes(100_000))  # the four have to make room
        peer.meet(link)
        self.ask(peer, link, "flow", 4, (1, 4))
        while not any(first == 1 for first, _ in parse_abandoned(peer.next(Kind.ABANDONED))[1]):
            peer.hello(link.epoch)
        peer.ack(link, "flow", 0, 2)  # it could be read
        while parse_abandoned(peer.next(Kind.ABANDONED))[1]:
            peer.hello(link.epoch)
        self.ask(peer, link, "flow", 4)
        peer.ack(link, "flow", 4)
        lost: list[int] = []

        def reported() -> bool:
            peer.hello(link.epoch)
            for event in drain(link, twinlink.Lost):
                lost.extend(range(event.first, event.end))
            return {1, 3} <= set(lost)

        wait_until(reported)
        assert not {0, 2} & set(lost)

    @pytest.mark.usefixtures("greeting")
    @pytest.mark.parametrize("overflow", ["drop-oldest", "drop-newest"])
    def test_a_full_flow_drops_and_says_what(self, link: twinlink.Link, peer: ForeignPeer, overflow: str) -> None:
        outbox = link.sender("flow", overflow=overflow)  # type: ignore[arg-type]
        for _ in range(40):
            outbox.send(bytes(100_000))
        assert outbox.stats()["kept_octets"] <= 1024 * 1024
        lost: list[int] = []

        def reported() -> bool:
            for event in drain(link, twinlink.Lost):
                lost.extend(range(event.first, event.end))
            return len(lost) == 30

        wait_until(reported)
        kept = sorted(set(range(40)) - set(lost))
        assert len(kept) == 10
        assert (39 in kept) == (overflow == "drop-oldest")
        with pytest.raises(twinlink.AckTimeout) as caught:
            outbox.flush(0)
        assert len(caught.value.missing) >= 1

    @pytest.mark.usefixtures("greeting")
    def test_of_states_the_latest_is_kept(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        outbox = link.sender("state", overflow="latest")
        while outbox.stats()["conflated"] < 10:
            outbox.send(bytes(100_000))  # not in fragments, for which this peer gives no progress
        assert drain(link, twinlink.Lost) == []
        newest = outbox.stats()["sent"] - 1
        seen: list[int] = []
        while newest not in seen:
            received = peer.next(Kind.DATA, Kind.ABANDONED)
            if parse(received)[0] is Kind.DATA:
                seen.append(parse(received)[2])
                peer.ack(link, "state", seen[-1] + 1, seen[-1])
        assert seen == sorted(seen)
        outbox.flush(patience())

    def test_a_full_flow_blocks_for_its_time_and_no_longer(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        outbox = link.sender("flow")
        for _ in range(10):
            outbox.send(bytes(100_000))
        with pytest.raises(twinlink.SendTimeout, match=r"full for 0\.05 s"):
            outbox.send(bytes(100_000))

    @pytest.mark.usefixtures("greeting")
    def test_what_is_too_old_is_not_delivered(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        inbox = link.receiver("flow", max_age=1000.0)
        old = frame(Kind.DATA, peer.epoch, 0, time.time_ns() - 2_000_000_000_000, b"old")
        peer.send("traffic/flow", old)
        peer.data("flow", 1, b"new")
        assert [message.sequence for message in receive_all(inbox, 1)] == [1]
        stale: list[twinlink.Stale] = []
        wait_until(lambda: stale.extend(drain(link, twinlink.Stale)) or stale)  # type: ignore[func-returns-value]
        assert [(event.first, event.end) for event in stale] == [(0, 1)]

    @pytest.mark.usefixtures("greeting")
    def test_the_freshness_of_a_flow_is_told(self, link: twinlink.Link, peer: ForeignPeer) -> None:
        sync = link.sync("flow", stale_after=0.3, out_after=0.9)
        link.receiver("flow")
        assert (sync.state.value, sync.age_ns()) == ("bound", None)
        peer.data("flow", 0)
        told: list[str] = []

        def follows(*states: str) -> bool:
            told.extend(event.state for event in drain(link, twinlink.SyncChanged))
            return told == list(states)

        wait_until(lambda: follows("in-sync", "stale", "out-of-sync"))
        peer.data("flow", 1)
        wait_until(lambda: told[3:4] == ["in-sync"] or follows("in-sync", "stale", "out-of-sync", "in-sync"))
        counted = link.stats()["received"]["flow"]["sync"]
        assert counted is not None
        assert (counted["peak_age_ns"] or 0) > 900_000_000
