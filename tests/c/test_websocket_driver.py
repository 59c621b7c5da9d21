"""The WebSocket driver of the C node, from a connection whose other end is here."""

import ctypes as ct
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.c.building import needs_compiler
from tests.c.library import ABI, Config, FlowConfig, Node
from twinlink.protocol.frames import HEADER_OCTETS, HELLO_TOPIC, Kind, frame
from twinlink.testing import patience

pytestmark = needs_compiler
EPOCH = 0xC001
GUARD = 4 * 1024 * 1024
ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: twinlink.1\r\n\r\n"
)


class DriverConfig(ct.Structure):
    _fields_ = [
        ("host", ct.c_char_p), ("port", ct.c_uint16), ("node", ct.POINTER(Config)),
    ]  # fmt: skip


class Driven:
    """A C node on the WebSocket driver, and the other end of its connection.

    Attributes:
        arrived: the frames that have come, each with its header.
    """

    def __init__(self, library: ct.CDLL, send_octets: int) -> None:
        self.library = library
        for name, result, arguments in (
            ("memory_octets", ct.c_size_t, [ct.POINTER(DriverConfig)]),
            ("init", ct.c_void_p, [ct.c_void_p, ct.c_size_t, ct.POINTER(DriverConfig)]),
            ("step", None, [ct.c_void_p, ct.c_void_p, ct.c_uint64]),
            ("close", None, [ct.c_void_p, ct.c_void_p, ct.c_uint64]),
            ("problem", ct.c_char_p, [ct.c_void_p]),
        ):
            function: Any = getattr(self.library, f"twinlink_websocket_{name}")
            function.restype, function.argtypes = result, arguments
        self.library.twinlink_mono_ns.restype = ct.c_uint64
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(patience())
        config = Config(
            abi=ABI,
            octets=ct.sizeof(Config),
            node=b"c",
            epoch=EPOCH,
            in_flight_octets=2**30,
            receive_slots=1,
            send_max_octets=send_octets,
        )
        self.node = Node(
            self.library, config, [FlowConfig(b"f", 2**24, 4096, 0, 2**30)], self.library.twinlink_mono_ns()
        )
        reached = DriverConfig(b"127.0.0.1", self._listener.getsockname()[1], ct.pointer(config))
        octets = self.library.twinlink_websocket_memory_octets(ct.byref(reached))
        self._memory = ct.create_string_buffer(b"\xaa" * (octets + 64 + GUARD))
        begin = -ct.addressof(self._memory) % 64
        self.guard = memoryview(self._memory).cast("B")[begin + octets :]
        self._driver = self.library.twinlink_websocket_init(
            ct.addressof(self._memory) + begin, octets, ct.byref(reached)
        )
        self.arrived: list[bytes] = []
        self._octets = bytearray()
        self.step()
        self.opened, _ = self._listener.accept()
        self._connect()

    def _connect(self) -> None:
        self.opened.settimeout(0.01)
        while b"\r\n\r\n" not in self._octets:
            self.step()
            self._receive()
        self._octets.clear()
        self.opened.sendall(ACCEPTED)
        while not any(one[3] == Kind.HELLO for one in self.arrived):
            self.step()
            self.read()
        number = int.from_bytes(self.arrived[-1][16:24])
        hello = b'{"node":"twin","heard":{"%016x":%d},"flows":{},"repairs":true,"detect":[]}' % (EPOCH, number)
        message = bytes((len(HELLO_TOPIC),)) + HELLO_TOPIC + frame(Kind.HELLO, 2, number, 0, hello)
        self.opened.sendall(b"\x82\x7e" + len(message).to_bytes(2) + message)
        while not self.node.stats().peers_up:
            self.step()

    def step(self) -> None:
        self.library.twinlink_websocket_step(self._driver, self.node.link, 1_000_000)

    def close(self) -> None:
        self.library.twinlink_websocket_close(self._driver, self.node.link, int(patience() * 1e9))

    def problem(self) -> bytes | None:
        said: bytes | None = self.library.twinlink_websocket_problem(self._driver)
        return said

    def refuse_next(self) -> None:
        self._listener.setblocking(False)
        opened = None
        while opened is None:
            self.step()
            with suppress(BlockingIOError):
                opened, _ = self._listener.accept()
        self.opened = opened
        self.opened.sendall(b"HTTP/1.1 403 Forbidden\x1b[2J\r\n\r\n")

    def _receive(self) -> bool:
        try:
            octets = self.opened.recv(2**20)
        except TimeoutError:
            return True
        self._octets += octets
        return bool(octets)

    def read(self) -> bool:
        """Take in what comes in a moment; whether more may come."""
        more = self._receive()
        while (taken := self._take()) is not None:
            if taken:
                self.arrived.append(taken)
        return more

    def _take(self) -> bytes | None:
        """The frame of twinlink in the next one of WebSocket, empty for one of control; None: it is not complete."""
        octets = self._octets
        if len(octets) < 2:
            return None
        length, at = octets[1] & 0x7F, 2
        if length >= 126:
            at = 4 if length == 126 else 10
            length = int.from_bytes(octets[2:at])
        end = at + 4 + length
        if len(octets) < end:
            return None
        mask, is_control = octets[at : at + 4], octets[0] & 8
        payload = bytes(one ^ mask[place % 4] for place, one in enumerate(octets[at + 4 : min(end, at + 304)]))
        del octets[:end]
        return b"" if is_control else payload[1 + payload[0] :]


@pytest.fixture
def driven(library: ct.CDLL) -> Iterator[Driven]:
    one = Driven(library, send_octets=71_320)
    yield one
    one.opened.close()


def test_a_longer_message_than_was_said_is_named_and_holds_up_nothing(driven: Driven) -> None:
    now_ns = driven.library.twinlink_mono_ns()
    assert not driven.node.send(0, bytes(71_321), now_ns)
    assert driven.node.send(0, b"short", now_ns)
    while not any(one[3] == Kind.DATA for one in driven.arrived):
        driven.step()
        driven.read()
    (short,) = (one for one in driven.arrived if one[3] == Kind.DATA)
    assert short[HEADER_OCTETS:] == b"short"
    assert (driven.node.flow_stats(0).dropped, driven.node.flow_stats(0).outstanding) == (1, 1)
    assert driven.guard == b"\xaa" * (len(driven.guard) - 1) + b"\0"


@pytest.mark.parametrize("unread", [b"", b"\x89\0" * 100])
def test_the_end_is_said_behind_what_waits(driven: Driven, unread: bytes) -> None:
    """Also where something has come that the node does not read any more, for which TCP would reset the connection."""
    now_ns = driven.library.twinlink_mono_ns()
    while driven.node.send(0, bytes(60_000), now_ns):
        pass
    for _ in range(200):  # the socket takes no more
        driven.step()
    driven.opened.sendall(unread)
    closing = threading.Thread(target=driven.close)
    closing.start()
    while driven.read():
        pass
    driven.opened.close()
    closing.join()
    assert driven.arrived[-1][3] == Kind.BYE


def test_what_ends_a_connection_is_said_and_what_is_no_message_is_counted(driven: Driven) -> None:
    driven.opened.sendall(b"\x82\x00" + b"\x82\x02\x09a")  # empty, and shorter than its topic
    while driven.node.stats().malformed < 2:
        driven.step()
    assert driven.problem() is None
    driven.opened.shutdown(socket.SHUT_WR)
    while driven.problem() is None:
        driven.step()
    assert driven.problem() == b"the listener ended the connection"
    driven.refuse_next()
    refused = b"the listener refused the handshake, or is not twinlink's: HTTP/1.1 403 Forbidden?[2J"
    while driven.problem() != refused:
        driven.step()
