"""Long payloads: by reference where they cannot change, copied once where they can, in one part for plain readers."""

import contextlib
import socket
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import zmq

import twinlink
from tests.link.test_raw_programs import GOOD, goes_on, malformed, open_pair
from twinlink.protocol.frames import HEADER_OCTETS, SPLIT_OCTETS, Kind, MessageFrame
from twinlink.recording import verify
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName
from twinlink.transports import Endpoint
from twinlink.transports.zeromq_split import REFERENCE_OCTETS, SPLIT, TRAFFIC, TrafficReaders

SIZES = [SPLIT_OCTETS - 1, SPLIT_OCTETS, REFERENCE_OCTETS - 1, REFERENCE_OCTETS, 1_000_001]
LONG = bytes(range(256)) * (REFERENCE_OCTETS // 256)


def warm_up(sender: twinlink.Sender) -> None:
    """Send until the link knows how fast the path is: before, long messages go in fragments."""
    budget = sender._flow.in_flight.budget

    def is_fast() -> bool:
        sender.send(bytes(2 * SPLIT_OCTETS))
        sender.flush(patience())
        return budget.unfragmented > max(SIZES)

    wait_until(is_fast)


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh", "websocket", "tcp"])
def test_what_may_change_is_copied_at_send_and_every_long_message_is_recorded(
    transport: TransportName, endpoint: str, tmp_path: Path
) -> None:
    listener, connector = open_pair(transport, endpoint)
    with listener, connector:
        recorder = connector.record(tmp_path / "sent.mcap")
        sender, received = connector.sender("flow"), list[twinlink.Message]()
        listener.receiver("flow", handler=received.append)
        warm_up(sender)
        wait_until(lambda: len(received) == sender.stats()["sent"])
        received.clear()
        sent = []
        for number, size in enumerate(SIZES):
            octets = bytes([number + 1]) * size
            array = np.frombuffer(octets, np.uint8).copy()
            buffer, view = bytearray(octets), memoryview(octets)
            for payload in (octets, buffer, array, view):
                sender.send(payload)
                sent.append(octets)
            buffer[:], array[:] = bytes(size), 0
        sender.flush(patience())
        wait_until(lambda: len(received) == len(sent))
        assert [bytes(message.payload) for message in received] == sent
        recorder.close()
    report = verify(tmp_path / "sent.mcap")
    assert (report.complete, report.problems) == (True, [])


def test_octets_that_cannot_change_are_not_copied(endpoint: str) -> None:
    listener, connector = open_pair("memory", endpoint)
    with listener, connector:
        sender, received = connector.sender("flow"), list[twinlink.Message]()
        listener.receiver("flow", handler=received.append)
        warm_up(sender)
        before = len(received)
        sender.send(LONG)
        wait_until(lambda: len(received) > before)
        assert memoryview(received[-1].payload).obj is LONG


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_a_long_message_that_was_lost_is_retransmitted(transport: TransportName, endpoint: str) -> None:
    listener, connector = open_pair(transport, endpoint)
    with listener, connector:
        sender, received = connector.sender("flow"), list[twinlink.Message]()
        listener.receiver("flow", handler=received.append)
        warm_up(sender)
        wait_until(lambda: len(received) == sender.stats()["sent"])
        received.clear()
        send, order = connector._transport.send, count()

        def lose_each_third(topic: bytes, frame: MessageFrame) -> None:
            if type(frame) is bytes or frame[3] == Kind.RETRANSMIT or next(order) % 3:
                send(topic, frame)

        connector._transport.send = lose_each_third  # type: ignore[method-assign]
        sent = [bytes([number]) * REFERENCE_OCTETS for number in range(10)]
        for payload in sent:
            sender.send(payload)
            sender.flush(patience())
        wait_until(lambda: len(received) == len(sent))
        assert [bytes(message.payload) for message in received] == sent
        assert sender.stats()["repaired"] > 0


def parts_of(reader: "zmq.Socket[bytes]") -> list[bytes]:
    assert reader.poll(int(patience() * 1000))
    return reader.recv_multipart()


def test_while_a_plain_reader_is_there_long_messages_are_in_one_part(endpoint: str) -> None:
    listener, connector = open_pair("zeromq", endpoint)
    where = Endpoint.parse(endpoint)
    with listener, connector, zmq.Context() as context:
        sender, received = listener.sender("flow"), list[twinlink.Message]()
        connector.receiver("flow", handler=received.append)
        warm_up(sender)
        readers = listener._transport._readers  # type: ignore[attr-defined]

        def send() -> None:
            sender.send(LONG)
            sender.flush(patience())
            wait_until(lambda: received[-1].payload == LONG)
            received.append(received[0])

        send()
        assert readers.split
        with contextlib.closing(context.socket(zmq.SUB)) as plain:
            plain.setsockopt(zmq.LINGER, 0)
            plain.setsockopt(zmq.SUBSCRIBE, TRAFFIC)
            plain.connect(f"tcp://{where.host}:{where.port}")
            wait_until(lambda: not readers.split)
            send()
            topic, frame = next(parts for parts in iter(lambda: parts_of(plain), []) if parts[0] == b"traffic/flow")
            assert (topic, frame[HEADER_OCTETS:]) == (b"traffic/flow", LONG)
        wait_until(lambda: readers.split)
        with contextlib.closing(context.socket(zmq.SUB)) as able:
            able.setsockopt(zmq.LINGER, 0)
            able.setsockopt(zmq.SUBSCRIBE, SPLIT)
            able.setsockopt(zmq.SUBSCRIBE, TRAFFIC)
            able.connect(f"tcp://{where.host}:{where.port}")
            wait_until(lambda: sum({SPLIT, TRAFFIC} <= topics for _, topics in readers._topics.values()) == 2)
            send()
            first, payload = next(parts for parts in iter(lambda: parts_of(able), []) if parts[0].startswith(SPLIT))
            assert (first[:-HEADER_OCTETS], first[-HEADER_OCTETS:], payload) == (
                SPLIT + b"flow", frame[:8] + first[-24:], LONG,
            )  # fmt: skip
        sender.flush(patience())


def test_messages_are_split_while_each_connection_that_reads_them_reads_them_so() -> None:
    readers = TrafficReaders()
    one, other = socket.socketpair()
    with one:
        for made, topic, begins, splits in (
            (one, b"traffic/_link", True, True), (one, b"ack/", True, True), (one, b"split/", True, True),
            (one, b"traffic/", True, True), (one, b"traffic/flow", True, True), (other, b"split/", True, True),
            (one, b"split/", True, True), (one, b"split/", False, False), (one, b"traffic/flow", False, False),
            (one, b"traffic/", False, True), (one, b"joining/", True, True), (other, b"split/", False, True),
            (other, b"", True, False),
        ):  # fmt: skip
            readers.changed(made.fileno(), topic, begins)
            assert readers.split == splits, topic
        other.close()
        assert readers.split


def test_a_program_that_reads_nothing_has_no_messages_split_for_others(endpoint: str) -> None:
    listener, connector = open_pair("zeromq", endpoint)
    where = Endpoint.parse(endpoint)
    with listener, connector, zmq.Context() as context:
        connector.receiver("flow")
        sender = listener.sender("flow")
        warm_up(sender)
        readers = listener._transport._readers  # type: ignore[attr-defined]
        with contextlib.closing(context.socket(zmq.XSUB)) as foreign:
            foreign.setsockopt(zmq.LINGER, 1000)
            foreign.connect(f"tcp://{where.host}:{where.port}")
            for _ in range(5):
                foreign.send(b"\1" + SPLIT)
            foreign.send(b"\1" + TRAFFIC + b"flow")
            wait_until(lambda: sum({SPLIT, TRAFFIC + b"flow"} <= topics for _, topics in readers._topics.values()) == 1)
        with contextlib.closing(context.socket(zmq.SUB)) as plain:
            plain.setsockopt(zmq.LINGER, 0)
            plain.setsockopt(zmq.SUBSCRIBE, TRAFFIC)
            plain.connect(f"tcp://{where.host}:{where.port}")
            wait_until(lambda: not readers.split)
            sender.send(LONG)
            parts = next(parts for parts in iter(lambda: parts_of(plain), []) if parts[0] == b"traffic/flow")
            assert parts[1][HEADER_OCTETS:] == LONG


def test_foreign_messages_in_parts_are_counted_and_change_nothing(endpoint: str) -> None:
    listener, connector = open_pair("zeromq", endpoint)
    where = Endpoint.parse(endpoint)
    header, payload = GOOD[:HEADER_OCTETS], GOOD[HEADER_OCTETS:]
    with listener, connector, zmq.Context() as context, contextlib.closing(context.socket(zmq.PUB)) as foreign:
        foreign.setsockopt(zmq.LINGER, 0)
        foreign.connect(f"tcp://{where.host}:{where.port + 1}")
        wrong = [
            [SPLIT + b"flow" + header],
            [SPLIT + b"flow" + header, payload, b"more"],
            [SPLIT + b"flow" + header, payload, b"more", b"and more"],
            [SPLIT, payload],
            [SPLIT + header, payload],
            [SPLIT + b"flow" + header[1:], payload],
            [SPLIT + b"flow" + header, payload[1:]],
            [SPLIT + b"flow" + header, b"traffic/"],
            [SPLIT + b"flow" + bytes(HEADER_OCTETS), payload],
        ]
        for parts in wrong:
            before = sum(malformed(listener).values())

            def is_counted(parts: list[bytes] = parts, before: int = before) -> bool:
                foreign.send_multipart(parts)
                return sum(malformed(listener).values()) > before

            wait_until(is_counted)
        goes_on((listener, connector))


SENDS_AND_ENDS = """
import sys, time, twinlink
link = twinlink.open("zeromq", connect=sys.argv[1], node="child")
link.wait_ready(30)
sender, until = link.sender("flow"), time.monotonic() + 1
while time.monotonic() < until:
    sender.send(bytes(100_000))
    sender.flush(30)
for number in range(5):
    sender.send(bytes([number]) * 1_000_000)
"""


def test_what_a_process_sends_by_reference_just_before_it_ends_arrives() -> None:
    at, numbers, come = free_endpoint(), list[int](), threading.Event()

    def take(message: twinlink.Message) -> None:
        if len(message.payload) != 1_000_000:
            return
        assert len(set(bytes(message.payload))) == 1
        numbers.append(message.payload[0])
        if len(numbers) == 5:
            come.set()

    with twinlink.open("zeromq", listen=at) as link:
        link.receiver("flow", handler=take)
        ended = subprocess.run(
            [sys.executable, "-c", SENDS_AND_ENDS, at], capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert come.wait(patience())
    assert numbers == list(range(5))
