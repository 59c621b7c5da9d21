"""Zenoh between nodes with identities: TLS both ways, pinned certificates, and a name that cannot be borrowed.

A node puts below its own name: ``<name>/traffic/<flow>``, ``<name>/ack/<flow>``.  What its peer's connection has proved
decides below which name it may put (Zenoh's access control, default deny).

Zenoh takes a pinned certificate as a trust anchor: with its key, its owner could issue another one in the name of any
node.  So a connector pins one listener at a time, and proves its own identity with a password.  Each pair has its own,
derived from the keys that it uses for CURVE over ZeroMQ: X25519 (RFC 7748) and HKDF (RFC 5869).
"""

import base64
import hashlib
import os
import secrets

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from zmq.utils import z85

from ..identity.identity import Identity
from ..identity.trust_file import TrustedPeer
from ..identity.watched import WatchedIdentity
from ..protocol.authentication import AuthenticatedPeer

TLS = "transport/link/tls/"
PASSWORD = "transport/auth/usrpwd/"
SUBSCRIBED = "*/*/*"  # name, traffic or ack, flow


class ZenohIdentity:
    """Of one transport; for the thread that receives, but `sender` for any.

    Args:
        watched: the identity.
        listening: the side.
        namespace: of the session, empty without one.

    Attributes:
        pinned: the key of the listener that a connector expects; None: it trusts none.
    """

    def __init__(self, watched: WatchedIdentity, listening: bool, namespace: str) -> None:
        self.watched = watched
        self.pinned: TrustedPeer | None = None
        self._listening = listening
        self._namespace = f"{namespace}/" if namespace else ""
        self._used: Identity | None = None  # of the session's settings
        self._used_peers: tuple[TrustedPeer, ...] = ()
        self._passwords = -1  # descriptor of the file that Zenoh reads

    @property
    def prefix(self) -> str:
        """Of every key that this node puts."""
        return f"{self.watched.name}/"

    @property
    def pins(self) -> tuple[TrustedPeer, ...]:
        """The keys that the session is to accept."""
        if self._listening:
            return self.watched.valid
        return (self.pinned,) if self.pinned in self.watched.valid else ()

    @property
    def is_stale(self) -> bool:
        """Whether the session needs other settings: own keys or those of peers have changed."""
        own, used = self.watched.identity, self._used
        return used is None or used.line != own.line or self._used_peers != self.pins

    def pin(self, certificate: bytes | None = None) -> None:
        """Expect the listener with this certificate (DER) from now on; None: the one before, while it is trusted."""
        if certificate is not None or self.pinned not in self.watched.valid:
            found = [peer for peer in self.watched.valid if certificate in (None, peer.line.certificate)]
            self.pinned = found[-1] if found else None

    def sender(self, name: str) -> AuthenticatedPeer | None:
        """The peer that puts below this name, if it is trusted now."""
        return self.watched.by_name.get(name)

    def settings(self) -> dict[str, object]:
        """Those of Zenoh's configuration that are its security; it uses them from now on."""
        own, peers = self.watched.identity, self.pins
        self._used, self._used_peers = own, peers
        # Without a trusted certificate Zenoh would trust the public authorities of the Web.
        roots = b"".join(peer.certificate_pem for peer in peers) or own.certificate_file.read_bytes()
        side = "listen" if self._listening else "connect"
        found: dict[str, object] = {
            TLS + "root_ca_certificate_base64": base64.b64encode(roots).decode(),
            TLS + f"{side}_certificate": str(own.certificate_file),
            TLS + f"{side}_private_key": str(own.private_key_file),
            TLS + "enable_mtls": True,
            # Peers are known by their certificate and their name in it, at any address.
            TLS + "verify_name_on_connect": False,
            TLS + "close_link_on_expiration": True,
            "access_control": self._access(own, peers),
        }
        if self._listening:
            found[PASSWORD + "dictionary_file"] = self._password_file(own, peers)
        elif peers:
            found[PASSWORD + "user"] = _user(own.curve_public)
            listener = peers[0].curve_public
            found[PASSWORD + "password"] = _password(own, peers[0], connector=own.curve_public, listener=listener)
        return found

    def _password_file(self, own: Identity, peers: tuple[TrustedPeer, ...]) -> str:
        """A file in memory."""
        self.forget_passwords()
        lines = [f"{secrets.token_hex(16)}:{secrets.token_hex(32)}"]  # an empty file might admit every client
        for peer in peers:
            password = _password(own, peer, connector=peer.curve_public, listener=own.curve_public)
            lines.append(f"{_user(peer.curve_public)}:{password}")
        self._passwords = os.memfd_create("twinlink-zenoh", os.MFD_CLOEXEC)
        os.write(self._passwords, "".join(f"{line}\n" for line in lines).encode())
        return f"/proc/self/fd/{self._passwords}"

    def _access(self, own: Identity, peers: tuple[TrustedPeer, ...]) -> dict[str, object]:
        names = sorted({peer.name for peer in peers})
        rules = [
            self._rule("subscribe", "declare_subscriber", ["ingress", "egress"], SUBSCRIBED),
            self._rule("send", "put", ["egress"], f"{own.name}/*/*"),
            *(self._rule(f"from {name}", "put", ["ingress"], f"{name}/*/*") for name in names),
        ]
        subjects: list[dict[str, object]] = [{"id": name, "cert_common_names": [name]} for name in names]
        if self._listening:
            for subject in subjects:
                subject["usernames"] = [_user(peer.curve_public) for peer in peers if peer.name == subject["id"]]
        return {
            "enabled": True,
            "default_permission": "deny",
            "rules": rules,
            "subjects": subjects,
            "policies": [{"rules": ["subscribe", "send", f"from {name}"], "subjects": [name]} for name in names],
        }

    def _rule(self, id: str, message: str, flows: list[str], key: str) -> dict[str, object]:
        return {
            "id": id,
            "permission": "allow",
            "messages": [message],
            "flows": flows,
            "key_exprs": [self._namespace + key],
        }

    def forget_passwords(self) -> None:
        """Free the file of passwords, which Zenoh has read when the session is open."""
        if self._passwords >= 0:
            os.close(self._passwords)
            self._passwords = -1


def _user(curve_public: bytes) -> str:
    """What a key is called where passwords are compared."""
    return hashlib.sha256(curve_public).hexdigest()[:32]


def _password(own: Identity, peer: TrustedPeer, *, connector: bytes, listener: bytes) -> str:
    """Of this connector at this listener, of which this node is one; by their public keys."""
    secret = X25519PrivateKey.from_private_bytes(z85.decode(own.curve_secret))
    shared = secret.exchange(X25519PublicKey.from_public_bytes(z85.decode(peer.curve_public)))
    info = b"twinlink zenoh password 1" + connector + listener
    return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared).hex()
