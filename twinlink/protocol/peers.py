"""The peers of a session: discovery, heartbeats, suspension and resumption, of which the senders are told.

No I/O, no clock.  One lock: threads of the application add senders while peers come and go.
"""

import logging
import threading
from collections.abc import Callable, Set

from .. import events as ev
from .authentication import PREFIX_OCTETS
from .context import Context
from .duplicate_names import DuplicateNames
from .frames import HEADER, HEADER_OCTETS, HELLO_TOPIC, MAX_SEQUENCE, Frame, Hello, Kind, MalformedFrame
from .frames import frame as make_frame
from .hello_positions import HelloPositions
from .limits import LimitCounters, Limits
from .liveness import BEHIND_NS, Peer, PeerState, PeerTable, PeerTransition
from .path import Path
from .reconnect import ProbeResult, ReconnectPolicy
from .send.congestion import MIN_IN_FLIGHT_OCTETS, InFlightBudget
from .send.endpoint import Priority, SendEndpoint

PAUSE_NS = 600_000_000  # ticks come ten times a second; after such a pause this side was stopped, not its peers
ANSWER_INTERVAL_NS = 20_000_000  # between two hellos that answer those of new peers: one answers all that came before
# A peer says what it owes as soon as it is up, a round trip after it has heard us.  Where this side stood still, some
# hellos that were sent before are read first.
NO_START_NS = 1_000_000_000
NO_START_HELLOS = 5
LOSSES_AT_ONCE = 1000  # events; the application's handler gets its turn in between
READ_INTERVAL_NS = 10_000_000  # between two looks which flows may go on, as their peers say what they have read
MAX_START_SEQUENCES = 512  # in one hello: it has room for so many

logger = logging.getLogger("twinlink")


class PeerManager:
    """Peers and senders of one session.

    For the thread that receives, except `add_sender`, `hello` and what is for people.

    Attributes:
        peers: every session that is known, with its state.
        up: epochs of the peers that are up; replaced, never changed, when every sender knows of it.
        senders: by flow.
        budgets: by priority, what its flows may have in flight.
        sends_urgent: whether this side has a flow that bulk data must not delay.
        receives_urgent: whether a peer may have such a flow.  Bulk data must not delay its acks for long.
        hello_due: a hello is to be sent now.
        alone: no peer is heard or suspended: only plain subscribers may hear what is sent.
    """

    def __init__(
        self,
        context: Context,
        path: Path,
        node: str,
        limits: Limits,
        limit_counters: LimitCounters,
        mono_ns: int,
        on_session_end: Callable[[int, int | None], None],
        urgent_flow: str = "",
    ) -> None:
        """``on_session_end(epoch, successor)``: a session will not return.  ``urgent_flow``: as for `Session`."""
        self.peers = PeerTable(context.epoch, mono_ns, limits.max_peers)
        self._limit_counters = limit_counters
        self.up: frozenset[int] = frozenset()
        self.hello_due, self.alone = False, True
        self.senders: dict[str, SendEndpoint] = {}
        self.budgets: dict[Priority, InFlightBudget] = {
            "high": InFlightBudget(MIN_IN_FLIGHT_OCTETS, path.hellos_overtake),
            "normal": InFlightBudget(MIN_IN_FLIGHT_OCTETS, path.hellos_overtake),
        }
        self.sends_urgent = self.receives_urgent = False
        self._urgent_flow = urgent_flow
        self._context = context
        self._path = path
        self._node = node
        self._epoch = context.epoch
        self._max_payload = limits.max_payload
        self._path_max_payload = path.frame_limit - HEADER_OCTETS
        self._on_session_end = on_session_end
        self._lock = threading.Lock()  # the peers that are up, and the senders that must know
        self._ticked_mono_ns = 0
        self._answer_due = False
        self._answered_mono_ns = self._read_mono_ns = 0
        self._drained_mono_ns = mono_ns
        self._reconnect = ReconnectPolicy(mono_ns)
        self._duplicate_names = DuplicateNames()
        self._hello_positions = HelloPositions()

    def add_sender(self, sender: SendEndpoint) -> None:
        """Tell this sender which peers are up or suspended, now and from now on."""
        with self._lock:
            for peer in self.peers.suspended():
                if peer.epoch not in self.up:
                    sender.on_peer_up(peer.epoch, peer.repairs, peer.max_payload)
                    sender.on_peer_down(peer.epoch, f"peer {peer.node} is down", True, None)
            for epoch in self.up:
                if (known := self.peers.get(epoch)) is not None:
                    sender.on_peer_up(epoch, known.repairs, known.max_payload)
            sender.max_payload = self._longest_payload()
            self.senders[sender.flow] = sender
            self.sends_urgent |= sender.priority == "high"

    def on_flow(self, name: str) -> None:
        """A flow that is received here has been named first.  May be called by any thread."""
        self.receives_urgent |= name == self._urgent_flow

    # What is known of a session

    def find(self, epoch: int) -> Peer | None:
        """The peer of a session, also of one that is suspended: its data may arrive before its next hello."""
        peer = self.peers.sessions.get(epoch)
        return peer if peer is not None and peer.state is not PeerState.REPLACED else None

    def start_sequence(self, epoch: int, flow: str) -> int:
        """The first number of a peer's flow that it owes this side; at least the next when it was first heard."""
        peer = self.find(epoch)
        return peer.flows.get(flow, 0) if peer is not None else 0

    def start_known(self, epoch: int) -> bool:
        """Whether a peer has said what it owes this side."""
        peer = self.find(epoch)
        return peer is not None and peer.start_known

    def read_positions(self, flow: str, mono_ns: int) -> dict[int, int]:
        """As `HelloPositions.read`, of the peers of this session."""
        return self._hello_positions.read(flow, list(self.peers.sessions.values()), mono_ns)

    def up_names(self) -> list[str]:
        """Names of the nodes that are up."""
        return sorted(peer.node for peer in self.peers.all() if peer.up)

    def names(self, epochs: frozenset[int]) -> str:
        """Names of these peers, for a person: those that are up or suspended."""
        names = [peer.node for peer in self.peers.all() if peer.up and peer.epoch in epochs]
        names += [f"{peer.node} (down, may return)" for peer in self.peers.suspended() if peer.epoch in epochs]
        return ", ".join(sorted(names)) or "no peer that is left"

    def smaller_limits(self, size: int) -> str:
        """What does not take a payload of so many octets: the path, or the peers by name, each with what it takes."""
        if self._path_max_payload < size:
            return f"the path takes at most {self._path_max_payload} ({self._path.frame_limit_reason})"
        up = [(peer.node, peer) for peer in self.peers.all() if peer.up]
        suspended = [(f"{peer.node} (down, may return)", peer) for peer in self.peers.suspended() if peer.repairs]
        return ", ".join(
            f"{name} takes at most {peer.max_payload}" for name, peer in up + suspended if peer.max_payload < size
        )

    def _longest_payload(self) -> int:
        """Octets of the longest payload that this side sends, the path takes, and some peer that is to get it.

        Those are the peers that are up, and those that may return and request what they missed.  For a peer that takes
        less, what is longer is lost.
        """
        sessions = list(self.peers.sessions.values())
        getting = [peer for peer in sessions if peer.up or (peer.is_suspended and peer.repairs)]
        of_peers = max((peer.max_payload for peer in getting), default=self._max_payload)
        return min(self._max_payload, self._path_max_payload, of_peers)

    def _look_at_path(self) -> None:
        """Give up what the path does not take, where it has become known to take less."""
        max_payload = self._path.frame_limit - HEADER_OCTETS
        if max_payload == self._path_max_payload:
            return
        shorter, self._path_max_payload = max_payload < self._path_max_payload, max_payload
        with self._lock:
            for sender in self.senders.values():
                sender.max_payload = self._longest_payload()
                if shorter:
                    sender.give_up_longer(max_payload, f"the path does not take it: {self._path.frame_limit_reason}")

    def _node_of(self, epoch: int) -> str:
        peer = self.peers.sessions.get(epoch)
        return peer.node if peer is not None else f"{epoch:016x}"

    def _up_count(self, node: str) -> int:
        return sum(peer.up and peer.node == node for peer in self.peers.all())

    # What comes in

    def on_bye(self, epoch: int) -> None:
        """A peer closes."""
        self._apply(self.peers.on_bye(epoch))
        self._update_alone()

    def end_untrusted(self, trusted: Set[bytes]) -> None:
        """End the sessions of peers that are no longer trusted: their epochs begin with none of these octets."""
        for epoch in list(self.peers.sessions):
            if epoch.to_bytes(8)[:PREFIX_OCTETS] not in trusted:
                self._apply(self.peers.on_bye(epoch, "untrusted"))
        self._update_alone()

    def revive(self, epoch: int, number: int, mono_ns: int) -> bool:
        """Whether a session that was taken for replaced goes on saying hello, so that two nodes have the same name."""
        return self.peers.revive(epoch, number, mono_ns)

    def on_hello(self, epoch: int, number: int, frame: Frame, mono_ns: int) -> tuple[Hello, bool] | None:
        """Take in a hello; returns it, and whether its session was not heard.  None: its session has been replaced.

        Raises MalformedFrame.
        """
        if number > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        hello = Hello.decode(memoryview(frame)[HEADER_OCTETS:])
        before = self.peers.sessions.get(epoch)
        if before is not None and before.state is PeerState.REPLACED:  # it waited on the way, or a name is used twice
            self._duplicate_names.on_stale_hello(hello.node, mono_ns - before.state_mono_ns)
            return None
        self._path.greeted()
        new = self.peers.get(epoch) is None
        joining = not (before and before.up) and self._path.joins(epoch, self._epoch in hello.heard)
        sent_ns = HEADER.unpack_from(frame)[4]
        reply, transitions = self.peers.on_hello(epoch, number, sent_ns, hello, mono_ns, joining, len(frame))
        if self.peers.get(epoch) is None:
            self._limit_counters.exceeded("peers")
            return None
        self.alone = False
        self._apply(transitions)
        current = self.peers.get(epoch)
        if reply:
            self._answer(mono_ns, at_once=current is not None and current.up)
        if current is not None and current.interrupted:  # so messages, acks and naks may be lost
            for sender in list(self.senders.values()):
                sender.probe()
        if len(self.up) > 1 and mono_ns - self._read_mono_ns >= READ_INTERVAL_NS:
            self._read_mono_ns = mono_ns
            for sender in list(self.senders.values()):
                sender.on_read(mono_ns)
        return hello, new

    def _answer(self, mono_ns: int, at_once: bool) -> None:
        """Have a hello sent: now, or for hellos of many new peers at intervals, as one hello answers all of them."""
        if at_once or mono_ns - self._answered_mono_ns >= ANSWER_INTERVAL_NS:
            self._answer_due, self._answered_mono_ns, self.hello_due = False, mono_ns, True
        else:
            self._answer_due = True

    def on_start_sequence(self, epoch: int, hello: Hello, mono_ns: int) -> bool:
        """Whether a peer says, for the first time, from where on it owes this side something; or never will."""
        peer = self.find(epoch)
        if peer is None or peer.start_known:
            return False
        starts = hello.start_sequences.get(self._epoch)
        if starts is None:
            if self._epoch in hello.heard:
                peer.hellos_without_start += 1
                peer.without_start_mono_ns = peer.without_start_mono_ns or mono_ns
            few = peer.hellos_without_start < NO_START_HELLOS
            if few or mono_ns - peer.without_start_mono_ns < NO_START_NS:
                return False
        peer.start_known = True
        peer.flows.update(starts or {})
        return True

    def on_probe_result(self, result: ProbeResult, mono_ns: int) -> int | None:
        """The other side's port has answered while no peer is up.

        Returns the multiple of the usual time-out with which the transport is to connect now; None: it goes on as it
        does.
        """
        escalated = self._reconnect.escalate_for(result.rtt_ns)
        return self._reconnect.on_connect(mono_ns) if result.newly_reachable or escalated else None

    def on_tick(self, drained_mono_ns: int) -> int | None:
        """Take out peers that have been silent for too long; report what senders have lost.

        ``drained_mono_ns`` is when the transport was last found with nothing to read.  Returns a multiple of the usual
        connection time-out where the transport is to connect anew, else None.
        """
        with self._context.uninterrupted():
            timeout_factor = self._tick(self._context.mono_ns, drained_mono_ns)
        while self._duplicate_names.to_report:
            logger.warning(
                "two nodes are called %s, and one of them will be taken for the other's restart: give each a name of "
                "its own (node=, --node)",
                self._duplicate_names.to_report.pop(),
            )
        return timeout_factor

    def _tick(self, now_mono_ns: int, drained_mono_ns: int) -> int | None:
        if now_mono_ns - self._ticked_mono_ns > PAUSE_NS:
            self.peers.restart_timers(now_mono_ns)
        self._ticked_mono_ns, self._drained_mono_ns = now_mono_ns, drained_mono_ns
        self._look_at_path()
        self._apply(transitions := self.peers.expire(now_mono_ns, drained_mono_ns))
        self.hello_due |= bool(transitions) or self._answer_due  # a peer that cannot be heard is to know it
        self._answer_due = False
        self._update_alone()
        if not self.peers.all():
            self._path.parted()
        self._duplicate_names.on_tick(now_mono_ns, self._up_count)
        self.report_losses()
        self._report_pace()
        return self._reconnect.on_tick(not self.up, now_mono_ns)

    def _apply(self, transitions: list[PeerTransition]) -> None:
        """Tell the senders, then the application by events, which peers came and went."""
        context = self._context
        for transition in transitions:
            peer = transition.peer
            if transition.reason is None:
                self._reconnect.on_peer_up(peer.rtt_bound_ns)
                if self._up_count(peer.node) > 1:
                    self._duplicate_names.suspect(peer.node, context.mono_ns)
            elif peer.is_suspended:
                if self._path.gives_up_ns:
                    for budget in self.budgets.values():
                        budget.apply_backpressure(self._path.direct_octets, context.mono_ns + self._path.gives_up_ns)
            else:
                self._on_session_end(peer.epoch, transition.successor)
            self._tell_senders(transition)
        for peer, reason, successor, ended in transitions:
            if reason is None:
                context.report(ev.PeerUp(context.now_ns, peer.node, peer.epoch))
            elif not ended:
                context.report(ev.PeerDown(context.now_ns, peer.node, peer.epoch, reason))
                if successor is not None:
                    context.report(ev.Restarted(context.now_ns, peer.node, peer.epoch, successor))
        if transitions:
            self.report_losses()

    def _tell_senders(self, transition: PeerTransition) -> None:
        peer, reason, successor, ended = transition
        with self._lock:
            max_payload = self._longest_payload()
            for sender in self.senders.values():
                sender.max_payload = max_payload
                if reason is None:
                    sender.on_peer_up(peer.epoch, peer.repairs, peer.max_payload)
                elif ended:
                    sender.on_peer_ended(peer.epoch, reason, successor)
                else:
                    text = f"peer {peer.node} went down ({reason})"
                    sender.on_peer_down(peer.epoch, text, peer.is_suspended, successor)
            self.up = self.up | {peer.epoch} if reason is None else self.up - {peer.epoch}

    def _update_alone(self) -> None:
        self.alone = not any(peer.is_heard or peer.is_suspended for peer in list(self.peers.sessions.values()))

    # What goes out

    def hello(self, mono_ns: int, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame of a hello: which peers are heard, and where the flows stand.

        Hellos must leave in the order in which they are made: an older one that went out after a newer one would say
        that this side hears less than it does.
        """
        self.hello_due = False
        senders = list(self.senders.items())
        flows = {flow: sender.next_to_send for flow, sender in senders}
        self._hello_positions.add(mono_ns, flows)
        detect = frozenset(flow for flow, sender in senders if sender.reliability == "detect")
        heard = {peer.epoch: peer.hello_number for peer in self.peers.all() if not peer.joining}
        behind = mono_ns - self._drained_mono_ns > BEHIND_NS  # a backlog, or a handler that takes its time
        starts = self._start_sequences(mono_ns, senders)
        body = Hello(self._node, heard, flows, True, detect, behind, self._max_payload, starts).encode()
        return HELLO_TOPIC, make_frame(Kind.HELLO, self._epoch, self.peers.number(mono_ns), now_ns, body)

    def bye(self, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame that say that this session ends."""
        return HELLO_TOPIC, make_frame(Kind.BYE, self._epoch, 0, now_ns, b"")

    def _start_sequences(self, number: int, senders: list[tuple[str, SendEndpoint]]) -> dict[int, dict[str, int]]:
        """For the peers that are up and may not know it yet: the first number of each flow that is owed to them."""
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
            for sender in [one for one in list(self.senders.values()) if one.losses.unreported]:
                for first, end, reason, epochs in sender.take_losses(LOSSES_AT_ONCE):
                    names = tuple(sorted(self._node_of(epoch) for epoch in epochs))
                    context.report(ev.Lost(context.now_ns, sender.flow, first, end, reason, names))
                left |= bool(sender.losses.unreported)
        return left

    def _report_pace(self) -> None:
        """Report which peers are slow, and which have caught up."""
        context = self._context
        for sender in [one for one in list(self.senders.values()) if one.pace_changes]:
            for epoch, behind in sender.take_pace_changes().items():
                node = self._node_of(epoch)
                if behind:
                    context.report(ev.PeerSlow(context.now_ns, node, epoch, sender.flow, behind))
                else:
                    context.report(ev.PeerCaughtUp(context.now_ns, node, epoch, sender.flow))
