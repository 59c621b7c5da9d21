"""How the flows of a session share what may be in flight, by priority.  No I/O, no clock."""

from collections.abc import Callable, Sequence

from ..path import Path
from .congestion import (
    MAX_ACK_QUEUEING_NS,
    MAX_QUEUEING_NS,
    MIN_IN_FLIGHT_OCTETS,
    DeliveryRateEstimator,
    InFlightBudget,
)
from .flow import SendFlow
from .options import Priority
from .queue import BUNDLE_OCTETS


class Budgets:
    """What may be in flight of the flows of one session.

    Attributes:
        of: by priority, what its flows may have in flight.
    """

    def __init__(self, path: Path, on_room: Callable[[], None]) -> None:
        """``on_room()`` is called when there is room again and there was none."""
        self.of: dict[Priority, InFlightBudget] = {
            "high": InFlightBudget(MIN_IN_FLIGHT_OCTETS, path.hellos_overtake),
            "normal": InFlightBudget(MIN_IN_FLIGHT_OCTETS, path.hellos_overtake),
        }
        for budget in self.of.values():
            budget.on_room = on_room
        self._path = path
        self._delivery_rate = DeliveryRateEstimator()
        self._sends_urgent = self._receives_urgent = False
        self._sharing = dict.fromkeys(self.of, 0)  # flows in use at the last tick
        self._path_rtt_ns: dict[str, int] = {}  # by flow: the round trip as it saw it when it was last measured
        self._delivered_of: dict[str, int] = {}  # by flow: octets that got through or were given up until then
        self._delivered = 0  # all of these

    def apply_backpressure(self, mono_ns: int) -> None:
        """A peer fell silent: for a while the transport may wait for it."""
        if self._path.gives_up_ns:
            for budget in self.of.values():
                budget.apply_backpressure(self._path.direct_octets, mono_ns + self._path.gives_up_ns)

    def divide(
        self,
        awake: Sequence[SendFlow],
        mono_ns: int,
        *,
        receiver_limited: bool,
        receives_urgent: bool,
    ) -> None:
        """Look how fast the path is, and divide what it takes among the flows that are in use.

        Args:
            awake: the flows that do not rest.
            mono_ns: the time.
            receiver_limited: a peer does not get to read, so that what gets through says nothing of the path.
            receives_urgent: acks of this side must not wait behind bulk data for long.
        """
        queued = any(flow.queue.has_pending for flow in awake)
        for flow in awake:
            self._path_rtt_ns[flow.flow] = flow.rtt.path_rtt_ns(flow.receivers.pacing, not queued)
            self._sends_urgent |= flow.options.priority == "high"
            self._count_delivered(flow)
        if receiver_limited:
            self._delivery_rate.on_receiver_limited(mono_ns, self._delivered)
        else:
            in_flight = any(flow.in_flight for flow in awake)
            self._delivery_rate.on_tick(mono_ns, self._delivered, queued, in_flight)
        self._receives_urgent = receives_urgent
        for priority in self.of:
            self._sharing[priority] = sum([flow.in_use for flow in awake if flow.options.priority == priority])
        self._divide(mono_ns)

    def on_delivered(self, flow: SendFlow, mono_ns: int) -> None:
        """Some of a flow got through, and more of it is to follow: between two ticks, the limits may grow."""
        self._count_delivered(flow)
        if self._delivery_rate.grow(mono_ns, self._delivered):
            self._divide(mono_ns)

    def _count_delivered(self, flow: SendFlow) -> None:
        delivered = flow.in_flight.delivered
        self._delivered += delivered - self._delivered_of.get(flow.flow, 0)
        self._delivered_of[flow.flow] = delivered

    def _divide(self, mono_ns: int) -> None:
        path, delivery_rate = self._path, self._delivery_rate
        rtt_ns = min([one for one in self._path_rtt_ns.values() if one], default=0)
        inline, unfragmented = path.direct_octets, path.whole_octets
        for priority, budget in self.of.items():
            budget.frame_limit = path.frame_limit
            beside_urgent = self._sends_urgent and priority == "normal"
            beside_acks = self._receives_urgent and priority == "normal"
            sharing = self._sharing[priority]
            queueing_ns = MAX_ACK_QUEUEING_NS if beside_acks else MAX_QUEUEING_NS
            octets = (
                MIN_IN_FLIGHT_OCTETS + delivery_rate.bdp_octets(rtt_ns)
                if beside_urgent
                else delivery_rate.limit_octets(inline, rtt_ns, queueing_ns)
            )
            divides = beside_urgent or beside_acks or sharing > 1 or delivery_rate.is_slow(unfragmented)
            budget.divide(octets, inline, BUNDLE_OCTETS if divides else unfragmented, max(1, sharing), mono_ns)
