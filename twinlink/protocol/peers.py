"""The peers of a session: discovery, heartbeats, suspension and resumption.  No I/O, no clock."""

from collections.abc import Set
from typing import NamedTuple, Protocol

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

PAUSE_NS = 600_000_000  # ticks come ten times a second; after such a pause this side was stopped, not its peers
ANSWER_INTERVAL_NS = 20_000_000  # between two hellos that answer those of new peers: one answers all that came before
# A peer says what it owes in the first hello after the one of ours that made us up there; of many peers, in one soon
# after.  That one may be lost, and hellos may overtake each other.
NO_START_NS = 1_000_000_000
NO_START_HELLOS = 5
MAX_START_SEQUENCES = 512  # in one hello: it has room for so many


class AnnouncedFlows(Protocol):
    """What hellos say of the flows that this side sends."""

    @property
    def detect(self) -> frozenset[str]:
        """Those without retransmission."""

    def positions(self) -> dict[str, int]:
        """By flow, the first number that has not been transmitted.  Replaced, never changed."""

    def first_owed_by(self, epoch: int, most: int) -> dict[str, int]:
        """By flow, for at most so many, the first number that was owed to a peer when it came up."""


class HelloReceived(NamedTuple):
    """A hello that counts.

    Attributes:
        new: its session was not heard.
        interrupted: before it, hellos did not get through for a while: messages, acks and naks may be lost.
    """

    hello: Hello
    new: bool
    interrupted: bool


class PeerManager:
    """Peers of one session.

    Attributes:
        peers: every session that is known, with its state.
        up: epochs of the peers that are up.  Replaced, never changed.
        transitions: what has changed, for the session to act upon.
        duplicate_names: names of two nodes each.
        alone: no peer is heard or suspended: only plain subscribers may hear what is sent.
        path_max_payload: octets of the longest payload that the path takes, as far as is known.
    """

    def __init__(
        self, context: Context, path: Path, node: str, limits: Limits, limit_counters: LimitCounters, mono_ns: int
    ) -> None:
        self.peers = PeerTable(context.epoch, mono_ns, limits.max_peers)
        self._limit_counters = limit_counters
        self.up: frozenset[int] = frozenset()
        self.transitions: list[PeerTransition] = []
        self.duplicate_names = DuplicateNames()
        self.alone = True
        self._context = context
        self._path = path
        self._node = node
        self._epoch = context.epoch
        self._max_payload = limits.max_payload
        self.path_max_payload = path.frame_limit - HEADER_OCTETS
        self._ticked_mono_ns = 0
        self._answer_due = False
        self._answered_mono_ns = 0
        self._drained_mono_ns = mono_ns
        self._reconnect = ReconnectPolicy(mono_ns)
        self._hello_positions = HelloPositions()

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
        if len(self.up) < 2:
            return {}
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
        if self.path_max_payload < size:
            return f"the path takes at most {self.path_max_payload} ({self._path.frame_limit_reason})"
        up = [(peer.node, peer) for peer in self.peers.all() if peer.up]
        suspended = [(f"{peer.node} (down, may return)", peer) for peer in self.peers.suspended() if peer.repairs]
        return ", ".join(
            f"{name} takes at most {peer.max_payload}" for name, peer in up + suspended if peer.max_payload < size
        )

    def longest_payload(self) -> int:
        """Octets of the longest payload that this side sends, the path takes, and some peer that is to get it.

        Those are the peers that are up, and those that may return and request what they missed.  For a peer that takes
        less, what is longer is lost.
        """
        sessions = list(self.peers.sessions.values())
        getting = [peer for peer in sessions if peer.up or (peer.is_suspended and peer.repairs)]
        of_peers = max((peer.max_payload for peer in getting), default=self._max_payload)
        return min(self._max_payload, self.path_max_payload, of_peers)

    def look_at_path(self) -> int:
        """Take in what the path takes, as far as it is known now; returns octets of payload more than before."""
        before, self.path_max_payload = self.path_max_payload, self._path.frame_limit - HEADER_OCTETS
        return self.path_max_payload - before

    def node_of(self, epoch: int) -> str:
        """Name of the node of a session, or its epoch where it is not known."""
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

    def on_hello(self, epoch: int, number: int, frame: Frame, mono_ns: int) -> HelloReceived | None:
        """Take in a hello; None: its session has been replaced.  Raises MalformedFrame."""
        if number > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        hello = Hello.decode(memoryview(frame)[HEADER_OCTETS:])
        before = self.peers.sessions.get(epoch)
        if before is not None and before.state is PeerState.REPLACED:  # it waited on the way, or a name is used twice
            self.duplicate_names.on_stale_hello(hello.node, mono_ns - before.state_mono_ns)
            return None
        self._path.greeted()
        new = self.peers.get(epoch) is None
        joining = not (before and before.up) and self._path.joins(epoch, self._epoch in hello.heard)
        sent_ns = HEADER.unpack_from(frame)[4]
        reply, transitions = self.peers.on_hello(epoch, number, sent_ns, hello, mono_ns, joining, len(frame))
        self._apply(transitions)
        current = self.peers.get(epoch)
        if current is None:
            self._limit_counters.exceeded("peers")
            return None
        self.alone = False
        if new:
            self._reconnect.on_heard(mono_ns)
        if reply:
            self._answer(mono_ns, at_once=current.up)
        return HelloReceived(hello, new, current.interrupted)

    def _answer(self, mono_ns: int, at_once: bool) -> None:
        """Have a hello sent: now, or for hellos of many new peers at intervals, as one hello answers all of them."""
        if at_once or mono_ns - self._answered_mono_ns >= ANSWER_INTERVAL_NS:
            self._answer_due, self._answered_mono_ns, self._context.hello_due = False, mono_ns, True
        else:
            self._answer_due = True

    def on_start_sequence(self, epoch: int, hello: Hello, mono_ns: int) -> bool:
        """Whether a peer says, for the first time, from where on it owes this side something; or never will."""
        peer = self.find(epoch)
        if peer is None or peer.start_known:
            return False
        starts = hello.start_sequences.get(self._epoch)
        if starts is None:
            if 0 < peer.start_sent <= peer.confirmed:  # it has read that this side hears it, however late that was
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
        """Take out peers that have been silent for too long.

        ``drained_mono_ns`` is when the transport was last found with nothing to read.  Returns a multiple of the usual
        connection time-out where the transport is to connect anew, else None.
        """
        context = self._context
        now_mono_ns = context.mono_ns
        if now_mono_ns - self._ticked_mono_ns > PAUSE_NS:
            self.peers.restart_timers(now_mono_ns)
        self._ticked_mono_ns, self._drained_mono_ns = now_mono_ns, drained_mono_ns
        self._apply(expired := self.peers.expire(now_mono_ns, drained_mono_ns))
        context.hello_due |= bool(expired) or self._answer_due  # a peer that cannot be heard is to know it
        self._answer_due = False
        self._update_alone()
        if not self.peers.all():
            self._path.parted()
        self.duplicate_names.on_tick(now_mono_ns, self._up_count)
        # What has not been read may have a peer come up, with its data behind: they would be lost with the connection.
        return self._reconnect.on_tick(not self.up, min(now_mono_ns, drained_mono_ns))

    def _apply(self, transitions: list[PeerTransition]) -> None:
        """Note which peers came and went."""
        for transition in transitions:
            peer = transition.peer
            if transition.reason is None:
                self.up |= {peer.epoch}
                self._reconnect.on_peer_up(peer.rtt_bound_ns)
                if self._up_count(peer.node) > 1:
                    self.duplicate_names.suspect(peer.node, self._context.mono_ns)
            else:
                self.up -= {peer.epoch}
        self.transitions += transitions

    def _update_alone(self) -> None:
        self.alone = not any(peer.is_heard or peer.is_suspended for peer in list(self.peers.sessions.values()))

    # What goes out

    def hello(self, mono_ns: int, now_ns: int, flows: AnnouncedFlows) -> tuple[bytes, bytes]:
        """Topic and frame of a hello: which peers are heard, and where the ``flows`` that this side sends stand.

        Hellos must leave in the order in which they are made: an older one that went out after a newer one would say
        that this side hears less than it does.
        """
        self._context.hello_due = False
        positions = flows.positions()
        self._hello_positions.add(mono_ns, positions)
        heard = {peer.epoch: peer.hello_number for peer in self.peers.all() if not peer.joining}
        behind = mono_ns - self._drained_mono_ns > BEHIND_NS  # a backlog, or a handler that takes its time
        starts = self._start_sequences(mono_ns, flows, len(positions))
        hello = Hello(self._node, heard, positions, True, flows.detect, behind, self._max_payload, starts, runs=True)
        number = self.peers.number(mono_ns)
        return HELLO_TOPIC, make_frame(Kind.HELLO, self._epoch, number, now_ns, hello.encode())

    def bye(self, now_ns: int) -> tuple[bytes, bytes]:
        """Topic and frame that say that this session ends."""
        return HELLO_TOPIC, make_frame(Kind.BYE, self._epoch, 0, now_ns, b"")

    def _start_sequences(self, number: int, flows: AnnouncedFlows, count: int) -> dict[int, dict[str, int]]:
        """For the peers that are up and may not know it yet: the first number of each flow that is owed to them."""
        starts: dict[int, dict[str, int]] = {}
        for peer in reversed(self.peers.all()):
            if peer.epoch not in self.up or peer.confirmed >= (peer.start_sent or number):
                continue
            if starts and (len(starts) + 1) * count > MAX_START_SEQUENCES:
                break
            peer.start_sent = peer.start_sent or number
            starts[peer.epoch] = flows.first_owed_by(peer.epoch, MAX_START_SEQUENCES)
        return starts
