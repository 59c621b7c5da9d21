"""Peers that acknowledge nothing, little or wrongly, beside an honest one, over every transport.

``python -m tests.link.test_dishonest_crowds --crowds 500`` measures random crowds, for minutes to hours.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any

import pytest

import twinlink
from tests.core.dishonest import MODES
from twinlink.testing import patience, wait_until
from twinlink.testing.base import free_endpoint

TRANSPORTS = ("zeromq", "zenoh", "websocket", "tcp", "mqtt")
OCTETS = 2000
BATCH = 25  # messages of each that the honest peer has before the next ones leave
COUNT = 500  # 1 MB: five times what may be in flight when a flow begins
FLOW = "flow"


def open_crowd(
    opened: ExitStack, transport: Any, modes: list[str], random: Random, handler: Callable[[twinlink.Message], None]
) -> tuple[twinlink.Link, twinlink.Sender]:
    """The listener and its sender, with an honest peer up that has this handler, and such others."""
    endpoint = free_endpoint(4)
    listener = opened.enter_context(twinlink.open(transport, listen=endpoint, node="sends", send_timeout=patience()))
    nodes = ["honest", *(f"{mode.replace(' ', '-')}-{number}" for number, mode in enumerate(modes))]
    for node, mode in zip(nodes, [None, *modes], strict=True):
        link = opened.enter_context(twinlink.open(transport, connect=endpoint, node=node))
        if mode is not None:
            tamper(link, MODES[mode](random))
        link.receiver(FLOW, handler=handler if mode is None else lambda message: None)
    wait_until(lambda: sorted(listener.peers()) == sorted(nodes))
    return listener, listener.sender(FLOW)


def tamper(link: twinlink.Link, tampered: Callable[[bytes, bytes], list[bytes]]) -> None:
    """Have a link send other frames than its session gives."""
    send = link._transport.send

    def send_tampered(topic: bytes, frame: bytes) -> None:
        for one in tampered(topic, frame):
            send(topic, one)

    link._transport.send = send_tampered  # type: ignore[method-assign]


@pytest.mark.parametrize("mode", ["mute", "refuses", "naks", "stops"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_dishonest_peer_does_not_stop_the_others(transport: str, mode: str) -> None:
    taken: list[int] = []
    with ExitStack() as opened:
        listener, sender = open_crowd(opened, transport, [mode], Random(1), lambda one: taken.append(one.sequence))
        for number in range(COUNT):
            if number % BATCH == 0:
                wait_until(partial(is_there, taken, number))
            sender.send(bytes(OCTETS))
        wait_until(partial(is_there, taken, COUNT))
        assert taken == list(range(COUNT))
        losses = [
            event for event in iter(partial(listener.events().receive, 0), None) if isinstance(event, twinlink.Lost)
        ]
        assert not any("honest" in event.peers for event in losses)


def is_there(taken: list[int], count: int) -> bool:
    return len(taken) == count


def measure(transport: str, modes: list[str], seed: int, seconds: float, per_second: int) -> tuple[int, list[float]]:
    """How many messages were sent beside such peers, and how old each was in ms at the honest one, ascending."""
    random, ages = Random(seed), list[float]()
    with ExitStack() as opened:
        _, sender = open_crowd(
            opened, transport, modes, random, lambda one: ages.append((one.received_ns - one.sent_ns) / 1e6)
        )
        began, count = time.monotonic(), int(seconds * per_second)
        for number in range(count):
            sender.send(bytes(OCTETS))
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        wait_until(lambda: len(ages) == count)
    return count, sorted(ages)


def main() -> int:
    """Measure crowds, and say whether each honest peer got all, and how old that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crowds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=int, default=300, help="messages of 2 kB a second (default: 300)")
    parser.add_argument("--first-seed", type=int, default=1)
    given = parser.parse_args()
    over = 0
    for seed in range(given.first_seed, given.first_seed + given.crowds):
        random = Random(seed)
        modes = random.choices(list(MODES), k=random.randrange(1, 4))
        for transport in TRANSPORTS:
            _, alone = measure(transport, [], seed, given.seconds, given.rate)
            count, ages = measure(transport, modes, seed, given.seconds, given.rate)
            p99, p99_alone = (one[len(one) * 99 // 100] for one in (ages, alone))
            over += p99 >= max(50, 2 * p99_alone)
            shown = f"p50 {ages[len(ages) // 2]:.1f}, p99 {p99:.1f} (alone {p99_alone:.1f}), max {ages[-1]:.1f} ms"
            print(
                f"seed {seed} {transport}: {len(ages)} of {count}, age {shown}; beside {', '.join(modes)}", flush=True
            )
    print(
        f"{over} of {given.crowds * len(TRANSPORTS)} crowds: age p99 of 50 ms or more, and twice that of no such peer"
    )
    return over > 0


if __name__ == "__main__":
    sys.exit(main())
