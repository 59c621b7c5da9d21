"""Two sessions or more joined by a simulated path, on a clock that the test moves: no thread, no socket, no sleep.

Frames arrive as the test lets time pass; or it takes them off the path, and delivers or loses each (`End.take_off`).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.core.sending import FlowSender, adopt
from twinlink.events import Event
from twinlink.message import Message
from twinlink.protocol.limits import Limits
from twinlink.protocol.liveness import TICK_NS
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.session import ACKS, QUEUED, FlowOptions, Reliability, Session
from twinlink.transports import Endpoint, Transport
from twinlink.transports.base import Frame, Options

MS = 1_000_000
START_NS = 10**15  # of both clocks; a session's hellos are numbered by the monotonic one
IN_FLIGHT_OCTETS = 256 * 1024
WINDOW = 2**24
RETENTION = 64 * 1024 * 1024


Tamper = Callable[[bytes, bytes], list[bytes]]  # topic and frame that an end would send -> what it sends instead


def mute(topics: bytes) -> Tamper:
    """What begins with this topic is not sent."""
    return lambda topic, frame: [] if topic.startswith(topics) else [frame]


@dataclass
class Path:
    """What happens to frames on their way, in both directions."""

    random: Random
    delay_ns: int = MS
    jitter_ns: int = 0  # of the delay: frames overtake each other
    loss: float = 0.0
    duplication: float = 0.0
    cut: bool = False

    def arrivals(self, now: int) -> list[int]:
        """When a frame that leaves now arrives: never, once or twice."""
        if self.cut or self.random.random() < self.loss:
            return []
        count = 1 + (self.random.random() < self.duplication)
        return [now + self.delay_ns + self.random.randrange(self.jitter_ns + 1) for _ in range(count)]


class Outlet(Transport):
    """The transport of a session without a network: keeps what is sent, or passes it on.

    Attributes:
        sent: topic and frame of each that was not passed on.
        renewed, reached_with: the arguments of these calls.
    """

    scouts = True

    def __init__(self, send: Callable[[bytes, bytes], None] | None = None) -> None:
        super().__init__(Endpoint("pair", 1), False, 2**24, Options())
        self.sent: list[tuple[bytes, bytes]] = []
        self.renewed: list[int] = []
        self.reached_with: list[int] = []
        if send is not None:
            self.send = send  # type: ignore[method-assign,assignment]

    def open(self) -> None: ...

    def send(self, topic: bytes, frame: bytes) -> None:
        self.sent.append((topic, frame))

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        return None

    def renew(self, patience: int) -> None:
        self.renewed.append(patience)

    def reached(self, patience: int) -> None:
        self.reached_with.append(patience)

    def close(self) -> None: ...


def deliver(session: Session) -> None:
    """Call the application's functions, as `CallbackQueue` does."""
    while session.deliveries:
        function, arguments, flow, kind = session.deliveries[0]
        for argument in arguments:
            if kind != QUEUED:
                function(argument)
            elif (taken := function.next_message()) is not None:
                function.handler(taken[0])
        session.deliveries.popleft()
        if kind == ACKS:
            session.transmit_due |= session.sending[flow].on_acks_reported(len(arguments))


class End:
    """A session, its senders, and what its application got."""

    def __init__(self, pair: "Pair", node: str, epoch: int, window: int) -> None:
        self.pair = pair
        self.epoch = epoch
        self.events: list[Event] = []
        self.received: dict[str, list[Message]] = {}
        self.senders: dict[str, FlowSender] = {}
        self.arriving: list[tuple[int, int, int, bytes, bytes]] = []  # a heap: when, in which order, from whom, ...
        self.outlet = Outlet(self.put_on_path)
        self.session = Session(
            node=node,
            epoch=epoch,
            limits=Limits(window, 2**20, 2**24),
            path=self.outlet,
            mono_ns=pair.now,
        )
        self.next_tick = pair.now

    def sender(
        self,
        flow: str,
        reliability: Reliability = "repair",
        *,
        window: int = WINDOW,
        retention: int = RETENTION,
        in_flight: int = IN_FLIGHT_OCTETS,
        **options: Any,
    ) -> FlowSender:
        """``options``: others of `FlowOptions`."""
        budget = InFlightBudget(in_flight)
        core = SendFlow(flow, window, retention, budget, FlowOptions(reliability, **options), epoch=self.epoch)
        adopt(self.session, core)
        sender = self.senders[flow] = FlowSender(self.session, core, self._transmit, lambda: self.pair.now)
        self.say_hello()
        return sender

    def _transmit(self, topic: bytes, frame: bytes) -> None:
        self.outlet.send(topic, frame)  # which a test may replace

    def receive(self, flow: str) -> list[Message]:
        """Subscribe; what arrives is in the list that this returns."""
        receive_flow = self.session.messages.flow(flow)
        receive_flow.subscribed = True
        got = self.received.setdefault(flow, [])
        receive_flow.handler = got.append
        return got

    def take(self, flow: str) -> Message | None:
        """The next message of a flow that has no handler; its sender is told how far it is consumed."""
        taken = self.session.receive_flow(flow).next_message()
        if taken is None:
            return None
        message, stream = taken
        if stream is not None:
            self.put_on_path(*self.session.credit_update(flow, stream, self.pair.now))
        return message

    @property
    def is_up(self) -> bool:
        return bool(self.session.peer_manager.up)

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def put_on_path(self, topic: bytes, frame: bytes) -> None:
        self.pair.transmit(self, topic, frame)

    def say_hello(self) -> None:
        self.put_on_path(*self.session.hello(self.pair.now, self.pair.now))

    def take_off(self, sender: int, count: int) -> list[tuple[bytes, bytes]]:
        """The next frames on their way from this epoch: they do not arrive by themselves any more."""
        ordered = sorted(self.arriving)
        taken = [one for one in ordered if one[2] == sender][:count]
        numbers = {number for _, number, *_ in taken}
        self.arriving = [one for one in ordered if one[1] not in numbers]
        return [(topic, frame) for *_, topic, frame in taken]

    def take_in(self, topic: bytes, frame: bytes, in_bulk: bool = False) -> None:
        self.session.receive(topic, frame, self.pair.now, self.pair.now, in_bulk)
        self.send_due()

    def step(self, now: int) -> None:
        """What a link's threads do in the course of a millisecond."""
        while self.arriving and self.arriving[0][0] <= now:
            _, _, _, topic, frame = heapq.heappop(self.arriving)
            self.take_in(topic, frame)
        if now >= self.next_tick:
            self.next_tick = now + TICK_NS
            self.session.on_tick(now, now, now)
            self.send_due()
        if now >= self.session.next_timeout(now):
            self.session.on_timeout(now, now)
            self.send_due()
        for sender in self.senders.values():
            sender.transmit()

    def send_due(self) -> None:
        for topic, frame in self.session.frames_to_send(self.pair.now, self.pair.now):
            self.put_on_path(topic, frame)
        deliver(self.session)
        self.events += self.session.events
        self.session.events.clear()


@dataclass
class Pair:
    """Two ends; ``ends[0]`` is called near, ``ends[1]`` far."""

    path: Path
    window: int = WINDOW  # of both
    now: int = START_NS
    transmitted: int = 0
    ends: list[End] = field(default_factory=list)
    tampering: dict[int, Tamper] = field(default_factory=dict)  # by epoch of an end

    def __post_init__(self) -> None:
        self.ends = [End(self, "near", 1, self.window), End(self, "far", 2, self.window)]

    @property
    def near(self) -> End:
        return self.ends[0]

    @property
    def far(self) -> End:
        return self.ends[1]

    def transmit(self, end: End, topic: bytes, frame: bytes) -> None:
        """What the first end sends reaches all others; what they send reaches the first."""
        others = [] if end not in self.ends else self.ends[1:] if end is self.near else [self.near]
        tamper = self.tampering.get(end.epoch)
        frames = [frame] if tamper is None else tamper(topic, frame)
        for other in others:
            for one in frames:
                for at in self.path.arrivals(self.now):
                    self.transmitted += 1
                    heapq.heappush(other.arriving, (at, self.transmitted, end.epoch, topic, one))

    def add(self, node: str, window: int = WINDOW) -> End:
        """One more end that hears the first."""
        end = End(self, node, 100 + len(self.ends), window)
        self.ends.append(end)
        self.run_until(lambda: end.is_up and end.epoch in self.near.session.peer_manager.up)
        return end

    def run(self, ns: int) -> None:
        """Let so much time pass."""
        until = self.now + ns
        while self.now < until:
            self.now += MS
            for end in list(self.ends):
                end.step(self.now)

    def run_until(self, done: Callable[[], object], at_most_ns: int = 60_000 * MS) -> int:
        """Let time pass until something holds; returns how much that took."""
        began = self.now
        while not done():
            assert self.now - began < at_most_ns, "it did not come about in time"
            self.run(MS)
        return self.now - began

    def restart(self, index: int) -> End:
        """The process of an end is killed, and another one takes its place."""
        old = self.ends[index]
        end = End(self, old.session.peer_manager._node, old.epoch + 10, self.window)
        self.ends[index] = end
        return end


def pair(seed: int = 1, **path: float) -> Pair:
    """Two ends that are up, over a path with these properties."""
    made = Pair(Path(Random(seed)))
    made.run_until(lambda: made.near.is_up and made.far.is_up)
    for name, value in path.items():
        setattr(made.path, name, value)
    return made
