"""The sending flows of a session: they take in peers and time, and transmit in turns.  No I/O, no clock."""

from collections.abc import Iterable

from ... import events as ev
from ..context import Context
from ..frames import MessageFrame
from ..liveness import PeerTransition
from ..path import Path
from ..peers import PeerManager
from .abandonment import give_up_longer
from .budgets import Budgets
from .flow import SendFlow
from .options import FlowOptions

LOSSES_AT_ONCE = 1000  # events; the application's handler gets its turn in between
READ_INTERVAL_NS = 10_000_000  # between two checks which flows may go on, as their peers have read more
PACE_CHECK_NS = 5_000_000  # between two because of acks, which come by the thousand
REST_TICKS = 150  # an idle flow has a tick so seldom all the same: a session may have a thousand of them


class SendFlows:
    """The sending flows of one session.

    A flow is *awake* until a tick finds that it awaits nothing; what happens to it wakes it.  Ticks and hellos cost
    nothing for the others.

    Attributes:
        flows: by name.
        by_ack_topic: the same.
        budgets: what they may have in flight.
        detect: names of the flows without retransmission.
    """

    def __init__(self, context: Context, path: Path, peer_manager: PeerManager) -> None:
        self.flows: dict[str, SendFlow] = {}
        self.by_ack_topic: dict[bytes, SendFlow] = {}
        self.budgets = Budgets(path, self._on_room)
        context.max_payload = peer_manager.longest_payload()
        self._context = context
        self._path = path
        self._peer_manager = peer_manager
        self.detect = frozenset[str]()
        self._awake: dict[str, SendFlow] = {}
        self._positions: dict[str, int] = {}  # replaced, never changed
        self._rest_turn = 0  # of the idle flows
        self._first = ""  # the flow of normal priority that is the first to transmit
        self._read_mono_ns = 0

    def _on_room(self) -> None:
        self._context.transmit_due = True

    def open(self, name: str, window: int, retention: int, options: FlowOptions, framing_octets: int) -> SendFlow:
        """A new flow, which knows the peers that are up or suspended."""
        flow = SendFlow(
            name,
            window,
            retention,
            self.budgets.of[options.priority],
            options,
            epoch=self._context.epoch,
            framing_octets=framing_octets,
        )
        self.add(flow)
        return flow

    def add(self, flow: SendFlow) -> None:
        """Tell a new flow which peers are up or suspended, now and from now on."""
        peers = self._peer_manager.peers
        for peer in peers.suspended():
            flow.on_peer_up(peer.epoch, peer.repairs, peer.max_payload, peer.runs)
            flow.on_peer_down(peer.epoch, f"peer {peer.node} is down", True, None)
        for epoch in self._peer_manager.up:
            if (known := peers.get(epoch)) is not None:
                flow.on_peer_up(epoch, known.repairs, known.max_payload, known.runs)
        self.flows[flow.flow] = self.by_ack_topic[f"ack/{flow.flow}".encode()] = flow
        self._positions = {**self._positions, flow.flow: flow.next_to_send}
        if not flow.repair:
            self.detect |= {flow.flow}
        self.wake(flow)

    def wake(self, flow: SendFlow) -> None:
        """Something happens to a flow."""
        flow.is_awake = True
        self._awake[flow.flow] = flow

    # What comes in

    def on_transition(self, transition: PeerTransition) -> None:
        """A peer came, fell silent, returned, or will not return."""
        peer, reason, successor, ended = transition
        self._context.max_payload = self._peer_manager.longest_payload()
        if reason is not None and peer.is_suspended:
            self.budgets.apply_backpressure(self._context.mono_ns)
        for flow in self.flows.values():
            if reason is None:
                flow.on_peer_up(peer.epoch, peer.repairs, peer.max_payload, peer.runs)
            elif ended:
                flow.on_peer_ended(peer.epoch, reason, successor)
            else:
                flow.on_peer_down(peer.epoch, f"peer {peer.node} went down ({reason})", peer.is_suspended, successor)
            self._changed(flow)

    def on_path(self) -> None:
        """Give up what the path does not take, where it has become known to take less."""
        if more := self._peer_manager.look_at_path():
            self._context.max_payload = self._peer_manager.longest_payload()
            for flow in self.flows.values() if more < 0 else ():
                reason = f"the path does not take it: {self._path.frame_limit_reason}"
                give_up_longer(flow, self._peer_manager.path_max_payload, reason)
                self._changed(flow)

    def on_hello(self, interrupted: bool) -> None:
        """A peer has said how far it has read: a flow that waits for it may perhaps go on without it.

        ``interrupted``: hellos did not get through for a while, so messages, acks and naks may be lost.
        """
        if interrupted:
            for flow in self.flows.values():
                flow.probe()
                self._changed(flow)
        mono_ns = self._context.mono_ns
        if len(self._peer_manager.up) > 1 and mono_ns - self._read_mono_ns >= READ_INTERVAL_NS:
            self._read_mono_ns = mono_ns
            for flow in self._awake.values():
                if flow.queue.has_pending and not flow.queue.can_send and self.check_pace(flow, mono_ns):
                    self._context.transmit_due = True

    def on_feedback(self, flow: SendFlow, goes_on: bool = False) -> None:
        """Feedback has come: what waits may perhaps leave now; ``goes_on``: the flow waits for a peer no longer."""
        queue, mono_ns = flow.queue, self._context.mono_ns
        if not queue.has_pending:
            return
        self.wake(flow)
        self.budgets.on_delivered(flow, mono_ns)
        if not goes_on and not queue.can_send and not queue.is_requested:
            if mono_ns - flow.pace_checked_mono_ns < PACE_CHECK_NS:
                return
            flow.pace_checked_mono_ns = mono_ns
            if not self.check_pace(flow, mono_ns):
                return
        self._context.transmit_due = True

    def check_pace(self, flow: SendFlow, mono_ns: int, size: int = 0) -> bool:
        """Whether the flow waits no longer for a peer that has fallen behind.

        To be called when what waits cannot go, or a message of ``size`` octets cannot be kept.
        """
        if len(flow.receivers.up) < 2:
            return False
        pace_keeper = flow.pace_keeper
        suspects = pace_keeper.suspects
        goes_on = pace_keeper.check(mono_ns, size, self._peer_manager.read_positions(flow.flow, mono_ns))
        if not suspects and pace_keeper.suspects:
            self._context.hello_due = True  # a suspect that confirms it has read what is in flight
        return goes_on

    def fits(self, flow: SendFlow, size: int, mono_ns: int) -> bool:
        """Whether a payload of ``size`` octets may be sent now."""
        return flow.fits(size) or (self.check_pace(flow, mono_ns, size) and flow.fits(size))

    def on_tick(self, receiver_limited: bool, receives_urgent: bool) -> None:
        """To be called with every hello, five times a second; the arguments are those of `Budgets.divide`."""
        mono_ns = self._context.mono_ns
        self._rest_turn = (self._rest_turn + 1) % REST_TICKS
        for flow in list(self.flows.values())[self._rest_turn :: REST_TICKS]:
            self.wake(flow)
        awake = list(self._awake.values())
        self.budgets.divide(awake, mono_ns, receiver_limited=receiver_limited, receives_urgent=receives_urgent)
        for flow in awake:
            flow.on_tick(mono_ns, self._peer_manager.read_positions(flow.flow, mono_ns))
            self._context.transmit_due |= flow.has_pending
        self._positions = self.positions()
        for flow in [one for one in awake if one.rests]:
            flow.is_awake = False
            del self._awake[flow.flow]

    def _changed(self, flow: SendFlow) -> None:
        self.wake(flow)
        self._context.transmit_due |= flow.has_pending

    # What goes out

    def positions(self) -> dict[str, int]:
        """By flow, the first number that has not been transmitted.  Replaced, never changed."""
        before = self._positions
        moved = {name: to for name, flow in self._awake.items() if (to := flow.next_to_send) != before[name]}
        if moved:
            self._positions = {**before, **moved}
        return self._positions

    def first_owed_by(self, epoch: int, most: int) -> dict[str, int]:
        """By flow, for at most so many, the first number that was owed to a peer when it came up."""
        flows = list(self.flows.items())[:most]
        return {name: flow.receivers.of[epoch].first_owed for name, flow in flows if epoch in flow.receivers.all}

    def transmit_order(self) -> list[SendFlow]:
        """The flows with something to transmit: those of high priority first, the others in turns."""
        flows = list(self.flows.values())
        first = next((at for at, flow in enumerate(flows) if flow.flow == self._first), 0)
        pending = [flow for flow in (*flows[first:], *flows[:first]) if flow.queue.has_pending]
        return sorted(pending, key=lambda flow: flow.options.priority != "high")

    def next_frame(self, flow: SendFlow, now_ns: int, may_block: bool) -> MessageFrame | None:
        """As `SendFlow.next_frame`.  A flow that takes the last of the room is the last to transmit the next time."""
        budget = flow.in_flight.budget
        had_room = budget.room > 0
        frame = flow.next_frame(now_ns, may_block)
        if had_room and budget.room <= 0 and flow.options.priority == "normal":
            names = list(self.flows)
            self._first = names[(names.index(flow.flow) + 1) % len(names)]
        return frame

    # For the application

    def on_nothing_due(self) -> None:
        """No ack waits for the application: an interrupt (Ctrl-C) has cut off calls that had been due."""
        for flow in self._awake.values():
            self._context.transmit_due |= flow.on_acks_reported(flow.flow_control.unreported_acks)

    def report_losses(self) -> bool:
        """Report what has been lost since the last call; whether some of it is left for the next call.

        That is so where it is in very many ranges.
        """
        context, left = self._context, False
        for flow in [one for one in self._awake.values() if one.losses.unreported]:
            for first, end, reason, epochs in flow.losses.take_unreported(LOSSES_AT_ONCE):
                context.report(ev.Lost(context.now_ns, flow.flow, first, end, reason, self._names(epochs)))
            left |= bool(flow.losses.unreported)
        return left

    def report_pace(self) -> None:
        """Report which peers are slow, and which have caught up."""
        context = self._context
        for flow in [one for one in self._awake.values() if one.pace_keeper.changes]:
            changes, flow.pace_keeper.changes = flow.pace_keeper.changes, {}
            for epoch, behind in changes.items():
                node = self._peer_manager.node_of(epoch)
                if behind:
                    context.report(ev.PeerSlow(context.now_ns, node, epoch, flow.flow, behind))
                else:
                    context.report(ev.PeerCaughtUp(context.now_ns, node, epoch, flow.flow))

    def _names(self, epochs: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(self._peer_manager.node_of(epoch) for epoch in epochs))
