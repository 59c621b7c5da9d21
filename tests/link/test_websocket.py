"""Foreign programs at a WebSocket listener: those that read a flow, and those that take what they can."""

import contextlib
import http.client
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

import twinlink
from tests.wire.make_vectors import VECTORS
from twinlink.protocol.frames import HELLO_TOPIC, Kind, check, frame
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, in_thread, malformed
from twinlink.transports import Endpoint
from twinlink.transports.stream_connection import MALFORMED, split
from twinlink.transports.websocket import WebsocketTransport
from twinlink.transports.websocket_connection import encode
from twinlink.transports.websocket_options import WebsocketOptions

MIB = 1024 * 1024
NAME = Subprotocol("twinlink.1")
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: twin\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: twinlink.1\r\n\r\n"
)


def address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp/").rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def reading(endpoint: str, **options: Any) -> Iterator[ClientConnection]:
    """A program with nothing but a WebSocket library."""
    host, port = address(endpoint)
    with connect(f"ws://{host}:{port}", subprotocols=[NAME], proxy=None, **options) as opened:
        yield opened


@contextlib.contextmanager
def pair(endpoint: str, **options: Any) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """A listener with these options, and its peer."""
    with (
        twinlink.open("websocket", listen=endpoint, node="listener", **options) as listener,
        twinlink.open("websocket", connect=endpoint, node="peer") as peer,
    ):
        for link in (listener, peer):
            link.wait_ready(patience())
        yield listener, peer


@contextlib.contextmanager
def upgraded(endpoint: str) -> Iterator[socket.socket]:
    """A bare socket after the handshake, from which nothing more is read."""
    with socket.create_connection(address(endpoint)) as opened:
        opened.sendall(UPGRADE)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += opened.recv(1)
        assert answer.startswith(b"HTTP/1.1 101 ")
        yield opened


def transport(link: twinlink.Link) -> WebsocketTransport:
    assert isinstance(link._transport, WebsocketTransport)
    return link._transport


def ended(link: twinlink.Link, option: str) -> int:
    """Connections that the listener ended for this limit."""
    return link._transport.limits_exceeded[option]


def deliver(sending: twinlink.Link, receiving: twinlink.Link, payload: bytes = b"", count: int = 100) -> None:
    """Messages to the other side, of which none is lost."""
    sender, receiver = sending.sender("flow"), receiving.receiver("flow")
    for _ in range(count):
        sender.send(payload)
    sender.flush(patience())
    for _ in range(count):
        message = receiver.receive(timeout=patience())
        assert message is not None
        assert message.payload == payload


def next_data(reader: ClientConnection) -> tuple[str, bytes]:
    """Topic and payload of the next data message, as docs/protocol.md says."""
    while True:
        message = reader.recv(patience(), decode=False)
        end = 1 + message[0]
        kind, length = struct.unpack_from("!3xBI", message, end)
        if kind == 1:
            return message[1:end].decode(), message[end + 32 : end + 32 + length]


# Readers


def test_a_program_with_a_websocket_library_reads_a_flow(endpoint: str) -> None:
    with pair(endpoint) as (listener, peer), reading(endpoint) as reader:
        wait_until(lambda: len(transport(listener)._open) == 2)
        listener.sender("flow").send(b"payload")
        assert next_data(reader) == ("traffic/flow", b"payload")
        message = peer.receiver("flow").receive(timeout=patience())
        assert message is not None


def test_a_reader_gets_messages_while_there_is_no_peer(endpoint: str) -> None:
    with twinlink.open("websocket", listen=endpoint) as link, reading(endpoint) as reader:
        wait_until(lambda: transport(link)._open)
        link.sender("flow").send(b"payload")
        assert next_data(reader) == ("traffic/flow", b"payload")


def test_a_program_with_a_websocket_library_sends(endpoint: str) -> None:
    data = frame(Kind.DATA, 7, 0, 1, b"payload")
    with twinlink.open("websocket", listen=endpoint) as link, reading(endpoint) as writer:
        inbox = link.receiver("flow")
        writer.send(b"\x0ctraffic/flow" + data)
        writer.send([b"\x0ctraffic", b"/flow" + frame(Kind.DATA, 7, 1, 1, b"in "), b"", b"fragments"])
        writer.send("text")
        writer.send(["text", " in fragments"])
        for octets in (b"", b"\0", b"\x0d", b"\xfftraffic/flow"):
            writer.send(octets)
        wait_until(lambda: sum(malformed(link).values()) == 7)
        message = inbox.receive(timeout=patience())
    assert message is not None
    assert message.payload == b"payload"
    assert malformed(link) == {"length": 1, "truncated": 6}


@pytest.mark.parametrize("name", ["websocket-data", "websocket-hello"])
def test_the_vectors_are_what_is_sent(name: str) -> None:
    message = (VECTORS / f"{name}.bin").read_bytes()
    topic, content = split(message, 0, len(message))
    assert check(content) in {Kind.DATA, Kind.HELLO}
    assert b"".join(encode(topic, bytes(content), mask=False)) == Frame(Opcode.BINARY, message).serialize(mask=False)
    assert (topic == HELLO_TOPIC) == name.endswith("hello")


def test_a_long_message_is_not_copied_and_cannot_be_changed() -> None:
    message = bytearray(b"\x0ctraffic/flow" + bytes(MIB))
    _, content = split(message, 0, len(message))
    assert isinstance(content, memoryview)
    assert content.readonly
    assert split(bytes(41), 0, 41) == MALFORMED


# Strangers


@pytest.mark.parametrize(("origins", "admitted"), [("", ""), ("http://a:1, https://b", "https://b"), ("*", "null")])
def test_web_pages_are_admitted_by_name(endpoint: str, origins: str, admitted: str) -> None:
    """A browser lets any page connect, and says from where it is."""
    with twinlink.open("websocket", listen=endpoint, origins=origins) as link:
        if admitted:
            with reading(endpoint, origin=Origin(admitted)):
                pass
        if origins != "*":
            with pytest.raises(InvalidStatus, match="403"), reading(endpoint, origin=Origin("http://b")):
                pass
            wait_until(lambda: ended(link, "origins") == 1)
        assert malformed(link) == {}


def test_another_protocol_is_refused_counted_and_named(endpoint: str) -> None:
    with pair(endpoint) as (listener, peer):
        asked = http.client.HTTPConnection(*address(endpoint), timeout=patience())
        asked.request("GET", "/")
        assert asked.getresponse().status == 426
        asked.close()
        host, port = address(endpoint)
        for names in (None, [Subprotocol("chat")]):
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://{host}:{port}", subprotocols=names, proxy=None)
            assert refused.value.response.status_code == 400
        for greeting in (b"SSH-2.0-OpenSSH_9.2\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200, bytes(20_000)):
            with socket.create_connection((host, port)) as stranger:
                stranger.sendall(greeting)
                with contextlib.suppress(ConnectionError):
                    while stranger.recv(1000):
                        pass
        wait_until(lambda: malformed(listener) == {"transport": 6})
        assert {event.reason for event in drain(listener, twinlink.Malformed)} == {"transport"}
        deliver(listener, peer)


def test_a_program_that_connects_and_leaves_is_not_counted(endpoint: str) -> None:
    with pair(endpoint) as (listener, peer):
        for beginning in (b"", b"GET / HT"):
            with socket.create_connection(address(endpoint)) as stranger:
                stranger.sendall(beginning)
        wait_until(lambda: len(transport(listener)._connections) == 1)
        deliver(listener, peer)
        assert malformed(listener) == {}


def test_a_handshake_has_its_time(endpoint: str) -> None:
    with pair(endpoint, handshake_ms=100, handshakes=2) as (listener, peer), contextlib.ExitStack() as opened:
        for _ in range(3):
            one = opened.enter_context(socket.create_connection(address(endpoint)))
            one.sendall(b"GET / HTTP/1.1\r\n")
        wait_until(lambda: ended(listener, "handshakes") + ended(listener, "handshake_ms") == 3)
        deliver(listener, peer)


def test_connections_are_limited_and_the_peer_keeps_its_own(endpoint: str) -> None:
    """One too many is ended at the next look: before or after its handshake."""
    with pair(endpoint, connections=3) as (listener, peer), contextlib.ExitStack() as opened:
        for _ in range(6):
            opened.enter_context(socket.create_connection(address(endpoint))).sendall(UPGRADE)
        wait_until(lambda: ended(listener, "connections") + ended(listener, "handshakes") == 4)
        deliver(listener, peer)
        assert drain(listener, twinlink.PeerDown) == []


def test_a_message_longer_than_any_is_refused_by_its_header(endpoint: str) -> None:
    with pair(endpoint, max_payload=MIB) as (listener, peer), reading(endpoint) as stranger:
        stranger.socket.sendall(b"\x82\xff" + (2**40).to_bytes(8) + bytes(4))
        with pytest.raises(ConnectionClosedError, match="1009"):
            list(stranger)
        deliver(listener, peer)


def test_messages_without_an_end_are_limited(endpoint: str) -> None:
    with pair(endpoint, unread_octets=4 * MIB) as (listener, peer), contextlib.ExitStack() as opened:
        for number in range(8):
            stranger = opened.enter_context(upgraded(endpoint))
            stranger.sendall(b"\x82\xff" + MIB.to_bytes(8) + bytes(4) + bytes(MIB - 1 - number))
        wait_until(lambda: ended(listener, "unread_octets") >= 4)
        deliver(listener, peer)


def test_a_reader_that_reads_nothing_delays_nothing_and_is_ended(endpoint: str) -> None:
    with pair(endpoint, unsent_octets=MIB) as (listener, peer), upgraded(endpoint):
        for _ in range(1000):
            deliver(listener, peer, bytes(64 * 1024), 10)
            if ended(listener, "unsent_octets"):
                break
        assert ended(listener, "unsent_octets") == 1


def test_a_silent_reader_is_pinged_and_ended_when_it_does_not_answer(endpoint: str) -> None:
    options = {"heartbeat_ms": 50, "heartbeat_timeout_ms": round(patience(1000))}
    with pair(endpoint, **options) as (listener, peer), reading(endpoint) as alive, upgraded(endpoint) as dead:
        wait_until(lambda: ended(listener, "heartbeat_timeout_ms") and len(transport(listener)._open) == 2)
        deliver(listener, peer)
        listener.sender("other").send(b"still there")
        while next_data(alive) != ("traffic/other", b"still there"):
            pass
        assert dead.fileno() >= 0


def test_a_node_that_connects_again_has_one_connection(endpoint: str) -> None:
    with pair(endpoint) as (listener, peer):
        transport(peer)._open[0].abort()
        deliver(listener, peer)
        deliver(peer, listener)
        wait_until(lambda: len(transport(listener)._connections) == 1)
        assert drain(peer, twinlink.PeerDown) == []


def test_a_connection_that_sends_much_does_not_delay_the_others(endpoint: str) -> None:
    """One read may bring hundreds of messages: those of another connection come after a few of them."""
    at = Endpoint.parse(endpoint)
    listener, busy, other = (
        WebsocketTransport(at, listening, MIB, WebsocketOptions()) for listening in (True, False, False)
    )
    try:
        for transport in (listener, busy, other):
            transport.open()
        wait_until(lambda: listener.receive(0.01) or len(listener._open) == 2)
        wait_until(lambda: busy._open and other._open)
        busy._open[0].transmit(encode(b"traffic/busy", b"", mask=True) * 400)
        received = [listener.receive(patience())]
        other.send(b"traffic/other", b"")
        while received[-1] is None or received[-1][0] != b"traffic/other":
            received.append(listener.receive(patience()))
        assert len(received) < 50
    finally:
        for transport in (busy, other, listener):
            transport.close()


def test_unread_messages_do_not_hide_the_end_of_a_connection(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that closes with some would poll until its time is over, and keep a processor busy."""
    monkeypatch.setattr("twinlink.transports.stream.FAREWELL_S", 10 * patience())
    at = Endpoint.parse(endpoint)
    listener, other = (WebsocketTransport(at, listening, MIB, WebsocketOptions()) for listening in (True, False))
    for one in (listener, other):
        one.open()
    wait_until(lambda: listener.receive(0.01) or (listener._open and other._open))
    other._open[0].transmit(encode(b"traffic/flow", b"", mask=True) * 3)
    assert listener.receive(patience()) is not None
    assert listener._unread
    closing = in_thread(listener.close)
    wait_until(lambda: other.receive(0.01) or not other._open)
    closing.result(patience())
    other.close()
