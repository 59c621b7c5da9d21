"""Zenoh with identities: who meets whom, and that a good certificate opens nothing to another name."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zenoh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import twinlink
from tests.identity.nodes import Node, make, make_pair
from tests.identity.test_authenticated_zeromq import CELLS, deliver
from twinlink.identity import trust
from twinlink.identity.watched import WatchedIdentity
from twinlink.protocol.authentication import epoch_prefix
from twinlink.protocol.frames import Kind, frame
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transports.zenoh_identity import TLS, ZenohIdentity
from twinlink.transports.zenoh_inbox import SEAL


def opened(role: str, endpoint: str, node: Node | None) -> twinlink.Link:
    folder = node.folder if node else None
    if role == "listen":
        return twinlink.open("zenoh", listen=endpoint, identity=folder)
    return twinlink.open("zenoh", connect=endpoint, identity=folder)


@pytest.mark.parametrize("name", CELLS)
def test_two_sides_do_not_meet_until_both_trust_each_other(name: str, endpoint: str, tmp_path: Path) -> None:
    cell = CELLS[name]
    at_listener, at_connector = cell.spoil(tmp_path, *make_pair(tmp_path))
    with opened("listen", endpoint, at_listener) as listener, opened("connect", endpoint, at_connector) as connector:
        up, down = connector.sender("up"), listener.sender("down")
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience())  # long before this
        assert cell.says in str(raised.value)
        for sender in (up, down):
            sender.send(b"secret")
        for link in (listener, connector):
            assert link.peers() == []
            assert link.stats()["received"] == {}
        if cell.repair is None:
            return
        assert at_listener is not None
        assert at_connector is not None
        cell.repair(at_listener, at_connector)
        wait_until(lambda: connector.peers() and listener.peers())
        connector.wait_ready()
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")


def test_revoking_ends_the_session_and_only_that_one(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    other = make(tmp_path, "gnb-2", "gnb")
    twin.trust(other)
    other.trust(twin)
    with (
        opened("listen", endpoint, twin) as listener,
        opened("connect", endpoint, gnb) as stays,
        opened("connect", endpoint, other) as goes,
    ):
        wait_until(lambda: len(listener.peers()) == 2 and stays.peers() and goes.peers())
        twin.revoke(other)
        down = wait_for_event(listener, twinlink.PeerDown)
        assert (down.node, down.reason) == ("gnb-2", "untrusted")
        deliver(stays, listener, "spectrum")
        wait_until(lambda: not goes.peers())
        with pytest.raises(twinlink.AuthenticationError):
            goes.wait_ready(patience())
        wait_until(lambda: listener.peers() == ["gnb-1"])


def test_revoking_the_listener_ends_the_session(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        gnb.revoke(twin)
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"
        with pytest.raises(twinlink.AuthenticationError):
            connector.wait_ready(patience())


def test_expiry_ends_a_session(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path, expires_in_s=patience(2))
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        assert wait_for_event(listener, twinlink.PeerDown).reason == "untrusted"
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    rotating, peer = (twin, gnb) if rotates == "listen" else (gnb, twin)
    old = rotating.identity.fingerprint
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        got: list[bytes] = []
        listener.receiver("spectrum", handler=lambda message: got.append(bytes(message.payload)))
        sender, sent, stop = connector.sender("spectrum"), 0, threading.Event()

        def send() -> None:
            nonlocal sent
            while not stop.wait(0.0005):
                sender.send(sent.to_bytes(4))
                sent += 1

        sending = threading.Thread(target=send)
        sending.start()
        line = trust.prepare_rotation(rotating.folder)
        trust.trust(peer.folder, line, rotating.identity.role, beside=True)
        wait_until(lambda: len(got) > 100)
        trust.complete_rotation(rotating.folder)
        links = listener._transport, connector._transport
        of_listener, of_connector = (link._authentication for link in links)  # type: ignore[attr-defined]
        if rotates == "listen":
            wait_until(lambda: of_connector.pinned.line == line)
        else:
            wait_until(lambda: of_connector._used.line == line and of_listener.watched.version > 1)
        seen = len(got)
        wait_until(lambda: len(got) > seen + 100)
        peer.revoke(rotating, old)
        wait_until(lambda: len(of_listener.pins) == len(of_connector.pins) == 1)
        seen = len(got)
        wait_until(lambda: len(got) > seen + 100)
        stop.set()
        sending.join()
        sender.flush(patience())
        wait_until(lambda: len(got) == sent)
        assert got == [number.to_bytes(4) for number in range(sent)]
        assert drain(listener, twinlink.Gap) == []
        assert drain(connector, twinlink.Lost) == []


class Spy:
    """A program of a trusted node that speaks Zenoh itself, with the keys that it was given.

    Args:
        endpoint: of the listener.
        node: the spy; it trusts the listener.
        pair: another certificate than its own, and its key.
    """

    def __init__(self, endpoint: str, node: Node, pair: tuple[Path, Path] | None = None) -> None:
        identity = ZenohIdentity(WatchedIdentity(node.identity), False, "")
        identity.pin()
        settings = identity.settings()
        del settings["access_control"]
        certificate, key = pair or (node.identity.certificate_file, node.identity.private_key_file)
        settings |= {TLS + "connect_certificate": str(certificate), TLS + "connect_private_key": str(key)}
        settings |= {"mode": "peer", "scouting/multicast/enabled": False, "listen/endpoints": []}
        config = zenoh.Config()
        for name, value in {**settings, "connect/endpoints": [endpoint.replace("tcp/", "tls/")]}.items():
            config.insert_json5(name, json.dumps(value))
        self.heard: list[str] = []
        self.session = zenoh.open(config)
        self.subscriber = self.session.declare_subscriber("**", lambda sample: self.heard.append(str(sample.key_expr)))
        wait_until(self.session.info.peers_zid)

    def put(self, name: str, topic: str, epoch_of: str, kind: Kind, body: bytes) -> None:
        """Frames below a name, which say to be of a session of that node."""
        epoch = int.from_bytes(epoch_prefix(epoch_of) + b"spy!")
        for sequence in range(10):
            octets = frame(kind, epoch, sequence, time.time_ns(), body)
            self.session.put(
                f"{name}/{topic}",
                octets + octets[SEAL],
                congestion_control=zenoh.CongestionControl.BLOCK,
                allowed_destination=zenoh.Locality.REMOTE,
            )


def issued_by(node: Node, name: str, folder: Path) -> tuple[Path, Path]:
    """A certificate with another name, for which the node's certificate, which is pinned, is the authority."""
    own = x509.load_pem_x509_certificate(node.identity.certificate_file.read_bytes())
    authority = serialization.load_pem_private_key(node.identity.private_key_file.read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(own.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(authority, hashes.SHA256())
    )
    certificate, private = folder / "issued.crt", folder / "issued.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


@pytest.mark.parametrize("borrows", [False, True], ids=["own certificate", "certificate in another name"])
def test_a_trusted_peer_cannot_take_the_name_of_another(borrows: bool, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    spying = make(tmp_path, "spy-1", "observer")
    twin.trust(spying)
    spying.trust(twin)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        got: list[twinlink.Message] = []
        listener.receiver("spectrum", handler=got.append)
        listener.receiver("control", handler=got.append)
        connector.receiver("control", handler=got.append)
        spy = Spy(endpoint, spying, issued_by(spying, "gnb-1", tmp_path) if borrows else None)
        try:
            hello = json.dumps({"node": "gnb-1", "heard": {}, "flows": {"spectrum": 0}}).encode()
            for name in ("gnb-1", "twin-1"):
                spy.put(name, "traffic/_link", name, Kind.HELLO, hello.replace(b"gnb-1", name.encode()))
                spy.put(name, "traffic/spectrum", name, Kind.DATA, b"forged")
                spy.put(name, "traffic/control", name, Kind.DATA, b"forged")
                spy.put(name, "traffic/_link", name, Kind.BYE, b"")
            assert listener.stats()["identity"] == {"refused_connections": 0, "refused_frames": {}}
            spy.put("spy-1", "traffic/_link", "gnb-1", Kind.HELLO, hello)
            spy.put("spy-1", "traffic/spectrum", "spy-1", Kind.DATA, b"not of this role")
            deliver(connector, listener, "telemetry")
            if not borrows:  # what it puts below its own name arrives, and counts by what it is
                wait_until(lambda: sum(refused_frames(listener).values()) == 20)
                assert refused_frames(listener) == {"hello": 10, "data": 10}
            assert got == []
            assert (listener.peers(), connector.peers()) == (["gnb-1"], ["twin-1"])
            assert not [key for key in spy.heard if not key.startswith("twin-1/")]
        finally:
            spy.session.close()  # type: ignore[no-untyped-call]


def refused_frames(link: twinlink.Link) -> dict[str, int]:
    stats = link.stats()["identity"]
    assert stats is not None
    return stats["refused_frames"]


def test_what_would_not_be_protected_is_refused(endpoint: str, tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    with pytest.raises(twinlink.ConfigurationError, match="shares no memory"):
        twinlink.open("zenoh", listen=endpoint, identity=twin.folder, shared_memory=True)
    with pytest.raises(twinlink.ConfigurationError, match="takes no identity"):
        twinlink.open("zenoh", connect=endpoint, identity=twin.folder, mode="client", namespace="a")
