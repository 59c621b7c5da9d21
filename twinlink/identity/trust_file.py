"""The files ``trusted`` and ``revoked`` of an identity: a public line for each key, behind the role that it has here.

``ROLE PUBLIC-LINE``, one a line; empty lines and those that begin with ``#`` are passed over.  ``ROLE NAME`` is a peer
with a certificate of the authority in ``ca.crt``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ..errors import ConfigurationError
from ..process import text
from . import certificates
from .folder import Folder
from .public_line import PublicLine, Role, check_name, check_role


@dataclass(frozen=True)
class TrustedPeer:
    """One key of a peer.

    Attributes:
        line: its public line.
        role: what it may do here, which this side decides.
    """

    line: PublicLine
    role: Role

    @property
    def name(self) -> str:
        """The name of the peer."""
        return self.line.name

    @property
    def curve_public(self) -> bytes:
        """40 characters of Z85."""
        return self.line.curve_public

    @cached_property
    def verify_key(self) -> Ed25519PublicKey:
        """For its signatures."""
        return Ed25519PublicKey.from_public_bytes(self.line.verify_key)

    @cached_property
    def certificate_pem(self) -> bytes:
        """Its self-signed certificate."""
        return certificates.to_pem(self.line.certificate)

    @property
    def expiry(self) -> datetime:
        """From when on it is not trusted any more, UTC."""
        return self.line.expiry

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all its keys."""
        return self.line.fingerprint


class Entries(NamedTuple):
    """What a file has.

    Attributes:
        keys: in the file's order.
        names: the peers that it has by their names alone, with their roles.
    """

    keys: tuple[TrustedPeer, ...]
    names: dict[str, Role]


def read(folder: Folder, name: str) -> Entries:
    """The entries of a file of an identity; none if there is no file.

    Raises ConfigurationError that names the line which cannot be read.
    """
    path = folder.path / name
    if not folder.has(name):
        return Entries((), {})
    try:
        octets = folder.read(name)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    try:
        lines = text.decode(octets).splitlines()
    except ValueError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    keys: list[TrustedPeer] = []
    names: dict[str, Role] = {}
    for number, line in enumerate(map(text.unmarked, lines), 1):
        if not line.strip() or line.startswith("#"):
            continue
        role, _, rest = line.strip().partition(" ")
        try:
            if len(rest.split()) == 1:
                names[check_name(rest.strip())] = check_role(role)
            else:
                keys.append(TrustedPeer(PublicLine.parse(rest), check_role(role)))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None
    return Entries(tuple(keys), names)


def write(folder: Folder, name: str, peers: Iterable[TrustedPeer], names: Mapping[str, Role] | None = None) -> None:
    """Write a file with these keys, and with the peers in ``names`` by their names alone.  Raises OSError."""
    lines = [f"{peer.role} {peer.line}" for peer in peers]
    lines += [f"{role} {name}" for name, role in (names or {}).items()]
    folder.write(name, "".join(f"{line}\n" for line in lines).encode())
