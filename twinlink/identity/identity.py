"""An identity: the secrets of a node and the keys that it trusts, in a folder.

::

    secret          text, typed and checksummed: name, role, secret keys of CURVE and of signatures
    tls.crt         certificate (X.509, PEM), self-signed unless an authority has issued it
    tls.key         its private key (PEM)
    trusted         keys of peers (`trust_file`)
    revoked         keys that were trusted, and are refused now
    ca.crt          certificates of an authority (PEM), if one issues certificates
    next/           after `key rotate`: the next secret, tls.crt and tls.key

The folder has mode 0700 and its files 0600 (`folder`).

Where an authority issues the certificates, as cert-manager does, ``tls.crt`` may have a chain behind the node's
certificate.  A peer then proves its name with any certificate that the authority has issued in a trusted name.
``secret`` may be missing; such a node has no keys of CURVE and of signatures.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ConfigurationError
from ..process.text import printable, unmarked
from . import certificates, trust_file
from .folder import Folder
from .public_line import PublicLine, Role, check_name, check_role
from .secret_line import SecretLine
from .trust_file import TrustedPeer

VALID = timedelta(days=365)  # of the keys, unless given otherwise
SECRET, CERTIFICATE, PRIVATE_KEY, AUTHORITY = "secret", "tls.crt", "tls.key", "ca.crt"
TRUSTED, REVOKED, NEXT = "trusted", "revoked", "next"


@dataclass(frozen=True)
class Identity:
    """What `load` read; it does not change when the folder does.

    Attributes:
        folder: where it was read.
        name: of the node.
        role: what its owner says it is; peers give it the role that they decide.  None without ``secret``.
        certificate: DER.
        secret: keys of CURVE and of signatures, if it has any.
        trusted: keys of peers that have not been revoked, also those that have expired; the newest of a peer is last.
        revoked: keys that are refused.
        authority: certificates of the authority, PEM; empty without one.
        named: peers that are trusted by their names alone, with their roles here; only with an authority.
        revoked_names: peers for which no certificate of the authority counts.
    """

    folder: Path
    name: str
    role: Role | None
    certificate: bytes = field(repr=False)
    secret: SecretLine | None = field(repr=False)
    trusted: tuple[TrustedPeer, ...] = field(default=(), repr=False)
    revoked: tuple[TrustedPeer, ...] = field(default=(), repr=False)
    authority: bytes = field(default=b"", repr=False)
    named: Mapping[str, Role] = field(default_factory=dict, repr=False)
    revoked_names: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Identity":
        """Read an identity.

        Raises:
            ConfigurationError: there is none, it cannot be read, another user can read the secrets, or something there
                is of a user who is neither root nor the one that runs this program, or can be changed by others.
            TransportMissing: the package ``cryptography`` is not installed.
        """
        path = Path(folder)
        try:
            with Folder.opened(path) as opened:
                return cls.read(opened)
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or path} cannot be read: {error.strerror}; an identity is made with "
                f"`twinlink key new NAME --role ROLE --identity {path}`"
            ) from error

    @classmethod
    def read(cls, folder: Folder) -> "Identity":
        """Read an identity from its folder, which is open.  Raises OSError, ConfigurationError."""
        path = folder.path
        pem = folder.read(AUTHORITY) if folder.has(AUTHORITY) else b""
        authority = certificates.authorities(pem, str(path / AUTHORITY)) if pem else b""
        secret = None
        if not authority or folder.has(SECRET):
            line = unmarked(folder.read(SECRET, private=True).decode("utf-8", "replace"))
            secret = SecretLine.parse(line, str(path / SECRET))
        der = _certificate(folder)
        if secret is None or (authority and certificates.issued(der)):
            name = check_name(certificates.check_issued(der, str(path / CERTIFICATE)))
            if secret is not None and secret.name != name:
                raise ConfigurationError(f"{path}: {SECRET} is of {secret.name}, and {CERTIFICATE} of {name}")
        else:
            name = secret.name
            certificates.check(der, name)
        revoked, trusted = trust_file.read(folder, REVOKED), trust_file.read(folder, TRUSTED)
        refused = {peer.fingerprint for peer in revoked.keys}
        return cls(
            path,
            name,
            secret.role if secret is not None else None,
            der,
            secret,
            tuple(peer for peer in trusted.keys if peer.fingerprint not in refused),
            revoked.keys,
            authority,
            trusted.names,
            frozenset(revoked.names),
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
            role: ``gnb``, ``twin``, ``observer``, ``router`` or ``broker``.
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
            with Folder.opened(made) as opened:
                write_keys(opened, check_name(name), check_role(role), hosts, expiry)
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
    def _secret(self) -> SecretLine:
        if self.secret is None:
            raise ConfigurationError(
                f"{self.folder} has no file {SECRET}, which holds the keys of CURVE, for transport zeromq, and of "
                "signatures, for decisions: take it from an identity that `twinlink key new "
                f"{self.name} --role ROLE` makes, and trust its public line on the peers"
            )
        return self.secret

    @property
    def curve_public(self) -> bytes:
        """40 characters of Z85.  Raises ConfigurationError without ``secret``, as do the others of its keys."""
        return self._secret.curve_public

    @property
    def curve_secret(self) -> bytes:
        """40 characters of Z85."""
        return self._secret.curve_secret

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """For signatures."""
        return self._secret.signing_key

    @cached_property
    def line(self) -> PublicLine:
        """Its public line."""
        secret = self._secret
        return PublicLine(secret.name, secret.role, secret.curve_public, secret.verify_key, self.certificate)

    @cached_property
    def certificate_pem(self) -> bytes:
        """The certificate as it was read, which the files may not be any more."""
        return certificates.to_pem(self.certificate)

    @property
    def certificate_file(self) -> Path:
        """PEM."""
        return self.folder / CERTIFICATE

    @property
    def private_key_file(self) -> Path:
        """PEM."""
        return self.folder / PRIVATE_KEY

    def file_names(self, program: str) -> tuple[str, str]:
        """Absolute names of the two files, for a program that takes UTF-8 only.  Raises ConfigurationError."""
        names = str(self.certificate_file.absolute()), str(self.private_key_file.absolute())
        for name in names:
            if printable(name) != name:
                raise ConfigurationError(f"{program} takes only files whose name is UTF-8: rename {printable(name)}")
        return names

    @property
    def peers(self) -> dict[str, TrustedPeer]:
        """The newest key of each peer, by its name."""
        return {peer.name: peer for peer in self.trusted}

    @property
    def expiry(self) -> datetime:
        """From when on peers do not trust its keys, UTC."""
        return certificates.expiry(self.certificate)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all its keys; without ``secret``, of its certificate."""
        return self.line.fingerprint if self.secret is not None else certificates.fingerprint(self.certificate)

    def valid(self, now: datetime | None = None) -> tuple[TrustedPeer, ...]:
        """The keys that are trusted at this time: neither revoked nor expired."""
        at = now or datetime.now(UTC)
        return tuple(peer for peer in self.trusted if peer.expiry > at)

    def issued(self, now: datetime | None = None) -> dict[str, Role]:
        """The peers for which a certificate of the authority counts, by name, each with its role here."""
        if not self.authority:
            return {}
        roles = {peer.name: peer.role for peer in self.valid(now)} | dict(self.named)
        return {name: role for name, role in roles.items() if name not in self.revoked_names}


def write_keys(folder: Folder, name: str, role: Role, hosts: Sequence[str], expiry: datetime | None) -> None:
    """Write new secrets into a folder.  Raises OSError."""
    private, certificate = certificates.self_signed(name, hosts, expiry or datetime.now(UTC) + VALID)
    folder.write(PRIVATE_KEY, private)
    folder.write(CERTIFICATE, certificate)
    folder.write(SECRET, SecretLine.generate(name, role).encode() + b"\n")


def _certificate(folder: Folder) -> bytes:
    """The node's certificate, DER.  Raises ConfigurationError if the private key is that of another."""
    pem = folder.read(CERTIFICATE)
    if not certificates.is_pair(pem, folder.read(PRIVATE_KEY, private=True)):
        repair = "run `twinlink key rotate --use` again" if folder.has(NEXT) else "make a new identity"
        raise ConfigurationError(f"{folder.path}: {CERTIFICATE} and {PRIVATE_KEY} are no pair: {repair}")
    return certificates.leaf(pem, str(folder.path / CERTIFICATE))
