"""Programs that are not ours, in plain pyzmq, plain Zenoh and plain TCP: counted, dropped, nothing else changes."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator

import pytest
import zenoh
import zmq

import twinlink
from twinlink.protocol.frames import HELLO_TOPIC, Kind, frame
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName
from twinlink.transports import Endpoint
from twinlink.transports.zeromq import TOPICS, ZeromqOptions, ZeromqTransport
from twinlink.transports.zeromq_split import TRAFFIC

GOOD = frame(Kind.DATA, 7, 0, 1, b"payload")
Pair = tuple[twinlink.Link, twinlink.Link]


def sealed(octets: bytes) -> bytes:
    """As it goes over Zenoh."""
    return octets + octets[24:32]


def malformed(link: twinlink.Link) -> dict[str, int]:
    return dict(link.stats()["malformed"])


def goes_on(pair: Pair, count: int = 100) -> None:
    """Traffic both ways, nothing lost."""
    for link, peer in (pair, pair[::-1]):
        first = link.sender("flow").send(b"ours")
        for _ in range(count - 1):
            link.sender("flow").send(b"ours")
        link.sender("flow").flush(patience())
        inbox = peer.receiver("flow")
        for sequence in range(first, first + count):
            message = inbox.receive(timeout=patience())
            assert message is not None
            assert (message.sequence, bytes(message.payload)) == (sequence, b"ours")


def open_pair(transport: TransportName, endpoint: str) -> Pair:
    listener = twinlink.open(transport, listen=endpoint, node="listener")
    connector = twinlink.open(transport, connect=endpoint, node="connector")
    for link in (listener, connector):
        link.wait_ready(patience())
    return listener, connector


@pytest.fixture
def zeromq_pair(endpoint: str) -> Iterator[Pair]:
    pair = open_pair("zeromq", endpoint)
    yield pair
    for link in pair:
        link.close()


@pytest.fixture
def publish(endpoint: str) -> Iterator[Callable[[list[bytes]], object]]:
    """Sends a message of any parts to the listener's second port."""
    context = zmq.Context()
    pub = context.socket(zmq.PUB)
    pub.connect(f"tcp://127.0.0.1:{int(endpoint.rsplit(':', 1)[1]) + 1}")
    yield pub.send_multipart
    pub.close(0)
    context.term()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([b"traffic/flow"], "truncated"),
        ([b"traffic/"], "truncated"),
        ([b"traffic/flow", b"garbage", GOOD], "truncated"),
        ([b"traffic/flow", b""], "truncated"),
        ([b"traffic/flow", b"A 32-octet long text, and longer!"], "magic"),
        ([b"traffic/", GOOD], "topic"),
        ([b"traffic/\xff\xfe", GOOD], "topic"),
        ([b"traffic/a/b", GOOD], "topic"),
        ([b"ack/", GOOD], "topic"),
        ([b"traffic/flow\0", GOOD], "topic"),
    ],
)
def test_plain_pyzmq(
    zeromq_pair: Pair, publish: Callable[[list[bytes]], object], parts: list[bytes], reason: str
) -> None:
    listener = zeromq_pair[0]

    def arrived() -> bool:
        publish([b"traffic/_link", b"TL\x09" + bytes(29)])  # another version, to see that we are connected
        return "version" in malformed(listener)

    wait_until(arrived)
    before = malformed(listener).get(reason, 0)
    for _ in range(10):
        publish(parts)
    wait_until(lambda: malformed(listener).get(reason, 0) >= before + 10)
    goes_on(zeromq_pair)
    assert set(malformed(listener)) == {"version", reason}
    assert malformed(zeromq_pair[1]) == {}


@pytest.mark.parametrize("parts", [[b"traffic/flow"], [b"traffic/flow", GOOD, b"more"], [b"ack/f", b"TL", b"", b"x"]])
def test_what_follows_a_message_of_other_parts_is_received(
    endpoint: str, publish: Callable[[list[bytes]], object], parts: list[bytes]
) -> None:
    one, other = ZeromqTransport(Endpoint.parse(endpoint), True, 1000, ZeromqOptions()), [b"traffic/flow", GOOD]
    one.open()

    def up_to(mark: bytes) -> list[tuple[bytes, bytes]]:
        """What is received before this message, which is sent now."""
        publish([b"traffic/mark", mark])
        received = []
        while True:
            message = one.receive(patience())
            assert message is not None
            received.append((message[0], bytes(message[1])))
            if received[-1] == (b"traffic/mark", mark):
                return received[:-1]

    try:
        wait_until(lambda: publish(other) or one.receive(0))
        up_to(frame(Kind.DATA, 7, 1, 1, b"begin"))
        for _ in range(20):
            publish(parts)
            publish(other)
        received = up_to(frame(Kind.DATA, 7, 2, 1, b"end"))
    finally:
        one.close()
    assert received.count((b"traffic/flow", GOOD)) == 20 * (1 + (GOOD in parts))
    assert len(received) >= 40


def test_a_message_beyond_the_limit_ends_only_the_strangers_connection(
    zeromq_pair: Pair, publish: Callable[[list[bytes]], object]
) -> None:
    publish([b"traffic/flow", bytes(17 * 1024 * 1024)])
    goes_on(zeromq_pair)
    assert malformed(zeromq_pair[0]) == {}


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_plain_tcp(endpoint: str, transport: TransportName) -> None:
    port = int(endpoint.rsplit(":", 1)[1])
    ports = (port, port + 1) if transport == "zeromq" else (port,)
    pair = open_pair(transport, endpoint)
    strangers = []
    try:
        for octets in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 10_000, bytes(64), GOOD):
            for each in ports:
                stranger = socket.create_connection(("127.0.0.1", each))
                stranger.sendall(octets)
                strangers.append(stranger)
        goes_on(pair)
        for link in pair:
            link.close()
    finally:
        for stranger in strangers:
            stranger.close()
        for link in pair:
            link.close()


def test_a_raw_subscriber_that_does_not_read_holds_nobody_up(zeromq_pair: Pair, endpoint: str) -> None:
    context = zmq.Context()
    idle = context.socket(zmq.SUB)
    idle.setsockopt(zmq.RCVHWM, 1)
    idle.subscribe(b"")
    idle.connect(f"tcp://127.0.0.1:{endpoint.rsplit(':', 1)[1]}")
    assert idle.poll(int(patience() * 1000))  # it is subscribed, and from now on reads nothing
    goes_on(zeromq_pair, 2000)
    idle.close(0)
    context.term()


def test_who_is_about_to_say_hello_is_sent_hellos_alone_and_plain_subscribers_hear_all(endpoint: str) -> None:
    context, address = zmq.Context(), f"tcp://127.0.0.1:{endpoint.rsplit(':', 1)[1]}"
    with twinlink.open("zeromq", listen=endpoint) as link, contextlib.closing(context.socket(zmq.SUB)) as node:
        sender = link.sender("flow")
        for topic in (*TOPICS, TRAFFIC):
            node.subscribe(topic)
        node.connect(address)
        for _ in range(3):
            assert node.poll(int(patience() * 1000))
            assert node.recv_multipart()[0] == HELLO_TOPIC
            for _ in range(100):
                sender.send(b"nobody is up")
        with contextlib.closing(context.socket(zmq.SUB)) as plain:
            plain.subscribe(b"")
            plain.connect(address)
            node.close(0)
            wait_until(
                lambda: sender.send(b"nobody is up") and plain.poll(0) and plain.recv_multipart()[0] != HELLO_TOPIC
            )
            plain.close(0)
    context.term()


@pytest.fixture
def zenoh_pair(endpoint: str) -> Iterator[Pair]:
    pair = open_pair("zenoh", endpoint)
    yield pair
    for link in pair:
        link.close()


@pytest.fixture
def session(endpoint: str, zenoh_pair: Pair) -> Iterator[zenoh.Session]:
    config = zenoh.Config()
    for key, value in {
        "mode": "peer",
        "connect/endpoints": [endpoint],
        "listen/endpoints": [],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }.items():
        config.insert_json5(key, json.dumps(value))
    with zenoh.open(config) as session:
        yield session


@pytest.mark.parametrize(
    ("key", "octets", "reason"),
    [
        pytest.param("traffic/flow", None, "truncated", id="delete"),
        ("traffic/flow", b"garbage", "truncated"),
        ("traffic/flow", bytes(100), "magic"),
        ("traffic/_other", GOOD, "topic"),
        ("foreign/topic", GOOD, "topic"),
        ("traffic/ä", GOOD, "topic"),
    ],
)
def test_plain_zenoh(zenoh_pair: Pair, session: zenoh.Session, key: str, octets: bytes | None, reason: str) -> None:
    listener = zenoh_pair[0]

    def arrived() -> bool:
        session.put("traffic/_link", sealed(b"TL\x09" + bytes(29)))
        return "version" in malformed(listener)

    wait_until(arrived)
    before = malformed(listener).get(reason, 0)
    for _ in range(10):
        if octets is None:
            session.delete(key, congestion_control=zenoh.CongestionControl.BLOCK)
        else:
            session.put(key, sealed(octets), congestion_control=zenoh.CongestionControl.BLOCK)
    wait_until(lambda: malformed(listener).get(reason, 0) >= before + 10)
    goes_on(zenoh_pair)
    assert set(malformed(listener)) == {"version", reason}
    assert malformed(zenoh_pair[1]) == {}


def test_other_zenoh_traffic_does_not_reach_us(zenoh_pair: Pair, session: zenoh.Session) -> None:
    session.put("a/b/c", GOOD)
    session.put("alone", GOOD)
    goes_on(zenoh_pair)
    assert malformed(zenoh_pair[0]) == {}
