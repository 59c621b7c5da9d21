"""Signed payloads of the decision path: a head of 115 octets in front of a payload of `twinlink.control`.

Ed25519 (RFC 8032) proves to the exporter which twin decided, and to the twin which exporter answered, also where a
broker or a router between them reads and alters every frame.  It needs no common clock, and no message beforehand:
both sides know each other's sessions from the link.

```
octets    field
0 to 1    magic     0x74 0x53 ("tS")
2         kind      1: a decision, on flow control; 2: a result, on flow control-result
3 to 10   key       of the signer: the first 8 octets of SHA-256 of its public key
11 to 26  audience  its receiver: the first 16 octets of SHA-256 of the node's name; zeros: every peer
27 to 34  audience session  epoch of the addressee's session, drawn anew when it restarts; zeros: every peer
35 to 42  session   epoch of the signer's session, as in the header of the frame
43 to 50  counter   of the signer in this session and kind; each payload has a greater one
51 to 114 signature over CONTEXT, the flow, a zero octet, octets 0 to 50, and the body
115 to    body      the payload
```

Integers are unsigned, in network byte order.  `Verifier.verify` has the rules in the order in which they are checked.
"""

import hashlib
import itertools
import struct
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from .control import MAX_OCTETS
from .errors import PayloadTooLarge

if TYPE_CHECKING:
    from .identity import Identity, TrustedPeer
    from .identity.watched import WatchedIdentity

MAGIC = b"tS"
CONTEXT = b"twinlink signed payload 1\0"
HEAD_OCTETS = 115
MAX_SIGNED_OCTETS = HEAD_OCTETS + MAX_OCTETS  # of head and body; what is longer is neither signed nor verified
UNSIGNED_HEAD = struct.Struct("!2sB8s16sQQQ")
# Sessions of trusted peers with counters that are kept.  Beyond it, the one that was quiet longest is forgotten: only a
# trusted peer can cause that.
MAX_SESSIONS = 4096

Rule = Literal[
    "length", "unsigned", "flow", "key", "revoked", "expired", "role", "signature",
    "audience", "restart", "session", "replay",
]  # fmt: skip
# Rules that only a payload can break of which the signature is right: a trusted peer has made it.
STALE_RULES: frozenset[Rule] = frozenset({"audience", "restart", "session", "replay"})


class _Kind(NamedTuple):
    """What is signed on a flow: its number, the role of its signer, and whether it has one addressee."""

    number: int
    role: str
    addressed: bool


KINDS = {"control": _Kind(1, "twin", True), "control-result": _Kind(2, "gnb", False)}


class Head(NamedTuple):
    """The head without its signature."""

    magic: bytes
    kind: int
    key: bytes
    audience: bytes
    audience_session: int
    session: int
    counter: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A payload that counts: the name of the trusted peer that signed it, and its body."""

    signer: str
    body: memoryview


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a payload does not count: the rule that it breaks, and a text for a person."""

    rule: Rule
    text: str


class Signer:
    """Signs the payloads of one session.  Any thread may call it, one at a time.

    Args:
        watched: has the key; `twinlink.Link.identity`.
        session: epoch of the link on which they are sent.
    """

    def __init__(self, watched: "WatchedIdentity", session: int) -> None:
        self._watched, self._session = watched, session
        self._counter = itertools.count(1)

    def sign(self, flow: str, body: bytes, node: str = "", node_session: int = 0) -> bytes:
        """A payload with its head.

        Args:
            flow: ``control`` or ``control-result``.
            body: what is signed.
            node: name of the peer that it is for; empty on ``control-result``, which is for every peer.
            node_session: epoch of that peer's session.

        Raises PayloadTooLarge for a body of more than `twinlink.control.MAX_OCTETS`.
        """
        if len(body) > MAX_OCTETS:
            raise PayloadTooLarge(f"a body of {len(body)} octets on flow {flow}: at most {MAX_OCTETS} are signed")
        identity = self._watched.identity
        head = UNSIGNED_HEAD.pack(
            MAGIC,
            KINDS[flow].number,
            key_id(identity.line.verify_key),
            _audience(node),
            node_session,
            self._session,
            next(self._counter),
        )
        return b"".join((head, identity.signing_key.sign(_signed(flow, head, body)), body))


class Verifier:
    """Checks the payloads that peers have signed.  Any thread may call it, one at a time.

    Args:
        watched: has the own name, and the keys that are trusted; `twinlink.Link.identity`.
        session: epoch of the own link.
    """

    def __init__(self, watched: "WatchedIdentity", session: int) -> None:
        self._watched, self._session = watched, session
        # By signer, kind and session: while keys rotate, a session goes on counting with the next.
        self._counters: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def verify(self, flow: str, payload: bytes | memoryview, node: str | None, session: int) -> Verified | Refusal:
        """The body, or the rule that the payload breaks.

        | rule | refused |
        |---|---|
        | ``length`` | it is longer than `MAX_SIGNED_OCTETS` |
        | ``unsigned`` | it has no signature |
        | ``flow`` | it was signed for another flow |
        | ``key``, ``revoked``, ``expired`` | its key is not known here, was revoked, or has expired |
        | ``role`` | the peer with this key may not send on this flow |
        | ``signature`` | head, body or flow are not as they were signed |
        | ``audience`` | it is for another node |
        | ``restart`` | it is for another session of this node, such as that before a restart |
        | ``session`` | it was signed by another node, or in another session, than the one that sent it |
        | ``replay`` | it is not newer than the last one that counted |

        Args:
            flow: on which it came.
            payload: head and body.
            node: name of the node that sent it; None if it has not said hello.
            session: epoch of that node's session.
        """
        self._watched.refresh()
        octets, kind = memoryview(payload), KINDS[flow]
        if len(octets) > MAX_SIGNED_OCTETS:
            return Refusal("length", f"it has {len(octets)} octets, and at most {MAX_SIGNED_OCTETS} are verified")
        if len(octets) < HEAD_OCTETS or octets[:2] != MAGIC:
            return Refusal("unsigned", "it has no signature: start its sender with an identity")
        head = Head(*UNSIGNED_HEAD.unpack_from(octets))
        if head.kind != kind.number:
            return Refusal("flow", f"it was signed for another flow than {flow}")
        peer = trusted_peer(self._watched.identity, head.key)
        if isinstance(peer, Refusal):
            return peer
        if peer.role != kind.role:
            return Refusal("role", f"{peer.name} has the role {peer.role}, and flow {flow} is for the role {kind.role}")
        if not _is_signed_by(peer, flow, octets):
            return Refusal("signature", f"it is not what {peer.name} signed")
        return self._stale(head, kind, peer.name, node, session) or Verified(peer.name, octets[HEAD_OCTETS:])

    def _stale(self, head: Head, kind: _Kind, signer: str, node: str | None, session: int) -> Refusal | None:
        """Why what was signed does not count here and now; if it does, its counter is kept."""
        audience, own_session = (self._watched.identity.name, self._session) if kind.addressed else ("", 0)
        if head.audience != _audience(audience):
            return Refusal("audience", f"{signer} signed it for another node than {audience or 'all'}")
        if head.audience_session != own_session:
            return Refusal("restart", f"{signer} signed it for another session of this node, such as before a restart")
        if (signer, head.session) != (node, session):
            return Refusal("session", f"{signer} signed it in another session than this one of {node or 'no node'}")
        counter = signer, head.kind, head.session
        if head.counter <= (last := self._counters.get(counter, 0)):
            return Refusal("replay", f"counter {head.counter} of {signer} is not above {last}, which has counted")
        self._counters[counter] = head.counter
        self._counters.move_to_end(counter)
        if len(self._counters) > MAX_SESSIONS:
            self._counters.popitem(last=False)
        return None


def body_of(payload: bytes | memoryview) -> bytes | memoryview:
    """The payload without its head, if it has one.  Nothing is verified."""
    octets = memoryview(payload)
    return octets[HEAD_OCTETS:] if len(octets) >= HEAD_OCTETS and octets[:2] == MAGIC else payload


def trusted_peer(identity: "Identity", key: bytes) -> "TrustedPeer | Refusal":
    """The trusted peer whose key has this `key_id`, as of now; or why it does not count."""
    for peer in identity.trusted:
        if key_id(peer.line.verify_key) == key:
            if peer.expiry > datetime.now(UTC):
                return peer
            return Refusal("expired", f"the key of {peer.name} expired on {peer.expiry:%Y-%m-%d}")
    for peer in identity.revoked:
        if key_id(peer.line.verify_key) == key:
            return Refusal("revoked", f"this key of {peer.name} was revoked")
    return Refusal("key", "its key is not known here: `twinlink key trust` makes a peer known")


def _is_signed_by(peer: "TrustedPeer", flow: str, octets: memoryview) -> bool:
    from cryptography.exceptions import InvalidSignature  # an identity brings it: this module can do without

    signature = bytes(octets[UNSIGNED_HEAD.size : HEAD_OCTETS])
    try:
        peer.verify_key.verify(signature, _signed(flow, octets[: UNSIGNED_HEAD.size], octets[HEAD_OCTETS:]))
    except InvalidSignature:
        return False
    return True


def _signed(flow: str, head: bytes | memoryview, body: bytes | memoryview) -> bytes:
    return b"".join((CONTEXT, flow.encode(), b"\0", head, body))


def key_id(verify_key: bytes) -> bytes:
    """The name of a key in a head."""
    return hashlib.sha256(verify_key).digest()[:8]


def _audience(node: str) -> bytes:
    return hashlib.sha256(node.encode()).digest()[:16] if node else bytes(16)
