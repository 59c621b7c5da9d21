"""Messages of a recording in the order of their numbers, each when the recording side had all before it.  No I/O."""

from collections.abc import Iterator
from typing import NamedTuple

HOLD_NS = 2_000_000_000  # of recorded time: what is missing for so long does not come
HOLD_OCTETS = 64 * 1024 * 1024

Key = tuple[str, str, int]  # direction, flow, epoch


class Played(NamedTuple):
    """A message that is due.

    Attributes:
        due_ns: recorded time at which the recording side had it, and all before it or the news that those are lost.
        flow, payload: of the message; None: only ``skipped``, at the end.
        skipped: messages before it, of its sender, that are not in the recording.
    """

    due_ns: int
    flow: str
    payload: bytes | None
    skipped: int


class _Stream:
    """The messages of one sender on one flow.

    Attributes:
        next: the number that is due; None before the first.
        given_up: what is missing below this does not come.
        held: by number, log time and payload of what is behind a missing one.
    """

    __slots__ = ("given_up", "held", "next")

    def __init__(self) -> None:
        self.next: int | None = None
        self.given_up = 0
        self.held: dict[int, tuple[int, bytes]] = {}


class MessageOrder:
    """Takes in messages as they stand in the files.

    Attributes:
        late: messages that came when later ones of their sender had left.
    """

    def __init__(self) -> None:
        self.late = 0
        self._streams: dict[Key, _Stream] = {}
        self._held_octets = 0

    def begin(self, key: Key, first: int) -> None:
        """A stream begins with this number, unless it has begun."""
        stream = self._streams.setdefault(key, _Stream())
        if stream.next is None:
            stream.next = first

    def add(self, key: Key, sequence: int, now_ns: int, payload: bytes) -> Iterator[Played]:
        """A message was recorded at this time; gives what is due by that."""
        stream = self._streams.get(key) or self._streams.setdefault(key, _Stream())
        if stream.next is None:
            stream.next = sequence
        if sequence == stream.next and not stream.held:
            stream.next = sequence + 1
            yield Played(now_ns, key[1], payload, 0)
        elif sequence < stream.next:
            self.late += 1
            yield Played(now_ns, key[1], payload, 0)
        elif sequence not in stream.held:
            stream.held[sequence] = now_ns, payload
            self._held_octets += len(payload)
            yield from self._release(key, stream, now_ns)
        if self._held_octets:
            yield from self._release_old(now_ns)

    def gap(self, key: Key, end: int, now_ns: int) -> Iterator[Played]:
        """The recording side has given up what it lacked below this number."""
        if (stream := self._streams.get(key)) is not None:
            stream.given_up = max(stream.given_up, end)
            yield from self._release(key, stream, now_ns)

    def rest(self, now_ns: int) -> Iterator[Played]:
        """All that is held: nothing follows."""
        for key, stream in self._streams.items():
            if stream.held:
                stream.given_up = max(stream.held)
                yield from self._release(key, stream, now_ns)

    def end(self, key: Key, end: int, now_ns: int) -> Iterator[Played]:
        """So many messages were sent in all."""
        stream = self._streams.get(key)
        if stream is not None and stream.next is not None and stream.next < end:
            skipped, stream.next = end - stream.next, end
            yield Played(now_ns, key[1], None, skipped)

    def _release(self, key: Key, stream: _Stream, now_ns: int) -> Iterator[Played]:
        """What is no longer behind a missing one, or one that may still come."""
        held = stream.held
        while held and stream.next is not None:
            first = stream.next if stream.next in held else min(held)
            if first > max(stream.next, stream.given_up):
                return
            _, payload = held.pop(first)
            self._held_octets -= len(payload)
            skipped, stream.next = first - stream.next, first + 1
            yield Played(now_ns, key[1], payload, skipped)

    def _release_old(self, now_ns: int) -> Iterator[Played]:
        for key, stream in self._streams.items():
            while stream.held:
                since_ns, _ = next(iter(stream.held.values()))  # what came first
                if now_ns - since_ns <= HOLD_NS and self._held_octets <= HOLD_OCTETS:
                    break
                stream.given_up = max(stream.given_up, min(stream.held))
                yield from self._release(key, stream, now_ns)
