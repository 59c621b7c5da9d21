"""The connecting side of a subject speaks its protocol, with servers that know nothing of twinlink.

Over MQTT and OPC UA, `test_sweep_subjects.py` and `test_channels_exchange.py` have mosquitto and asyncua's server.
"""

import http.server
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymodbus.client import ModbusTcpClient
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice
from snap7.server import Server
from snap7.type import SrvArea
from twinlink_measure.channels import Channel, PeerLost, channel
from twinlink_measure.channels.base import ACK, TRAFFIC
from twinlink_measure.channels.loop import LoopThread
from twinlink_measure.channels.mailbox import HEAD
from websockets.sync.server import serve

from twinlink.process.ports import free_ports
from twinlink.protocol.frames import Kind, frame
from twinlink.transports import Endpoint

SENT = frame(Kind.DATA, 7, 3, 0, bytes(range(256)) * 4)  # of several requests
SHOWN = frame(Kind.DATA, 8, 5, 0, b"state of a PLC")


@contextmanager
def connecting(subject: str, port: int) -> Iterator[Any]:
    """The Real World's side of a subject."""
    own: Channel = channel(subject, Endpoint("127.0.0.1", port), False, "real-world")
    own.open()
    try:
        yield own
    finally:
        own.close()


def test_modbus() -> None:
    """Registers that nothing but requests change."""
    image = HEAD.pack(1, 0, len(SHOWN)) + SHOWN
    words = list(struct.unpack(f"!{len(image) // 2}H", image))
    written = SimDevice(1, [SimData(0, count=1000, values=0, datatype=DataType.REGISTERS)])
    read = SimDevice(2, [SimData(0, values=[*words, *[0] * 100], datatype=DataType.REGISTERS)])
    loop, port = LoopThread(), free_ports(1)

    async def listen() -> ModbusTcpServer:
        server = ModbusTcpServer([written, read], address=("127.0.0.1", port))
        await server.serve_forever(background=True)
        return server

    server = loop.run(listen())
    try:
        with connecting("raw-modbus", port) as own:
            own.put(TRAFFIC, SENT)
            assert registers(port, 1, HEAD.size + len(SENT)) == HEAD.pack(1, 0, len(SENT)) + SENT
            assert own.get() == SHOWN
            assert own.get() is None  # the same sequence: no other message
            with pytest.raises(PeerLost, match=r"answered with .*exception_code=2"):
                own.write_at(2 * 5000, b"beyond the registers")
    finally:
        loop.run(server.shutdown())  # type: ignore[no-untyped-call]
        loop.close()


def registers(port: int, unit: int, octets: int) -> bytes:
    """The first registers of a unit."""
    found = list[int]()
    with ModbusTcpClient("127.0.0.1", port=port) as client:
        while len(found) < octets // 2:
            count = min(125, octets // 2 - len(found))
            found += client.read_holding_registers(len(found), count=count, device_id=unit).registers
    return struct.pack(f"!{len(found)}H", *found)


def test_s7() -> None:
    """Data blocks that nothing but requests change."""
    written, read = bytearray(5000), bytearray(HEAD.pack(1, 0, len(SHOWN)) + SHOWN + bytes(100))
    server, port = Server(log=False), free_ports(1)
    server.register_area(SrvArea.DB, 1, written)
    server.register_area(SrvArea.DB, 2, read)
    server.start_to("127.0.0.1", port)
    try:
        with connecting("raw-s7", port) as own:
            own.put(TRAFFIC, SENT)
            assert written[: HEAD.size + len(SENT)] == HEAD.pack(1, 0, len(SENT)) + SENT
            assert own.get() == SHOWN
            assert own.get() is None  # the same sequence: no other message
    finally:
        server.stop()


class Plant(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted, and has one message."""

    protocol_version = "HTTP/1.1"
    posted: tuple[str, bytes] | None = None

    def do_POST(self) -> None:
        Plant.posted = self.path, self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, SHOWN)

    def do_GET(self) -> None:
        self._answer(200, SHOWN, Waiting="2")

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_http() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Plant) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with connecting("raw-http", server.server_port) as own:
            own.put(ACK, SENT)
            assert Plant.posted == ("/ack/sweep", SENT)
            assert own.get() == SHOWN  # in the response
            assert (own.poll(), own.behind) == (SHOWN, 2)
        server.shutdown()


def test_websocket() -> None:
    with serve(lambda client: client.send(client.recv(decode=False)), "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with connecting("raw-websocket", server.socket.getsockname()[1]) as own:
            own.put(TRAFFIC, SENT)
            while (got := own.get()) is None:
                pass
            assert got == SENT
