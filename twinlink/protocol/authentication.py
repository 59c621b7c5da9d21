"""Frames of authenticated peers: a frame counts only if it may be from the peer of the connection that it came over.

With an identity, the first half of an epoch is made of the node's name (docs/protocol.md).  So it needs no memory to
tell to which peer's session a frame belongs, and no peer can lay claim to another's session, old or new.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from .frames import HEADER_OCTETS, AnyFrame, Hello, Kind, MalformedFrame, whole

PREFIX_OCTETS = 4
EPOCH = slice(8, 8 + PREFIX_OCTETS)  # of a frame: the first half of its epoch
KIND = 3  # octet of a frame


def epoch_prefix(name: str) -> bytes:
    """The first half of every epoch of this node."""
    return hashlib.sha256(name.encode()).digest()[:PREFIX_OCTETS]


def new_epoch(name: str | None) -> int:
    """The random epoch of a session, of a node with an identity of this name; None: without an identity."""
    prefix = epoch_prefix(name) if name is not None else secrets.token_bytes(PREFIX_OCTETS)
    return int.from_bytes(prefix + secrets.token_bytes(8 - PREFIX_OCTETS))


@dataclass(frozen=True, slots=True)
class AuthenticatedPeer:
    """The peer that a connection has proved to belong to.

    Attributes:
        name: of its node.
        prefix: the first half of its epochs.
        may_send: whether its role lets it send on a topic.
    """

    name: str
    prefix: bytes
    may_send: Callable[[bytes], bool]


class FrameAuthentication:
    """Decides which frames of one link count.

    Attributes:
        refused: frames that were refused, by kind.
    """

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()

    def admits(self, peer: AuthenticatedPeer | None, topic: bytes, frame: AnyFrame) -> bool:
        """Whether a frame counts.  ``peer``: that of the connection it came over; None: no trusted one."""
        if (
            peer is not None
            and frame[EPOCH] == peer.prefix
            and peer.may_send(topic)
            and (frame[KIND] != Kind.HELLO or _has_name(frame, peer.name))
        ):
            return True
        self.refused[_kind(frame)] += 1
        return False


def _has_name(frame: AnyFrame, name: str) -> bool:
    """Whether a hello says this name; one that cannot be read is left to the session to count."""
    try:
        return Hello.decode(memoryview(whole(frame))[HEADER_OCTETS:]).node == name
    except MalformedFrame:
        return True


def _kind(frame: AnyFrame) -> str:
    try:
        return Kind(frame[KIND]).name.lower()
    except (ValueError, IndexError):
        return "unknown"
