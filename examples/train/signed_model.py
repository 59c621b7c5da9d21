"""A model as a file: signed with the key of an identity, and read only if its signer is trusted (docs/security.md).

```
octets     field
0 to 7     magic     "TLMODEL1"
8 to 15    key       of the signer: the first 8 octets of SHA-256 of its public key
16 to 79   signature Ed25519 (RFC 8032) over CONTEXT, octets 0 to 15, and the body
80 to      body      `examples.train.model`
```

The signer is the identity itself, or a peer that it trusts with the role ``twin``, which is the role that may decide.
The size is bounded before the file is read, and the signature verified before anything of the body is looked at.
"""

from pathlib import Path
from typing import NamedTuple

import twinlink
from twinlink.identity import Identity, TrustedPeer
from twinlink.process import files
from twinlink.signed_payload import Refusal, key_id, trusted_peer

from . import model
from .features import NAMES

MAGIC = b"TLMODEL1"
CONTEXT = b"twinlink signed model 1\0"
UNSIGNED_OCTETS, HEAD_OCTETS = 16, 80
MAX_OCTETS = HEAD_OCTETS + model.MAX_OCTETS
ROLE = "twin"


class ModelRefused(twinlink.TwinlinkError):
    """A model does not count; ``rule`` is the rule of `read` that it breaks."""

    def __init__(self, path: Path, rule: str, text: str) -> None:
        super().__init__(f"{path} is refused ({rule}): {text}")
        self.rule = rule


class SignedModel(NamedTuple):
    """A model that counts: the name of its signer, and the body as it was signed."""

    signer: str
    body: bytes


def write(path: Path, body: bytes, identity: Identity) -> None:
    """Sign a body and write the file, whole or not at all.  Raises ConfigurationError without a key; OSError."""
    head = MAGIC + key_id(identity.line.verify_key)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(head + identity.signing_key.sign(CONTEXT + head + body) + body)
    part.replace(path)


def read(path: Path, identity: Identity) -> SignedModel:
    """Read a file.  Raises ModelRefused, and OSError where it cannot be read.

    | rule | refused |
    |---|---|
    | ``length`` | it has more than `MAX_OCTETS` |
    | ``unsigned`` | it does not begin as a signed model |
    | ``key``, ``revoked``, ``expired`` | the signer's key is not known to the identity, was revoked, or has expired |
    | ``role`` | the signer is trusted with another role than ``twin`` |
    | ``signature`` | head or body are not as they were signed |
    | ``format`` | what was signed is no model, or not of this program's features |
    """
    try:
        octets = files.read(path, MAX_OCTETS)
    except OSError as error:
        if "octets" not in (error.strerror or ""):
            raise
        raise ModelRefused(path, "length", f"{error.strerror}") from None
    if len(octets) < HEAD_OCTETS or not octets.startswith(MAGIC):
        raise ModelRefused(path, "unsigned", "it is no signed model: `python -m examples.train` writes one")
    head, signature, body = octets[:UNSIGNED_OCTETS], octets[UNSIGNED_OCTETS:HEAD_OCTETS], octets[HEAD_OCTETS:]
    signer = _signer(path, identity, head, signature, body)
    try:
        found = model.Model.decode(body)
    except twinlink.MalformedPayload as error:
        raise ModelRefused(path, "format", f"{signer} signed what is no model: {error}") from None
    if found.features != NAMES:
        text = f"{signer} signed a model for other features than those of this program: train it again"
        raise ModelRefused(path, "format", text)
    return SignedModel(signer, body)


def _signer(path: Path, identity: Identity, head: bytes, signature: bytes, body: bytes) -> str:
    """The name of the signer, whose signature is right.  Raises ModelRefused."""
    from cryptography.exceptions import InvalidSignature

    key = head[len(MAGIC) :]
    peer = trusted_peer(identity, key)
    if isinstance(peer, Refusal) and identity.role is not None and key_id(identity.line.verify_key) == key:
        peer = TrustedPeer(identity.line, identity.role)
    if isinstance(peer, Refusal):
        raise ModelRefused(path, peer.rule, f"{peer.text} ({identity.folder})")
    if peer.role != ROLE:
        raise ModelRefused(path, "role", f"{peer.name} has the role {peer.role}, and only a {ROLE} may decide")
    try:
        peer.verify_key.verify(signature, CONTEXT + head + body)
    except InvalidSignature:
        raise ModelRefused(path, "signature", f"it is not what {peer.name} signed: fetch it again") from None
    return peer.name
