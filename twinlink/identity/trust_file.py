"""The files ``trusted`` and ``revoked`` of an identity: a public line for each key, behind the role that it has here.

``ROLE PUBLIC-LINE``, one a line; empty lines and those that begin with ``#`` are passed over.  ``ROLE NAME`` is a peer
with a certificate of the authority in ``ca.crt``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ..errors import ConfigurationError
from . import certificates, private_files
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
        """Of the peer."""
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
        """Of all its keys."""
        return self.line.fingerprint


def read(path: Path) -> tuple[TrustedPeer, ...]:
    """The keys of a file, in its order; none if there is no file.

    Raises ConfigurationError that names the line which cannot be read.
    """
    return tuple(entry for entry in _entries(path) if isinstance(entry, TrustedPeer))


def read_names(path: Path) -> dict[str, Role]:
    """The peers that a file has by their names alone, with their roles.  Raises ConfigurationError as `read` does."""
    return {entry[0]: entry[1] for entry in _entries(path) if not isinstance(entry, TrustedPeer)}


def _entries(path: Path) -> Iterator[TrustedPeer | tuple[str, Role]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        role, _, rest = line.strip().partition(" ")
        try:
            if len(rest.split()) == 1:
                yield check_name(rest.strip()), check_role(role)
            else:
                yield TrustedPeer(PublicLine.parse(rest), check_role(role))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None


def write(path: Path, peers: Iterable[TrustedPeer], names: Mapping[str, Role] | None = None) -> None:
    """Write a file with these keys, and with the peers in ``names`` by their names alone.  Raises OSError."""
    lines = [f"{peer.role} {peer.line}" for peer in peers]
    lines += [f"{role} {name}" for name, role in (names or {}).items()]
    private_files.write(path, "".join(f"{line}\n" for line in lines).encode())
