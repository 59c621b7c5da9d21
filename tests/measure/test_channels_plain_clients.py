"""The listening side of a subject speaks its protocol: clients without twinlink are answered."""

import queue
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zenoh
import zmq
from asyncua import ua
from asyncua.common.callback import CallbackType
from asyncua.common.utils import Buffer
from asyncua.pubsub import uadp
from asyncua.sync import Client as OpcuaClient
from paho.mqtt.client import Client as MqttClient
from paho.mqtt.enums import CallbackAPIVersion
from pymodbus.client import ModbusTcpClient
from snap7.client import Client
from twinlink_measure.channels import PORTS, Channel, channel
from twinlink_measure.channels.base import TRAFFIC
from twinlink_measure.channels.mailbox import HEAD
from twinlink_measure.row_buffer import ReceivedRows
from websockets.sync.client import connect

from twinlink.process.ports import free_ports
from twinlink.protocol.frames import ACK_ONE, Kind, frame, parse_ack
from twinlink.testing import patience, wait_until
from twinlink.transports import Endpoint

EPOCH, SEQUENCE, PAYLOAD = 7, 3, b"state of a PLC"


@contextmanager
def reflecting(subject: str, bulk: bool = False) -> Iterator[tuple[Endpoint, Channel]]:
    """The Digital Twin's side of a subject, answering messages."""
    endpoint = Endpoint("127.0.0.1", free_ports(PORTS))
    own = channel(subject, endpoint, True, "digital-twin")
    own.open()
    try:
        own.received = ReceivedRows(10)
        own.reflect(len(PAYLOAD), bulk)
        yield endpoint, own
    finally:
        own.stop()
        own.close()


def message() -> bytes:
    return frame(Kind.DATA, EPOCH, SEQUENCE, time.time_ns(), PAYLOAD)


def is_answer(octets: bytes) -> bool:
    epoch, _, records = parse_ack(octets)
    return epoch == EPOCH and [record[0] for record in records] == [SEQUENCE]


def answered(send: Callable[[], Any], receive: Callable[[], bytes | None]) -> bool:
    """Whether a message is answered; it is sent until then, as subscriptions take effect at some time."""
    end = time.monotonic() + patience()
    while time.monotonic() < end:
        send()
        octets = receive()
        if octets is not None:
            return is_answer(octets)
    return False


def test_tcp() -> None:
    with reflecting("raw-tcp") as (endpoint, _), socket.create_connection((endpoint.host, endpoint.port)) as client:
        client.settimeout(patience())
        client.sendall(message())
        assert is_answer(client.recv(ACK_ONE.size, socket.MSG_WAITALL))


def test_zeromq() -> None:
    with reflecting("raw-zeromq") as (endpoint, _), zmq.Context() as context:
        sub, pub = context.socket(zmq.SUB), context.socket(zmq.PUB)
        sub.subscribe("ack/")
        sub.connect(f"tcp://{endpoint.host}:{endpoint.port}")
        pub.connect(f"tcp://{endpoint.host}:{endpoint.port + 1}")
        try:
            assert answered(
                lambda: pub.send_multipart([TRAFFIC, message()]),
                lambda: sub.recv_multipart()[1] if sub.poll(50) else None,
            )
        finally:
            context.destroy(linger=0)


def test_zenoh() -> None:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    with reflecting("raw-zenoh") as (endpoint, _):
        config.insert_json5("connect/endpoints", f'["tcp/{endpoint.host}:{endpoint.port}"]')
        answers = queue.Queue[bytes]()
        with zenoh.open(config) as session:
            session.declare_subscriber("ack/*", lambda sample: answers.put(sample.payload.to_bytes()))
            assert answered(lambda: session.put(TRAFFIC.decode(), message()), lambda: taken(answers))


def taken(answers: "queue.Queue[bytes]") -> bytes | None:
    try:
        return answers.get(timeout=0.05)
    except queue.Empty:
        return None


def test_mqtt() -> None:
    answers = queue.Queue[bytes]()
    client = MqttClient(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _data, message: answers.put(bytes(message.payload))
    with reflecting("raw-mqtt-qos2") as (endpoint, _):
        client.connect(endpoint.host, endpoint.port)
        client.subscribe("ack/sweep/dt", 2)
        client.loop_start()
        try:
            assert answered(lambda: client.publish("traffic/sweep/rw", message(), 2), lambda: taken(answers))
        finally:
            client.disconnect()
            client.loop_stop()


@pytest.mark.parametrize("bulk", [False, True])
def test_uadp(bulk: bool) -> None:
    """asyncua's codec at the other end; what is too short for a message is not answered."""

    def network_message(octets: bytes) -> bytes:
        sent = uadp.UadpNetworkMessage(
            Header=uadp.UadpHeader(PublisherId=ua.UInt16(1)),
            DataSetPayloadHeader=[ua.UInt16(1)],
            Payload=[uadp.UadpDataSetVariant(Data=[ua.Variant(octets, ua.VariantType.ByteString)])],
        )
        encoded: bytes = sent.to_binary()
        return encoded

    with reflecting("raw-uadp", bulk) as (endpoint, _), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(patience())
        for octets in (b"short", message()):
            client.sendto(network_message(octets), (endpoint.host, endpoint.port))
        got: Any = uadp.UadpNetworkMessage.from_binary(Buffer(client.recv(2000)))
        assert got.Header.PublisherId == 2
        (field,) = got.Payload[0].Data
        assert is_answer(field.Value)


def test_websocket() -> None:
    with reflecting("raw-websocket") as (endpoint, own), connect(f"ws://{endpoint.host}:{endpoint.port}") as client:
        client.send(message())
        assert is_answer(client.recv(10, decode=False))
        wait_until(lambda: own.received.used == 1)


def test_two_websocket_clients_meet_at_the_hub() -> None:
    with reflecting("raw-websocket-hub") as (endpoint, own):
        address = f"ws://{endpoint.host}:{endpoint.port}"
        with connect(address) as client, connect(address) as other:
            client.send(message())
            assert other.recv(10, decode=False)[-len(PAYLOAD) :] == PAYLOAD
            assert is_answer(client.recv(10, decode=False))
        wait_until(lambda: own.received.used == 1)


def test_http() -> None:
    with reflecting("raw-http") as (endpoint, own):
        address = f"http://{endpoint.host}:{endpoint.port}/traffic/sweep"
        with urllib.request.urlopen(urllib.request.Request(address, message()), timeout=10) as response:
            assert is_answer(response.read())
        wait_until(lambda: own.received.used == 1)
        with urllib.request.urlopen(address, timeout=10) as response:
            assert (response.status, response.read()) == (204, b"")
        for _ in range(2):
            own.put(TRAFFIC, message())  # type: ignore[attr-defined]
        with urllib.request.urlopen(address, timeout=10) as response:
            assert response.read()[-len(PAYLOAD) :] == PAYLOAD
            assert response.headers["Waiting"] == "1"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl() -> None:
    with reflecting("raw-http") as (endpoint, own):
        address = f"http://{endpoint.host}:{endpoint.port}/traffic/sweep"
        assert is_answer(curl(address, "--data-binary", "@-", sent=message()))
        for _ in range(2):
            own.put(TRAFFIC, message())  # type: ignore[attr-defined]
        head, _, body = curl(address, "--include").partition(b"\r\n\r\n")
        assert b"\r\nWaiting: 1\r\n" in head
        assert body[-len(PAYLOAD) :] == PAYLOAD


def curl(address: str, *options: str, sent: bytes | None = None) -> bytes:
    command = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", *options, address]
    return subprocess.run(command, input=sent, capture_output=True, check=True, timeout=patience()).stdout


def test_modbus() -> None:
    image = HEAD.pack(1, 0, len(message())) + message()
    image += bytes(len(image) % 2)
    with reflecting("raw-modbus") as (endpoint, own), ModbusTcpClient(endpoint.host, port=endpoint.port) as client:
        words = list(struct.unpack(f"!{len(image) // 2}H", image))
        assert not client.write_registers(0, words, device_id=1).isError()
        assert not client.write_registers(0, words, device_id=1).isError()  # the same sequence: no other message
        wait_until(lambda: own.received.used == 1)
        answer = client.read_holding_registers(0, count=40, device_id=2).registers
        octets = struct.pack("!40H", *answer)
        sequence, waiting, length = HEAD.unpack_from(octets)
        assert (sequence, waiting) == (1, 0)
        assert is_answer(octets[HEAD.size : HEAD.size + length])
        assert client.write_registers(0, words, device_id=2).isError()  # that mailbox is for reading
        for _ in range(2):
            own.put(TRAFFIC, message())  # type: ignore[attr-defined]
        for expected in ((2, 1), (3, 0), (3, 0)):  # each is replaced when it was read; the last stays
            head = client.read_holding_registers(0, count=len(words), device_id=2).registers[:2]
            assert tuple(head) == expected


def test_s7() -> None:
    image = bytearray(HEAD.pack(1, 0, len(message())) + message())
    with reflecting("raw-s7") as (endpoint, own):
        client = Client()
        client.connect(endpoint.host, 0, 1, endpoint.port)
        client.db_write(1, 0, image)
        client.db_write(1, 0, image)  # the same sequence: no other message
        wait_until(lambda: own.received.used == 1)
        octets = bytes(client.db_read(2, 0, 80))
        sequence, waiting, length = HEAD.unpack_from(octets)
        assert (sequence, waiting) == (1, 0)
        assert is_answer(octets[HEAD.size : HEAD.size + length])
        for _ in range(2):
            own.put(TRAFFIC, message())  # type: ignore[attr-defined]
        for expected in ((2, 1), (3, 0), (3, 0)):  # each is replaced when it was read; the last stays
            assert HEAD.unpack_from(client.db_read(2, 0, len(image)))[:2] == expected
        client.disconnect()


def test_opc_ua() -> None:
    with (
        reflecting("raw-opcua") as (endpoint, own),
        OpcuaClient(f"opc.tcp://{endpoint.host}:{endpoint.port}/") as client,
    ):
        written, read = client.get_node("ns=1;s=Written"), client.get_node("ns=1;s=Read")
        assert read.read_value() == b""
        written.write_value(message(), ua.VariantType.ByteString)
        wait_until(lambda: own.received.used == 1)
        octets = read.read_value()
        assert HEAD.unpack_from(octets)[:2] == (1, 0)
        assert is_answer(octets[HEAD.size :])
        for _ in range(2):
            own.put(TRAFFIC, message())  # type: ignore[attr-defined]
        for expected in ((2, 1), (3, 0), (3, 0)):  # each read takes one; the last stays
            assert HEAD.unpack_from(read.read_value())[:2] == expected


def test_a_silent_opc_ua_subscription_brings_nothing_twice() -> None:
    """asyncua's client would make it anew after a second, and get the last value again."""
    written: list[ua.WriteValue] = []

    async def note(event: Any, _dispatcher: Any) -> None:
        if event.is_external:
            written.extend(event.request_params.NodesToWrite)

    with reflecting("raw-opcua-sub") as (endpoint, own):
        own._server.subscribe_server_callback(CallbackType.PreWrite, note)  # type: ignore[attr-defined]
        client = channel("raw-opcua-sub", endpoint, False, "real-world")
        client.open()
        try:
            client.wait_ready(10)
            client.load(len(PAYLOAD))
            assert client.exchange(10)
            time.sleep(1.7)
            assert client.get(False) is None  # type: ignore[attr-defined]
        finally:
            client.close()
        assert own.received.used >= 2
    assert len(written) >= 2
    # open62541's server refuses a value with a timestamp.
    assert {(each.Value.SourceTimestamp, each.Value.ServerTimestamp) for each in written} == {(None, None)}
