"""Peers: none, several, late ones, returning ones."""

# ruff: noqa: D102  (a test's name is its sentence)

import threading
import time

import pytest

import twinlink
from twinlink.protocol import duplicate_names
from twinlink.protocol.liveness import HARD_TIMEOUT_NS, RESTART_NS
from twinlink.transports import transport_class

from .base import (
    Conformance,
    ForeignPeer,
    MakeForeign,
    Open,
    Pair,
    Stopwatch,
    drain,
    in_thread,
    other,
    patience,
    receive_all,
    wait_until,
)


class Peers(Conformance):
    """Peers that come, go, and come back."""

    def test_opening_without_a_peer_is_no_error_but_waiting_is(self, opening: Open, endpoint: str, role: str) -> None:
        link = opening(role)
        with pytest.raises(twinlink.PeerTimeout) as caught:
            link.wait_ready(0.2)
        last_port = int(endpoint.rsplit(":", 1)[1]) + transport_class(self.transport).ports - 1
        for part in (endpoint, self.transport, f"the other side {other(role)}s", str(last_port)):
            assert part in str(caught.value)
        assert link.peers() == []

    def test_ready_in_any_order_of_starting(self, opening: Open, role: str) -> None:
        first = opening(role, node="early")
        waiting = in_thread(lambda: first.wait_ready(patience()))
        with pytest.raises(twinlink.PeerTimeout):
            first.wait_ready(0.3)  # long enough for every transport to have failed once
        second = opening(other(role), node="late")
        second.wait_ready(patience())
        waiting.result()
        assert (first.peers(), second.peers()) == (["late"], ["early"])
        assert [(up.node, up.epoch) for up in drain(first, twinlink.PeerUp)] == [("late", second.epoch)]

    def test_nothing_after_wait_ready_is_lost(self, endpoint: str) -> None:
        for _ in range(3):
            for role in ("listen", "connect"):
                with self.open(other(role), endpoint) as second, self.open(role, endpoint) as first:
                    first.wait_ready(patience())
                    for number in range(50):
                        assert first.sender("flow").send(b"") == number
                    first.sender("flow").flush(patience())
                    assert [message.sequence for message in receive_all(second.receiver("flow"), 50)] == list(range(50))

    def test_a_late_one_sees_no_gap(self, opening: Open) -> None:
        listener, early = self.ready_pair(opening)
        outbox = listener.sender("flow")
        for _ in range(50):
            outbox.send(b"before")
        outbox.flush(patience())
        late = opening("connect", node="late")
        late.wait_ready(patience())
        wait_until(lambda: "late" in listener.peers())
        for _ in range(50):
            outbox.send(b"after")
        outbox.flush(patience())
        assert [message.sequence for message in receive_all(late.receiver("flow"), 50)] == list(range(50, 100))
        assert [message.sequence for message in receive_all(early.receiver("flow"), 100)] == list(range(100))
        assert drain(late, twinlink.Gap, twinlink.Duplicate, twinlink.Reordered) == []
        assert late.stats()["received"]["flow"]["missing"] == 0

    def test_several_connectors_on_one_listener(self, opening: Open) -> None:
        listener = opening("listen", node="twin")
        connectors = [opening("connect", node=f"gnb-{number}") for number in range(3)]
        for link in connectors:
            link.wait_ready(patience())
        wait_until(lambda: listener.peers() == ["gnb-0", "gnb-1", "gnb-2"])
        acks: list[twinlink.Ack] = []
        inbox, outbox = listener.receiver("up"), listener.sender("down", on_ack=acks.append)
        for number in range(200):
            outbox.send(number.to_bytes(2))
            for link in connectors:
                link.sender("up").send(link.node.encode())
        outbox.flush(patience())
        for link in connectors:
            link.sender("up").flush(patience())
            down = receive_all(link.receiver("down"), 200)
            assert [int.from_bytes(message.payload) for message in down] == list(range(200))
            assert [ack.sequence for ack in acks if ack.epoch == link.epoch] == list(range(200))
            assert link.peers() == ["twin"]
            assert list(link.stats()["received"]) == ["down"]  # nothing of the other connectors
        up = receive_all(inbox, 600)
        for link in connectors:
            mine = [message for message in up if message.epoch == link.epoch]
            assert [message.sequence for message in mine] == list(range(200))
            assert {(message.node, bytes(message.payload).decode()) for message in mine} == {(link.node, link.node)}
        assert outbox.stats()["acknowledged"] == 200

    def test_one_of_several_goes_and_the_others_do_not_notice(self, opening: Open) -> None:
        listener, staying = self.ready_pair(opening)
        going = opening("connect", node="going")
        going.wait_ready(patience())
        wait_until(lambda: "going" in listener.peers())
        outbox = listener.sender("flow")
        for number in range(100):
            outbox.send(b"")
            if number == 50:
                outbox.flush(patience())
                going.close()
                wait_until(lambda: "going" not in listener.peers())
        outbox.flush(patience())
        receive_all(staying.receiver("flow"), 100)
        downs = [(down.node, down.reason) for down in drain(listener, twinlink.PeerDown)]
        assert downs == [("going", "closed")]

    def test_a_peer_that_closes_and_comes_back_starts_anew(self, opening: Open, role: str) -> None:
        first, second = self.ready_pair(opening, role)
        inbox = first.receiver("flow")
        for _ in range(20):
            second.sender("flow").send(b"old")
        second.sender("flow").flush(patience())
        second.close()
        wait_until(lambda: first.peers() == [])
        again = opening(other(role), node="second")
        again.wait_ready(patience())
        for _ in range(20):
            again.sender("flow").send(b"new")
        again.sender("flow").flush(patience())
        messages = receive_all(inbox, 40)
        assert [(m.epoch, m.sequence) for m in messages] == [
            (epoch, number) for epoch in (second.epoch, again.epoch) for number in range(20)
        ]
        kinds = [type(event).__name__ for event in drain(first)]
        assert kinds == ["PeerUp", "PeerDown", "PeerUp"]

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_a_peer_that_is_killed_and_comes_back_is_a_restart(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        inbox = link.receiver("flow")
        old = foreign(node="gnb")
        old.meet(link)
        for number in range(5):
            old.data("flow", number, b"old")
        receive_all(inbox, 5)
        outbox = link.sender("down")
        outbox.send(b"never acknowledged")
        time.sleep(1.5 * RESTART_NS / 1e9)  # a peer of the same name that was heard just now would be another node
        new = foreign(node="gnb")
        new.meet(link)

        def is_replaced() -> bool:
            new.hello(link.epoch)  # a link that stood still for long takes the old session for one heard just now
            return link.peers() == ["gnb"]

        wait_until(is_replaced)
        for number in range(5):
            new.data("flow", number, b"new")
        old.data("flow", 5, b"straggler")  # of the old session
        wait_until(lambda: link.stats()["received"]["flow"]["stale"] == 1)
        messages = receive_all(inbox, 5)
        assert [(m.epoch, m.sequence) for m in messages] == [(new.epoch, number) for number in range(5)]
        kinds = twinlink.PeerUp, twinlink.PeerDown, twinlink.Restarted
        events = [event for event in drain(link) if isinstance(event, kinds)]
        up, down, restarted = sorted(events[1:], key=lambda event: type(event).__name__ != "PeerUp")
        assert isinstance(up, twinlink.PeerUp)
        assert isinstance(down, twinlink.PeerDown)
        assert isinstance(restarted, twinlink.Restarted)
        assert (down.epoch, down.reason) == (old.epoch, "restarted")
        assert (restarted.node, restarted.old_epoch, restarted.epoch) == ("gnb", old.epoch, new.epoch)
        assert up.epoch == new.epoch
        with pytest.raises(twinlink.AckTimeout) as caught:
            outbox.flush(0.05)
        assert caught.value.missing == ((0, 1),)

    def test_two_nodes_of_one_name_are_told_of(
        self, opening: Open, foreign: MakeForeign, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(duplicate_names, "BOTH_UP_NS", 300_000_000)
        link = opening("listen")
        peers = [foreign(node="gnb") for _ in range(2)]

        def told(*speaking: ForeignPeer) -> bool:
            for peer in speaking:
                peer.hello(link.epoch)
            return "two nodes are called gnb" in caplog.text

        for peer in peers:
            peer.meet(link)
        wait_until(lambda: told(*peers))
        caplog.clear()
        link._session.peer_manager.duplicate_names._reported.clear()
        wait_until(lambda: told(peers[1]) or drain(link, twinlink.PeerDown))  # the first falls silent,
        wait_until(lambda: told(*peers))  # and is no longer heard
        assert link.peers() == ["gnb"]
        assert caplog.text.count("two nodes") == 1

    def test_a_peer_that_falls_silent_is_down(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        peer = foreign(node="gnb")
        peer.meet(link)
        wait_until(lambda: link.peers() == [])
        assert [down.reason for down in drain(link, twinlink.PeerDown)] == ["silent"]
        peer.meet(link)
        assert [up.node for up in drain(link, twinlink.PeerUp)] == ["gnb"]

    def test_a_peer_that_falls_silent_is_down_while_another_one_goes_on(
        self, opening: Open, foreign: MakeForeign
    ) -> None:
        """Continuous traffic must not look like a backlog, behind which a hello may wait."""
        listener, connector = self.ready_pair(opening)
        listener.receiver("flow", handler=lambda _: None)
        outbox, over = connector.sender("flow"), threading.Event()

        def go_on() -> None:
            while not over.wait(0.001):
                outbox.send(b"")

        going_on = in_thread(go_on)
        foreign(node="gnb").meet(listener)
        try:
            with Stopwatch() as watch:
                began = watch.now()
                wait_until(lambda: listener.peers() == ["second"])
                took_s = watch.now() - began
        finally:
            over.set()
            going_on.result()
        assert took_s < HARD_TIMEOUT_NS / 2e9, f"down after {took_s:.1f} s"
        assert drain(connector, twinlink.PeerDown) == []

    def test_an_event_handler_may_use_the_link(self, opening: Open) -> None:
        """A message on PeerUp, as an application would send it."""
        listener = opening("listen")
        outbox, problems = listener.sender("greeting"), []

        def greet(event: twinlink.Event) -> None:
            if isinstance(event, twinlink.PeerUp):
                try:
                    outbox.send(bytes(2_000_000))
                    outbox.flush(patience())
                    listener.sender("made-by-the-handler").send(b"")
                except Exception as error:  # the link only logs what an event handler raises
                    problems.append(error)

        listener.events(handler=greet)
        connector = opening("connect")
        assert len(receive_all(connector.receiver("greeting"), 1)[0].payload) == 2_000_000
        receive_all(connector.receiver("made-by-the-handler"), 1)
        assert problems == []
        wait_until(lambda: outbox.stats()["in_flight_octets"] == 0)

    def test_when_a_handler_of_events_is_given_it_gets_the_held_ones_first(self, pair: Pair) -> None:
        """Also while calls of another, slow handler are due."""
        first, second = pair
        outbox = first.sender("flow")
        for _ in range(20):
            outbox.send(b"")
        outbox.flush(patience())
        second.receiver("flow", handler=lambda _: time.sleep(0.005))
        events: list[twinlink.Event] = []
        second.events(handler=events.append)
        wait_until(lambda: len(events) > 0)
        assert isinstance(events[0], twinlink.PeerUp)

    def test_a_sender_can_be_made_while_an_event_handler_runs(self, opening: Open) -> None:
        listener = opening("listen")
        inside, outside = threading.Event(), threading.Event()

        def make_sender(event: twinlink.Event) -> None:
            inside.set()
            outside.wait(0.2)  # time for the other thread to be half-way
            listener.sender("by-the-handler")

        listener.events(handler=make_sender)
        connector = opening("connect")
        assert inside.wait(patience())
        in_thread(lambda: listener.sender("by-another-thread")).result()
        outside.set()
        connector.wait_ready(patience())
