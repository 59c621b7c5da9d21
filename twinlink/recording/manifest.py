"""What a file of a recording says of itself: the record that it begins with, and its manifest (docs/recordings.md)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol.wire import RECEIVED, SENT
from .account import Account

FORMAT = 1  # of the recording; another one is not read


@dataclass(slots=True)
class Heading:
    """What both say.

    Attributes:
        series: names the recording, 16 hexadecimal digits; ``number``: of the file in it, from 0.
        node, epoch: of the side that records.
        configuration: of the link and the recorder.
        versions: of the packages that matter.
    """

    series: str
    number: int
    node: str
    epoch: int
    configuration: Mapping[str, Any]
    versions: Mapping[str, str | None]

    def begin(self, nodes: Mapping[int, str], streams: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """The record; ``nodes`` are names by epoch, and the streams are as `Account.described` has them."""
        keys = "direction", "flow", "epoch", "first", "carried"
        return {
            "type": "begin",
            **self._fields(),
            "nodes": {f"{epoch:016x}": node for epoch, node in nodes.items()},
            "streams": [{key: one[key] for key in keys} for one in streams],
        }

    def manifest(
        self,
        account: Account,
        chunks: list[dict[str, Any]],
        begun_ns: int,
        ended_ns: int,
        next_file: str | None = None,
        others_left_out: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """The manifest; ``chunks`` are as of `McapFile`, and ``more`` are further members."""
        return {
            **self._fields(),
            "next_file": next_file,
            "ended": "closed" if next_file is None else "rotated",
            "begun_ns": begun_ns,
            "ended_ns": ended_ns,
            "streams": account.described(continues=next_file is not None),
            "others_left_out": others_left_out,
            "unaccounted": account.unaccounted,
            "chunks": chunks,
            **more,
        }

    def _fields(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "series": self.series,
            "file": self.number,
            "node": self.node,
            "epoch": f"{self.epoch:016x}",
            "configuration": self.configuration,
            "versions": self.versions,
        }


def without_end(begin: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a file that was cut, as far as the record that it begins with tells."""
    return {
        "format": FORMAT,
        **{key: begin.get(key) for key in ("series", "file", "node", "epoch", "configuration", "versions")},
        "next_file": None,
        "others_left_out": 0,
        "unaccounted": 0,
    }


def is_manifest(manifest: dict[str, Any]) -> bool:
    """Whether a manifest has what is read of it."""
    try:
        for chunk in manifest["chunks"]:
            if not all(type(chunk[key]) is int and chunk[key] >= 0 for key in ("offset", "octets", "messages")):
                return False
        for stream in manifest["streams"]:
            int(stream["epoch"], 16)
            checked(stream["recorded"])
            for name in ("missing", "left_out"):
                for ranges in stream[name].values():
                    checked(ranges)
            if stream["direction"] not in (SENT, RECEIVED) or not isinstance(stream["flow"], str):
                return False
            if not (stream["end"] is None or type(stream["end"]) is int):
                return False
        return type(manifest["format"]) is int and type(manifest["others_left_out"]) is int
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def checked(ranges: Any) -> list[tuple[int, int]]:
    """Ranges as of this library: ascending, disjoint.  Raises ValueError."""
    before, found = -1, []
    for first, end in ranges:
        if type(first) is not int or type(end) is not int or not before < first < end < 2**64:
            raise ValueError("its ranges are none")
        found.append((first, end))
        before = end
    return found
