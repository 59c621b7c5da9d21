"""The peers of a session: discovery, heartbeats, suspension and resumption, of which the senders are told.

No I/O, no clock.  One lock: threads of the application add senders while peers come and go.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from .. import events as ev
from .context import Context
from .frames import HEADER, HEADER_OCTETS, HELLO_TOPIC, MAX_SEQUENCE, Frame, Hello, Kind, MalformedFrame
from .frames import frame as make_frame
from .liveness import BEHIND_NS, Peer, PeerTable, PeerTransition
from .reconnect import ProbeResult, ReconnectPolicy
from .send.congestion import MIN_IN_FLIGHT_OCTETS, InFlightBudget
from .send.endpoint import Priority, SendEndpoint

PAUSE_NS = 600_000_000  # ticks come ten times a second; after such a pause this side was stopped, not its peers
SUSPENDED_NS = 120_000_000_000  # a session that has been silent for so long will not return
RESUMABLE = frozenset({"silent", "deaf"})  # reasons for which a session is down and may come up again
MAX_REMEMBERED = 2048
DUPLICATE_NAME_NS = 3_000_000_000  # a session that is heard for so long beside its successor has not been restarted
# A peer says what it owes as soon as it is up, a round trip after it has heard us.  Where this side stood still, some
# hellos that were sent before are read first.
NO_START_NS = 1_000_000_000
NO_START_HELLOS = 5
LOSSES_AT_ONCE = 1000  # events; the application's handler gets its turn in between
MAX_START_SEQUENCES = 512  # in one hello: it has room for so many

logger = logging.getLogger("twinlink")


class Path(Protocol):
    """The transport, as far as the peers of a session need it."""

    @property
    def gives_up_ns(self) -> int:
        """So long after a peer fell silent a transmission may wait for it; 0: it never waits."""

    @property
    def direct_octets(self) -> int:
        """So many octets may be in flight before the congestion limit holds back."""

    def joins(self, epoch: int, hears_us: bool) -> bool:
        """Whether this peer has connected, and gets hellos and acks but no messages yet."""

    def greeted(self) -> None:
        """A peer has said hello."""

    def parted(self) -> None:
        """No peer is heard any more, or yet."""


class PeerManager:
    """Peers and senders of one session.

    For the thread that receives, except `add_sender`, `hello` and what is for people.

    Attributes:
        peers: the sessions that are heard.
        up: epochs of the peers that are up; replaced, never changed, when every sender knows of it.
        senders: by flow.
        budgets: by priority, what its flows may have in flight.
        has_urgent: whether there is a flow, ours or a peer's, that bulk data is not to delay.
        hello_due: a hello is to be sent now.
    """

    def __init__(
        self,
        context: Context,
        path: Path,
        node: str,
        max_payload: int,
        mono_ns: int,
        on_session_end: Callable[[int, int | None], None],
    ) -> None:
        """``on_session_end(epoch, successor)`` is called when a session will not return."""
        self.peers = PeerTable(context.epoch, mono_ns)
        self.up: frozenset[int] = frozenset()
        self.hello_due = False
        self.senders: dict[str, SendEndpoint] = {}
        self.budgets: dict[Priority, InFlightBudget] = {
            "high": InFlightBudget(MIN_IN_FLIGHT_OCTETS),
            "normal": InFlightBudget(MIN_IN_FLIGHT_OCTETS),
        }
        self.has_urgent = False
        self._context = context
        self._path = path
        self._node = node
        self._epoch = context.epoch
        self._max_payload = max_payload
        self._on_session_end = on_session_end
        self._lock = threading.Lock()  # the peers that are up, and the senders that must know
        self._ticked_mono_ns = 0
        self._drained_mono_ns = mono_ns
        self._reconnect = ReconnectPolicy(mono_ns)
        self._suspended: dict[int, tuple[int, Peer]] = {}  # epochs that fell silent -> monotonic ns, as it was then
        self._known: dict[int, Peer] = {}  # by epoch, as they were when they were first heard
        self._superseded: dict[int, int] = {}  # epochs whose node has begun a newer session -> monotonic ns then
        self._duplicate_names: dict[str, int] = {}  # node names under which two were up -> monotonic ns
        self._duplicates_reported: set[str] = set()  # of them, those that the log has named, ...
        self._duplicates_to_report: list[str] = []  # ... or is to name

    def add_sender(self, sender: SendEndpoint) -> None:
        """Tell this sender which peers are up or suspended, now and from now on."""
        with self._lock:
            for epoch, (_, away) in list(self._suspended.items()):
                if epoch not in self.up:
                    sender.on_peer_up(epoch, away.repairs, away.max_payload)
                    sender.on_peer_down(epoch, f"peer {away.node} is down", True, None)
            for epoch in self.up:
                if (peer := self.peers.get(epoch)) is not None:
                    sender.on_peer_up(epoch, peer.repairs, peer.max_payload)
            sender.max_payload = self._max_payload_of_all()
            self.senders[sender.flow] = sender
            self.has_urgent |= sender.priority == "high"

    @property
    def alone(self) -> bool:
        """Whether no node is heard, nor has fallen silent and may return: only others may hear what is sent."""
        return not self._suspended and not self.peers.heard_mono_ns

    def start_sequence(self, epoch: int, flow: str) -> int:
        """The first number of a peer's flow that it owes us; the next to leave when it was first heard, at least."""
        return self._known[epoch].flows.get(flow, 0) if epoch in self._known else 0

    def start_known(self, epoch: int) -> bool:
        """Whether a peer has said what it owes us."""
        return epoch in self._known and self._known[epoch].start_known

    def on_start_sequence(self, epoch: int, hello: Hello, mono_ns: int) -> bool:
        """Whether a peer says, for the first time, what it owes us from where on; or hears us, and will not say it."""
        known_peer = self._known.get(epoch)
        if known_peer is None or known_peer.start_known:
            return False
        starts = hello.start_sequences.get(self._epoch)
        if starts is None:
            if self._epoch in hello.heard:
                known_peer.hellos_without_start += 1
                known_peer.without_start_mono_ns = known_peer.without_start_mono_ns or mono_ns
            if (
                known_peer.hellos_without_start < NO_START_HELLOS
                or mono_ns - known_peer.without_start_mono_ns < NO_START_NS
            ):
                return False
        known_peer.start_known = True
        known_peer.flows.update(starts or {})
        return True

    def find(self, epoch: int) -> Peer | None:
        """Whose session this is, also one that has fallen silent: its data may arrive before its next hello."""
        return self.peers.get(epoch) or self._known.get(epoch)

    def on_bye(self, epoch: int) -> None:
        """A peer closes."""
        self._apply(self.peers.on_bye(epoch))
        if epoch in self._suspended:
            self._end_suspended(epoch, f"peer {self._suspended[epoch][1].node} closed")

    def on_hello(self, epoch: int, number: int, frame: Frame, mono_ns: int) -> tuple[Hello, bool] | None:
        """Take in a hello; returns it, and whether its peer was not known.  None: it is of a session that is over.

        Raises MalformedFrame.
        """
        if number > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        hello = Hello.decode(memoryview(frame)[HEADER_OCTETS:])
        if epoch in self._superseded:  # it waited on the way; or two nodes have one name, and this one's data are stale
            if mono_ns - self._superseded[epoch] > DUPLICATE_NAME_NS:
                self._report_duplicate_name(hello.node)
            return None
        sent_ns = HEADER.unpack_from(frame)[4]
        self._path.greeted()
        before = self.peers.get(epoch)
        known = before is not None
        joining = not (before and before.up) and self._path.joins(epoch, self._epoch in hello.heard)
        for suspended, (_, peer) in list(self._suspended.items()):
            replaced = peer.node == hello.node and suspended != epoch and not peer.is_later_than(number, sent_ns)
            if replaced and not (known and self.peers.get(suspended)):  # nothing of the old session may follow
                self._end_suspended(suspended, f"peer {peer.node} was restarted", epoch)
        reply, transitions = self.peers.on_hello(epoch, number, sent_ns, hello, mono_ns, joining)
        current = self.peers.get(epoch)
        if current is not None:
            self._known.setdefault(epoch, current)
        self._apply(transitions)
        self.hello_due |= reply
        if current is not None and current.interrupted:  # so messages, acks and naks may be lost
            for sender in list(self.senders.values()):
                sender.probe()
        return hello, not known

    def on_tick(self, drained_mono_ns: int) -> int | None:
        """Take out peers that have been silent for too long; report what senders have lost.

        ``drained_mono_ns`` is when the transport was last found with nothing to read.  Returns a multiple of the usual
        connection time-out where the transport is to connect anew, else None.
        """
        with self._context.uninterrupted():
            timeout_factor = self._tick(self._context.mono_ns, drained_mono_ns)
        while self._duplicates_to_report:
            logger.warning(
                "two nodes are called %s, and one of them will be taken for the other's restart: give each a name of "
                "its own (node=, --node)",
                self._duplicates_to_report.pop(),
            )
        return timeout_factor

    def on_probe_result(self, result: ProbeResult, mono_ns: int) -> int | None:
        """The other side's port has answered while no peer is up.

        Returns the multiple of the usual time-out with which the transport is to connect now; None: it goes on as it
        does.
        """
        escalated = self._reconnect.escalate_for(result.rtt_ns)
        return self._reconnect.on_connect(mono_ns) if result.newly_reachable or escalated else None

    def _tick(self, now_mono_ns: int, drained_mono_ns: int) -> int | None:
        if now_mono_ns - self._ticked_mono_ns > PAUSE_NS:
            self.peers.restart_timers(now_mono_ns)
        self._ticked_mono_ns, self._drained_mono_ns = now_mono_ns, drained_mono_ns
        transitions = self.peers.expire(now_mono_ns, drained_mono_ns)
        self._apply(transitions)
        if not self.peers.heard_mono_ns:
            self._path.parted()
        self.hello_due |= bool(transitions)  # a peer that cannot be heard is to know it
        for epoch, (since_ns, peer) in list(self._suspended.items()):
            if now_mono_ns - since_ns > SUSPENDED_NS:
                self._end_suspended(epoch, f"peer {peer.node} was silent for {SUSPENDED_NS // 1_000_000_000} s")
        timeout_factor = self._reconnect.on_tick(not self.up, now_mono_ns)
        for node, since_ns in list(self._duplicate_names.items()):
            if now_mono_ns - since_ns > DUPLICATE_NAME_NS:
                del self._duplicate_names[node]
                if self._up_count(node) > 1:
                    self._report_duplicate_name(node)
        if len(self._known) > MAX_REMEMBERED:
            current_epochs = {peer.epoch for peer in self.peers.all()} | self._suspended.keys()
            self._known = {epoch: peer for epoch, peer in self._known.items() if epoch in current_epochs}
        self.report_losses()
        return timeout_factor

    def _apply(self, transitions: list[PeerTransition]) -> None:
        """Tell the senders, then the application by events, which peers came and went."""
        context = self._context
        for transition in transitions:
            peer, reason = transition.peer, transition.reason
            if reason is None:
                self._reconnect.on_peer_up(peer.rtt_bound_ns)
                if self._up_count(peer.node) > 1:
                    self._duplicate_names.setdefault(peer.node, self._ticked_mono_ns)
            elif reason in RESUMABLE:
                self._suspended[peer.epoch] = (self._ticked_mono_ns, peer)
                if self._path.gives_up_ns:
                    for budget in self.budgets.values():
                        budget.apply_backpressure(self._path.direct_octets, context.mono_ns + self._path.gives_up_ns)
            else:
                self._end_session(peer.epoch, transition.successor)
            with self._lock:
                max_payload = self._max_payload_of_all()
                for sender in self.senders.values():
                    sender.max_payload = max_payload
                    if reason is None:
                        sender.on_peer_up(peer.epoch, peer.repairs, peer.max_payload)
                    else:
                        text = f"peer {peer.node} went down ({reason})"
                        sender.on_peer_down(peer.epoch, text, reason in RESUMABLE, transition.successor)
                self.up = self.up | {peer.epoch} if reason is None else self.up - {peer.epoch}
                if reason is None:
                    self._suspended.pop(peer.epoch, None)
        for transition in transitions:
            peer = transition.peer
            if transition.reason is None:
                context.report(ev.PeerUp(context.now_ns, peer.node, peer.epoch))
            else:
                context.report(ev.PeerDown(context.now_ns, peer.node, peer.epoch, transition.reason))
            if transition.successor is not None:
                context.report(ev.Restarted(context.now_ns, peer.node, peer.epoch, transition.successor))
        if transitions:
            self.report_losses()

    def _max_payload_of_all(self) -> int:
        """Octets of the longest payload that this node sends and that all peers take which are to get what is sent now.

        Those are the peers that are up, and those that may return and ask for what they missed.  A peer would ask for a
        message that it does not take again and again, which would hold up all that follows, for the others too.
        """
        suspended = (peer.max_payload for _, peer in list(self._suspended.values()) if peer.repairs)
        return min([self._max_payload, *suspended, *(peer.max_payload for peer in self.peers.all() if peer.up)])

    def smaller_limits(self, size: int) -> str:
        """Names of those who do not take a payload of so many octets, each with what it takes."""
        up = [(peer.node, peer) for peer in self.peers.all() if peer.up]
        suspended = [
            (f"{peer.node} (down, may return)", peer) for _, peer in list(self._suspended.values()) if peer.repairs
        ]
        return ", ".join(
            f"{name} takes at most {peer.max_payload}" for name, peer in up + suspended if peer.max_payload < size
        )

    def _end_suspended(self, epoch: int, reason: str, successor: int | None = None) -> None:
        """A session that had fallen silent will not come back: tell the senders, who kept messages for it."""
        del self._suspended[epoch]
        self._end_session(epoch, successor)
        with self._lock:
            for sender in self.senders.values():
                sender.on_peer_ended(epoch, reason, successor)
                sender.max_payload = self._max_payload_of_all()

    def _end_session(self, epoch: int, successor: int | None) -> None:
        """A session will not come back: nothing of it is remembered here."""
        self._known.pop(epoch, None)
        if successor is not None:
            self._superseded[epoch] = self._ticked_mono_ns
            if len(self._superseded) > MAX_REMEMBERED:
                del self._superseded[next(iter(self._superseded))]
        self._on_session_end(epoch, successor)

    def _up_count(self, node: str) -> int:
        return sum(peer.up and peer.node == node for peer in self.peers.all())

    def _report_duplicate_name(self, node: str) -> None:
        """Once: who falls silent for a moment counts as replaced by the other, and is passed over from then on."""
        if node not in self._duplicates_reported and len(self._duplicates_reported) < MAX_REMEMBERED:
            self._duplicates_reported.add(node)
            self._duplicates_to_report.append(node)

    def names(self, epochs: frozenset[int]) -> str:
        """Names of these peers, for a person: those that are up, or have fallen silent and may return."""
        names = [peer.node for peer in self.peers.all() if peer.up and peer.epoch in epochs]
        names += [
            f"{peer.node} (down, may return)" for one, (_, peer) in list(self._suspended.items()) if one in epochs
        ]
        return ", ".join(sorted(names)) or "nobody who is left"

    def hello(self, mono_ns: int, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame of a hello: which peers are heard, and where the flows stand.

        Hellos must leave in the order in which they are made: an older one that went out after a newer one would say
        that this side hears less than it does.
        """
        self.hello_due = False
        senders = list(self.senders.items())
        flows = {flow: sender.next_to_send for flow, sender in senders}
        detect = frozenset(flow for flow, sender in senders if sender.reliability == "detect")
        heard = {peer.epoch: peer.hello_number for peer in self.peers.all() if not peer.joining}
        behind = mono_ns - self._drained_mono_ns > BEHIND_NS  # a backlog, or a handler that takes its time
        starts = self._start_sequences(mono_ns, senders)
        body = Hello(self._node, heard, flows, True, detect, behind, self._max_payload, starts).encode()
        return HELLO_TOPIC, make_frame(Kind.HELLO, self._epoch, mono_ns, now_ns, body)

    def bye(self, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame that say that this session ends."""
        return HELLO_TOPIC, make_frame(Kind.BYE, self._epoch, 0, now_ns, b"")

    def _start_sequences(self, number: int, senders: list[tuple[str, SendEndpoint]]) -> dict[int, dict[str, int]]:
        """What hello ``number`` says to those who have come up and may not know yet from where on they are owed."""
        starts: dict[int, dict[str, int]] = {}
        for peer in reversed(self.peers.all()):
            if peer.epoch not in self.up or peer.confirmed >= (peer.start_sent or number):
                continue
            if starts and (len(starts) + 1) * len(senders) > MAX_START_SEQUENCES:
                break
            peer.start_sent = peer.start_sent or number
            joined = {flow: sender.first_owed_by(peer.epoch) for flow, sender in senders[:MAX_START_SEQUENCES]}
            starts[peer.epoch] = {flow: first for flow, first in joined.items() if first is not None}
        return starts

    def report_losses(self) -> bool:
        """Report what the senders have lost since the last call; whether some of it is left for the next call.

        That is so where it is in very many ranges.
        """
        context, left = self._context, False
        with context.uninterrupted():
            for sender in list(self.senders.values()):
                if sender.losses.unreported:
                    for first, end, reason in sender.take_losses(LOSSES_AT_ONCE):
                        context.report(ev.Lost(context.now_ns, sender.flow, first, end, reason))
                    left |= bool(sender.losses.unreported)
        return left
