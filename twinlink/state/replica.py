"""One node's copy of a state: octets and time come in, octets and changes go out.  No I/O, clock, thread or lock.

The rules, which docs/state.md explains:

1. A value is newer than another one of its slot (key and column) if its stamp is greater: version, then name of the
   author, then session.  The newest value known stands, whatever the order in which they come.
2. A version is a hybrid logical clock: the author's Unix time in ns, or one more than the highest version that its copy
   has seen, whichever is more.
3. Each node owes each peer every value that the peer may lack, until the peer has acknowledged it.  A new session lacks
   all; one that returns, what has changed since.  A listener passes on what comes from its peers; a node that connects
   does so only for peers that were not up then, as those that were have heard the author, or the listener, themselves.
4. A value that expires does so on every node by itself: after what remained of its time when it was sent, less the time
   that its message took.
5. A desired value counts only from a peer that may desire.  What others pass on is `recalled`: it is shown, and passed
   on as such; a node that obeys does not take it.
6. What was removed, or has expired, keeps its stamp, so that nothing older takes its place; the oldest of that is
   forgotten where room is needed.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..errors import ConfigurationError, MalformedPayload, PayloadTooLarge, StateFull
from .peer import Peer, Sent
from .record import DESIRED, HEAD, MAX_NUMBER, MAX_PAYLOAD, MAX_REMAINING_MS, Record, Slot, Stamp, decode
from .values import Change, Value, What

MAX_VALUES, MAX_OCTETS = 1024, 4 * 1024 * 1024  # that this node adds to
MERGE_FACTOR = 4  # sides that were apart may each have added so much
MESSAGE_OCTETS = 48 * 1024  # records are added to a message up to that
RETURN_NS = 120_000_000_000  # as long as a peer's session may return to a link
MS_NS = 1_000_000


@dataclass(slots=True)
class Entry:
    """The newest value of a slot.

    Attributes:
        payload: None: it was removed, or has expired.
        ends_mono_ns: when it expires; None: never, 0: it has expired.
        recalled: rule 5.
        source: epoch of the peer from which it came; 0: this node.
    """

    stamp: Stamp
    set_at_ns: int
    answers: int
    payload: bytes | None
    ends_mono_ns: int | None
    recalled: bool
    source: int


class Replica:
    """A copy of a state.

    Attributes:
        peers: those that are up or may return, by epoch.
        counters: ``malformed``, ``role``, ``full``: what came and was refused; ``late``: values that had expired when
            they came; ``older``: that were older than what stood; ``forgotten``: rule 6.
    """

    def __init__(
        self, node: str, session: int, *, relays: bool = False, sends: bool = True, takes_recalled: bool = True
    ) -> None:
        """``relays``: rule 3; ``sends``: whether peers take anything from this node; ``takes_recalled``: rule 5."""
        self.peers: dict[int, Peer] = {}
        self.counters = Counter[str]()
        self._node, self._session = node, session
        self._relays, self._sends, self._takes_recalled = relays, sends, takes_recalled
        self._entries: dict[Slot, Entry] = {}
        self._clock = 0  # highest version seen
        self._live, self._octets = 0, 0  # values with a payload, and octets of those
        self._expiring: list[tuple[int, Slot, Stamp]] = []  # heap; some have been replaced
        self._gone: list[tuple[Stamp, Slot]] = []  # heap of notes; some have been replaced
        self._leaving: tuple[list[tuple[Peer, Sent]], int] = ([], 0)

    # What the application does

    def write(
        self,
        slot: Slot,
        payload: bytes | None,
        now_ns: int,
        mono_ns: int,
        *,
        lifetime_ns: int | None = None,
        answers: int = 0,
    ) -> int:
        """Set or remove (None) a value; returns its version.

        Raises PayloadTooLarge, StateFull, and ConfigurationError where the versions are used up.
        """
        if payload is not None and len(payload) > MAX_PAYLOAD:
            raise PayloadTooLarge(
                f"a value of {len(payload)} octets for {slot.key!r}: at most {MAX_PAYLOAD} are taken; send it "
                "on a flow of its own, and keep its name here"
            )
        if not self._make_room(slot, payload, 1):
            raise StateFull(
                f"{slot.key!r} was not set: the state has {self._live} values of {self._octets} octets, and takes "
                f"{MAX_VALUES} of {MAX_OCTETS}; remove some (desire or report None), or open another state"
            )
        version = max(self._clock + 1, now_ns)
        if version > MAX_NUMBER:
            raise ConfigurationError(
                f"{slot.key!r} was not set: a peer has used the highest version; restart all nodes"
            )
        self._clock = version
        ends = None if lifetime_ns is None or payload is None else mono_ns + lifetime_ns
        stamp = Stamp(version, self._node, self._session)
        self._put(slot, Entry(stamp, now_ns, answers, payload, ends, False, 0))
        for peer in self.peers.values():
            peer.owe(slot)
        return version

    def value(self, slot: Slot, mono_ns: int) -> Value | None:
        """What stands in a slot."""
        entry = self._entries.get(slot)
        if entry is None or entry.payload is None or _is_over(entry, mono_ns):
            return None
        remaining = None if entry.ends_mono_ns is None else (entry.ends_mono_ns - mono_ns) / 1e9
        have = tuple(sorted(peer.node for peer in self.peers.values() if peer.up and not peer.lacks(slot)))
        stamp = entry.stamp
        return Value(entry.payload, *stamp, entry.set_at_ns, entry.answers, remaining, have)

    def slots(self) -> list[Slot]:
        """Where values stand, sorted."""
        return sorted(slot for slot, entry in self._entries.items() if entry.payload is not None)

    def is_acknowledged(self) -> bool:
        """Whether no peer that is up lacks anything."""
        return not any(peer.up and (peer.unsent or peer.in_flight) for peer in self.peers.values())

    def stats(self) -> dict[str, int]:
        """The counters, and how full it is."""
        return {"values": self._live, "octets": self._octets, **self.counters}

    # Peers

    def on_peer_up(self, epoch: int, node: str, mono_ns: int) -> None:
        """A peer is up: all that it lacks is to be sent."""
        self._forget_peers(mono_ns)
        peer = self.peers.get(epoch)
        if peer is None:
            peer = self.peers[epoch] = Peer(node)
            peer.unsent = dict.fromkeys(slot for slot, entry in self._entries.items() if entry.source != epoch)
        peer.come_up(mono_ns, self._octets)

    def on_peer_down(self, epoch: int, may_return: bool, mono_ns: int) -> None:
        """A peer is down; ``may_return``: its session may come up again."""
        peer = self.peers.get(epoch)
        if peer is None:
            return
        if may_return:
            peer.go_down(mono_ns)
        else:
            del self.peers[epoch]
        if not self._relays:  # what it was about to say to the others may be known here alone
            for slot, entry in self._entries.items():
                if entry.source == epoch:
                    self._owe_others(slot, epoch, only_absent=False)

    def _forget_peers(self, mono_ns: int) -> None:
        for epoch, peer in list(self.peers.items()):
            if not peer.up and mono_ns - peer.down_mono_ns > RETURN_NS:
                del self.peers[epoch]

    # Messages

    def receive(
        self,
        epoch: int,
        octets: bytes | memoryview,
        *,
        may_desire: bool,
        sent_ns: int,
        received_ns: int,
        now_ns: int,
        mono_ns: int,
    ) -> list[Change]:
        """A message of a peer's session, with its times; returns what has changed.

        ``may_desire``: whether the peer may.
        """
        try:
            records = decode(octets)
        except MalformedPayload:
            self.counters["malformed"] += 1
            return []
        peer = self.peers.get(epoch)
        transit = peer.transit.age_ns(sent_ns, received_ns, now_ns, mono_ns) if peer is not None else 0
        changes = []
        for record in records:
            recalled = record.slot.column == DESIRED and (record.recalled or not may_desire)
            if recalled and not self._takes_recalled:
                self.counters["role"] += not record.recalled
                continue
            if (what := self._merge(record, epoch, peer, recalled, transit, mono_ns)) is not None:
                changes.append(self._change(record.slot, what, mono_ns))
        return changes

    def _merge(
        self, record: Record, epoch: int, peer: Peer | None, recalled: bool, age_ns: int, mono_ns: int
    ) -> What | None:
        slot, before = record.slot, self._entries.get(record.slot)
        self._clock = max(self._clock, record.stamp.version)
        is_authorised = before is not None and before.recalled and not recalled  # the recalled one may be altered
        if before is not None and (record.stamp, is_authorised) <= (before.stamp, False):
            if record.stamp < before.stamp:
                self.counters["older"] += 1
                return None
            return self._confirm(record, before, peer, recalled, mono_ns)
        payload, ends = record.payload, None
        if record.remaining_ms is not None:
            ends = mono_ns + record.remaining_ms * MS_NS - age_ns
            if ends <= mono_ns:
                self.counters["late"] += payload is not None
                payload, ends = None, 0
        if not self._make_room(slot, payload, MERGE_FACTOR):
            self.counters["full"] += 1
            return None
        self._put(slot, Entry(record.stamp, record.set_at_ns, record.answers, payload, ends, recalled, epoch))
        if peer is not None:
            peer.has(slot)
        self._owe_others(slot, epoch, only_absent=not (self._relays or is_authorised))
        if payload is not None:
            is_known = before is not None and (before.stamp, before.payload) == (record.stamp, payload)
            return None if is_known else "set"
        if before is None or before.payload is None:
            return None
        return "removed" if ends is None else "expired"

    def _confirm(self, record: Record, entry: Entry, peer: Peer | None, recalled: bool, mono_ns: int) -> What | None:
        """The value that stands came once more: its peer has it."""
        if peer is not None:
            peer.has(record.slot)
        if record.remaining_ms == 0 and entry.payload is not None and recalled <= entry.recalled:
            self._expire(record.slot, entry)
            return "expired"
        return None

    def _owe_others(self, slot: Slot, source: int, *, only_absent: bool) -> None:
        for epoch, peer in self.peers.items():
            if epoch != source and not (only_absent and peer.up):
                peer.owe(slot)
            elif epoch != source:
                peer.has(slot)  # the one before it need not be sent any more

    def poll_transmit(self, mono_ns: int) -> bytes | None:
        """The next message, for every peer; None: nothing is to be sent now.  `on_sent` follows."""
        up = [peer for peer in self.peers.values() if peer.up]
        ready = [peer for peer in up if peer.has_room and peer.unsent] if self._sends else []
        if not ready:
            return None
        parts, slots, octets = [HEAD], dict[Slot, Stamp](), len(HEAD)
        for slot in dict.fromkeys(_in_turn(ready)):
            entry = self._entries[slot]
            part = self._record(slot, entry, mono_ns).encode()
            if slots and octets + len(part) > MESSAGE_OCTETS:
                break
            parts.append(part)
            slots[slot] = entry.stamp
            octets += len(part)
        self._leaving = [(peer, [(slot, slots[slot]) for slot in slots if slot in peer.unsent]) for peer in up], octets
        return b"".join(parts)

    def on_sent(self, sequence: int, mono_ns: int) -> None:
        """What `poll_transmit` gave has left with this number."""
        peers, octets = self._leaving
        for peer, sent in peers:
            if sent:
                peer.on_sent(sequence, sent, octets, mono_ns)

    def on_ack(self, epoch: int, sequence: int, mono_ns: int) -> None:
        """A peer has acknowledged a message."""
        if (peer := self.peers.get(epoch)) is not None:
            peer.on_ack(sequence, mono_ns)

    # Time

    def next_timeout(self) -> int | None:
        """When `on_timeout` is to be called, in monotonic ns; None: not before something else happens."""
        due = [when for peer in self.peers.values() if (when := peer.resend_mono_ns) is not None]
        while self._expiring and not self._is_current(*self._expiring[0]):
            heapq.heappop(self._expiring)
        if self._expiring:
            due.append(self._expiring[0][0])
        return min(due, default=None)

    def on_timeout(self, mono_ns: int) -> list[Change]:
        """Let expire what is due, and send again what was not acknowledged; returns what has changed."""
        changes = []
        while self._expiring and self._expiring[0][0] <= mono_ns:
            _, slot, _ = one = heapq.heappop(self._expiring)
            if self._is_current(*one):
                self._expire(slot, self._entries[slot])
                changes.append(self._change(slot, "expired", mono_ns))
        for peer in self.peers.values():
            if (when := peer.resend_mono_ns) is not None and when <= mono_ns:
                peer.resend(mono_ns)
        return changes

    def _is_current(self, ends_mono_ns: int, slot: Slot, stamp: Stamp) -> bool:
        entry = self._entries.get(slot)
        if entry is None or entry.payload is None:
            return False
        return (entry.stamp, entry.ends_mono_ns) == (stamp, ends_mono_ns)

    def _expire(self, slot: Slot, entry: Entry) -> None:
        self._put(slot, Entry(entry.stamp, entry.set_at_ns, entry.answers, None, 0, entry.recalled, entry.source))

    # The table

    def _put(self, slot: Slot, entry: Entry) -> None:
        before = self._entries.get(slot)
        for one, sign in ((before, -1), (entry, 1)):
            if one is not None and one.payload is not None:
                self._live += sign
                self._octets += sign * len(one.payload)
        self._entries[slot] = entry
        if entry.ends_mono_ns and entry.payload is not None:
            heapq.heappush(self._expiring, (entry.ends_mono_ns, slot, entry.stamp))
            if len(self._expiring) > 2 * len(self._entries) + 64:  # mostly replaced ones
                self._expiring = [one for one in self._expiring if self._is_current(*one)]
                heapq.heapify(self._expiring)
        elif entry.payload is None:
            heapq.heappush(self._gone, (entry.stamp, slot))
            if len(self._gone) > 2 * len(self._entries) + 64:
                self._gone = [one for one in set(self._gone) if self._is_note(*one)]
                heapq.heapify(self._gone)

    def _make_room(self, slot: Slot, payload: bytes | None, factor: int) -> bool:
        """Whether a value fits, or the note that one is gone; forgets such notes where that helps."""
        before = self._entries.get(slot)
        replaced = before.payload if before is not None else None
        live = self._live + (payload is not None) - (replaced is not None)
        octets = self._octets + len(payload or b"") - len(replaced or b"")
        if payload is not None and (octets > factor * MAX_OCTETS or live > factor * MAX_VALUES):
            return False
        if before is None and len(self._entries) >= factor * MAX_VALUES:
            while self._gone and not self._is_note(*self._gone[0]):
                heapq.heappop(self._gone)
            if not self._gone:
                return False
            self._forget(heapq.heappop(self._gone)[1])
        return True

    def _is_note(self, stamp: Stamp, slot: Slot) -> bool:
        entry = self._entries.get(slot)
        return entry is not None and entry.stamp == stamp and entry.payload is None

    def _forget(self, slot: Slot) -> None:
        del self._entries[slot]
        for peer in self.peers.values():
            peer.has(slot)
        self.counters["forgotten"] += 1

    def _record(self, slot: Slot, entry: Entry, mono_ns: int) -> Record:
        remaining, payload = None, entry.payload
        if entry.ends_mono_ns is not None:
            remaining = min(max(0, entry.ends_mono_ns - mono_ns) // MS_NS, MAX_REMAINING_MS)
            payload = payload if remaining else None
        return Record(slot, entry.stamp, entry.set_at_ns, entry.answers, remaining, payload, entry.recalled)

    def _change(self, slot: Slot, what: What, mono_ns: int) -> Change:
        stamp = self._entries[slot].stamp
        return Change(slot.key, slot.column, what, self.value(slot, mono_ns), stamp.version, stamp.author)


def _in_turn(peers: Iterable[Peer]) -> Iterator[Slot]:
    for peer in peers:
        yield from peer.unsent


def _is_over(entry: Entry, mono_ns: int) -> bool:
    return entry.ends_mono_ns is not None and entry.ends_mono_ns <= mono_ns
