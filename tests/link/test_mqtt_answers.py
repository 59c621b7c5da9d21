"""What a broker says in its answers is obeyed, and a refusal is named once: in the log, and in the error."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import twinlink
from tests.link.mqtt_brokers import configured_mosquitto
from tests.link.small_broker import SmallBroker
from twinlink.testing import patience, wait_until

MAXIMUM_QOS, SERVER_KEEP_ALIVE, RECEIVE_MAXIMUM, WILDCARDS = 0x24, 0x13, 0x21, 0x28  # MQTT 5.0 section 2.2.2.2
RETAIN, TOPIC_ALIASES, SHARED, SUBSCRIPTION_IDENTIFIERS = 0x25, 0x22, 0x2A, 0x29
QUOTA_EXCEEDED, NO_WILDCARDS = 0x97, 0xA2


@contextlib.contextmanager
def links(endpoint: object, **options: Any) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """Both sides of a link over a broker that is there."""
    with (
        twinlink.open("mqtt", listen=str(endpoint), node="listener", private_broker=False, **options) as listener,
        twinlink.open("mqtt", connect=str(endpoint), node="connector", **options) as connector,
    ):
        yield listener, connector


def deliver(listener: twinlink.Link, connector: twinlink.Link, count: int = 20) -> None:
    for link in (listener, connector):
        link.wait_ready(patience())
    for sending, receiving in ((listener, connector), (connector, listener)):
        receiver, sender = receiving.receiver("d"), sending.sender("d")
        sent = [sender.send(b"payload") for _ in range(count)]
        got = [receiver.receive(timeout=patience()) for _ in sent]
        assert [message.sequence for message in got if message is not None] == sent


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(("qos", "most"), [(2, 1), (2, 0), (1, 0)])
def test_no_message_has_a_higher_qos_than_the_broker_takes(
    qos: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    with SmallBroker(properties=bytes((MAXIMUM_QOS, most)), most_qos=most) as broker:
        with links(broker.endpoint, qos=qos) as (listener, connector):
            deliver(listener, connector)
        assert broker.highest_qos == most
        assert broker.connections == 2
    said = warnings(caplog)
    assert len(said) == 2  # of each side
    assert all(f"takes messages with QoS {most} at most, so the option qos={qos} has no effect" in one for one in said)


def test_mosquitto_with_a_maximum_qos(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    lines = "allow_anonymous true\nmax_qos 0\nretain_available false\nmax_topic_alias 0\nmax_keepalive 10"
    with configured_mosquitto(tmp_path, lines) as endpoint, links(endpoint, qos=2, keepalive_s=60) as both:
        deliver(*both)
        assert [link._transport._client.keepalive for link in both] == [10, 10]  # type: ignore[attr-defined]
    assert len(warnings(caplog)) == 2


def test_what_a_link_does_not_use_may_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    properties = bytes((RETAIN, 0, TOPIC_ALIASES, 0, 0, SHARED, 0, SUBSCRIPTION_IDENTIFIERS, 0, RECEIVE_MAXIMUM, 0, 1))
    with SmallBroker(properties=properties) as broker, links(broker.endpoint) as (listener, connector):
        deliver(listener, connector)
    assert not warnings(caplog)


def test_the_keepalive_of_the_broker_counts() -> None:
    """The link is silent towards a broker that sends nothing, but for its hellos."""
    with (
        SmallBroker(properties=bytes((SERVER_KEEP_ALIVE, 0, 1))) as broker,
        twinlink.open("mqtt", connect=str(broker.endpoint), keepalive_s=600),
    ):
        wait_until(lambda: broker.pings)


@pytest.mark.parametrize("role", ["listen", "connect"])
@pytest.mark.parametrize(
    ("broker", "named"),
    [
        ({"connack": QUOTA_EXCEEDED}, "refuses us: Quota exceeded"),
        ({"ends_after_connack": QUOTA_EXCEEDED}, "disconnects us: Quota exceeded"),
        ({"granted": NO_WILDCARDS}, "does not let us subscribe to"),
        ({"properties": bytes((WILDCARDS, 0))}, "permits no wildcards in subscriptions"),
    ],
    ids=["connack", "disconnect", "suback", "wildcards"],
)
def test_a_refusal_is_named_once(
    broker: dict[str, Any], named: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"private_broker": False} if role == "listen" else {}
    with SmallBroker(**broker) as at, twinlink.open("mqtt", **options | {role: str(at.endpoint)}) as link:
        with pytest.raises(twinlink.PeerTimeout) as raised:
            link.wait_ready(1.5)
        assert named in str(raised.value)
        assert "firewall" not in str(raised.value)
        assert at.connections < 12  # it does not try again at once
    (said,) = warnings(caplog)
    assert named in said
