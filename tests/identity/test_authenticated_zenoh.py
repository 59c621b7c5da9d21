"""Zenoh with identities: a good certificate opens nothing to another name."""

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
import zenoh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import twinlink
from tests.identity.nodes import Node, deliver, make, make_pair
from twinlink.identity.watched import WatchedIdentity
from twinlink.protocol.authentication import epoch_prefix
from twinlink.protocol.frames import Kind, frame
from twinlink.testing import patience, wait_until
from twinlink.transports.zenoh_identity import TLS, ZenohIdentity
from twinlink.transports.zenoh_inbox import SEAL

NAMESPACES = ("twinlink/cell-7", "twinlink/cell-8")


class Spy:
    """A program of a trusted node that speaks Zenoh itself, with the keys that it was given.

    Args:
        endpoint: of the listener, or a router.
        node: the spy; it trusts the listener or router.
        pair: another certificate than its own, and its key.
        mode: "client" of a router.
    """

    def __init__(
        self, endpoint: str, node: Node, pair: tuple[Path, Path] | None = None, mode: Literal["peer", "client"] = "peer"
    ) -> None:
        identity = ZenohIdentity(WatchedIdentity(node.identity), "connector" if mode == "peer" else "client", "")
        identity.pin()
        settings = identity.settings()
        del settings["access_control"]
        certificate, key = pair or (node.identity.certificate_file, node.identity.private_key_file)
        settings |= {TLS + "connect_certificate": str(certificate), TLS + "connect_private_key": str(key)}
        settings |= {"mode": mode, "scouting/multicast/enabled": False, "listen/endpoints": []}
        config = zenoh.Config()
        for name, value in {**settings, "connect/endpoints": [endpoint.replace("tcp/", "tls/")]}.items():
            config.insert_json5(name, json.dumps(value))
        self.heard: list[str] = []
        self.session = zenoh.open(config)
        self.subscribers = [
            self.session.declare_subscriber(keys, lambda sample: self.heard.append(str(sample.key_expr)))
            for keys in ("**", *((f"{namespace}/*/*/*" for namespace in NAMESPACES) if mode == "client" else ()))
        ]
        wait_until(lambda: self.session.info.peers_zid() or self.session.info.routers_zid())

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
    with (
        twinlink.open("zenoh", listen=endpoint, identity=twin.folder) as listener,
        twinlink.open("zenoh", connect=endpoint, identity=gnb.folder) as connector,
    ):
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


def test_connectors_that_are_refused_do_not_keep_others_out(endpoint: str, tmp_path: Path) -> None:
    """After each handshake that fails, Zenoh's listener pauses."""
    twin, gnb = make_pair(tmp_path)
    strangers = [make(tmp_path, f"stranger-{number}", "gnb") for number in range(4)]
    with ExitStack() as stack:
        stack.enter_context(twinlink.open("zenoh", listen=endpoint, identity=twin.folder))
        links = []
        for stranger in strangers:
            stranger.trust(twin)
            links.append(stack.enter_context(twinlink.open("zenoh", connect=endpoint, identity=stranger.folder)))
        wait_until(lambda: all(link._transport.authentication_problem for link in links))
        connector = stack.enter_context(twinlink.open("zenoh", connect=endpoint, identity=gnb.folder))
        connector.wait_ready(patience())
        assert all("refuses the key of this side" in (link._transport.authentication_problem or "") for link in links)


def refused_frames(link: twinlink.Link) -> dict[str, int]:
    stats = link.stats()["identity"]
    assert stats is not None
    return stats["refused_frames"]


def test_what_would_not_be_protected_is_refused(endpoint: str, tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    with pytest.raises(twinlink.ConfigurationError, match="shares no memory"):
        twinlink.open("zenoh", listen=endpoint, identity=twin.folder, shared_memory=True)
