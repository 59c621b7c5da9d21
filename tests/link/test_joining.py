"""A connector over ZeroMQ joins in two steps, so that the listener sends it no more than it is known to take."""

import contextlib
import itertools
import time
from collections.abc import Iterator

import pytest
import zmq

import twinlink
from twinlink.protocol.frames import HELLO_TOPIC, Hello, Kind, frame
from twinlink.protocol.session import Reliability
from twinlink.testing import patience, wait_until
from twinlink.testing.base import ForeignPeer
from twinlink.transport_options import TransportName
from twinlink.transports import Endpoint
from twinlink.transports.zeromq import ZeromqOptions, ZeromqTransport
from twinlink.transports.zeromq_joining import JOINING
from twinlink.transports.zeromq_split import SPLIT, TRAFFIC

EPOCH = 0xFEED


@pytest.fixture
def joiner(endpoint: str) -> Iterator[ForeignPeer]:
    """Has connected, as a link does, and has not taken the second step."""
    transport = ZeromqTransport(Endpoint.parse(endpoint), False, 1000, ZeromqOptions())
    transport.epoch = EPOCH
    transport.open()
    yield ForeignPeer(transport, epoch=EPOCH)
    transport.close()


def test_a_connector_asks_for_messages_once_the_listener_has_said_hello(endpoint: str) -> None:
    context, port = zmq.Context(), int(endpoint.rsplit(":", 1)[1])
    with contextlib.closing(context.socket(zmq.XPUB)) as listener:
        listener.setsockopt(zmq.LINGER, 0)
        listener.bind(f"tcp://127.0.0.1:{port}")
        with twinlink.open("zeromq", connect=endpoint) as link:
            joining = b"%s%016x" % (JOINING, link.epoch)

            def told() -> bytes:
                assert listener.poll(int(patience() * 1000))
                return bytes(listener.recv())

            assert {told() for _ in range(3)} == {b"\1" + HELLO_TOPIC, b"\1ack/", b"\1" + joining}
            hello = Hello("listener", {}, {}).encode()
            listener.send_multipart([HELLO_TOPIC, frame(Kind.HELLO, EPOCH, 1, time.time_ns(), hello)])
            assert [told() for _ in range(3)] == [b"\1" + SPLIT, b"\1" + TRAFFIC, b"\0" + joining]
    context.term()


def test_who_joins_is_up_when_it_gets_messages(endpoint: str, joiner: ForeignPeer) -> None:
    with twinlink.open("zeromq", listen=endpoint) as link:
        sender = link.sender("flow")
        for number in count_up(joiner, link):
            sender.send(b"nobody is up")
            if number == 5:
                break
        assert link.peers() == []
        assert link.epoch not in joiner.echoes or joiner.echoes[link.epoch] == 0  # nor is it told that it is heard
        joiner.transport.greeted()
        joiner.meet(link)
        assert link.peers() == ["foreign"]
        sequence = sender.send(b"for somebody")
        assert int.from_bytes(joiner.next(Kind.DATA)[16:24]) == sequence  # the first that it gets


def count_up(joiner: ForeignPeer, link: twinlink.Link) -> Iterator[int]:
    """1, 2, ... with every other hello that it gets from the link, which it answers; it gets nothing else."""
    for number in itertools.count(1):
        heard = joiner.numbers.get(link.epoch)
        while joiner.numbers.get(link.epoch) == heard:
            joiner.hello(link.epoch)
            received = joiner.receive(0.02)
            assert received is None or received[0] == HELLO_TOPIC
        yield number


def test_who_has_lost_the_listener_joins_again(endpoint: str) -> None:
    with twinlink.open("zeromq", connect=endpoint, node="twin") as link:
        for _ in range(3):
            with twinlink.open("zeromq", listen=endpoint, node="gnb") as listener:
                listener.wait_ready(patience())
                listener.sender("flow").send(b"")
                listener.sender("flow").flush(patience())
            wait_until(lambda: link.peers() == [])
            assert link.receiver("flow").receive(timeout=patience()) is not None


@pytest.mark.parametrize("reliability", ["repair", "detect"])
@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "memory"])
def test_who_joins_owes_an_ack_for_what_waits_to_leave(
    endpoint: str, transport: TransportName, reliability: Reliability
) -> None:
    """And so is not sent all of it at once."""
    with (
        twinlink.open(transport, listen=endpoint, window=2**20) as listener,
        twinlink.open(transport, connect=endpoint, node="slow", window=2**20) as slow,
    ):
        listener.wait_ready(patience())
        sender = listener.sender("flow", reliability=reliability)
        slow.receiver("flow")
        for _ in range(300):  # more than what its window takes, and it consumes nothing
            sender.send(bytes(10_000))
        with twinlink.open(transport, connect=endpoint, node="late") as late:
            late.receiver("flow")
            wait_until(lambda: "late" in listener.peers())
            owed = {epoch for _, owed_by, _ in sender._flow.unacked.entries.values() for epoch in owed_by}
            assert owed == {slow.epoch, late.epoch}
            for link in (slow, late):
                link.receiver("flow", handler=lambda message: None)
            sender.flush(patience())
            assert late.stats()["received"]["flow"]["missing"] == 0
