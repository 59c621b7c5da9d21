"""The messages of the flow of a mirror: frames as they passed the link, in order.  Bytes in, bytes out.

A message is a head, then entries (docs/observers.md).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..protocol.frames import Frame, MalformedFrame, whole
from ..protocol.rangeset import RangeSet
from ..protocol.wire import RECEIVED, SENT
from ..runtime.capture import FrameItem, LeftOutItem

MIRROR_FLOW = "twinlink.mirror"
MAGIC = b"tm\x01"  # with the version
HEAD = struct.Struct(">3sBQ")  # magic, octets of the node's name, epoch
ENTRY = struct.Struct(">BBHIq")  # kind, octets of the topic, 0, octets of the body, Unix time in ns
_FRAME_SENT, _FRAME_RECEIVED, _LEFT_OUT_SENT, _LEFT_OUT_RECEIVED, _PEERS = range(5)
_FRAMES = {SENT: _FRAME_SENT, RECEIVED: _FRAME_RECEIVED}
_LEFT_OUT = {SENT: _LEFT_OUT_SENT, RECEIVED: _LEFT_OUT_RECEIVED}
_EPOCH = struct.Struct(">Q")
_RANGE = struct.Struct(">QQ")
_PEER = struct.Struct(">QB")  # epoch, octets of the name


class Mirrored(NamedTuple):
    """A message of the flow, taken apart."""

    node: str
    epoch: int
    entries: "Iterator[FrameItem | LeftOutItem | Peers]"


class Peers(NamedTuple):
    """The peers that are up at the observed node: names by epoch."""

    names: Mapping[int, str]


def head(node: str, epoch: int) -> bytes:
    """How each message of the observed session ``epoch`` begins."""
    name = node.encode()[:255]
    return HEAD.pack(MAGIC, len(name), epoch) + name


def frame_entry(item: FrameItem) -> tuple[bytes, Frame]:
    """A frame: what is to stand before it, and itself."""
    kind = _FRAMES[item.direction]
    return ENTRY.pack(kind, len(item.topic), 0, len(item.frame), item.now_ns) + item.topic, whole(item.frame)


def left_out_entries(item: LeftOutItem) -> Iterator[bytes]:
    """What the mirror has not shown, flow by flow."""
    for (direction, topic, epoch), ranges in item.ranges.items():
        body = _EPOCH.pack(epoch) + b"".join(_RANGE.pack(*one) for one in ranges)
        yield ENTRY.pack(_LEFT_OUT[direction], len(topic), 0, len(body), item.now_ns) + topic + body


def peers_entry(names: Iterable[tuple[int, str]], now_ns: int) -> bytes:
    """The peers that are up: epoch and name of each."""
    body = b"".join(_PEER.pack(epoch, len(name)) + name for epoch, node in names for name in [node.encode()[:255]])
    return ENTRY.pack(_PEERS, 0, 0, len(body), now_ns) + body


def parse(message: Frame) -> Mirrored:
    """Take a message apart.  Raises MalformedFrame, as iterating the entries does."""
    view = memoryview(message)
    if len(view) < HEAD.size:
        raise MalformedFrame("truncated")
    magic, length, epoch = HEAD.unpack_from(view)
    begin = HEAD.size + length
    if magic != MAGIC or begin > len(view):
        raise MalformedFrame("magic")
    return Mirrored(_text(view[HEAD.size : begin]), epoch, _entries(view, begin))


def _entries(view: memoryview, at: int) -> "Iterator[FrameItem | LeftOutItem | Peers]":
    while at < len(view):
        if len(view) - at < ENTRY.size:
            raise MalformedFrame("truncated")
        kind, topic_octets, _, octets, now_ns = ENTRY.unpack_from(view, at)
        body_at = at + ENTRY.size + topic_octets
        topic, body = bytes(view[at + ENTRY.size : body_at]), view[body_at : body_at + octets]
        if len(body) < octets:
            raise MalformedFrame("truncated")
        at = body_at + octets
        if kind in (_FRAME_SENT, _FRAME_RECEIVED):
            yield FrameItem(SENT if kind == _FRAME_SENT else RECEIVED, topic, body, now_ns)
        elif kind in (_LEFT_OUT_SENT, _LEFT_OUT_RECEIVED):
            if octets < _EPOCH.size or (octets - _EPOCH.size) % _RANGE.size:
                raise MalformedFrame("length")
            ranges = RangeSet(one for one in _RANGE.iter_unpack(body[_EPOCH.size :]) if one[0] < one[1])
            key = SENT if kind == _LEFT_OUT_SENT else RECEIVED, topic, _EPOCH.unpack_from(body)[0]
            yield LeftOutItem({key: ranges}, 0, now_ns)
        elif kind == _PEERS:
            yield Peers(dict(_names(body)))  # further kinds are of later versions


def _names(body: memoryview) -> Iterator[tuple[int, str]]:
    at = 0
    while at < len(body):
        if len(body) - at < _PEER.size:
            raise MalformedFrame("truncated")
        epoch, length = _PEER.unpack_from(body, at)
        at += _PEER.size + length
        if at > len(body):
            raise MalformedFrame("truncated")
        yield epoch, _text(body[at - length : at])


def _text(octets: memoryview) -> str:
    return bytes(octets).decode(errors="replace")
