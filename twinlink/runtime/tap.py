"""Shows recorders and views what a session takes in and sends; without any, nothing of it is on a message's path."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..events import Event
from ..protocol.frames import AnyFrame, MessageFrame
from ..protocol.session import FULL, SendFlow, Sent, Session

TAPPED = "receive", "send", "send_many", "send_run", "frames_to_send", "report"  # methods of a session


class Tap(Protocol):
    """Called with the session's lock held: it waits for nothing, and raises nothing."""

    def on_received(self, topic: bytes, frame: AnyFrame, now_ns: int) -> None:
        """A frame has come in, or all fragments of one.  It has passed the authentication, and no other check."""

    def on_sent(self, flow: str, frame: MessageFrame) -> None:
        """A message of this side has its number, or those of a run have; octets of the transport may follow."""

    def on_control_sent(self, frames: list[tuple[bytes, bytes]], now_ns: int) -> None:
        """Acks and other control frames are about to leave: topic and frame of each."""

    def on_event(self, event: Event) -> None:
        """An event for the application."""


class Position(NamedTuple):
    """Where a flow stands: the next number of a session, and the ranges below that may still come."""

    flow: str
    epoch: int
    next: int
    missing: list[tuple[int, int]]


def tapped(session: Session, tap: Tap) -> dict[str, Callable[..., Any]]:
    """What takes the place of these methods of a session, by name, while a tap sees what goes through them."""
    receive, send, send_many, send_run = session.receive, session.send, session.send_many, session.send_run
    frames_to_send, report = session.frames_to_send, session.report
    on_received, on_sent, on_event = tap.on_received, tap.on_sent, tap.on_event

    def receive_tapped(topic: bytes, frame: AnyFrame, mono_ns: int, now_ns: int, in_bulk: bool = False) -> None:
        on_received(topic, frame, now_ns)  # first: after Ctrl-C here the peer sends it again, and it is seen twice
        receive(topic, frame, mono_ns, now_ns, in_bulk)

    def send_tapped(flow: SendFlow, frame: MessageFrame, size: int, mono_ns: int) -> Sent:
        sent = send(flow, frame, size, mono_ns)
        if sent is not FULL:
            on_sent(flow.flow, frame)
        return sent

    def send_many_tapped(
        flow: SendFlow, frames: Sequence[MessageFrame], sizes: Sequence[int], mono_ns: int
    ) -> tuple[int, Sent]:
        count, sent = send_many(flow, frames, sizes, mono_ns)
        for frame in frames[:count]:
            on_sent(flow.flow, frame)
        return count, sent

    def send_run_tapped(flow: SendFlow, frame: bytes, count: int, size: int, mono_ns: int) -> bool:
        is_sent = send_run(flow, frame, count, size, mono_ns)
        if is_sent:
            on_sent(flow.flow, frame)
        return is_sent

    def frames_to_send_tapped(mono_ns: int, now_ns: int) -> list[tuple[bytes, bytes]]:
        frames = frames_to_send(mono_ns, now_ns)
        tap.on_control_sent(frames, now_ns)
        return frames

    def report_tapped(event: Event) -> None:
        on_event(event)
        report(event)

    sending = send_tapped, send_many_tapped, send_run_tapped
    taking = receive_tapped, *sending, frames_to_send_tapped, report_tapped
    return dict(zip(TAPPED, taking, strict=True))
