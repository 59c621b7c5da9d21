"""The wire form of a state: a message is a head of 4 octets and one record or more.

```
head     'tK' (0x74 0x4b), version = 1 (8), 0 (8)

record   0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |   octets of the column (16)   |     octets of the key (16)    |
        |   octets of the author (16)   |           flags (16)          |
        |                         version (64)                          |
        |                         session (64)                          |
        |                         set_at_ns (64)                        |
        |                         answers (64)                          |
        |                        remaining_ms (32)                      |
        |                   octets of the payload (32)                  |
        | column | key | author | payload
```

Integers are unsigned, in network byte order.  Flags: 1 removed (no payload), 2 expires (after ``remaining_ms``; with 0
it has expired, and has no payload), 4 recalled (a desired value that a node which may not desire passes on).
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import MalformedPayload

MAX_PAYLOAD = 65_536
MAX_KEY = 128  # octets of UTF-8
MAX_AUTHOR = 255  # characters, as of a node's name
MAX_NUMBER = 2**63 - 1  # of versions and times, so that signed 64 bits hold them: the year 2262
MAX_REMAINING_MS = 2**32 - 1
HEAD = b"tK\x01\x00"
REMOVED, EXPIRES, RECALLED = 1, 2, 4
DESIRED = "desired"

_RECORD = struct.Struct("!HHHHQQQQII")
RECORD_OCTETS = _RECORD.size
MAX_MESSAGE = len(HEAD) + RECORD_OCTETS + 63 + MAX_KEY + 4 * MAX_AUTHOR + MAX_PAYLOAD  # a single record of any size
_COLUMN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as the name of a flow


class Stamp(NamedTuple):
    """What orders the values of a slot: the greater stamp is the newer value (docs/state.md).

    Attributes:
        version: hybrid logical clock of the author.
        author: name of its node.
        session: epoch of its link, which tells two sessions of one node apart.
    """

    version: int
    author: str
    session: int


class Slot(NamedTuple):
    """Where a value stands."""

    key: str
    column: str


@dataclass(frozen=True, slots=True)
class Record:
    """A value on its way.

    Attributes:
        slot: where it stands.
        stamp: which of two values is the newer one.
        set_at_ns: Unix time on the author's clock.
        answers: version of the desired value that a reported one answers; 0: none.
        remaining_ms: how long it still stands; None: it does not expire; 0: it has expired.
        payload: None: it was removed, or has expired.
        recalled: a desired value, as a node that may not desire knows it.
    """

    slot: Slot
    stamp: Stamp
    set_at_ns: int
    answers: int
    remaining_ms: int | None
    payload: bytes | None
    recalled: bool = False

    def encode(self) -> bytes:
        """Its octets in a message."""
        names = [text.encode() for text in (self.slot.column, self.slot.key, self.stamp.author)]
        expires = self.remaining_ms is not None
        removed = self.payload is None and not expires
        flags = REMOVED * removed | EXPIRES * expires | RECALLED * self.recalled
        payload = self.payload or b""
        head = _RECORD.pack(
            *map(len, names),
            flags,
            self.stamp.version,
            self.stamp.session,
            self.set_at_ns,
            self.answers,
            self.remaining_ms or 0,
            len(payload),
        )
        return b"".join((head, *names, payload))


def decode(octets: bytes | memoryview) -> list[Record]:
    """The records of a message; raises MalformedPayload, which says what is wrong.  It is read whole or not at all."""
    octets = bytes(octets)
    if not octets.startswith(HEAD):
        raise MalformedPayload(f"no message of a state, version 1: it begins with {octets[:4].hex() or 'nothing'}")
    if len(octets) == len(HEAD):
        raise MalformedPayload("a message of a state without a record")
    return list(_records(octets))


def _records(octets: bytes) -> Iterator[Record]:
    at, end = len(HEAD), len(octets)
    while at < end:
        if end - at < RECORD_OCTETS:
            raise MalformedPayload(f"{end - at} octets at the end, which are no record")
        *lengths, flags, version, session, set_at_ns, answers, remaining_ms, size = _RECORD.unpack_from(octets, at)
        at += RECORD_OCTETS
        if end - at < sum(lengths) + size:
            raise MalformedPayload(f"a record of {sum(lengths) + size} octets, of which {end - at} are there")
        names = []
        for length in lengths:
            names.append(_text(octets[at : at + length]))
            at += length
        column, key, author = names
        check_column(column)
        check_key(key)
        if not 1 <= len(author) <= MAX_AUTHOR or not author.isprintable():
            raise MalformedPayload(f"an author has 1 to {MAX_AUTHOR} printable characters, not {author[:80]!r}")
        if max(version, set_at_ns, answers) > MAX_NUMBER or version == 0:
            raise MalformedPayload("a version, or a time, that is 0 or above 2^63 - 1")
        remaining = remaining_ms if flags & EXPIRES else None
        _check_flags(flags, remaining_ms, size, column)
        has_payload = not flags & REMOVED and remaining != 0
        payload = octets[at : at + size] if has_payload else None
        at += size
        stamp = Stamp(version, author, session)
        yield Record(Slot(key, column), stamp, set_at_ns, answers, remaining, payload, bool(flags & RECALLED))


def _check_flags(flags: int, remaining_ms: int, size: int, column: str) -> None:
    if flags & ~(REMOVED | EXPIRES | RECALLED) or flags & (REMOVED | EXPIRES) == REMOVED | EXPIRES:
        raise MalformedPayload(f"unknown flags {flags:#x}")
    if remaining_ms and not flags & EXPIRES:
        raise MalformedPayload("a time that remains of a value which does not expire")
    if flags & RECALLED and column != DESIRED:
        raise MalformedPayload(f"column {column} is marked as recalled, which only desired values are")
    is_empty = flags & REMOVED or (flags & EXPIRES and not remaining_ms)
    if size > MAX_PAYLOAD or (size and is_empty):
        raise MalformedPayload(f"a payload of {size} octets, where at most {0 if is_empty else MAX_PAYLOAD} may be")


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise MalformedPayload(f"a name that is not UTF-8: {octets[:80]!r}") from error


def check_column(column: object) -> None:
    """Raises MalformedPayload for what no column can be called."""
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        raise MalformedPayload(
            f"column {column!r}: a name has 1 to 63 letters, digits, dots, dashes or underscores and begins with a "
            "letter or digit"
        )


def check_key(key: object) -> None:
    """Raises MalformedPayload for what no key can be."""
    if not isinstance(key, str) or not key.isprintable() or not 1 <= _octets(key) <= MAX_KEY:
        raise MalformedPayload(f"a key has 1 to {MAX_KEY} octets of printable UTF-8, not {str(key)[:80]!r}")


def _octets(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return 0
