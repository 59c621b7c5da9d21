"""Buffers for long messages, used again when nothing refers to them any more: filling new memory takes time."""

import sys

KEPT = 2  # of those that were used last
SPACIOUS = 4  # a buffer this many times as long as needed would keep too much memory for its message
UNUSED = 2  # references to one that only the list below has: by the list, and by the call that counts


class ReceiveBuffers:
    """One thread at a time."""

    def __init__(self) -> None:
        self._recent: list[bytearray] = []

    def take(self, octets: int) -> bytearray:
        """One of so many octets or more, with any content.  It is used again when no view of it is left."""
        recent = self._recent
        for at in range(len(recent)):
            # A view refers to what it shows (PEP 3118), so nothing reads one with no further reference.
            if sys.getrefcount(recent[at]) == UNUSED and octets <= len(recent[at]) <= SPACIOUS * octets:
                recent.append(recent.pop(at))
                return recent[-1]
        recent.append(bytearray(octets))
        del recent[:-KEPT]
        return recent[-1]
