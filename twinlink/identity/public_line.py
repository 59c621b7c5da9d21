"""The public line of an identity: every public key that its peers need, as one line of text.

``twinlink-public-1 NAME ROLE TEXT``.  TEXT is base64url (RFC 4648 section 5, without padding) of::

    32 octets   public key of CURVE (Curve25519, RFC 7748): ZeroMQ
    32 octets   public key of signatures (Ed25519, RFC 8032): decisions
    N octets    certificate (X.509, DER): transports over TLS
    8 octets    checksum: the beginning of SHA-256 over the three words, each with a space behind it, and all above

The first word is the type: a secret cannot be pasted where a public line belongs.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, get_args

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from zmq.utils import z85

from ..errors import ConfigurationError
from ..process.text import unmarked
from . import certificates

Role = Literal["gnb", "twin", "observer", "router", "broker"]
ROLES: tuple[Role, ...] = get_args(Role)
INTERMEDIARIES: tuple[Role, ...] = ("router", "broker")  # no peers: what peers send goes through them
TYPE = "twinlink-public-1"
KEY_OCTETS = 32
CHECKSUM_OCTETS = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # a chunk of a Zenoh key, a file, a common name


@dataclass(frozen=True)
class PublicLine:
    """The public parts of an identity.

    Attributes:
        name, role: as its owner has chosen them.
        curve_public: 40 characters of Z85 (ZeroMQ RFC 32).
        verify_key: 32 octets, raw.
        certificate: DER.
    """

    name: str
    role: Role
    curve_public: bytes
    verify_key: bytes
    certificate: bytes

    @classmethod
    def parse(cls, text: str) -> "PublicLine":
        """Read a line.  Raises ConfigurationError that says what is wrong with it."""
        words = unmarked(text).split()
        if "twinlink-secret" in text:
            raise ConfigurationError(
                "this is a secret, not a public line, and must not leave its host. `twinlink key show` prints the "
                "public line; if the secret was shown to others, replace it with `twinlink key rotate`"
            )
        if len(words) != 4 or words[0] != TYPE:
            raise ConfigurationError(  # without its text, which may be that of a secret
                f"a public line reads `{TYPE} NAME ROLE TEXT`, as `twinlink key show` prints it; this one has "
                f"{len(words)} words"
            )
        name, role = check_name(words[1]), check_role(words[2])
        octets = from_text(words[3], f"{TYPE} {name} {role} ", "public line")
        if len(octets) <= 2 * KEY_OCTETS:
            raise ConfigurationError(f"the public line of {name} is too short: copy it again, whole")
        line = cls(
            name,
            role,
            z85.encode(octets[:KEY_OCTETS]),
            octets[KEY_OCTETS : 2 * KEY_OCTETS],
            octets[2 * KEY_OCTETS :],
        )
        certificates.check(line.certificate, name)
        _check_curve(line)
        return line

    def __str__(self) -> str:
        octets = z85.decode(self.curve_public) + self.verify_key + self.certificate
        head = f"{TYPE} {self.name} {self.role} "
        return head + to_text(octets, head)

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of all keys, in the form that SSH has: for people to compare."""
        return certificates.fingerprint(str(self).encode())

    @cached_property
    def curve_fingerprint(self) -> str:
        """The fingerprint of the CURVE key alone: a ZeroMQ listener sees no more of a peer that it does not know."""
        return certificates.fingerprint(z85.decode(self.curve_public))

    @cached_property
    def expiry(self) -> datetime:
        """When the certificate expires, and with it the other keys; UTC."""
        return certificates.expiry(self.certificate)


def _check_curve(line: PublicLine) -> None:
    """Raises ConfigurationError for a point of low order (RFC 7748 section 6.1): all could compute its secrets."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(z85.decode(line.curve_public)))
    except ValueError:
        raise ConfigurationError(f"the CURVE key of {line.name} is none that `twinlink key new` makes") from None


def check_name(name: str) -> str:
    """Raises ConfigurationError if no identity can have this name."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of an identity: take 1 to 63 letters, digits, dots, dashes or underscores, "
            "the first a letter or digit"
        )
    return name


def check_role(role: str) -> Role:
    """Raises ConfigurationError if there is no such role."""
    for known in ROLES:
        if role == known:
            return known
    raise ConfigurationError(f"role {role!r} is none of {', '.join(ROLES)}")


def to_text(octets: bytes, head: str) -> str:
    """The octets and their checksum as base64url."""
    checked = octets + hashlib.sha256(head.encode() + octets).digest()[:CHECKSUM_OCTETS]
    return base64.urlsafe_b64encode(checked).decode().rstrip("=")


def from_text(text: str, head: str, what: str) -> bytes:
    """Reads what `to_text` wrote.  Raises ConfigurationError; the message does not contain the text."""
    try:
        checked = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        checked = b""
    octets, checksum = checked[:-CHECKSUM_OCTETS], checked[-CHECKSUM_OCTETS:]
    if not octets or hashlib.sha256(head.encode() + octets).digest()[:CHECKSUM_OCTETS] != checksum:
        raise ConfigurationError(f"the checksum of the {what} is wrong: copy it again, whole and unchanged")
    return octets
