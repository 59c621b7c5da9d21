"""The secret keys of an identity as one line of text, of another type than its public line.

``twinlink-secret-1 NAME ROLE TEXT``.  TEXT is base64url of the secret keys of CURVE and Ed25519, 32 octets each, and of
the checksum that a public line has.
"""

from dataclasses import dataclass, field

import zmq
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from zmq.utils import z85

from ..errors import ConfigurationError
from .public_line import KEY_OCTETS, Role, check_name, check_role, from_text, to_text

TYPE = "twinlink-secret-1"
# In base64url.  The TEXT of a public line begins with the key of CURVE: in a command without quotes, it must not be
# taken for an option.
DASH = 62


@dataclass(frozen=True)
class SecretLine:
    """The secret keys of a node."""

    name: str
    role: Role
    curve_secret: bytes = field(repr=False)  # Z85
    signing_key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, name: str, role: Role) -> "SecretLine":
        """New keys."""
        while True:
            public, secret = zmq.curve_keypair()
            if z85.decode(public)[0] >> 2 != DASH:
                return cls(name, role, secret, Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str, where: str) -> "SecretLine":
        """Read a line.  Raises ConfigurationError, without the secret in it."""
        words = text.split()
        if len(words) != 4 or words[0] != TYPE:
            raise ConfigurationError(f"{where} does not hold a secret of an identity")
        name, role = check_name(words[1]), check_role(words[2])
        octets = from_text(words[3], f"{TYPE} {name} {role} ", f"secret in {where}")
        if len(octets) != 2 * KEY_OCTETS:
            raise ConfigurationError(f"{where} does not hold two secret keys")
        curve, signing = octets[:KEY_OCTETS], octets[KEY_OCTETS:]
        return cls(name, role, z85.encode(curve), Ed25519PrivateKey.from_private_bytes(signing))

    def encode(self) -> bytes:
        """The line."""
        raw = serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        octets = z85.decode(self.curve_secret) + self.signing_key.private_bytes(*raw)
        head = f"{TYPE} {self.name} {self.role} "
        return (head + to_text(octets, head)).encode()

    @property
    def curve_public(self) -> bytes:
        """Z85."""
        return bytes(zmq.curve_public(self.curve_secret))

    @property
    def verify_key(self) -> bytes:
        """Raw."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return self.signing_key.public_key().public_bytes(*raw)
