"""What the parts of a session share: the time of the input at hand, and where output goes."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..events import Event
from .frames import Kind
from .frames import frame as make_frame


class Calls(Protocol):
    """Calls of the application's functions, which are made when the frame at hand has been handled.

    Attributes:
        pending: function, arguments one by one, and flow of each.
        running: whether one is being made.
    """

    pending: Any
    running: bool

    def enqueue(self, function: Callable[[Any], None], arguments: Any, flow: str) -> None:
        """Have a function called with each of these arguments."""


class Context:
    """Of one session.

    Attributes:
        epoch: of this session.
        mono_ns, now_ns: monotonic and Unix time of the input at hand; `Session` sets both before it handles one.
        report: takes an event for the application.
        outbox: topic and frame of what is to be sent, in order.
        uninterrupted: makes a context manager for steps that no exception of a signal handler may come between.
    """

    __slots__ = ("epoch", "mono_ns", "now_ns", "outbox", "report", "uninterrupted")

    def __init__(
        self,
        epoch: int,
        report: Callable[[Event], None],
        uninterrupted: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.epoch = epoch
        self.mono_ns = self.now_ns = 0
        self.report = report
        self.outbox: deque[tuple[bytes, bytes]] = deque()
        self.uninterrupted = uninterrupted

    def send(self, topic: bytes, kind: Kind, body: bytes) -> None:
        """Have a frame sent, with the time of the input at hand."""
        self.outbox.append((topic, make_frame(kind, self.epoch, 0, self.now_ns, body)))
