"""MQTT between nodes with identities: TLS 1.3 with a certificate of each side, and topics below the sender's name.

A node publishes below its own name: ``<name>/traffic/<flow>``, ``<name>/ack/<flow>``.  The broker is the listener's,
and has its certificate.  It holds each client to the name in the certificate that the client proves; a connector takes
nothing but what is below the listener's name.
"""

import os
import ssl
from pathlib import Path

from ..errors import ConfigurationError
from ..identity.watched import WatchedIdentity
from ..protocol.authentication import AuthenticatedPeer

BROKER = """
cafile {directory}/trusted
certfile {certificate}
keyfile {key}
tls_version tlsv1.3
require_certificate true
use_identity_as_username true
allow_anonymous false
acl_file {directory}/access
user root
"""  # the last: started by root, mosquitto would become a user that cannot read the key
ACCESS = "pattern write %u/#\npattern read +/traffic/+\npattern read +/ack/+\n"


class MqttIdentity:
    """Of one transport.  Any thread may call it.

    Args:
        watched: the identity.
        listening: the side.
        private_broker: whether a listener starts a broker.

    Raises ConfigurationError: it would depend on a broker that nothing proves.
    """

    def __init__(self, watched: WatchedIdentity, listening: bool, private_broker: bool) -> None:
        if listening and not private_broker:
            raise ConfigurationError(
                "mqtt with an identity starts its own broker on the listening side: leave out private_broker=False, or "
                "sign the decisions alone (--sign of the exporter and the replay)"
            )
        self.watched = watched
        self._listening = listening
        self._client_version = self._broker_version = -1  # of the identity, as these use it
        self._listener: str | None = None  # the name of the listener to which a connector is connected

    @property
    def prefix(self) -> str:
        """Of every topic that this node publishes on."""
        return f"{self.watched.name}/"

    @property
    def is_stale(self) -> bool:
        """Whether keys have changed since the connection was made or the broker started."""
        stale_broker = self._listening and self._broker_version != self.watched.version
        return stale_broker or self._client_version != self.watched.version

    def context(self) -> ssl.SSLContext:
        """For a connection, with the keys as they are now.  Raises OSError."""
        self._client_version, own = self.watched.version, self.watched.identity
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate is pinned: its name and address do not count
        context.load_cert_chain(own.certificate_file, own.private_key_file)
        if roots := self._roots():
            context.load_verify_locations(cadata=roots.decode("ascii"))
        return context

    def connected(self, connection: object) -> bool:
        """A connection was made: whether the broker has one of the trusted certificates."""
        if not isinstance(connection, ssl.SSLSocket):
            return False
        if self._listening:
            return True  # to its own broker
        certificate = connection.getpeercert(binary_form=True)
        names = [peer.name for peer in self.watched.valid if peer.line.certificate == certificate]
        self._listener = names[0] if names else None
        return bool(names)

    def sender_and_topic(self, topic: str) -> tuple[AuthenticatedPeer | None, str]:
        """The peer that publishes below the name in a topic, if it is trusted now, and the link's topic."""
        name, _, rest = topic.partition("/")
        return self._sender(name), rest

    def _sender(self, name: str) -> AuthenticatedPeer | None:
        return self.watched.by_name.get(name) if self._listening or name == self._listener else None

    def broker_files(self, directory: Path) -> str:
        """Write the files of a private broker into its directory; returns lines of its configuration."""
        self._broker_version, own = self.watched.version, self.watched.identity
        _write(directory / "trusted", self._roots())
        _write(directory / "access", ACCESS.encode())
        return BROKER.format(directory=directory, certificate=own.certificate_file, key=own.private_key_file)

    def _roots(self) -> bytes:
        """Certificates that are trusted; a listener's own client connects to its broker, too."""
        own = self.watched.identity.certificate_file.read_bytes() if self._listening else b""
        return b"".join(peer.certificate_pem for peer in self.watched.valid) + own


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
