"""An identity whose folder is watched: what is trusted, revoked or rotated counts without a restart."""

import contextlib
import dataclasses
import logging
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ..errors import ConfigurationError
from ..protocol.authentication import AuthenticatedPeer, epoch_prefix
from . import certificates
from .folder import Signature, signature
from .identity import AUTHORITY, CERTIFICATE, PRIVATE_KEY, REVOKED, SECRET, TRUSTED, Identity
from .public_line import INTERMEDIARIES, Role
from .roles import may_send
from .trust_file import TrustedPeer

LOOK_S = 0.2
_FILES = (SECRET, CERTIFICATE, PRIVATE_KEY, TRUSTED, REVOKED, AUTHORITY)
_READS = 5  # at most, while the files change, as all files of a Kubernetes volume do at once

logger = logging.getLogger("twinlink")


class WatchedIdentity:
    """Any thread may use it.

    Attributes:
        identity: as it was last read.  When the folder cannot be read any more, it trusts no peer.
        valid: the keys of peers that are trusted, neither revoked nor expired; the newest of a peer is last.
        routers, brokers: valid keys of Zenoh routers and MQTT brokers, which are no peers.
        by_curve: the peer of each key in ``valid``, by its public key of CURVE as text.
        issued: the roles of the nodes for which a certificate of the authority counts, by name.
        by_name: the peers with a valid key or certificate.
        version: grows whenever something of this changes.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.version = 0
        self._only: Role | None = None
        self.valid: tuple[TrustedPeer, ...] = ()
        self.routers: tuple[TrustedPeer, ...] = ()
        self.brokers: tuple[TrustedPeer, ...] = ()
        self.issued: dict[str, Role] = {}
        self.by_curve: dict[str, AuthenticatedPeer] = {}
        self.by_name: dict[str, AuthenticatedPeer] = {}
        self._by_certificate: dict[bytes, AuthenticatedPeer] = {}
        self._seen: Signature = ()  # it may have changed since it was read
        self._problem: str | None = None  # why the folder cannot be read
        self._next_look_s = 0.0
        self._lock = threading.Lock()
        self.refresh()

    def admit_only(self, role: Role) -> None:
        """From now on only peers with this role are trusted."""
        self._only, self.version = role, 0
        self.refresh(at_once=True)

    @property
    def name(self) -> str:
        """The name of this node."""
        return self.identity.name

    @property
    def names(self) -> frozenset[str]:
        """The names of the peers with a valid key or certificate."""
        return frozenset(self.by_name)

    def peer_of(self, certificate: bytes, authority: bytes) -> AuthenticatedPeer | None:
        """The peer that a certificate (DER) proves, as of now.

        ``authority``: certificates of the authority, PEM, that were trust anchors of its handshake; may be empty.
        """
        if (pinned := self._by_certificate.get(certificate)) is not None:
            return pinned
        found = self._issued(certificate, authority)
        # A name may be trusted with a pinned key, and its certificates of the authority revoked.
        return self.by_name.get(found.name) if found is not None and found.name in self.issued else None

    def is_broker(self, certificate: bytes, authority: bytes) -> bool:
        """Whether a certificate proves a broker; the arguments are those of `peer_of`."""
        if any(broker.line.certificate == certificate for broker in self.brokers):
            return True
        if (found := self._issued(certificate, authority)) is None:
            return False
        return any(self.issued.get(name) == "broker" for name in (found.name, *found.hosts))

    def why_not(self, name: str) -> str:
        """Why no key of a node with this name counts: ``role``, ``revoked``, ``expired`` or ``unknown``."""
        own = self.identity
        if name in own.revoked_names:
            return "revoked"
        if name in own.issued() or any(peer.name == name for peer in own.valid()):
            return "role"
        if any(peer.name == name for peer in own.trusted):
            return "expired"
        return "revoked" if any(peer.name == name for peer in own.revoked) else "unknown"

    def _issued(self, certificate: bytes, authority: bytes) -> certificates.Issued | None:
        """What a certificate of the authority says; None for any other, and where it has expired or is revoked."""
        if not authority or authority != self.identity.authority:
            return None
        if any(peer.line.certificate == certificate for peer in self.identity.revoked):
            return None
        found = certificates.issued(certificate)
        return found if found is not None and found.expiry > datetime.now(UTC) else None

    def refresh(self, *, at_once: bool = False) -> None:
        """Look at the folder and the time, at most every `LOOK_S` seconds unless ``at_once``."""
        now_s = time.monotonic()
        if (now_s < self._next_look_s and not at_once) or not self._lock.acquire(False):
            return
        try:
            self._next_look_s = now_s + LOOK_S
            self._look()
        finally:
            self._lock.release()

    def _look(self) -> None:
        before = self.identity
        # A repair may leave the files as they are: of a lack of descriptors.
        if self._problem is not None or signature(before.folder, _FILES) != self._seen:
            self.identity = self._read(before)
        keys, issued = self.identity.valid(), self.identity.issued()
        if self._only is not None:
            keys = tuple(key for key in keys if key.role == self._only)
            issued = {name: role for name, role in issued.items() if role == self._only}
        valid = tuple(key for key in keys if key.role not in INTERMEDIARIES)
        routers, brokers = (tuple(key for key in keys if key.role == role) for role in INTERMEDIARIES)
        before_now = self.valid, self.routers, self.brokers, self.issued
        if self.identity is not before or (valid, routers, brokers, issued) != before_now or not self.version:
            self.by_curve = {peer.curve_public.decode(): _authenticated(peer.name, peer.role) for peer in valid}
            peers = {name: role for name, role in issued.items() if role not in INTERMEDIARIES}
            by_issued = {name: _authenticated(name, role) for name, role in peers.items()}
            self.by_name = by_issued | {peer.name: peer for peer in self.by_curve.values()}
            self._by_certificate = {peer.line.certificate: _authenticated(peer.name, peer.role) for peer in valid}
            self.valid, self.routers, self.brokers, self.issued = valid, routers, brokers, issued
            self.version += 1

    def _read(self, before: Identity) -> Identity:
        """The identity as it is now.  While the folder cannot be read, it trusts no peer."""
        try:
            found = self._load(before.folder)
            if found.name != before.name:
                raise ConfigurationError(f"{before.folder} has become the identity of {found.name}")
            if found.secret is None and before.secret is not None:  # with which decisions are signed
                raise ConfigurationError(f"{before.folder / SECRET} is gone: put it back, or start the program anew")
        except ConfigurationError as error:
            if str(error) != self._problem:
                logger.error("%s: no peer is trusted until this is repaired", error)
            self._problem = str(error)
            closed = dataclasses.replace(before, trusted=(), authority=b"")
            return before if closed == before else closed
        self._problem = None
        return found

    def _load(self, folder: Path) -> Identity:
        """Read the folder, again while its files change."""
        for _ in range(_READS - 1):
            self._seen = signature(folder, _FILES)
            with contextlib.suppress(ConfigurationError):
                found = Identity.load(folder)
                if signature(folder, _FILES) == self._seen:
                    return found
            if signature(folder, _FILES) == self._seen:
                break
        self._seen = signature(folder, _FILES)
        return Identity.load(folder)


def _authenticated(name: str, role: Role) -> AuthenticatedPeer:
    return AuthenticatedPeer(name, epoch_prefix(name), partial(may_send, role))
