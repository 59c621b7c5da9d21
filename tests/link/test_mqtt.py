"""What is special about MQTT: a broker of one's own, one that is already there, and both going away."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import twinlink
from tests.link.mqtt_brokers import configured_mosquitto
from twinlink.protocol.frames import Kind, frame, parse
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import Conformance, Open, Stopwatch, drain, in_thread, malformed, receive_all
from twinlink.testing.closing import Closing
from twinlink.testing.delivery import Acks, Delivery
from twinlink.testing.peers import Peers
from twinlink.transports import Endpoint, mosquitto
from twinlink.transports.mosquitto import Mosquitto

BrokerWith = Callable[[str], Endpoint]
FOREIGN_EPOCH = 7


def broker_of(link: twinlink.Link) -> Mosquitto:
    """The listener's private broker."""
    broker: Mosquitto = link._transport.broker  # type: ignore[attr-defined]
    return broker


@pytest.fixture
def broker() -> Iterator[Mosquitto]:
    """One that is already there."""
    running = Mosquitto()
    yield running
    running.stop()


@pytest.fixture
def broker_with(tmp_path: Path) -> Iterator[BrokerWith]:
    """A broker with a configuration that `Mosquitto` would never give it."""
    with ExitStack() as running:
        yield lambda lines: running.enter_context(configured_mosquitto(tmp_path, lines))


class _Part(Conformance):
    """A part of the suite, where all of it would only take longer."""

    transport = "mqtt"

    @pytest.fixture
    def role(self) -> str:
        return "connect"  # both ways are the same to the broker

    test_payloads = Delivery.test_payloads_of_every_size_arrive_identical
    test_both_directions_at_once = Delivery.test_both_directions_at_once
    test_a_burst = Delivery.test_a_burst_of_1000_times_100_kb_loses_nothing
    test_acks = Acks.test_every_message_is_acknowledged_with_four_timestamps
    test_close_while_threads_send = Closing.test_while_threads_send

    def test_it_is_what_the_broker_is_asked_for(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        asked: list[int] = []
        foreign = connected(
            Endpoint.parse(first.endpoint), topic="+/flow", on_message=lambda *heard: asked.append(heard[2].qos)
        )
        second.sender("flow").send(b"")
        wait_until(lambda: len(asked) == 2)  # the message and its ack
        foreign.disconnect()
        foreign.loop_stop()
        assert asked == [self.options["qos"]] * 2


class TestQos1(_Part):
    options: ClassVar[dict[str, Any]] = {"qos": 1, "send_timeout": 5.0}


class TestQos2(_Part):
    options: ClassVar[dict[str, Any]] = {"qos": 2, "send_timeout": 5.0}


class TestBrokerThatIsThere(Conformance):
    """Both sides connect to it."""

    transport = "mqtt"
    options: ClassVar[dict[str, Any]] = {"private_broker": False}
    shares_endpoint = True
    test_ready_in_any_order_of_starting = Peers.test_ready_in_any_order_of_starting
    test_several_connectors_on_one_listener = Peers.test_several_connectors_on_one_listener
    test_a_peer_that_closes_and_comes_back_starts_anew = Peers.test_a_peer_that_closes_and_comes_back_starts_anew

    @pytest.fixture
    def endpoint(self, broker: Mosquitto) -> str:
        return str(broker.endpoint)

    def test_when_it_restarts_the_link_goes_on(self, broker: Mosquitto, opening: Open, role: str) -> None:
        first, second = self.ready_pair(opening, role)
        broker.stop()
        first.sender("flow").send(b"nobody passes it on")
        with pytest.raises(twinlink.AckTimeout):
            first.sender("flow").flush(0.1)
        again = Mosquitto(broker.endpoint)
        try:
            back = second.sender("back")
            wait_until(lambda: acknowledged(first.sender("flow")) and acknowledged(back))
        finally:
            again.stop()


def acknowledged(sender: twinlink.Sender) -> bool:
    """Whether a message sent now is."""
    before = sender.stats()["acknowledged"]
    sender.send(b"")
    try:
        sender.flush(0.2)
    except twinlink.AckTimeout:
        return False
    return bool(sender.stats()["acknowledged"] > before)


class TestPrivateBroker(Conformance):
    transport = "mqtt"

    def test_when_it_is_killed_it_is_started_again(self, opening: Open, caplog: pytest.LogCaptureFixture) -> None:
        first, second = self.ready_pair(opening)
        killed = broker_of(first).pid
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: acknowledged(first.sender("down")) and acknowledged(second.sender("up")))
        assert broker_of(first).pid != killed
        assert [r.getMessage() for r in caplog.records if "started again" in r.getMessage()] != []

    def test_what_nobody_is_up_for_does_not_pile_up_while_it_takes_nothing(self, opening: Open) -> None:
        alone = opening("listen")
        wait_until(lambda: alone._transport._up)  # type: ignore[attr-defined]
        stopped = broker_of(alone).pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            for _ in range(50):  # more than fits any socket
                alone.sender("flow").send(bytes(1_000_000))
            waiting = list(alone._transport._client._out_packet)  # type: ignore[attr-defined]
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert sum(len(packet["packet"]) > 1_000_000 for packet in waiting) == 1  # and hellos
        self.close_in_time(alone)

    def test_while_it_is_stopped_neither_send_nor_close_hang(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        stopped = broker_of(first).pid
        os.kill(stopped, signal.SIGSTOP)
        longest_s, payload = 0.0, bytes(1_000_000)
        try:
            with Stopwatch() as watch:
                for _ in range(20):  # more than fits any socket
                    began = watch.now()
                    second.sender("flow").send(payload)
                    longest_s = max(longest_s, watch.now() - began)
                    if longest_s > 0.3:
                        break  # it waited for the broker, and came back
            self.close_in_time(second)
        finally:
            os.kill(stopped, signal.SIGCONT)
        self.close_in_time(first)
        assert longest_s < patience(4)

    def test_everything_goes_with_a_program_that_is_killed(self, endpoint: str) -> None:
        script = """
import sys, time, twinlink
link = twinlink.open("mqtt", listen=sys.argv[1])
broker = link._transport.broker
print(broker.pid, broker._directory, flush=True)
time.sleep(100)
"""
        command = [sys.executable, "-c", script, endpoint]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout
            pid, directory = program.stdout.readline().split()
            assert Path(f"/proc/{pid}/comm").read_text() == "mosquitto\n"
            program.kill()
        wait_until(lambda: not Path(directory).exists() and not running(int(pid)))

    def test_octets_beyond_the_limit_end_the_stranger_that_sends_them(self, opening: Open) -> None:
        first, second = self.ready_pair(opening, max_payload=100_000)
        gone = threading.Event()
        stranger = connected(Endpoint.parse(first.endpoint))
        stranger.on_disconnect = lambda *_: gone.set()
        stranger.publish("traffic/flow", bytes(1_000_000))
        assert gone.wait(patience())
        stranger.disconnect()
        stranger.loop_stop()
        second.sender("flow").send(b"")
        second.sender("flow").flush(patience())
        assert malformed(first) == {}

    def test_any_mqtt_client_can_take_part(self, opening: Open) -> None:
        """MQTT 3.1.1, which knows no properties: it is a connector."""
        first, second = self.ready_pair(opening)
        seen: list[tuple[str, bytes]] = []

        def note(client: Client, userdata: Any, message: MQTTMessage) -> None:
            seen.append((message.topic, bytes(message.payload)))

        foreign = connected(Endpoint.parse(first.endpoint), MQTTProtocolVersion.MQTTv311, "traffic/flow", note)
        foreign.publish("traffic/up", frame(Kind.DATA, FOREIGN_EPOCH, 0, 1, b"mine"))
        message = first.receiver("up").receive(timeout=patience())
        assert message is not None
        assert (bytes(message.payload), message.epoch) == (b"mine", FOREIGN_EPOCH)
        first.sender("flow").send(b"yours")
        wait_until(lambda: seen)
        topic, octets = seen[0]
        assert topic == "traffic/flow"
        assert parse(octets)[:3] == (Kind.DATA, first.epoch, 0)
        assert octets[32:] == b"yours"
        foreign.disconnect()
        foreign.loop_stop()
        assert "up" not in second.stats()["received"]

    def test_who_is_a_listener_is_told_by_the_payload_format(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        foreign = connected(Endpoint.parse(first.endpoint))
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.PayloadFormatIndicator = 0
        foreign.publish("traffic/down", frame(Kind.DATA, FOREIGN_EPOCH, 0, 1, b""), properties=properties)
        foreign.publish("traffic/up", frame(Kind.DATA, FOREIGN_EPOCH, 0, 1, b""))
        receive_all(second.receiver("down"), 1)
        receive_all(first.receiver("up"), 1)
        foreign.disconnect()
        foreign.loop_stop()
        assert list(first.stats()["received"]) == ["up"]
        assert list(second.stats()["received"]) == ["down"]

    def test_a_retained_message_is_not_taken_for_one_of_today(self, broker: Mosquitto) -> None:
        foreign = connected(broker.endpoint)
        foreign.publish("traffic/flow", b"from yesterday", qos=1, retain=True).wait_for_publish(patience())
        foreign.disconnect()
        foreign.loop_stop()
        endpoint = str(broker.endpoint)
        with (
            self.open("listen", endpoint, private_broker=False) as first,
            self.open("connect", endpoint) as second,
        ):
            second.wait_ready(patience())
            second.sender("flow").send(b"today")
            assert [bytes(message.payload) for message in receive_all(first.receiver("flow"), 1)] == [b"today"]
            assert malformed(first) == {}


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def connected(
    endpoint: Endpoint,
    protocol: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
    topic: str = "nothing",
    on_message: Callable[[Client, Any, MQTTMessage], None] | None = None,
) -> Client:
    """A client as any program would make it, connected and subscribed, with a thread of its own."""
    client, subscribed = Client(CallbackAPIVersion.VERSION2, protocol=protocol), threading.Event()

    def subscribe(*_: Any) -> None:
        client.subscribe(topic, qos=2)

    client.on_connect = subscribe
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    client.connect(endpoint.host, endpoint.port)
    client.loop_start()
    assert subscribed.wait(patience())
    return client


@pytest.mark.parametrize("qos", [1, 2])
def test_a_broker_that_takes_few_at_once_is_not_overrun(broker_with: BrokerWith, qos: int) -> None:
    endpoint = str(broker_with("allow_anonymous true\nmax_inflight_messages 3\nmax_queued_messages 0"))
    with (
        twinlink.open("mqtt", listen=endpoint, private_broker=False, qos=qos) as first,
        twinlink.open("mqtt", connect=endpoint, qos=qos) as second,
    ):
        second.wait_ready(patience())
        first.wait_ready(patience())
        for number in range(300):
            second.sender("flow").send(number.to_bytes(2))
        second.sender("flow").flush(patience())
        messages = receive_all(first.receiver("flow"), 300)
        assert [int.from_bytes(message.payload) for message in messages] == list(range(300))
        assert drain(first, twinlink.PeerDown) + drain(second, twinlink.PeerDown) == []


def test_a_listener_says_that_there_is_no_broker(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    options: dict[str, Any] = {"private_broker": False, "reconnect_ms": 10}
    with caplog.at_level(logging.WARNING, "twinlink"), twinlink.open("mqtt", listen=endpoint, **options):
        wait_until(lambda: caplog.records)
        time.sleep(0.2)  # for more attempts
    (record,) = caplog.records
    assert f"the broker at {endpoint} cannot be reached, and is tried again: Connection refused" in record.getMessage()


def test_a_broker_that_refuses_us_is_named(broker_with: BrokerWith, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = str(broker_with("allow_anonymous false"))
    with caplog.at_level(logging.WARNING, "twinlink"), twinlink.open("mqtt", connect=endpoint) as link:
        with pytest.raises(twinlink.AuthenticationError, match=r"refuses this side, .* \(Not authorized\)"):
            link.wait_ready(patience())
        wait_until(lambda: caplog.records)
        assert endpoint in caplog.text
        assert "Not authorized" in caplog.text
    assert len(caplog.records) == 1  # not at every attempt


def test_options_that_cannot_be() -> None:
    for options, says in (({"qos": 3}, "at most 2"), ({"qos": "1"}, "int"), ({"keepalive_s": 65536}, "65535")):
        with pytest.raises(twinlink.ConfigurationError, match=says):
            twinlink.open("mqtt", connect="tcp/127.0.0.1:7447", **options)


def test_without_mosquitto_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosquitto, "SBIN", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(twinlink.TransportError, match="apt install mosquitto"):
        twinlink.open("mqtt", listen=free_endpoint(1))


def test_a_broker_on_its_own() -> None:
    """As measurements use it."""
    first = Mosquitto()
    try:
        assert Path(f"/proc/{first.pid}/comm").read_text() == "mosquitto\n"
        assert "running" in first.log()
        with pytest.raises(twinlink.TransportError, match=rf"{first.endpoint}.*in use"):
            Mosquitto(first.endpoint)
        second = Mosquitto(prefix=("env", "NAME=value"))
        try:
            assert b"NAME=value" in Path(f"/proc/{second.pid}/environ").read_bytes()
        finally:
            second.stop()
        assert not second.running
        assert not running(second.pid)
        with pytest.raises(twinlink.TransportError, match="cannot listen"):
            Mosquitto(Endpoint("host.invalid", 1883))
        in_thread(lambda: connected(first.endpoint).loop_stop()).result()  # the others did it no harm
    finally:
        first.stop()
    first.stop()
    assert not first.running
