"""The protocol's core as a trace drives it: frames, calls and time in; frames, messages and reports out."""

import dataclasses
import re
from typing import Any

from tests.core.pair import Outlet, deliver
from tests.core.sending import FlowSender, adopt
from tests.traces.frames import observed
from twinlink.events import Event
from twinlink.message import Message
from twinlink.protocol.limits import Limits
from twinlink.protocol.liveness import TICK_NS
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.session import FlowOptions, Session

MS = 1_000_000
START_NS = 10**15  # of both clocks
WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class Node:
    """One node, on a clock that the trace moves; what it did, with the time in ms, is in the attributes.

    Attributes:
        transmitted: topic and frame, described.
        delivered: messages, in the order in which the application got them.
        reported: events, described.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.epoch = int(settings["epoch"], 16)
        self._settings = settings
        self._now_ns = START_NS
        self.transmitted: list[tuple[int, dict[str, Any]]] = []
        self.delivered: list[tuple[int, dict[str, Any]]] = []
        self.reported: list[tuple[int, dict[str, Any]]] = []
        self._outlet = Outlet(self._transmit)
        max_payload = int(settings.get("max_payload", 2**24))
        self._session = Session(
            node=settings["node"],
            epoch=self.epoch,
            limits=Limits(int(settings.get("window", 2**27)), max_payload, max_payload + 32),
            path=self._outlet,
            mono_ns=self._now_ns,
        )
        self._senders: dict[str, FlowSender] = {}
        self._in_bulk = False  # the frame that came last has others close behind it
        self._drained_ns = 0  # when the transport was last read to its end; 0: it always is
        self._next_tick_ns = self._now_ns

    @property
    def now_ms(self) -> int:
        """Since the trace began."""
        return (self._now_ns - START_NS) // MS

    def advance(self, to_ms: int) -> None:
        """Let time pass."""
        while self.now_ms < to_ms:
            self._now_ns += MS
            self._on_time()

    def receive(self, topic: str, frame: bytes, more: bool) -> None:
        """A frame arrives; ``more``: others are close behind it."""
        self._in_bulk = more
        self._session.receive(topic.encode(), frame, self._now_ns, self._now_ns, more)
        self._transmit_due()

    def send(self, flow: str, payload: bytes, settings: dict[str, Any]) -> None:
        """The application sends a message; the flow is opened by its first one."""
        if flow not in self._senders:
            budget = InFlightBudget(int(settings.get("in_flight", 2**18)))
            retention, window = int(settings.get("retention", 2**26)), int(settings.get("window", 2**27))
            options = FlowOptions(settings.get("reliability", "repair"))
            core = adopt(self._session, SendFlow(flow, window, retention, budget, options, epoch=self.epoch))
            self._session.hello_due = False
            self._senders[flow] = FlowSender(self._session, core, self._transmit, lambda: self._now_ns)
        if "count" in settings:
            self._senders[flow].send_many([payload] * int(settings["count"]))
        else:
            self._senders[flow].send(payload)
        self._transmit_due()

    def subscribe(self, flow: str) -> None:
        """The application takes what comes on a flow, at once."""
        receive_flow = self._session.receive_flow(flow)
        receive_flow.subscribed = True
        receive_flow.handler = self._deliver

    def listen(self, flow: str) -> None:
        """The application has subscribed, and takes no message yet."""
        self._session.receive_flow(flow).subscribed = True

    def backlog(self) -> None:
        """From now on the transport always holds more than has been read."""
        self._drained_ns = self._now_ns

    def take(self, flow: str) -> None:
        """The application takes the next message."""
        receiver_flow = self._session.receive_flow(flow)
        taken = receiver_flow.next_message()
        if taken is None:
            return
        message, stream = taken
        self._deliver(message)
        if stream is not None:
            self._transmit(*self._session.credit_update(flow, stream, self._now_ns))

    def _on_time(self) -> None:
        now, session = self._now_ns, self._session
        if self._in_bulk:  # nothing has come any more
            self._in_bulk = False
            session.flush_acks()
        if now >= self._next_tick_ns:
            self._next_tick_ns = now + TICK_NS
            session.on_tick(now, now, self._drained_ns or now)
        if now >= session.next_timeout(now):
            session.on_timeout(now, now)
        self._transmit_due()

    def _transmit_due(self) -> None:
        session = self._session
        for topic, frame in session.frames_to_send(self._now_ns, self._now_ns):
            self._transmit(topic, frame)
        while session.events:
            self._report(session.events.popleft())
        deliver(session)
        if session.transmit_due:
            session.transmit_due = False
            for flow in session.transmit_order():
                self._senders[flow.flow].transmit()

    def _transmit(self, topic: bytes, frame: bytes) -> None:
        self.transmitted += [(self.now_ms, one) for one in observed(topic.decode(), frame)]

    def _deliver(self, message: Message) -> None:
        delivered = {"flow": message.flow, "epoch": f"{message.epoch:016x}", "sequence": str(message.sequence)}
        self.delivered.append((self.now_ms, delivered))

    def _report(self, event: Event) -> None:
        name = WORD_START.sub("_", type(event).__name__).lower()
        fields = {key: value for key, value in dataclasses.asdict(event).items() if key != "time_ns"}
        if "epoch" in fields:
            fields["epoch"] = f"{fields['epoch']:016x}"
        self.reported.append((self.now_ms, {"event": name, **fields}))
