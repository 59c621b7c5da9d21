"""What a WebSocket listener keeps of what strangers send: within ``unread_octets``, whatever they leave unfinished."""

import contextlib
import gc
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from websockets.frames import Frame, Opcode

from tests.link.test_websocket import MIB, ended, pair, upgraded
from twinlink.testing import patience, wait_until
from twinlink.testing.base import in_thread
from twinlink.transports import Endpoint
from twinlink.transports.stream_connection import AT_ONCE
from twinlink.transports.websocket import WebsocketTransport
from twinlink.transports.websocket_connection import encode
from twinlink.transports.websocket_options import WebsocketOptions

LIMIT = 8 * MIB
FRAME = 64 * 1024


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """What is only in reference cycles stays, as it may in a process with few objects."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def half_a_message() -> bytes:
    return b"\x82\xff" + (12 * MIB).to_bytes(8) + bytes(4) + bytes(6 * MIB)


def half_a_message_in_frames() -> bytes:
    """Each frame is complete, and so is the ping behind it."""
    part, ping = Frame(Opcode.CONT, bytes(FRAME), fin=False), Frame(Opcode.PING, b"").serialize(mask=True)
    return Frame(Opcode.BINARY, b"", fin=False).serialize(mask=True) + (part.serialize(mask=True) + ping) * 96


@pytest.mark.parametrize("part", [half_a_message(), half_a_message_in_frames()], ids=["one frame", "many frames"])
def test_ended_connections_leave_nothing_behind(endpoint: str, part: bytes) -> None:
    with pair(endpoint, unread_octets=LIMIT) as (listener, peer), contextlib.ExitStack() as opened, no_collection():
        for number in range(12):
            stranger = opened.enter_context(upgraded(endpoint))
            stranger.settimeout(patience())
            with contextlib.suppress(OSError):  # it is ended while it sends
                stranger.sendall(part)
            wait_until(lambda number=number: ended(listener, "unread_octets") >= number)  # type: ignore[misc]
        peer.sender("flow").send(b"still there")
        assert listener.receiver("flow").receive(patience()) is not None
        assert tracemalloc.get_traced_memory()[1] < 2 * LIMIT  # reading stops at LIMIT; a bytearray has room to grow


def test_messages_that_the_link_does_not_read_are_limited_and_none_is_lost(endpoint: str) -> None:
    count, octets = 40, MIB // 2  # less than is read from one connection at a time
    message, connected, done = (
        b"".join(encode(b"traffic/flow", bytes(octets), mask=True)),
        threading.Event(),
        threading.Event(),
    )

    def send() -> None:
        with upgraded(endpoint) as stranger:
            assert connected.wait(patience())
            stranger.sendall(message)
            assert done.wait(patience())

    transport = WebsocketTransport(Endpoint.parse(endpoint), True, 16 * MIB, WebsocketOptions(unread_octets=LIMIT))
    transport.open()
    try:
        sending = [in_thread(send) for _ in range(count)]
        wait_until(lambda: transport.receive(0.01) or len(transport._open) == count)
        connected.set()
        held = got = 0
        until_s = time.monotonic() + patience()
        while got < count and time.monotonic() < until_s:
            got += transport.receive(0.1) is not None
            held = max(held, sum(len(item[1]) for one in list(transport._unread) for item in one.inbox))
        done.set()
        for one in sending:
            one.result()
        assert (got, transport.limits_exceeded["unread_octets"]) == (count, 0)
        assert octets < held <= LIMIT + AT_ONCE
    finally:
        transport.close()
