"""MQTT with identities: the broker holds each client to the name in its certificate."""

import ssl
import threading
import time
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

import twinlink
from tests.identity.nodes import Node, deliver, make, make_pair, needs_mosquitto
from tests.identity.test_authenticated_zenoh import issued_by, refused_frames
from twinlink.protocol.authentication import epoch_prefix
from twinlink.protocol.frames import Kind, frame
from twinlink.testing import patience, wait_until
from twinlink.transports import mosquitto
from twinlink.transports.tls_probe import Outcome, probe

pytestmark = needs_mosquitto


class Spy:
    """A program of a trusted node that speaks MQTT itself."""

    def __init__(self, endpoint: str, pair: tuple[Path, Path]) -> None:
        host, _, port = endpoint.removeprefix("tcp/").rpartition(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*pair)
        self.answers: list[str] = []
        self._up = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.tls_set_context(context)
        self.client.on_connect = lambda *_: self._up.set()
        self.client.on_publish = lambda client, data, number, reason, properties: self.answers.append(str(reason))
        self.client.connect(host, int(port))
        self.client.loop_start()
        assert self._up.wait(patience())

    def put(self, name: str, topic: str, epoch_of: str, kind: Kind, body: bytes) -> None:
        epoch = int.from_bytes(epoch_prefix(epoch_of) + b"spy!")
        self.client.publish(f"{name}/{topic}", frame(kind, epoch, 0, time.time_ns(), body), qos=1)


def pair_of(node: Node) -> tuple[Path, Path]:
    return node.identity.certificate_file, node.identity.private_key_file


def test_a_trusted_peer_cannot_take_the_name_of_another(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    spying = make(tmp_path, "spy-1", "observer")
    twin.trust(spying)
    with (
        twinlink.open("mqtt", listen=endpoint, identity=twin.folder) as listener,
        twinlink.open("mqtt", connect=endpoint, identity=gnb.folder) as connector,
    ):
        wait_until(lambda: listener.peers() and connector.peers())
        got: list[twinlink.Message] = []
        for link in (listener, connector):
            link.receiver("control", handler=got.append)
        port, trusted = int(endpoint.rpartition(":")[2]), [twin.identity.line.certificate]
        in_its_name = issued_by(spying, "gnb-1", tmp_path)
        assert probe("127.0.0.1", port, trusted, pair_of(spying)).outcome is Outcome.MET
        assert probe("127.0.0.1", port, trusted, in_its_name).outcome is Outcome.REFUSED_THERE
        spy = Spy(endpoint, pair_of(spying))
        try:
            for name in ("gnb-1", "twin-1"):
                spy.put(name, "traffic/control", name, Kind.DATA, b"forged")
                spy.put(name, "traffic/_link", name, Kind.BYE, b"")
            wait_until(lambda: spy.answers == ["Not authorized"] * 4)
            spy.put("spy-1", "traffic/control", "spy-1", Kind.DATA, b"not of this role")
            spy.put("spy-1", "traffic/control", "gnb-1", Kind.DATA, b"not of this node")
            wait_until(lambda: refused_frames(listener) == {"data": 2})
        finally:
            spy.client.loop_stop()
            spy.client.disconnect()
        deliver(connector, listener, "telemetry")
        assert got == []
        assert (listener.peers(), connector.peers()) == (["gnb-1"], ["twin-1"])


def test_a_broker_that_nothing_proves_is_refused(endpoint: str, tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    with pytest.raises(twinlink.ConfigurationError, match="starts its own broker"):
        twinlink.open("mqtt", listen=endpoint, identity=twin.folder, private_broker=False)


def test_a_listener_at_a_name_with_two_addresses_takes_peers_with_keys_alone_at_both(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mosquitto, "listen_addresses", lambda host: ["127.0.0.1", "127.0.0.2"])
    twin, gnb = make_pair(tmp_path)
    port, trusted = int(endpoint.rpartition(":")[2]), [twin.identity.line.certificate]
    with twinlink.open("mqtt", listen=endpoint, identity=twin.folder) as listener:
        for host in ("127.0.0.1", "127.0.0.2"):
            assert probe(host, port, trusted, pair_of(gnb)).outcome is Outcome.MET
            with twinlink.open("mqtt", connect=f"tcp/{host}:{port}", identity=gnb.folder) as connector:
                connector.wait_ready(patience())
                deliver(connector, listener, "spectrum")
