"""Zenoh between nodes with identities: TLS both ways, pinned certificates, and names that are proved.

A node puts below its own name: ``<name>/traffic/<flow>``, ``<name>/ack/<flow>``.  What its peer's connection has proved
decides below which name it may put (Zenoh's access control, default deny).

Zenoh takes a pinned certificate as a trust anchor: with its key, its owner could issue another one in the name of any
node.  So a connector pins one listener at a time, and proves its own identity with a password.  Each pair has its own,
derived from the keys that it uses for CURVE over ZeroMQ: X25519 (RFC 7748) and HKDF (RFC 5869).

In mode ``client``, the router takes the place of the listener.  It holds each node to its own name (`zenoh_router`);
the router itself could put below any name.
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Iterable
from typing import Literal

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

Side = Literal["listener", "connector", "client"]
Entry = dict[str, object]  # of Zenoh's configuration


class ZenohIdentity:
    """The identity of one transport.

    For the thread that receives; `sender` for any, `settings` for one that opens sessions.

    Args:
        watched: the identity.
        side: ``client``: of a router.
        namespace: of the session, empty without one.

    Attributes:
        pinned: the key of the listener or router that a connector or client expects; None: it trusts none.
        why_alone: what to check where no peer is met; None: nothing in particular.
    """

    why_alone: str | None = None

    def __init__(self, watched: WatchedIdentity, side: Side, namespace: str) -> None:
        self.watched = watched
        self.pinned: TrustedPeer | None = None
        self._unknown: str | None = None
        self._side = side
        self._namespace = f"{namespace}/" if namespace else ""
        self._used: Identity | None = None  # of the session's settings
        self._used_peers: tuple[TrustedPeer, ...] = ()
        self._passwords = -1  # descriptor of the file that Zenoh reads

    @property
    def prefix(self) -> str:
        """The prefix of every key that this node puts."""
        return f"{self.watched.name}/"

    @property
    def pins(self) -> tuple[TrustedPeer, ...]:
        """The keys that the session is to accept."""
        if self._side == "listener":
            return self.watched.valid
        pinned = self.pinned
        return (pinned,) if pinned is not None and pinned in self._trusted else ()

    @property
    def names(self) -> frozenset[str]:
        """The names of the nodes, or routers, that the session is to accept."""
        return frozenset(key.name for key in self.pins)

    @property
    def _trusted(self) -> tuple[TrustedPeer, ...]:
        """The keys of the nodes, or routers, that this one may connect to."""
        return self.watched.routers if self._side == "client" else self.watched.valid

    @property
    def is_stale(self) -> bool:
        """Whether the session needs other settings: own keys or those of peers have changed."""
        own, used = self.watched.identity, self._used
        return used is None or used.line != own.line or self._used_peers != self.pins

    def pin(self, certificate: bytes | None = None) -> None:
        """Expect the other side with this certificate (DER) from now on; None: the one before, while it is trusted."""
        if certificate is not None or self.pinned not in self._trusted:
            found = [key for key in self._trusted if certificate in (None, key.line.certificate)]
            self.pinned = found[-1] if found else None

    def sender(self, name: str) -> AuthenticatedPeer | None:
        """The peer that puts below this name, if it is trusted now."""
        peer = self.watched.by_name.get(name)
        if peer is None and name != self.watched.name:
            self._unknown = name
        return peer

    def take_unknown(self) -> str | None:
        """The last name since the previous call below which a frame came, and that is of no trusted peer."""
        name, self._unknown = self._unknown, None
        return name

    def settings(self) -> Entry:
        """Those of Zenoh's configuration that are its security; it uses them from now on."""
        own, peers = self.watched.identity, self.pins
        self._used, self._used_peers = own, peers
        # Zenoh opens no listener of TLS with client certificates, unless it has a trust anchor.
        roots = b"".join(peer.certificate_pem for peer in peers) or own.certificate_pem
        names, proved = sorted(self.names), peers if self._side == "listener" else None
        found = self._tls(own, roots) | {"access_control": self._access(own, names, proved)}
        if self._side == "listener":
            found[PASSWORD + "dictionary_file"] = self._password_file(own, peers)
        elif peers:
            found[PASSWORD + "user"] = user(own.curve_public)
            listener = peers[0].curve_public
            found[PASSWORD + "password"] = _password(own, peers[0], connector=own.curve_public, listener=listener)
        return found

    def _tls(self, own: Identity, roots: bytes) -> Entry:
        """``roots``: the trust anchors, PEM."""
        side = "listen" if self._side == "listener" else "connect"
        certificate, private_key = own.file_names("zenoh")
        return {
            TLS + "root_ca_certificate_base64": base64.b64encode(roots).decode(),
            TLS + f"{side}_certificate": certificate,
            TLS + f"{side}_private_key": private_key,
            TLS + "enable_mtls": True,
            # Peers are known by their certificate and their name in it, at any address.
            TLS + "verify_name_on_connect": False,
            TLS + "close_link_on_expiration": True,
        }

    def _password_file(self, own: Identity, peers: tuple[TrustedPeer, ...]) -> str:
        """A file in memory."""
        self.forget_passwords()
        self._passwords = os.memfd_create("twinlink-zenoh", os.MFD_CLOEXEC)
        os.write(self._passwords, dictionary(own, peers))
        return f"/proc/self/fd/{self._passwords}"

    def _access(self, own: Identity, names: list[str], proved: tuple[TrustedPeer, ...] | None) -> Entry:
        """``proved``: as `subject` takes ``keys``."""
        # A router puts what comes of each peer: below the name of a peer that is not trusted, frames are dropped later.
        below = dict.fromkeys(names, "*") if self._side == "client" else {name: name for name in names}
        rules = [
            rule("subscribe", "declare_subscriber", ["ingress", "egress"], self._namespace + SUBSCRIBED),
            rule("send", "put", ["egress"], f"{self._namespace}{own.name}/*/*"),
            *(rule(f"from {name}", "put", ["ingress"], f"{self._namespace}{below[name]}/*/*") for name in names),
        ]
        policies: list[Entry] = [{"rules": ["subscribe", "send", f"from {name}"], "subjects": [name]} for name in names]
        return access_control(rules, [subject(name, proved) for name in names], policies)

    def forget_passwords(self) -> None:
        """Free the file of passwords, which Zenoh has read when the session is open."""
        if self._passwords >= 0:
            os.close(self._passwords)
            self._passwords = -1


def access_control(rules: list[Entry], subjects: list[Entry], policies: list[Entry]) -> Entry:
    """Zenoh's ``access_control``: what no policy allows is denied."""
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def rule(id: str, message: str, flows: list[str], *keys: str) -> Entry:
    """An entry of ``rules``."""
    return {"id": id, "permission": "allow", "messages": [message], "flows": flows, "key_exprs": list(keys)}


def subject(name: str, keys: Iterable[TrustedPeer] | None) -> Entry:
    """An entry of ``subjects``: the node with this name, by its certificate, and by the password of one of its keys.

    ``keys``: of all nodes.  None: the certificate alone decides, as that of a listener, which has no password.
    """
    proved = {} if keys is None else {"usernames": [user(key.curve_public) for key in keys if key.name == name]}
    return {"id": name, "cert_common_names": [name], **proved}


def dictionary(own: Identity, peers: Iterable[TrustedPeer]) -> bytes:
    """The file of the passwords with which these peers prove their keys to this node."""
    lines = [f"{secrets.token_hex(16)}:{secrets.token_hex(32)}"]  # an empty file might admit every client
    for peer in peers:
        password = _password(own, peer, connector=peer.curve_public, listener=own.curve_public)
        lines.append(f"{user(peer.curve_public)}:{password}")
    return "".join(f"{line}\n" for line in lines).encode()


def user(curve_public: bytes) -> str:
    """The user name of a key where passwords are compared."""
    return hashlib.sha256(curve_public).hexdigest()[:32]


def _password(own: Identity, peer: TrustedPeer, *, connector: bytes, listener: bytes) -> str:
    """The password of this connector at this listener, one of which is this node; by their public keys."""
    secret = X25519PrivateKey.from_private_bytes(z85.decode(own.curve_secret))
    shared = secret.exchange(X25519PublicKey.from_public_bytes(z85.decode(peer.curve_public)))
    info = b"twinlink zenoh password 1" + connector + listener
    return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared).hex()
