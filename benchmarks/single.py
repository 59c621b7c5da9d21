"""What `protocol/send/single.py` saves of a small message and its ack: python -m benchmarks.single.

Two sessions in one thread, without a transport: processor time of a message from `Session.send` to the end of its ack,
in turns with both functions and by the long way; caches hot, and cold: other memory is read before each step.
"""

import time
from statistics import median
from typing import Any

from twinlink.protocol import session
from twinlink.protocol.frames import Kind, frame
from twinlink.protocol.limits import Limits
from twinlink.protocol.send import feedback, single
from twinlink.transports import Endpoint
from twinlink.transports.base import Options
from twinlink.transports.memory import MemoryTransport

TURNS, MESSAGES = 30, 200
LOW = 10  # % of the messages take at most what counts: other programs disturb the rest
OTHER = bytearray(4 * 1024 * 1024)
PAYLOAD = bytes(100)


class Ends:
    """Two sessions that are up, and a flow with a handler and an ``on_ack``."""

    def __init__(self) -> None:
        now = time.monotonic_ns()
        limits = Limits(2**24, 2**20, 2**24)
        self.near, self.far = (
            session.Session(
                node=node,
                epoch=epoch,
                limits=limits,
                path=MemoryTransport(Endpoint(node, 1), False, 2**24, Options()),
                mono_ns=now,
            )
            for epoch, node in enumerate(("near", "far"), 2**62)
        )
        for _ in range(3):
            self.greet()
        self.flow = self.near.open_flow("flow", 2**24, session.FlowOptions(), 0)
        self.flow.ack_handler = self.far.receive_flow("flow").handler = lambda _: None
        self.far.receive_flow("flow").subscribe(None, None)
        self.greet()

    def greet(self) -> None:
        """Each says hello."""
        for one, other in ((self.near, self.far), (self.far, self.near)):
            other.receive(*one.hello(time.monotonic_ns(), time.time_ns()), time.monotonic_ns(), time.time_ns())

    def exchange(self, is_cold: bool) -> int:
        """One message, and its ack; returns ns."""
        took = self._timed(self._send, is_cold)
        took += self._timed(self._answer, is_cold)
        return took + self._timed(self._take_ack, is_cold)

    def _timed(self, do: Any, is_cold: bool) -> int:
        if is_cold:
            bytes(OTHER)
        began = time.perf_counter_ns()
        do()
        return time.perf_counter_ns() - began

    def _send(self) -> None:
        number, now = self.flow.next_sequence, time.monotonic_ns()
        self._frame = frame(Kind.DATA, self.near.epoch, number, time.time_ns(), PAYLOAD)
        if self.near.send(self.flow, self._frame, len(PAYLOAD), now) is not session.TRANSMIT:
            raise SystemExit("the message would wait")

    def _answer(self) -> None:
        self.far.receive(b"traffic/flow", self._frame, time.monotonic_ns(), time.time_ns())
        (self._ack,) = self.far.frames_to_send(time.monotonic_ns(), time.time_ns())
        self.far.deliveries.clear()

    def _take_ack(self) -> None:
        self.near.receive(*self._ack, time.monotonic_ns(), time.time_ns())
        self.near.deliveries.clear()
        self.flow.on_acks_reported(1)


def main() -> None:
    """Measure, and print us a message and the ratio."""
    ways = {
        "one call": (single.sends_single, single.on_single_ack),
        "the long way": (lambda *_: False, lambda *_: None),
    }
    ends = Ends()
    for is_cold in (False, True):
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(TURNS):
            for name, (send, take_ack) in ways.items():
                vars(session)["sends_single"], vars(feedback)["on_single_ack"] = send, take_ack
                ends.greet()
                times = sorted(ends.exchange(is_cold) for _ in range(MESSAGES))
                taken[name].append(times[len(times) * LOW // 100] / 1000)
        one, long = taken.values()
        ratio = median(a / b for a, b in zip(one, long, strict=True))
        what = "cold" if is_cold else "hot"
        print(f"{what:4}  one call {median(one):5.2f} us, the long way {median(long):5.2f} us, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
