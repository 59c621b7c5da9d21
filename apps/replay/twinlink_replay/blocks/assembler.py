"""Divides a tagged stream into packets."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .gnuradio_compat import pmt

MAX_SAMPLES = 1 << 24  # of a packet: more would gather in memory


class PacketAssembler:
    """Divides a block's input stream into packets by their ``packet_len`` tags.

    Args:
        refuse: called with the reason for each ``packet_len`` tag that cannot be used; its samples are untagged.
        max_samples: of a packet.

    Attributes:
        untagged: number of samples outside of any packet.
    """

    def __init__(self, refuse: Callable[[ValueError], object], max_samples: int = MAX_SAMPLES) -> None:
        self.untagged = 0
        self._refuse, self._max_samples = refuse, max_samples
        self._parts: list[Any] = []
        self._missing = 0
        self._tags: dict[str, Any] = {}

    def add(self, block: Any, items: Any) -> list[tuple[Any, dict[str, Any]]]:
        """Take in all input of ``work``; returns complete packets, each with the tags of its first sample."""
        done: list[tuple[Any, dict[str, Any]]] = []
        tags: dict[int, dict[str, Any]] = {}
        first = block.nitems_read(0)
        for tag in block.get_tags_in_window(0, 0, len(items)):
            if (name := _name(tag.key)) is not None:
                tags.setdefault(tag.offset - first, {})[name] = tag.value
        starts = sorted(offset for offset, here in tags.items() if "packet_len" in here)
        at = 0
        while at < len(items):
            if self._missing:
                part = items[at : at + self._missing]
                self._parts.append(part.copy())
                self._missing -= len(part)
                at += len(part)
                if not self._missing:
                    done.append((np.concatenate(self._parts), self._tags))
                    self._parts = []
                continue
            begin = next((offset for offset in starts if offset >= at), len(items))
            self.untagged += begin - at
            at = begin
            if at < len(items):
                self._tags = tags[at]
                self._missing = self._length(self._tags["packet_len"])
                if not self._missing:
                    self.untagged += 1
                    at += 1
        return done

    def _length(self, value: Any) -> int:
        """Samples of the packet that begins; 0: the tag cannot be used."""
        if not (pmt.is_integer(value) or pmt.is_uint64(value)):
            self._refuse(ValueError("a packet_len tag that is no integer"))
            return 0
        length = int(pmt.to_long(value) if pmt.is_integer(value) else pmt.to_uint64(value))
        if not 1 <= length <= self._max_samples:
            self._refuse(ValueError(f"a packet_len tag of {length} samples; a packet has 1 to {self._max_samples}"))
            return 0
        return length


def _name(key: Any) -> str | None:
    """The name of a tag; None for one that no block of this package uses."""
    try:
        return str(pmt.symbol_to_string(key))
    except ValueError:  # no symbol, or none of UTF-8
        return None
