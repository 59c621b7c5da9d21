"""Identities on plain sockets: TLS 1.3 with a certificate of each side, which is one of those that the other trusts.

The certificates are self-signed and pinned, or of an authority that both sides trust: hosts in them do not count.  A
listener lets a peer with a revoked key finish the handshake of TLS, to refuse it by name.
"""

import ssl
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..identity import certificates
from ..identity.watched import WatchedIdentity
from ..protocol.authentication import AuthenticatedPeer
from . import identity_advice
from .refusals import Refusal
from .stream_connection import FOREIGN_TLS, StreamConnection

SURE = 3  # attempts in a row that ended alike: one alone may have met the end of a listener
EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
EPOCH_OCTETS = 8


class _Keys(NamedTuple):
    """What follows from one version of the identity."""

    version: int
    context: ssl.SSLContext


class StreamIdentity:
    """The identity of one transport; any thread may use it."""

    def __init__(self, watched: WatchedIdentity, listening: bool) -> None:
        self.watched = watched
        self._listening = listening
        self._authorities: WeakKeyDictionary[ssl.SSLContext, bytes] = WeakKeyDictionary()  # that a context trusts
        self._keys = self._read()

    def _read(self) -> _Keys:
        version, identity = self.watched.version, self.watched.identity
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._listening else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(identity.certificate_file, identity.private_key_file)
        for peer in (*identity.trusted, *(identity.revoked if self._listening else ())):
            context.load_verify_locations(cadata=peer.certificate_pem.decode())
        if identity.authority:
            context.load_verify_locations(cadata=identity.authority.decode())
        self._authorities[context] = identity.authority
        return _Keys(version, context)

    def _current(self) -> _Keys:
        self.watched.refresh()
        if self._keys.version != self.watched.version:
            try:
                self._keys = self._read()
            except OSError:  # the folder cannot be read, which `WatchedIdentity` has logged
                self._keys = _Keys(self.watched.version, self._keys.context)
        return self._keys

    @property
    def context(self) -> ssl.SSLContext:
        """For a new connection, with the keys of now."""
        return self._current().context

    def peer_of(self, connection: StreamConnection) -> AuthenticatedPeer | None:
        """The peer that a connection has proved to belong to; None: it is not trusted, or not any more."""
        self.watched.refresh()
        authority = self._authorities.get(connection.context, b"") if connection.context is not None else b""
        return self.watched.peer_of(connection.certificate, authority)

    # A listener

    def refuses(self, connection: StreamConnection) -> Refusal | None:
        """Why a connection that has completed TLS may not go on; None: it may."""
        peer = self.peer_of(connection)
        if peer is not None and _may_have(peer, connection.epoch):
            return None
        for revoked in self.watched.identity.revoked:
            if revoked.line.certificate == connection.certificate:
                return Refusal(revoked.name, connection.address, "revoked")
        if peer is not None:
            return Refusal(peer.name, connection.address, "unknown")
        issued = certificates.issued(connection.certificate)
        name = issued.name if issued is not None else ""
        return Refusal(name, connection.address, self.watched.why_not(name))

    def failure(self, connection: StreamConnection) -> Refusal | None:
        """Why TLS has ended a connection before it was open; None: for nothing that concerns keys."""
        error, address = connection.tls_error, connection.address
        if error is None or connection.is_open:
            return None
        reason = error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError):
            return Refusal("", address, "expired" if error.verify_code == EXPIRED else "unknown")
        if reason in FOREIGN_TLS or reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return Refusal("", address, "mechanism")
        return Refusal("", address, "key") if "ALERT" in reason else None

    # A connector

    def problem(self, where: str, error: Exception | None, errors: int) -> str | None:
        """Why this side and the listener refuse each other, and what repairs it, for a person.

        ``where`` is as `identity_advice` takes it, ``error`` what ended the last attempt, and ``errors`` how many in a
        row ended so.
        """
        if not self.watched.names:
            return identity_advice.none_trusted(self.watched.identity.folder)
        if isinstance(error, ssl.SSLCertVerificationError):
            return identity_advice.refused_here(where, self.watched)
        if isinstance(error, PermissionError) or (isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")):
            return identity_advice.refused_there(where, self.watched.identity)
        if isinstance(error, ssl.SSLError | ConnectionError) and errors >= SURE:
            return identity_advice.none_there(where)
        return None


def _may_have(peer: AuthenticatedPeer, epoch: int | None) -> bool:
    """Whether a node's epoch is its own: a connection with the epoch of another would end the other's."""
    return epoch is None or epoch.to_bytes(EPOCH_OCTETS)[: len(peer.prefix)] == peer.prefix
