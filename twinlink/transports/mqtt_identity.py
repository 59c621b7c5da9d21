"""MQTT between nodes with identities: TLS 1.3 with a certificate of each side, and topics below the sender's name.

A node publishes below its own name: ``<name>/traffic/<flow>``, ``<name>/ack/<flow>``.  The broker holds each client to
the name in the certificate that the client proves.  There are two kinds of brokers:

- the private broker of the listener, which has its certificate.  A connector takes nothing but what is below the
  listener's name;
- an external broker (``twinlink key broker``), which has an identity of its own, with the role ``broker``.  Both sides
  depend on it for the names of peers; it could read and alter everything but what is signed.
"""

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

from ..errors import ConfigurationError
from ..identity import certificates
from ..identity.watched import WatchedIdentity
from ..protocol.authentication import AuthenticatedPeer
from .mqtt_access import ACCESS, SETTINGS, TRUSTED, access_list


class MqttIdentity:
    """The identity of one transport.  Any thread may call it.

    Args:
        watched: the identity.
        listening: the side.
        private_broker: whether a listener starts a broker.

    Attributes:
        through_broker: whether the connection is to an external broker.

    Raises ConfigurationError: it would depend on a broker without a trusted identity.
    """

    def __init__(self, watched: WatchedIdentity, listening: bool, private_broker: bool) -> None:
        self._has_broker = listening and private_broker
        if listening and not private_broker and not (watched.brokers or "broker" in watched.issued.values()):
            raise ConfigurationError(
                "mqtt with an identity starts its own broker on the listening side: leave out private_broker=False, or "
                "trust the broker: its operator makes it an identity with `twinlink key new NAME --role broker`, and "
                f"`twinlink key trust LINE --as NAME --identity {watched.identity.folder}` trusts it"
            )
        self.watched = watched
        self.through_broker = False
        self._listening = listening
        self._client_version = self._broker_version = -1  # of the identity, as these use it
        self._authority = b""  # by which the connection is verified
        self._expiry: datetime | None = None  # of the broker's certificate, if an authority has issued it
        self._listener: str | None = None  # a connector's listener, by the certificate of the broker

    @property
    def prefix(self) -> str:
        """The prefix of every topic that this node publishes on."""
        return f"{self.watched.name}/"

    @property
    def is_stale(self) -> bool:
        """Whether keys have changed, or the broker's certificate has expired, since the connection was made."""
        if self._has_broker and self._broker_version != self.watched.version:
            return True
        is_expired = self._expiry is not None and self._expiry <= datetime.now(UTC)
        return is_expired or self._client_version != self.watched.version

    def context(self) -> ssl.SSLContext:
        """For a connection, with the keys as they are now.  Raises OSError."""
        self._client_version, own = self.watched.version, self.watched.identity
        self._authority, self._expiry = own.authority, None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the broker is known by its certificate, or its name in one of the authority
        context.load_cert_chain(own.certificate_file, own.private_key_file)
        if roots := self._roots():
            context.load_verify_locations(cadata=roots.decode("ascii"))
        return context

    def connected(self, connection: object) -> bool:
        """Whether a new connection is to this side's own broker, a trusted peer's, or a trusted external one."""
        certificate = connection.getpeercert(binary_form=True) if isinstance(connection, ssl.SSLSocket) else None
        if certificate is None:
            return False
        if self._has_broker:
            return certificate == self.watched.identity.certificate
        found = certificates.issued(certificate)
        self._expiry = found.expiry if found is not None else None
        self.through_broker = self.watched.is_broker(certificate, self._authority)
        peer = None if self._listening else self.watched.peer_of(certificate, self._authority)
        self._listener = peer.name if peer is not None else None
        return self.through_broker or peer is not None

    @property
    def may_be_denied(self) -> bool:
        """Whether the broker may accept the certificate of this side, but no messages below its name."""
        return self.through_broker or (bool(self._authority) and not self._has_broker)

    def sender_and_topic(self, topic: str) -> tuple[str, AuthenticatedPeer | None, str]:
        """The name in a topic, the peer that publishes below it, if it is trusted now, and the link's topic."""
        name, _, rest = topic.partition("/")
        counts = self._listening or self.through_broker or name == self._listener
        return name, self.watched.by_name.get(name) if counts else None, rest

    def denies(self, name: str) -> str | None:
        """Why a node that the broker has accepted may not publish, as a reason of `Refusal`; None: it may."""
        return None if name == self.watched.name or name in self._admitted else self.watched.why_not(name)

    @property
    def _admitted(self) -> list[str]:
        """The peers that a private broker takes.

        mosquitto checks only the name in a certificate.  Where it accepts those of an authority, one of them could name
        a peer that is trusted by its line alone.
        """
        issued = self.watched.issued
        return [name for name in self.watched.by_name if name in issued or not self.watched.identity.authority]

    def broker_files(self, directory: Path) -> str:
        """Write the files of a private broker into its directory; returns the lines for each of its listeners."""
        self._broker_version, own = self.watched.version, self.watched.identity
        names = self._admitted
        # Every peer may publish on every flow here.  The listener itself drops, counts and reports what a role does not
        # allow; mosquitto 2.0 would end the connection, as its queues have no limit.
        access = access_list({own.name: names}, dict.fromkeys([*names, own.name], "twin"))
        _write(directory / TRUSTED, self._roots())
        _write(directory / ACCESS, access.encode())
        certificate, private_key = own.file_names("mosquitto")
        return SETTINGS.format(
            trusted=directory / TRUSTED,
            certificate=certificate,
            key=private_key,
            access=directory / ACCESS,
        )

    def _roots(self) -> bytes:
        """The trust anchors, PEM; with this side's own certificate where its client connects to its own broker."""
        own = self.watched.identity
        keys = (*self.watched.valid, *(() if self._has_broker else self.watched.brokers))
        pinned = b"".join(key.certificate_pem for key in keys)
        return pinned + own.authority + (own.certificate_pem if self._has_broker else b"")


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
