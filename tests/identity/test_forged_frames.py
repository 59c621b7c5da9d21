"""A peer with a good key of its own sends frames in the name of another, or what its role does not let it send."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

import twinlink
from tests.identity.nodes import Node, make, make_pair
from twinlink.identity import Role
from twinlink.identity.watched import WatchedIdentity
from twinlink.protocol.authentication import new_epoch
from twinlink.protocol.frames import (
    HELLO_TOPIC,
    RUN_HEAD,
    AbandonReason,
    Hello,
    Kind,
    abandoned_body,
    ack_body,
    ack_range_body,
    fragment_progress_body,
    frame,
    nak_body,
    refused_body,
)
from twinlink.testing import patience, wait_until
from twinlink.testing.base import ForeignPeer, drain
from twinlink.transports import Endpoint
from twinlink.transports.zeromq import ZeromqOptions, ZeromqTransport

NOW = time.time_ns()


@contextmanager
def insider(endpoint: str, node: Node) -> Iterator[ForeignPeer]:
    """A connector that the listener trusts, and that sends any octets."""
    transport = ZeromqTransport(Endpoint.parse(endpoint), False, 2**20, ZeromqOptions())
    transport.identity = WatchedIdentity(node.identity)
    transport.epoch = new_epoch(node.name)
    transport.open()
    peer = ForeignPeer(transport, node.name, transport.epoch)
    try:
        yield peer
    finally:
        transport.close()


def refused(link: twinlink.Link) -> dict[str, int]:
    stats = link.stats()["identity"]
    assert stats is not None
    return stats["refused_frames"]


def forged(victim: twinlink.Link, listener: twinlink.Link) -> dict[str, tuple[bytes, bytes]]:
    """By kind: topic and frame in the name of the victim."""
    epoch, own = victim.epoch, listener.epoch
    data = frame(Kind.DATA, epoch, 10, NOW, b"forged")
    hello = Hello("gnb-1", {own: NOW}, {}, True).encode()
    acks = {
        Kind.ACK: ack_body(own, 5, [(0, NOW, NOW)]),
        Kind.ACK_RANGE: ack_range_body(own, 5, 0, 5, NOW),
        Kind.NAK: nak_body(own, 5, [(0, 5)]),
        Kind.FRAGMENT_PROGRESS: fragment_progress_body(own, NOW, 10**6),
        Kind.REFUSED: refused_body(own, 5),
    }
    traffic = {
        Kind.DATA: b"forged",
        Kind.RETRANSMIT: b"forged",
        Kind.BUNDLE: data,
        Kind.RUN: RUN_HEAD.pack(2, 3) + b"forged",
        Kind.FRAGMENT: data,
        Kind.ABANDONED: abandoned_body(AbandonReason.EVICTED, [(0, 1000)]),
    }
    made = {kind: (b"ack/down", frame(kind, epoch, 0, NOW, body)) for kind, body in acks.items()}
    made |= {kind: (b"traffic/up", frame(kind, epoch, 10, NOW, body)) for kind, body in traffic.items()}
    made[Kind.BYE] = HELLO_TOPIC, frame(Kind.BYE, epoch, 0, NOW, b"")
    made[Kind.HELLO] = HELLO_TOPIC, frame(Kind.HELLO, epoch, 2**62, NOW, hello)
    return {kind.name.lower(): of for kind, of in made.items()}


@contextmanager
def attacked(endpoint: str, folder: Path) -> Iterator[tuple[twinlink.Link, twinlink.Link, ForeignPeer]]:
    """A listener and its peer, and another trusted node that has met the listener."""
    twin, gnb = make_pair(folder)
    spy = make(folder, "gnb-2", "gnb")
    twin.trust(spy)
    spy.trust(twin)
    with (
        twinlink.open("zeromq", listen=endpoint, identity=twin.folder) as listener,
        twinlink.open("zeromq", connect=endpoint, identity=gnb.folder) as victim,
        insider(endpoint, spy) as peer,
    ):
        wait_until(lambda: listener.peers() and victim.peers())
        peer.meet(listener)
        yield listener, victim, peer


def test_no_frame_in_the_name_of_another_counts(endpoint: str, tmp_path: Path) -> None:
    with attacked(endpoint, tmp_path) as (listener, victim, peer):
        got = listener.receiver("up")
        up = victim.sender("up")
        up.send(b"good")
        up.flush(patience())
        frames = forged(victim, listener)
        for topic, octets in frames.values():
            peer.transport.send(topic, octets)
        # of its own session, with a name or a body that is another's
        peer.transport.send(HELLO_TOPIC, frame(Kind.HELLO, peer.epoch, 2**61, NOW, Hello("gnb-1", {}, {}).encode()))
        whole = frame(Kind.DATA, victim.epoch, 10, NOW, b"forged")
        peer.transport.send(b"traffic/up", frame(Kind.FRAGMENT, peer.epoch, 0, NOW, whole))
        expected = dict.fromkeys(frames, 1) | {"hello": 2}
        wait_until(lambda: refused(listener) == expected and listener.stats()["malformed"].get("fragment"))
        assert listener.stats()["malformed"]["identity"] == sum(expected.values())
        up.send(b"good")
        up.flush(patience())
        assert [bytes(message.payload) for message in (got.receive(1), got.receive(1)) if message] == [b"good"] * 2
        assert "gnb-1" in listener.peers()
        events = drain(listener)
        assert {event.reason for event in events if isinstance(event, twinlink.Malformed)} == {"identity", "fragment"}
        assert [one for one in events if isinstance(one, twinlink.PeerDown) and one.reason != "silent"] == []


def test_a_flood_of_refused_frames_does_not_delay_the_acks_of_others(endpoint: str, tmp_path: Path) -> None:
    with attacked(endpoint, tmp_path) as (listener, victim, peer):
        listener.receiver("up")
        driver, transport = listener._driver, listener._transport
        good, bad = peer.epoch, victim.epoch

        def receive_in_bulk() -> None:
            transport.sender = listener.identity.by_name["gnb-2"] if listener.identity else None
            before = listener.stats()["acks_sent"]
            for epoch, acks_sent in ((good, 0), (bad, 1)):
                octets = frame(Kind.DATA, epoch, 0, NOW, b"")
                driver.receive(b"traffic/up", octets, time.monotonic_ns(), in_bulk=True)
                assert listener.stats()["acks_sent"] - before == acks_sent

        listener._leader_follower.run_exclusively(receive_in_bulk)


@pytest.mark.parametrize(("role", "sends"), [("gnb", {"up"}), ("twin", {"up", "control"}), ("observer", set())])
def test_a_role_sends_what_it_may(role: Role, sends: set[str], endpoint: str, tmp_path: Path) -> None:
    listening, other = make(tmp_path, "listener", "twin"), make(tmp_path, "other", "twin")
    listening.trust(other, role)  # whatever it says of itself
    other.trust(listening)
    with (
        twinlink.open("zeromq", listen=endpoint, identity=listening.folder) as listener,
        twinlink.open("zeromq", connect=endpoint, identity=other.folder) as connector,
    ):
        wait_until(lambda: listener.peers() and connector.peers())
        receivers = {flow: listener.receiver(flow) for flow in ("up", "control")}
        for flow in receivers:
            connector.sender(flow).send(b"")
        wait_until(lambda: sum(refused(listener).values()) >= 2 - len(sends))
        for flow in sends:
            connector.sender(flow).flush(patience())
        assert {flow for flow, receiver in receivers.items() if receiver.receive(timeout=0) is not None} == sends


def test_parts_of_one_peer_are_not_taken_for_those_of_another(endpoint: str, tmp_path: Path) -> None:
    with attacked(endpoint, tmp_path) as (listener, victim, peer):
        got, up = listener.receiver("up"), victim.sender("up")
        pub: zmq.Socket[bytes] = peer.transport._pub  # type: ignore[attr-defined]
        for number in range(200):
            zmq.Socket.send_multipart(pub, [b"traffic/up"] * (1 if number % 2 else 3))
            up.send(b"%d" % number)
        up.flush(patience())
        messages = [got.receive(timeout=patience()) for _ in range(200)]
        assert [bytes(message.payload) for message in messages if message] == [b"%d" % one for one in range(200)]
        wait_until(lambda: refused(listener).get("unknown") == 200)
