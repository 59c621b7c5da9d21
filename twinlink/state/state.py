"""A state, as an application holds it: a replica, the flow that joins it to those of the peers, and a clock."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ..errors import AckTimeout, ConfigurationError, LinkClosed, MalformedPayload, TransportError
from ..events import Event, PeerDown, PeerUp
from ..message import Ack, Message
from ..process.guarded_thread import GuardedThread
from ..process.signals import DeferSignals
from ..process.wakeup import Wakeup
from ..protocol.frames import FLOW_NAME
from ..runtime.arguments import check_timeout
from ..runtime.payload import Payload, octets_of
from .record import DESIRED, MAX_MESSAGE, MAX_REMAINING_MS, Slot, check_column, check_key
from .replica import Replica
from .values import REPORTED, Change, Item

FLOW = "state."  # and the name of the state
DECISIONS = b"traffic/control"  # a role that may send there may desire
RETURNS = "silent", "deaf"  # reasons of a `PeerDown` after which the session may return
MAX_EXPIRES_S = MAX_REMAINING_MS / 1000
END_S = 0.05  # for the thread that keeps the time; it may be about to call a handler, for which it waits


def check_name(name: object) -> None:
    """Raises ConfigurationError for what no state can be called."""
    if not isinstance(name, str) or not name or not FLOW_NAME.fullmatch(FLOW + name):
        raise ConfigurationError(
            f"state {name!r}: a name has 1 to {63 - len(FLOW)} letters, digits, dots, dashes or underscores"
        )


class State:
    """Made by ``link.state(name)``.  Any thread may call its methods.

    Attributes:
        name: as it was given.
    """

    def __init__(self, link: Any, name: str) -> None:
        self.name = name
        self._link, self._identity = link, link.identity
        self._role = role = link.identity.identity.role if link.identity is not None else None
        self._replica = Replica(
            link.node,
            link.epoch,
            relays=link.listening,
            sends=role in {None, "twin", "gnb"},
            takes_recalled=role != "gnb",
        )
        self._lock = threading.Lock()
        self._changes: dict[Slot, Change] = {}  # that were not taken: the newest of each value
        self._on_change: Callable[[Change], object] | None = None
        self._timer, self._closed = Wakeup(), False
        self._due_mono_ns: int | None = None  # when the thread that keeps the time wakes by itself
        self._callbacks, self._run_exclusively = link._driver.callbacks, link._leader_follower.run_exclusively
        self._thread = GuardedThread(
            self._keep_time,
            f"twinlink-{link.node}-state",
            link._transport.internal_errors,
            again=lambda: not self._closed,
        )
        self._sender = link.sender(FLOW + name, on_ack=self._on_ack, overflow="drop-newest")
        self._run_exclusively(self._watch)
        link.receiver(FLOW + name, handler=self._on_message, max_payload=MAX_MESSAGE)
        self._thread.start()

    def _watch(self) -> None:
        self._link._driver.watch_peers(self._on_event)
        self._callbacks.run()

    def _set_on_change(self, on_change: Callable[[Change], object]) -> None:
        """Give all changes, those that wait first, to a function."""

        def set_exclusively() -> None:
            with self._lock:
                changes, self._changes, self._on_change = list(self._changes.values()), {}, on_change
            self._tell(changes)
            self._callbacks.run()

        self._run_exclusively(set_exclusively)

    def __repr__(self) -> str:
        counters = self.stats()
        what = f"{counters['values']} values, {counters['octets']} octets"
        return f"<twinlink.State {self.name!r}: {what}; {self._link._describe()}>"

    # What an application writes

    def desire(self, key: str, payload: Payload | None, *, expires_s: float | None = None) -> int:
        """Say what is wanted for a key; returns the version.  None: nothing any more.

        Args:
            key: 1 to 128 octets of printable text.
            payload: as of `Sender.send`, at most 65,536 octets.
            expires_s: it ends on every node unless it is set again within this time.

        Does not wait.  Peers get it when they are up.

        Raises:
            ConfigurationError: an argument cannot be used, or the role of this node's identity may not desire.
            PayloadTooLarge, StateFull: nothing was set.
            LinkClosed: the link was closed.
        """
        if self._role not in {None, "twin"}:
            may = "may report and not desire" if self._role == "gnb" else "sets nothing"
            raise ConfigurationError(
                f"{self._link.node} has the role {self._role}, which {may}: its peers would not take it; give "
                "the node that decides the role twin (docs/state.md)"
            )
        return self._write(key, DESIRED, payload, expires_s, 0)

    def report(
        self,
        key: str,
        payload: Payload | None,
        *,
        column: str = REPORTED,
        answers: int = 0,
        expires_s: float | None = None,
    ) -> int:
        """Say what is the case for a key; returns the version.  None: nothing any more.

        Args:
            key, payload, expires_s: as of `desire`.
            column: what is reported: any name but ``desired``, where several things are.
            answers: version of the desired value that this answers.

        Raises what `desire` raises.
        """
        if self._role not in {None, "twin", "gnb"}:
            raise ConfigurationError(
                f"{self._link.node} has the role {self._role}, which sends nothing; give the node that reports the "
                "role gnb (docs/state.md)"
            )
        if column == DESIRED:
            raise ConfigurationError("column 'desired' is set by desire(), not by report()")
        if type(answers) is not int or answers < 0:
            raise ConfigurationError(f"answers must be the version of a desired value, not {answers!r}")
        return self._write(key, column, payload, expires_s, answers)

    def _write(self, key: str, column: str, payload: Payload | None, expires_s: float | None, answers: int) -> int:
        try:
            check_key(key)
            check_column(column)
        except MalformedPayload as error:
            raise ConfigurationError(f"state {self.name!r}: {error}") from None
        is_number = isinstance(expires_s, int | float) and not isinstance(expires_s, bool)
        if expires_s is not None and not (is_number and 0.001 <= expires_s <= MAX_EXPIRES_S):
            raise ConfigurationError(f"expires_s must be seconds from 0.001 to {MAX_EXPIRES_S:.0f}, not {expires_s!r}")
        octets = None if payload is None else payload if type(payload) is bytes else bytes(octets_of(payload))
        lifetime_ns = None if expires_s is None else int(expires_s * 1e9)
        with DeferSignals(), self._lock:
            self._link._check_open()
            version = self._replica.write(
                Slot(key, column), octets, time.time_ns(), time.monotonic_ns(), lifetime_ns=lifetime_ns, answers=answers
            )
            self._transmit()
        return version

    def flush(self, timeout: float | None = 1.0) -> None:
        """Return when every peer that is up has acknowledged what stands.

        Raises AckTimeout, which says why, after ``timeout`` seconds, or where the link is closed.
        """
        check_timeout(timeout)
        self._link._wait(lambda: self._is_flushed() or self._link.closed, timeout)
        if not self._is_flushed():
            up = ", ".join(self._link.peers())
            why = f"not every peer has acknowledged it; up are {up}" if up else "no peer is up to take it"
            why = "the link was closed" if self._link.closed else why
            raise AckTimeout(f"state {self.name!r} has not arrived everywhere: {why}", (), why)

    def _is_flushed(self) -> bool:
        with self._lock:
            return any(peer.up for peer in self._replica.peers.values()) and self._replica.is_acknowledged()

    # What it reads

    def __getitem__(self, key: str) -> Item:
        """The values of a key as they stand now; raises KeyError where there is none."""
        if (item := self.get(key)) is None:
            raise KeyError(key)
        return item

    def get(self, key: str) -> Item | None:
        """The values of a key as they stand now; None: there is none."""
        return next((item for item in self._items(key)), None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter([item.key for item in self.items()])

    def __len__(self) -> int:
        return len(self.items())

    def items(self) -> list[Item]:
        """All values as they stand now, by key, sorted."""
        return list(self._items(None))

    def _items(self, key: str | None) -> Iterator[Item]:
        found: dict[str, Item] = {}
        with self._lock:
            mono_ns = time.monotonic_ns()
            for slot in self._replica.slots():
                if key in {None, slot.key} and (value := self._replica.value(slot, mono_ns)) is not None:
                    found.setdefault(slot.key, Item(slot.key, {})).columns[slot.column] = value
        return iter(found.values())

    def receive(self, timeout: float | None = None) -> Change | None:
        """The next change that this side has not made; None when ``timeout`` seconds pass without one, or the link is
        closed.

        Of several changes of one value that were not taken, it is the newest.  With an ``on_change`` there are none.
        """
        check_timeout(timeout)
        self._link._wait(lambda: self._changes or self._link.closed, timeout)
        return self._take_change()

    def _count_changes(self) -> int:
        return len(self._changes)

    def _take_change(self) -> Change | None:
        with self._lock:
            slot = next(iter(self._changes), None)
            return self._changes.pop(slot) if slot is not None else None

    def changes(self, timeout: float | None = None) -> Iterator[Change]:
        """What `receive` returns, one after the other, until ``timeout`` seconds pass without one."""
        while (change := self.receive(timeout)) is not None:
            yield change

    def stats(self) -> dict[str, int]:
        """``values`` and ``octets`` that stand, and what was refused: see docs/state.md."""
        with self._lock:
            return self._replica.stats()

    # On the thread that receives

    def _on_message(self, message: Message) -> None:
        may_desire = self._may_desire(message.node)
        with self._lock:
            changes = self._replica.receive(
                message.epoch,
                message.payload,
                may_desire=may_desire,
                sent_ns=message.sent_ns,
                received_ns=message.received_ns,
                now_ns=time.time_ns(),
                mono_ns=time.monotonic_ns(),
            )
            self._transmit()
        self._tell(changes)

    def _may_desire(self, node: str | None) -> bool:
        if self._identity is None:
            return True
        peer = self._identity.by_name.get(node)
        return peer is not None and peer.may_send(DECISIONS)

    def _on_ack(self, ack: Ack) -> None:
        with self._lock:
            self._replica.on_ack(ack.epoch, ack.sequence, time.monotonic_ns())
            self._transmit()

    def _on_event(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, PeerUp):
                self._replica.on_peer_up(event.epoch, event.node, time.monotonic_ns())
            elif isinstance(event, PeerDown):
                self._replica.on_peer_down(event.epoch, event.reason in RETURNS, time.monotonic_ns())
            self._transmit()

    # On any thread

    def _transmit(self) -> None:
        """Send what is to be sent; the caller holds the lock, and nothing here waits."""
        mono_ns = time.monotonic_ns()
        while not self._link.closed and (octets := self._replica.poll_transmit(mono_ns)) is not None:
            sequence = -1  # no ack will have it, so it is sent again
            with suppress(LinkClosed, TransportError):
                sequence = self._sender.send(octets)
            self._replica.on_sent(sequence, mono_ns)
        due, earlier = self._replica.next_timeout(), self._due_mono_ns
        if due is not None and (earlier is None or due < earlier):
            self._due_mono_ns = due
            if threading.current_thread() is not self._thread:  # which looks itself
                self._timer.wake()

    def _tell(self, changes: list[Change]) -> None:
        """Give changes to the application, on the thread that leads; the caller holds no lock."""
        if not changes:
            return
        with self._lock:
            on_change = self._on_change
            for change in changes if on_change is None else ():
                slot = Slot(change.key, change.column)
                self._changes.pop(slot, None)  # it takes its place behind the others
                self._changes[slot] = change
        if on_change is not None:
            self._callbacks.enqueue(on_change, changes, FLOW + self.name)

    # On a thread of its own

    def _keep_time(self) -> None:
        while not self._closed:
            with self._lock:
                changes = self._replica.on_timeout(time.monotonic_ns())
                self._due_mono_ns = None
                self._transmit()
                due = self._due_mono_ns
            if changes:
                self._run_exclusively(lambda changes=changes: self._tell_now(changes))
            self._timer.wait(None if due is None else max(0.0, (due - time.monotonic_ns()) / 1e9))

    def _tell_now(self, changes: list[Change]) -> None:
        self._tell(changes)
        self._callbacks.run()

    def _close(self) -> None:
        self._closed = True
        self._timer.wake()
        self._thread.join(END_S)
