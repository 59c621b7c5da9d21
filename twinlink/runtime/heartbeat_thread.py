"""The heartbeat thread: hellos on time, and a tick for every flow, whatever the application does.

It also says how much may be in flight, what a flow's share of it is, and reads while a handler takes long.  It never
waits for a peer that takes nothing: it says only what a transport may drop.
"""

import time
from collections.abc import Callable

from ..process.guarded_thread import GuardedThread
from ..process.wakeup import Wakeup
from ..protocol.liveness import HELLO_INTERVAL_NS, SEARCH_INTERVAL_NS
from ..protocol.send.congestion import (
    MAX_ACK_QUEUEING_NS,
    MAX_QUEUEING_NS,
    MIN_IN_FLIGHT_OCTETS,
    DeliveryRateEstimator,
)
from ..protocol.send.queue import BUNDLE_OCTETS
from ..transports import Transport
from .driver import SessionDriver
from .flow_endpoint import FlowEndpoint

# A handler that has run between two looks takes long.
LOOK_NS = 50_000_000
STAND_IN_NS = 5_000_000  # while one does, or where they do
REST_TICKS = 25  # a flow at rest has its turn so seldom: a link may have a thousand of them


class HeartbeatThread:
    """Runs from `start` until `stop`."""

    def __init__(self, node: str, transport: Transport, driver: SessionDriver, stand_in: Callable[[], bool]) -> None:
        """``stand_in()`` reads what has come while a handler takes long, and returns whether to look again soon."""
        self._stand_in = stand_in
        self._transport = transport
        self._driver = driver
        self._peer_manager = driver.session.peer_manager
        self._delivery_rate = DeliveryRateEstimator()
        self._turn = 0  # of the flows at rest
        self._stopping = False
        self._wakeup = Wakeup()
        name, errors = f"twinlink-{node}-heartbeat", transport.internal_errors
        # A transport that failed must not end it: the peers still count on us.
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._stopping)

    def start(self) -> None:
        """Begin to say hello."""
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Nothing more will be said."""
        self._stopping = True
        self._wakeup.wake()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _tick(self) -> None:
        """Look after the flows, and divide what the path takes among them."""
        self._turn = (self._turn + 1) % REST_TICKS
        senders = list(self._driver.senders.values())
        awake = [one for number, one in enumerate(senders) if number % REST_TICKS == self._turn or not one.rests]
        self._divide_budgets(senders, awake)
        for sender in awake:
            sender.on_tick()

    def _divide_budgets(self, senders: list[FlowEndpoint], awake: list[FlowEndpoint]) -> None:
        """Look how fast the path is, and divide what it takes among the flows that are in use."""
        peer_manager, transport, delivery_rate = self._peer_manager, self._transport, self._delivery_rate
        now = time.monotonic_ns()
        waiting = any(sender.has_pending for sender in awake)
        for sender in awake:
            sender.measure_path(idle=not waiting)
        delivered = sum([sender.delivered_octets for sender in senders])
        if any(peer.up and peer.behind for peer in peer_manager.peers.all()):
            # what gets through says nothing of the path: the peer does not get to read
            delivery_rate.on_receiver_limited(now, delivered)
        else:
            delivery_rate.on_tick(now, delivered, waiting, any(sender.in_flight for sender in awake))
        rtt_ns = min([sender.path_rtt_ns for sender in senders if sender.path_rtt_ns], default=0)
        inline, unfragmented = transport.direct_octets, transport.whole_octets
        for priority, budget in peer_manager.budgets.items():
            budget.frame_limit = transport.frame_limit
            beside_urgent = peer_manager.sends_urgent and priority == "normal"
            beside_acks = peer_manager.receives_urgent and priority == "normal"
            sharing = sum(sender.in_use for sender in awake if sender.priority == priority)
            queueing_ns = MAX_ACK_QUEUEING_NS if beside_acks else MAX_QUEUEING_NS
            octets = (
                MIN_IN_FLIGHT_OCTETS + delivery_rate.bdp_octets(rtt_ns)
                if beside_urgent
                else delivery_rate.limit_octets(inline, rtt_ns, queueing_ns)
            )
            divides = beside_urgent or beside_acks or sharing > 1 or delivery_rate.is_slow(unfragmented)
            budget.divide(octets, inline, BUNDLE_OCTETS if divides else unfragmented, max(1, sharing), now)

    def _wait(self, due_mono_ns: int) -> None:
        """Return at this time, or when the thread is woken; read meanwhile while a handler takes long."""
        look_ns = LOOK_NS
        while not self._stopping and (left_ns := due_mono_ns - time.monotonic_ns()) > 0:
            if self._wakeup.wait(min(left_ns, look_ns) / 1e9):
                return
            look_ns = STAND_IN_NS if self._stand_in() else LOOK_NS

    def _run(self) -> None:
        peer_manager, tick_ns = self._peer_manager, 0
        while not self._stopping:
            now = time.monotonic_ns()
            due = now + (
                HELLO_INTERVAL_NS if peer_manager.up and not peer_manager.peers.any_suspect(now) else SEARCH_INTERVAL_NS
            )
            self._driver.send_hello()
            if now >= tick_ns or not peer_manager.up:
                tick_ns = now + HELLO_INTERVAL_NS
                self._tick()
            self._wait(due)
