"""What waits for the application: when it takes while more arrives, and when its session makes way for others."""

import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.core.receiving import THEIRS, data
from twinlink.events import Event, Gap
from twinlink.message import Message
from twinlink.protocol.context import Context
from twinlink.protocol.frames import HELLO_TOPIC, Hello, Kind, frame
from twinlink.protocol.receive.flow import MAX_STREAMS, ReceiveFlow
from twinlink.protocol.receive.gap_detection import GapDetection
from twinlink.runtime.driver import SessionDriver

MESSAGES = 50_000


@pytest.fixture
def _threads_alternate() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_threads_alternate")
def test_nothing_is_counted_as_queued_when_all_is_taken() -> None:
    receive_flow = ReceiveFlow("x")
    stream = receive_flow.add_stream(1, None, 0, GapDetection(Context(2, nullcontext), lambda *_: None))
    message = Message(b"12345", "x", 0, 1, None, 0, 0)
    size = len(message.payload)

    def arrive() -> None:
        for _ in range(MESSAGES):
            stream.waiting_octets += size  # as `FrameDispatcher` does: a call would let `next_message` in between
            receive_flow.queue.append(message)

    thread = threading.Thread(target=arrive)
    thread.start()
    taken = 0
    while taken < MESSAGES:
        if receive_flow.next_message() is not None:
            taken += 1
    thread.join()
    assert (receive_flow.stats()["queued"], receive_flow.stats()["queued_octets"]) == (0, 0)


def test_a_session_that_makes_way_gives_back_what_it_held(driver: SessionDriver, reported: list[Event]) -> None:
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    hello = Hello("theirs", {}, {"flow": 0}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    data(driver, 3, True)
    for epoch in range(10**6, 10**6 + MAX_STREAMS):
        driver.receive(b"traffic/flow", frame(Kind.DATA, epoch, 0, 1, b"x"), 0, False)
    assert THEIRS not in receive_flow.streams
    assert [message.sequence for message in receive_flow.queue if message.epoch == THEIRS] == [3]
    gaps = [event for event in reported if isinstance(event, Gap) and event.epoch == THEIRS]
    assert [(gap.first, gap.end) for gap in gaps] == [(0, 3)]
    assert receive_flow.stats()["held"] == 0
