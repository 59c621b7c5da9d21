"""What the parts of a session share: the time of the input at hand, and where output goes."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..events import Event, PeerDown, PeerUp
from .frames import Kind
from .frames import frame as make_frame

# What a delivery is: messages, or acks, or messages that wait in the queue of their flow.
MESSAGES, ACKS, QUEUED = range(3)

# The application's function; what it gets, one by one; the flow; and which of these that is.  Of what is queued, in
# place of the function the flow, and as many places as messages.
Delivery = tuple[Any, Sequence[Any], str, int]


class Context:
    """The shared state of one session.

    Attributes:
        epoch: of this session.
        mono_ns, now_ns: monotonic and Unix time of the input at hand; `Session` sets both before it handles one.
        events: for the application, in order.
        has_new_events: some have been added since the driver cleared this.
        deliveries: for the application's functions, in order.  One that is being made stays the first until it ends.
        outbox: topic and frame of what is to be sent, in order.
        hello_due: a hello is to be sent now.
        max_payload: octets of the longest payload that this side sends, and some peer takes that may get it.
        peer_watchers: functions that get each `PeerUp` and `PeerDown`, as deliveries, beside the application.
        transmit_due: what waits in the queue of a flow may leave now.
        uninterrupted: makes a context manager for steps that no exception of a signal handler may come between.
    """

    __slots__ = (
        "deliveries", "epoch", "events", "has_new_events", "hello_due", "max_payload", "mono_ns", "now_ns", "outbox",
        "peer_watchers", "transmit_due", "uninterrupted",
    )  # fmt: skip

    def __init__(self, epoch: int, uninterrupted: Callable[[], AbstractContextManager[None]]) -> None:
        self.epoch = epoch
        self.mono_ns = self.now_ns = 0
        self.events: deque[Event] = deque()
        self.deliveries: deque[Delivery] = deque()
        self.outbox: deque[tuple[bytes, bytes]] = deque()
        self.has_new_events = self.hello_due = self.transmit_due = False
        self.max_payload = 0
        self.peer_watchers: tuple[Callable[[Event], None], ...] = ()
        self.uninterrupted = uninterrupted

    def report(self, event: Event) -> None:
        """An event for the application."""
        self.events.append(event)
        self.has_new_events = True
        if isinstance(event, PeerUp | PeerDown):
            self.deliveries.extend((watcher, (event,), "", MESSAGES) for watcher in self.peer_watchers)

    def watch_peers(self, watcher: Callable[[Event], None], up: Sequence[Event]) -> None:
        """Have a function get each `PeerUp` and `PeerDown` from now on; ``up``: those of the peers that are up."""
        self.peer_watchers = (*self.peer_watchers, watcher)
        self.deliveries.append((watcher, up, "", MESSAGES))

    def send_control(self, topic: bytes, kind: Kind, body: bytes) -> None:
        """Have a frame sent, with the time of the input at hand."""
        self.outbox.append((topic, make_frame(kind, self.epoch, 0, self.now_ns, body)))
