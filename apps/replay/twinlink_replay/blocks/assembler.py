"""Divides a tagged stream into packets."""

from typing import Any

import numpy as np

from .gnuradio_compat import pmt


class PacketAssembler:
    """Divides a block's input stream into packets by their ``packet_len`` tags.

    Attributes:
        untagged: number of samples outside of any packet.
    """

    def __init__(self) -> None:
        self.untagged = 0
        self._parts: list[Any] = []
        self._missing = 0
        self._tags: dict[str, Any] = {}

    def add(self, block: Any, items: Any) -> list[tuple[Any, dict[str, Any]]]:
        """Take in all input of ``work``; returns complete packets, each with the tags of its first sample."""
        done: list[tuple[Any, dict[str, Any]]] = []
        tags: dict[int, dict[str, Any]] = {}
        first = block.nitems_read(0)
        for tag in block.get_tags_in_window(0, 0, len(items)):
            tags.setdefault(tag.offset - first, {})[pmt.symbol_to_string(tag.key)] = tag.value
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
                self._missing = max(0, pmt.to_long(self._tags["packet_len"]))
                if not self._missing:
                    at += 1
        return done
