"""Brokers that take only short messages: the limit is found, the connection stays, and other flows go on."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.link.mqtt_brokers import StrictBroker, configured_mosquitto
from twinlink.protocol.frames import HELLO_TOPIC
from twinlink.testing import patience, wait_until
from twinlink.transports import Endpoint, Transport
from twinlink.transports.mqtt_limit import PRECISION_OCTETS, FrameLimit

LIMIT = 20_000  # octets
LONG = bytes(50_000)
FRAMING = 83  # octets of a PUBLISH besides the frame, with the longest topic
LONGEST_FLOW = "f" * 63
OPEN = "allow_anonymous true\nset_tcp_nodelay true\n"


def transport_of(link: twinlink.Link) -> Transport:
    return link._transport


@contextmanager
def pair(endpoint: Endpoint, **options: Any) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """A listener and a connector at a broker that is there."""
    with (
        twinlink.open("mqtt", listen=str(endpoint), private_broker=False, **options) as first,
        twinlink.open("mqtt", connect=str(endpoint), **options) as second,
    ):
        second.wait_ready(patience())
        first.wait_ready(patience())
        yield first, second


class Traffic:
    """Short messages on one flow while long ones go on another."""

    def __init__(self, first: twinlink.Link, second: twinlink.Link) -> None:
        self.arrived: list[bytes] = []
        self.sent = 0
        first.receiver("long", handler=lambda message: None)
        first.receiver("short", handler=lambda message: self.arrived.append(bytes(message.payload)))
        self._long, self.short = second.sender("long"), second.sender("short")
        self.offer_long()

    def offer_long(self) -> None:
        with contextlib.suppress(twinlink.PayloadTooLarge):  # the link knows the limit
            self._long.send(LONG)

    def send_short(self, messages: int = 1) -> None:
        for _ in range(messages):
            self.short.send(self.sent.to_bytes(2))
            self.sent += 1
            time.sleep(0.01)

    def run_until(self, condition: Callable[[], bool]) -> None:
        def step() -> bool:
            self.send_short()
            return condition()

        wait_until(step)

    def check(self) -> None:
        self.short.flush(patience())
        wait_until(lambda: len(self.arrived) == self.sent)
        assert self.arrived == [number.to_bytes(2) for number in range(self.sent)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.mark.parametrize("qos", [0, 1])
def test_a_limit_that_is_advertised(tmp_path: Path, stack: ExitStack, qos: int) -> None:
    endpoint = stack.enter_context(configured_mosquitto(tmp_path, f"{OPEN}max_packet_size {LIMIT}"))
    strict = StrictBroker(endpoint, LIMIT)  # would end the connection
    stack.callback(strict.close)
    first, second = stack.enter_context(pair(strict.endpoint, qos=qos, send_timeout=5.0))
    for link in (first, second):
        assert transport_of(link).frame_limit == LIMIT - FRAMING
        assert f"advertises a Maximum Packet Size of {LIMIT} octets" in transport_of(link).frame_limit_reason
    connections = strict.connections
    traffic = Traffic(first, second)
    traffic.send_short(20)
    traffic.check()
    transport_of(second).send(HELLO_TOPIC, bytes(LIMIT))
    assert transport_of(second).too_long >= 1
    longest = second.sender(LONGEST_FLOW)
    longest.send(bytes(transport_of(second).frame_limit - 32))
    received = first.receiver(LONGEST_FLOW).receive(timeout=patience())
    assert received is not None
    assert strict.connections == connections


@pytest.mark.parametrize("queued", ["max_queued_messages 0", ""])  # with 0, mosquitto 2.0.11 ends the connection, too
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_broker_that_drops(
    tmp_path: Path, stack: ExitStack, qos: int, queued: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines = f"{OPEN}message_size_limit {LIMIT}\n{queued}"
    endpoint = stack.enter_context(configured_mosquitto(tmp_path, lines))
    first, second = stack.enter_context(pair(endpoint, qos=qos, send_timeout=5.0))
    traffic, transport = Traffic(first, second), transport_of(second)
    traffic.run_until(lambda: LIMIT - PRECISION_OCTETS <= transport.frame_limit <= LIMIT)
    traffic.check()
    assert "refuses longer messages" in transport.frame_limit_reason
    assert sum("no frame longer than" in record.getMessage() for record in caplog.records) == 1
    assert transport_of(first).frame_limit > LIMIT  # it has sent nothing of the kind


@pytest.mark.parametrize("reason", [None, 0x95, 0x97, 0x99])
def test_a_broker_that_ends_the_connection(
    tmp_path: Path, stack: ExitStack, reason: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    strict = StrictBroker(stack.enter_context(configured_mosquitto(tmp_path, OPEN)), LIMIT, reason)
    stack.callback(strict.close)
    first, second = stack.enter_context(pair(strict.endpoint))
    traffic, transport = Traffic(first, second), transport_of(second)
    traffic.run_until(lambda: "no frame longer than" in caplog.text)
    assert LIMIT - FRAMING - PRECISION_OCTETS <= transport.frame_limit <= LIMIT - FRAMING
    connections = strict.connections
    for _ in range(10):
        traffic.offer_long()
        traffic.send_short(5)
    traffic.check()
    assert strict.connections <= connections + 1  # the last trial's
    assert sum("no frame longer than" in record.getMessage() for record in caplog.records) == 1
    if reason != 0x95:
        return
    strict.limit = 1 << 20  # it was configured anew, and restarted
    strict.cut()
    wait_until(lambda: transport.frame_limit > len(LONG))
    assert transport.frame_limit_reason == ""


def test_a_broker_that_is_killed_again_and_again_has_no_limit(tmp_path: Path, stack: ExitStack) -> None:
    strict = StrictBroker(stack.enter_context(configured_mosquitto(tmp_path, OPEN)), 1 << 20)
    stack.callback(strict.close)
    first, second = stack.enter_context(pair(strict.endpoint))
    arrived: list[int] = []
    first.receiver("long", handler=lambda message: arrived.append(message.sequence))
    sender = second.sender("long")
    for _ in range(5):
        sender.send(LONG)
        sender.flush(patience())
        connections = strict.connections
        strict.cut()
        wait_until(lambda before=connections: strict.connections >= before + 2)  # type: ignore[misc]
    sender.send(LONG)
    sender.flush(patience())
    wait_until(lambda: arrived == list(range(6)))  # the handler is called after the ack was sent
    assert transport_of(second).frame_limit == transport_of(second).max_frame


# The rules alone, against a simulated broker


class Simulated:
    """A broker with a limit, in front of which one link publishes."""

    def __init__(
        self, limit: int, ends: bool, topic_allowed: bool = True, qos_1: bool = True, acks: bool = True
    ) -> None:
        self.limit, self.ends, self.topic_allowed, self.qos_1, self.acks = limit, ends, topic_allowed, qos_1, acks
        self.known = FrameLimit("tcp/h:1", 1 << 20, assumed=1024, always_acks=False, ends_s=1.0)
        self.now, self.identifier, self.connections, self.trials, self.passed = 0.0, 0, 0, 0, 0
        self.connect()

    def connect(self) -> None:
        self.connections += 1
        self.known.on_connected(None, 1 << 20, knows_qos_1=self.qos_1, mono_s=self.now)
        self.try_all()

    def end(self, code: int = 0x80, after_s: float = 0.01) -> None:
        self.now += after_s
        self.known.on_connection_end(code, self.now, lost=True)
        assert self.known.forgets_published() or not self.known.published
        self.connect()

    def try_all(self) -> None:
        while (octets := self.known.next_trial()) is not None:
            self.trials += 1
            self.take(octets, self.topic_allowed, asked=True, trial=True)

    def take(self, octets: int, allowed: bool, asked: bool, trial: bool) -> None:
        self.identifier += 1
        if asked:
            self.known.on_published(self.identifier, octets, self.now, trial=trial)
        passes = octets <= self.limit and allowed
        self.passed += passes and not trial
        if not passes and self.ends:
            self.end()
        elif asked and self.acks:
            self.known.on_ack(self.identifier, 0 if passes else 0x97 if allowed else 0x87, self.now)

    def send(self, octets: int) -> None:
        self.now += 0.01
        if self.known.admits(octets, self.now):
            asked = octets > self.known.known and self.known.asks(octets, self.now)
            self.take(octets, True, asked, False)
        self.try_all()


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("limit", [2000, 20_000, 131_072, 999_999])
def test_the_limit_is_exact_to_64_octets(limit: int, ends: bool) -> None:
    broker = Simulated(limit, ends)
    for octets in (100, 2000, 1 << 20, 1 << 20, 1 << 20):
        broker.send(octets)
    assert limit - PRECISION_OCTETS <= broker.known.octets <= limit
    assert broker.trials <= 16
    connections = broker.connections
    for octets in range(1, 1 << 20, 10_000):
        broker.send(octets)
    assert broker.connections == connections
    broker.end(0x8B)  # the broker shuts down
    assert limit - PRECISION_OCTETS <= broker.known.octets <= limit
    assert broker.connections <= connections + 2  # one trial
    broker.limit = 1500
    broker.end(0x8B)
    assert broker.known.octets <= 1500
    broker.limit = 1 << 20
    broker.end(0x8B)
    assert broker.known.octets == 1 << 20
    assert broker.known.reason == ""


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("without", ["topic_allowed", "qos_1", "acks"])
def test_where_trials_are_impossible_the_limit_shrinks_with_each_refusal(without: str, ends: bool) -> None:
    if without != "topic_allowed" and not ends:
        return  # nothing tells of it: the link gives the message up
    broker = Simulated(20_000, ends, **{without: False})
    for _ in range(30):
        broker.now += 0.2
        broker.send(min(broker.known.octets, 50_000))  # as bundles and fragments, which the limit makes shorter
    assert 15_000 <= broker.known.octets <= 20_000
    assert broker.connections <= 20


def test_a_connection_that_ends_whatever_is_sent_sets_no_limit() -> None:
    broker = Simulated(1 << 20, True)
    for _ in range(20):
        broker.send(50_000)
        broker.end(after_s=0.01)
    assert broker.known.octets == 1 << 20


def test_a_path_that_is_cut_sets_no_limit() -> None:
    broker = Simulated(1 << 20, True)
    for _ in range(20):
        broker.known.on_published(broker.identifier, 50_000, broker.now)
        broker.end(after_s=2.0)
    assert broker.known.octets == 1 << 20


def test_a_quota_that_is_used_up_is_no_limit() -> None:
    broker = Simulated(0, False)
    for _ in range(10):
        broker.send(50_000)
    assert broker.known.octets == 1 << 20
