"""Foreign programs at a listener of transport ``tcp``, and a reader with nothing but a socket."""

import contextlib
import random
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import twinlink
from twinlink.identity.certificates import self_signed
from twinlink.protocol.frames import HEADER_OCTETS, HELLO_TOPIC, SplitFrame
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, malformed
from twinlink.transports.receive_buffers import KEPT, ReceiveBuffers
from twinlink.transports.stream import CHECK_S
from twinlink.transports.stream_connection import AT_ONCE, LONG_OCTETS, LOW_WATER_S, Message
from twinlink.transports.stream_dialer import FRESH_S
from twinlink.transports.tcp_stream import ADMITTED, MAGIC, PING, PONG, TcpStream, encode

MIB = 1024 * 1024
NO_EPOCH = bytes(8)


def address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp/").rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def connected(endpoint: str, greeting: bytes = MAGIC + NO_EPOCH) -> Iterator[socket.socket]:
    """A bare socket that has said this."""
    with socket.create_connection(address(endpoint), patience()) as opened:
        opened.sendall(greeting)
        yield opened


def received(opened: socket.socket, count: int) -> bytes:
    octets = b""
    while len(octets) < count:
        part = opened.recv(count - len(octets))
        assert part
        octets += part
    return octets


def next_message(opened: socket.socket) -> tuple[bytes, bytes]:
    message = received(opened, int.from_bytes(received(opened, 4)))
    end = 1 + message[0]
    return message[1:end], message[end:]


@contextlib.contextmanager
def pair(endpoint: str, **options: Any) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """A listener with these options, and its peer."""
    with (
        twinlink.open("tcp", listen=endpoint, node="listener", **options) as listener,
        twinlink.open("tcp", connect=endpoint, node="peer") as peer,
    ):
        for link in (listener, peer):
            link.wait_ready(patience())
        yield listener, peer


def deliver(sending: twinlink.Link, receiving: twinlink.Link, payload: bytes = b"still there") -> None:
    sender = sending.sender("checked")
    sender.send(payload)
    sender.flush(patience())
    message = receiving.receiver("checked").receive(patience())
    assert message is not None
    assert message.payload == payload


def ended(link: twinlink.Link, option: str) -> int:
    return link.stats()["limits_exceeded"].get(option, 0)


def test_a_program_with_nothing_but_a_socket_reads_a_flow(endpoint: str) -> None:
    with pair(endpoint) as (listener, _), connected(endpoint) as reader:
        assert received(reader, len(MAGIC) + 1) == MAGIC + ADMITTED
        wait_until(lambda: len(listener._transport._open) == 2)  # type: ignore[attr-defined]
        listener.sender("flow").send(b"payload")
        while (message := next_message(reader))[0] != b"traffic/flow":
            assert message[0].startswith((b"ack/", HELLO_TOPIC))
        assert message[1][HEADER_OCTETS:] == b"payload"
        reader.sendall(PING)
        while (length := int.from_bytes(received(reader, 4))) != 1:
            received(reader, length)
        assert received(reader, 1) == PONG[-1:]


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n\r\n", b"\0", MAGIC.replace(b"1", b"2") + NO_EPOCH])
def test_another_protocol_is_counted_and_ended(endpoint: str, greeting: bytes) -> None:
    with pair(endpoint) as (listener, peer), connected(endpoint, greeting) as stranger:
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(64) == b""
        wait_until(lambda: malformed(listener) == {"transport": 1})
        deliver(listener, peer)
        assert drain(listener, twinlink.PeerDown) == []


def test_a_greeting_that_does_not_go_on_is_ended(endpoint: str) -> None:
    with pair(endpoint, handshake_ms=300) as (listener, peer), connected(endpoint, MAGIC[:5]):
        wait_until(lambda: ended(listener, "handshake_ms") == 1)
        deliver(listener, peer)


def test_connections_are_limited_and_the_peer_keeps_its_own(endpoint: str) -> None:
    with pair(endpoint, connections=3) as (listener, peer), contextlib.ExitStack() as opened:
        for _ in range(6):
            opened.enter_context(connected(endpoint))
        wait_until(lambda: ended(listener, "connections") + ended(listener, "handshakes") == 4)
        deliver(listener, peer)
        assert drain(listener, twinlink.PeerDown) == []


def test_what_is_no_message_is_counted_and_what_is_too_long_ends_the_connection(endpoint: str) -> None:
    with pair(endpoint, max_payload=MIB) as (listener, peer), connected(endpoint) as stranger:
        stranger.sendall(b"\0\0\0\2\5x" + PONG)
        wait_until(lambda: sum(malformed(listener).values()) == 1)
        stranger.sendall((2**31).to_bytes(4))
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(65536):
                pass
        deliver(listener, peer, bytes(MIB))


def test_messages_without_an_end_are_limited(endpoint: str) -> None:
    with pair(endpoint, unread_octets=4 * MIB) as (listener, peer), contextlib.ExitStack() as opened:
        for _ in range(8):
            stranger = opened.enter_context(connected(endpoint))
            with contextlib.suppress(OSError):
                stranger.sendall((8 * MIB).to_bytes(4) + b"\4flow" + bytes(MIB))
        wait_until(lambda: ended(listener, "unread_octets") >= 4)
        deliver(listener, peer)


def test_a_reader_that_reads_nothing_is_ended(endpoint: str) -> None:
    with pair(endpoint, unsent_octets=4 * MIB) as (listener, peer), connected(endpoint) as stranger:
        until = time.monotonic() + patience()
        while not ended(listener, "unsent_octets") and time.monotonic() < until:
            deliver(listener, peer, bytes(MIB))
        assert ended(listener, "unsent_octets") == 1
        assert stranger.fileno() >= 0
        assert drain(listener, twinlink.PeerDown) == []


def test_a_silent_connection_is_pinged_and_ended(endpoint: str) -> None:
    with pair(endpoint, heartbeat_ms=100, heartbeat_timeout_ms=300) as (listener, peer), connected(endpoint):
        wait_until(lambda: ended(listener, "heartbeat_timeout_ms") == 1)
        deliver(listener, peer)


def test_tls_with_certificates_of_both_sides(endpoint: str, tmp_path: Path) -> None:
    for name in ("twin", "gnb"):
        key, certificate = self_signed(name, [], datetime.now(UTC) + timedelta(days=1))
        (tmp_path / f"{name}.pem").write_bytes(key + certificate)
        (tmp_path / f"{name}.crt").write_bytes(certificate)
    twin, gnb = (
        {"tls_certificate": str(tmp_path / f"{own}.pem"), "tls_trusted": str(tmp_path / f"{other}.crt")}
        for own, other in (("twin", "gnb"), ("gnb", "twin"))
    )
    with (
        twinlink.open("tcp", listen=endpoint, **twin) as listener,  # type: ignore[arg-type]
        twinlink.open("tcp", connect=endpoint.replace("127.0.0.1", "localhost"), **gnb) as connector,  # type: ignore[arg-type]
    ):
        connector.wait_ready(patience())
        for payload in (b"small", random.Random(1).randbytes(3_000_000)):
            deliver(connector, listener, payload)
            deliver(listener, connector, payload)
        context = ssl.create_default_context(cafile=str(tmp_path / "twin.crt"))
        with (
            socket.create_connection(address(endpoint)) as bare,
            contextlib.suppress(ssl.SSLError, ConnectionError),
            context.wrap_socket(bare, server_hostname="localhost") as stranger,
        ):
            stranger.sendall(MAGIC + NO_EPOCH)
            assert stranger.recv(1) == b""
        assert len(connector.peers()) == len(listener.peers()) == 1


def test_a_websocket_listener_is_named(endpoint: str) -> None:
    with (
        twinlink.open("websocket", listen=endpoint) as other,
        twinlink.open("tcp", connect=endpoint) as link,
    ):
        wait_until(lambda: "it may speak another protocol" in (link._transport.why_alone() or ""))
        wait_until(lambda: malformed(other).get("transport"))


def test_a_long_message_that_comes_slowly_keeps_its_connection(endpoint: str) -> None:
    """Fewer octets than are read at a time are the only sign of life."""
    with (
        pair(endpoint, heartbeat_ms=300, heartbeat_timeout_ms=600) as (listener, _),
        connected(endpoint) as slow,
    ):
        slow.sendall((3 * LONG_OCTETS).to_bytes(4) + b"\5x" + bytes(LONG_OCTETS))
        for _ in range(25):
            time.sleep(0.1)
            slow.sendall(bytes(100))
        assert ended(listener, "heartbeat_timeout_ms") == 0
        wait_until(lambda: ended(listener, "heartbeat_timeout_ms") == 1)


def test_a_connection_that_awaits_octets_is_not_taken_for_silent() -> None:
    """The dialer ends one on which nothing was read for `FRESH_S`; limits are looked at after a poll."""
    assert LOW_WATER_S + 2 * CHECK_S < FRESH_S


# Parsing


def test_messages_are_the_same_however_they_arrive() -> None:
    """Short and long, split and whole, in pieces of any size; long ones are views that nothing changes."""
    draw = random.Random(7)
    sizes = (0, 1, 100, 5000, LONG_OCTETS - 1, LONG_OCTETS, 3 * LONG_OCTETS, AT_ONCE + 100_000)
    messages = [(b"traffic/flow", draw.randbytes(draw.choice(sizes))) for _ in range(60)]
    messages[10:10] = [(b"t" * 255, bytes(AT_ONCE + 300_000))]
    sent = b"".join(
        b"".join(encode(topic, SplitFrame(frame[:40], frame[40:]) if len(frame) > LONG_OCTETS else frame))
        for topic, frame in messages
    )
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    opened, _ = listener.accept()
    stream = TcpStream(opened, MIB, ReceiveBuffers(), 0.0, is_listeners=True, most=4 * MIB)
    octets = memoryview(MAGIC + (5).to_bytes(8) + sent)
    taken: list[Message] = []
    with listener, near, contextlib.closing(stream):
        near.setblocking(False)
        while len(taken) < len(messages):
            with contextlib.suppress(BlockingIOError):
                octets = octets[near.send(octets[: draw.choice((1, 3, 700, 70_000, MIB))]) :]
            stream.read(1.0)
            taken += stream.inbox
            stream.inbox.clear()
        assert stream.epoch == 5
        assert [(topic, bytes(frame)) for topic, frame in taken] == messages
        assert stream.partial_octets == 0
        assert all(frame.readonly for _, frame in taken if isinstance(frame, memoryview))


def test_a_buffer_is_used_again_only_when_nothing_refers_to_it() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(1000)
    view = memoryview(first)[10:20].toreadonly()
    number = id(first)
    del first
    assert id(buffers.take(1000)) != number
    del view
    assert number in {id(buffers.take(1000)) for _ in range(KEPT)}
    assert len(buffers.take(1000)) == 1000
    assert len(buffers.take(100)) == 100  # a long one would be kept by a short message
