"""What a message costs as a link grows, and many gNBs at one twin: L9.

    python -m benchmarks.growth flows 1000 20000

prints the processor time of a message in us, the mean of so many, over the memory transport: of both sides, by
``flows`` that take turns; of the sender, for each of ``peers``; or to send one while so many are ``kept``.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from twinlink_measure.worker_handle import Interrupted

import twinlink

from . import many_nodes
from .bench import Bench, Measurement
from .contest import FAILURES
from .verdict import Part, ratio

PLACE = "tcp/growth:1"
OCTETS = 100
MESSAGES = 20_000  # of which the cost is the mean
READY_S = 60.0
GROWN = {"flows": (1, 1000), "peers": (1, 64), "kept": (0, 1_000_000)}
GNBS = (100, 75, 50, 25)  # until so many are in time
GNB_MBITS = 1.7
SECONDS = 10.0


def main() -> None:
    """Print a cost."""
    what, count, messages = sys.argv[1], *map(int, sys.argv[2:])
    cost = {"flows": of_flows, "peers": of_peers, "kept": of_kept}[what]
    print(f"{cost(count, messages) * 1e6:.3f}", flush=True)
    os._exit(0)  # no link needs closing, nor says what it still keeps


def of_flows(count: int, messages: int) -> float:
    """Processor time of a message that is sent, received and acknowledged, in s."""
    with ExitStack() as stack:
        near, (far,) = linked(stack, 1)
        senders = [near.sender(f"flow-{number}") for number in range(count)]
        for number in range(count):
            far.receiver(f"flow-{number}", handler=lambda message: None)
        near.wait_ready(READY_S)
        exchange(senders, 2 * count)
        return exchange(senders, messages)


def of_peers(count: int, messages: int) -> float:
    """Processor time of this thread for a message and each peer, in s: it sends, and takes the acks in.

    The receivers, which are on other hosts elsewhere, are threads of this process, and not counted.
    """
    with ExitStack() as stack:
        near, others = linked(stack, count)
        sender = near.sender("flow")
        for other in others:
            other.receiver("flow", handler=lambda message: None)
        until_s = time.monotonic() + READY_S
        while len(near.peers()) < count and time.monotonic() < until_s:
            time.sleep(0.02)
        exchange([sender], 50, time.thread_time)
        return exchange([sender], messages // count, time.thread_time) / count


def of_kept(count: int, messages: int) -> float:
    """Processor time of a send in this thread, in s, while so many messages wait for a peer that has fallen silent."""
    near, (far,) = linked(ExitStack(), 1, retention=2**30)
    sender, payload = near.sender("flow"), bytes(OCTETS)
    near.wait_ready(READY_S)
    far._transport.send = _nothing  # type: ignore[method-assign]
    until_s = time.monotonic() + READY_S
    while near.peers() and time.monotonic() < until_s:
        time.sleep(0.02)
    for _ in range(count):
        sender.send(payload)
    began_s = time.thread_time()
    for _ in range(messages):
        sender.send(payload)
    taken_s, kept = time.thread_time() - began_s, sender.stats()["outstanding"]
    if kept != count + messages:
        raise OSError(f"{kept} of {count + messages} messages are kept for a peer that was to be silent")
    return taken_s / messages


def _nothing(topic: bytes, frame: Any) -> None:
    """What a link sends that has fallen silent."""


def linked(stack: ExitStack, count: int, **more: Any) -> tuple[twinlink.Link, list[twinlink.Link]]:
    """A listener and its connectors; without polling, which takes processor time that the count has no part in."""
    options: Any = {"busy_poll": False, "send_timeout": READY_S}
    near = stack.enter_context(twinlink.open("memory", listen=PLACE, node="sender", **options, **more))
    return near, [
        stack.enter_context(twinlink.open("memory", connect=PLACE, node=f"receiver-{number}", **options))
        for number in range(count)
    ]


def exchange(senders: list[twinlink.Sender], count: int, clock: Callable[[], float] = time.process_time) -> float:
    """Processor time of each of ``count`` messages, in s; the flows take turns, and each is acknowledged at once."""
    payload, began_s = bytes(OCTETS), clock()
    for number in range(count):
        sender = senders[number % len(senders)]
        sender.send(payload)
        sender.flush(READY_S)
    return (clock() - began_s) / count


class Growth(Measurement):
    """Costs in processes of their own, in turn; then the gNBs."""

    goals = ("L9",)
    seconds = 150.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in GROWN}
        self._gnbs: list[many_nodes.Carried] = []
        self._most_ms = 5 if (os.cpu_count() or 1) >= 4 else 15  # of the age

    def run(self, bench: Bench) -> None:
        """Measure the most and the least of each in turn."""
        rounds = min(bench.rounds, 3)
        for number in range(rounds):
            for what, (least, most) in GROWN.items():
                bench.step(f"growth in {what}, round {number + 1} of {rounds}", 0.8 * number / rounds)
                if bench.stopped():
                    raise Interrupted
                try:
                    grown, alone = (
                        cost_us(what, size, bench.scaled(MESSAGES, 2000))
                        for size in (bench.scaled(most, 10 * least + 10), least)
                    )
                except FAILURES as error:
                    bench.missing("L9", f"{what}: {error}")
                else:
                    self._rounds[what].append((grown, alone))
        for gnbs in GNBS:
            count, seconds = bench.scaled(gnbs, 4), SECONDS if not bench.quick else 1.0
            bench.step(f"{count} gNBs through a router", 0.8)
            try:
                self._gnbs += many_nodes.carried("router", count, (many_nodes.rate_of(count, GNB_MBITS),), seconds)
            except (*FAILURES, RuntimeError) as error:
                bench.missing("L9", f"{count} gNBs: {error}")
                return
            if bench.quick or self._age_ms(self._gnbs[-1]) <= self._most_ms:
                return

    @staticmethod
    def _age_ms(seen: many_nodes.Carried) -> float:
        """The p99; infinite where records are missing."""
        return seen.age_ns["p99"] / 1e6 if seen.received == seen.sent else math.inf

    def parts(self, bench: Bench) -> list[Part | None]:
        """Ratios, and the age of the gNBs' records."""
        found: list[Part | None] = []
        for what, (least, most) in GROWN.items():
            name = f"{bench.scaled(most, 10 * least + 10):,} {what} / {least}, processor time"
            found.append(ratio("L9", name, self._rounds[what], most=1.2, scale=1.0, unit=" us"))
        for seen in self._gnbs:  # the first are the goal, the others what this machine can do
            is_goal = seen is self._gnbs[0]
            cores = ", ".join(f"{name} {share:.2f}" for name, share in seen.cores.items())
            note = f"{seen.received / seen.seconds:.0f}/s; cores: {cores}"
            limit, none = (self._most_ms, 0) if is_goal else (None, None)
            name = f"{seen.count} gNBs, age p99"
            found.append(Part("L9", name, self._age_ms(seen), most=limit, unit=" ms", note=note))
            undetected = seen.sent - seen.received - seen.lost
            name = f"{seen.count} gNBs, undetected losses of {seen.sent:,}"
            found.append(Part("L9", name, undetected, none, none))
        return found


def cost_us(what: str, count: int, messages: int) -> float:
    """Processor time of a message, in a new process.  Raises OSError."""
    command = [sys.executable, "-m", "benchmarks.growth", what, str(count), str(messages)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=READY_S, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command[2:])} ended with code {done.returncode}; its message stands above")
    return float(done.stdout)


if __name__ == "__main__":
    main()
