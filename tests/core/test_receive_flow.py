"""What waits for the application, when it takes while more arrives."""

import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from twinlink.message import Message
from twinlink.protocol.context import Context
from twinlink.protocol.receive.flow import ReceiveFlow
from twinlink.protocol.receive.gap_detection import GapDetection

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
