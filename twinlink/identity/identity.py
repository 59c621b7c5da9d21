"""An identity: the secrets of a node and the keys that it trusts, in a folder.

::

    secret          text, typed and checksummed: name, role, secret keys of CURVE and of signatures
    tls.crt         certificate (X.509, PEM), self-signed
    tls.key         its private key (PEM)
    trusted         keys of peers (`trust_file`)
    revoked         keys that were trusted, and are refused now
    next/           after `key rotate`: the next secret, tls.crt and tls.key

The folder has mode 0700 and its files 0600.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ConfigurationError
from . import certificates, private_files, trust_file
from .public_line import PublicLine, Role, check_name, check_role
from .secret_line import SecretLine
from .trust_file import TrustedPeer

VALID = timedelta(days=365)  # of the keys, unless given otherwise
SECRET, CERTIFICATE, PRIVATE_KEY = "secret", "tls.crt", "tls.key"
TRUSTED, REVOKED, NEXT = "trusted", "revoked", "next"


@dataclass(frozen=True)
class Identity:
    """What `load` read; it does not change when the folder does.

    Attributes:
        folder: where it was read.
        name: of the node.
        role: what its owner says it is; peers give it the role that they decide.
        curve_public, curve_secret: 40 characters of Z85 each.
        signing_key: for signatures.
        line: its public line.
        trusted: keys of peers that have not been revoked, also those that have expired; the newest of a peer is last.
        revoked: keys that are refused.
    """

    folder: Path
    name: str
    role: Role
    curve_public: bytes
    curve_secret: bytes = field(repr=False)
    signing_key: Ed25519PrivateKey = field(repr=False)
    line: PublicLine = field(repr=False)
    trusted: tuple[TrustedPeer, ...] = field(repr=False)
    revoked: tuple[TrustedPeer, ...] = field(repr=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Identity":
        """Read an identity.

        Raises:
            ConfigurationError: there is none, it cannot be read, or others than its owner can read the secrets.
            TransportMissing: the package ``cryptography`` is not installed.
        """
        path = Path(folder)
        try:
            with private_files.locked(path, exclusive=False):
                return cls._read(path)
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or path} cannot be read: {error.strerror}; an identity is made with "
                f"`twinlink key new NAME --role ROLE --identity {path}`"
            ) from error

    @classmethod
    def _read(cls, path: Path) -> "Identity":
        _check_unchangeable(path)
        secret = SecretLine.parse(_private(path / SECRET).decode("ascii", "replace"), str(path / SECRET))
        pem = (path / CERTIFICATE).read_bytes()
        if not certificates.is_pair(pem, _private(path / PRIVATE_KEY)):
            repair = "run `twinlink key rotate --use` again" if (path / NEXT).exists() else "make a new identity"
            raise ConfigurationError(f"{path}: {CERTIFICATE} and {PRIVATE_KEY} are no pair: {repair}")
        der = certificates.leaf(pem, str(path / CERTIFICATE))
        certificates.check(der, secret.name)
        line = PublicLine(secret.name, secret.role, secret.curve_public, secret.verify_key, der)
        revoked = trust_file.read(path / REVOKED)
        refused = {peer.fingerprint for peer in revoked}
        trusted = tuple(peer for peer in trust_file.read(path / TRUSTED) if peer.fingerprint not in refused)
        return cls(
            path,
            secret.name,
            secret.role,
            secret.curve_public,
            secret.curve_secret,
            secret.signing_key,
            line,
            trusted,
            revoked,
        )

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        name: str,
        role: str,
        *,
        hosts: Sequence[str] = (),
        expiry: datetime | None = None,
    ) -> "Identity":
        """Make an identity with new keys in a folder that is not there yet, or empty.

        Args:
            folder: appears whole or not at all.
            name: of the node.
            role: ``gnb``, ``twin`` or ``observer``.
            hosts: names and addresses under which peers connect to this node, for its certificate.
            expiry: UTC; by default a year from now.

        Raises ConfigurationError, TransportMissing.
        """
        path = Path(folder).absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be made: {error.strerror}") from error
        try:
            write_keys(made, check_name(name), check_role(role), hosts, expiry)
            made.rename(path)
        except OSError as error:
            reason = "the folder is not empty" if path.exists() else str(error.strerror)
            raise ConfigurationError(
                f"{path}: {reason}; nothing was changed. Name another folder, or replace the keys of an identity with "
                "`twinlink key rotate`"
            ) from error
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return cls.load(path)

    @property
    def certificate_file(self) -> Path:
        """PEM."""
        return self.folder / CERTIFICATE

    @property
    def private_key_file(self) -> Path:
        """PEM."""
        return self.folder / PRIVATE_KEY

    @property
    def peers(self) -> dict[str, TrustedPeer]:
        """The newest key of each peer, by its name."""
        return {peer.name: peer for peer in self.trusted}

    @property
    def expiry(self) -> datetime:
        """From when on peers do not trust its keys, UTC."""
        return self.line.expiry

    @property
    def fingerprint(self) -> str:
        """Of all its keys."""
        return self.line.fingerprint

    def valid(self, now: datetime | None = None) -> tuple[TrustedPeer, ...]:
        """The keys that are trusted at this time: neither revoked nor expired."""
        at = now or datetime.now(UTC)
        return tuple(peer for peer in self.trusted if peer.expiry > at)


def write_keys(folder: Path, name: str, role: Role, hosts: Sequence[str], expiry: datetime | None) -> None:
    """Write new secrets into a folder.  Raises OSError."""
    private, certificate = certificates.self_signed(name, hosts, expiry or datetime.now(UTC) + VALID)
    private_files.write(folder / PRIVATE_KEY, private)
    private_files.write(folder / CERTIFICATE, certificate)
    private_files.write(folder / SECRET, SecretLine.generate(name, role).encode() + b"\n")


def _check_unchangeable(folder: Path) -> None:
    """Raises ConfigurationError if other users could have it trust what they like."""
    for path in (folder, folder / TRUSTED, folder / REVOKED):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        if mode & 0o022 and not mode & stat.S_ISVTX:  # the volume of a Secret is sticky, and read-only
            raise ConfigurationError(
                f"{path} has mode {mode & 0o7777:04o}, so that other users can change which keys are trusted: "
                f"chmod go-w {path}"
            )


def _private(path: Path) -> bytes:
    """The content of a file that only its owner, and the group to which a container's volume belongs, may read."""
    content = path.read_bytes()
    mode = path.stat().st_mode
    if mode & 0o027:
        raise ConfigurationError(
            f"{path} has mode {mode & 0o777:04o}, so that other users can read or change the secret: chmod 600 {path}"
        )
    return content
