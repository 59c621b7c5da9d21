"""Makes docs/signed-vectors: signed payloads as binary files, each beside a JSON twin with its fields.

``python -m tests.wire.make_signed_vectors``, from the checkout's root; the outcome is committed and always the same.
"""

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from zmq.utils import z85

from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.identity import Identity, Role
from twinlink.identity.secret_line import SecretLine
from twinlink.identity.watched import WatchedIdentity
from twinlink.signed_payload import Signer

VECTORS = Path(__file__).parents[2] / "docs" / "signed-vectors"
TWIN_SESSION, GNB_SESSION = 0x0123456789ABCDEF, 0xFEDCBA9876543210
NOW_NS = 1_790_000_000_123_456_789


def identity(name: str, role: Role, secret: bytes) -> WatchedIdentity:
    """With as much as a signature needs."""
    keys = SecretLine(name, role, z85.encode(secret), Ed25519PrivateKey.from_private_bytes(secret))
    return WatchedIdentity(Identity(Path(), name, role, b"", keys))


def files() -> dict[str, bytes]:
    """Every file, by name."""
    made: dict[str, bytes] = {}
    twin, gnb = bytes(range(32)), bytes(range(32, 64))
    decision = PrbBlock("prb-block-01234567-1", (40, 41), NOW_NS, 2000, "interference").encode()
    signed = Signer(identity("twin-1", "twin", twin), TWIN_SESSION).sign("control", decision, "gnb-1", GNB_SESSION)
    _add(made, "decision", signed, flow="control", secret=twin, node="gnb-1", node_session=GNB_SESSION,
         session=TWIN_SESSION)  # fmt: skip
    result = PrbBlockResult("prb-block-01234567-1", "installed", (40, 41), NOW_NS, "acknowledged by the RAN").encode()
    signed = Signer(identity("gnb-1", "gnb", gnb), GNB_SESSION).sign("control-result", result)
    _add(made, "result", signed, flow="control-result", secret=gnb, node="", node_session=0, session=GNB_SESSION)
    return made


def _add(made: dict[str, bytes], name: str, signed: bytes, **fields: Any) -> None:
    key = Ed25519PrivateKey.from_private_bytes(fields.pop("secret"))
    description = {
        "flow": fields["flow"],
        "signer_secret_key_hex": key.private_bytes_raw().hex(),
        "signer_public_key_hex": key.public_key().public_bytes_raw().hex(),
        "audience": fields["node"],
        "audience_session": f"{fields['node_session']:016x}",
        "session": f"{fields['session']:016x}",
        "counter": "1",
        "body": signed[115:].decode(),
    }
    made[f"{name}.bin"] = signed
    made[f"{name}.json"] = json.dumps(description, indent=2).encode() + b"\n"


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    for name, octets in files().items():
        (VECTORS / name).write_bytes(octets)
