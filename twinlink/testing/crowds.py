"""Several connectors of which one is slow: that costs the others nothing, and its losses are exact on both sides."""

# ruff: noqa: D102  (a test's name is its sentence)

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

import twinlink

from .base import Conformance, Open, drain, patience, wait_until

FLOW = "flow"
MIB = 1024 * 1024  # the smallest window and retention
PAYLOAD = bytes(10_000)
BATCH = 25  # messages: beyond what may be in flight, and far less than the retention


class SlowReader:
    """An application that consumes nothing until `release`.

    Attributes:
        link: its end of the link.
        taken: sequence numbers of what it has consumed, in order.
    """

    def __init__(self, link: twinlink.Link, reads_by: str) -> None:
        """``reads_by``: ``"handler"``, which does not return from its first call; or ``"iterating"``."""
        self.link = link
        self.taken: list[int] = []
        self._released = threading.Event()
        link.receiver(FLOW, handler=self._handle if reads_by == "handler" else None)

    def release(self) -> None:
        """From now on it consumes at once."""
        self._released.set()
        self.link.receiver(FLOW, handler=self._handle)

    def _handle(self, message: twinlink.Message) -> None:
        self._released.wait()
        self.taken.append(message.sequence)


class Crowd:
    """A listener that sends, two quick connectors, and a slow one.

    Attributes:
        listener, quick, slow: the ends.
        sender: of the listener.
        taken: by quick connector, the sequence numbers that it has consumed.
    """

    def __init__(self, opening: Open, reads_by: str, pace: Any = None, **options: Any) -> None:
        """``options``: of the listener."""
        self.listener = opening("listen", node="sends", **options)
        self.quick = [opening("connect", node=f"quick-{number}") for number in range(2)]
        self.slow = SlowReader(opening("connect", node="slow", window=MIB), reads_by)
        self.taken: list[list[int]] = [[], []]
        self._events: list[twinlink.Event] = []
        self.listener.events(handler=self._events.append)
        for link, taken in zip(self.quick, self.taken, strict=True):
            link.receiver(FLOW, handler=partial(_take, taken))
            link.wait_ready(patience())
        self.slow.link.wait_ready(patience())
        wait_until(lambda: self.listener.peers() == ["quick-0", "quick-1", "slow"])
        self.sender = self.listener.sender(FLOW, pace=pace)

    def stream(self, octets: int) -> int:
        """Send so many octets in batches, each when the quick connectors have the one before; returns the count.

        In this way the quick connectors never hold up the flow, however busy the machine is.
        """
        for number in range(octets // len(PAYLOAD)):
            if number % BATCH == 0:
                wait_until(self._quick_have_all)
            self.sender.send(PAYLOAD)
        wait_until(self._quick_have_all)
        return self.count

    def send_on(self, octets: int) -> None:
        """Send so many octets without looking at what arrives."""
        for _ in range(octets // len(PAYLOAD)):
            self.sender.send(PAYLOAD)

    @property
    def count(self) -> int:
        """Messages sent so far."""
        return int(self.sender.stats()["sent"])

    def _quick_have_all(self) -> bool:
        return self.taken == [list(range(self.count))] * 2

    def slow_nodes(self) -> set[str]:
        """The peers that are reported as slow now."""
        nodes: set[str] = set()
        for event in list(self._events):
            if isinstance(event, twinlink.PeerSlow) and event.behind > 0:
                nodes.add(event.node)
            elif isinstance(event, twinlink.PeerCaughtUp):
                nodes.discard(event.node)
        return nodes

    def losses(self) -> list[twinlink.Lost]:
        """What the listener has reported as lost."""
        return [event for event in list(self._events) if isinstance(event, twinlink.Lost)]


MakeCrowd = Callable[..., Crowd]


class Crowds(Conformance):
    """A flow to several peers; for a transport that takes several connectors."""

    @pytest.fixture
    def crowd(self, opening: Open) -> Iterator[MakeCrowd]:
        made: list[Crowd] = []

        def make(*arguments: Any, **options: Any) -> Crowd:
            made.append(Crowd(opening, *arguments, **options))
            return made[-1]

        yield make
        for one in made:
            one.slow.release()  # a handler that is blocked would hold up its link's end

    @pytest.mark.parametrize("reads_by", ["handler", "iterating"])
    def test_a_slow_peer_costs_the_others_nothing_and_gets_all_that_is_kept(
        self, crowd: MakeCrowd, reads_by: str
    ) -> None:
        made = crowd(reads_by, send_timeout=patience())
        count = made.stream(3 * MIB)  # more than its window
        assert len(made.slow.taken) < count
        wait_until(lambda: made.slow_nodes() == {"slow"})
        made.slow.release()
        wait_until(lambda: len(made.slow.taken) == count)
        assert made.slow.taken == list(range(count))
        wait_until(lambda: made.slow_nodes() == set())
        made.sender.flush(patience())
        assert made.losses() == []
        for link in (*made.quick, made.slow.link):
            assert drain(link, twinlink.Gap, twinlink.Duplicate, twinlink.Reordered) == []

    @pytest.mark.parametrize("reads_by", ["handler", "iterating"])
    def test_what_is_not_kept_for_a_slow_peer_is_lost_to_it_alone(self, crowd: MakeCrowd, reads_by: str) -> None:
        made = crowd(reads_by, send_timeout=patience(), retention=MIB)
        count = made.stream(4 * MIB)  # more than its window and the retention
        made.slow.release()
        gaps: list[twinlink.Gap] = []

        def is_complete() -> bool:
            gaps.extend(drain(made.slow.link, twinlink.Gap))
            return len(made.slow.taken) + len(numbers(gaps)) == count

        wait_until(is_complete)
        wait_until(lambda: numbers(made.losses()) == numbers(gaps))
        assert sorted(made.slow.taken + numbers(gaps)) == list(range(count))
        assert made.slow.taken == sorted(made.slow.taken)
        if reads_by == "iterating":  # what a blocked handler's link has not read, the transport may hold
            assert gaps
        assert {event.peers for event in made.losses()} <= {("slow",)}
        wait_until(lambda: made.sender.stats()["outstanding"] == 0)
        stats = made.sender.stats()
        assert (stats["lost"], stats["acknowledged"]) == (len(numbers(gaps)), count - len(numbers(gaps)))
        for link in made.quick:
            assert drain(link, twinlink.Gap) == []

    def test_with_pace_slowest_the_flow_waits_for_every_peer(self, crowd: MakeCrowd) -> None:
        made = crowd("iterating", pace="slowest", send_timeout=1.0, retention=MIB)
        with pytest.raises(twinlink.SendTimeout):
            made.send_on(8 * MIB)
        count = made.count
        assert count * len(PAYLOAD) <= 2 * MIB  # the slow one's window, and the retention
        made.slow.release()
        made.sender.flush(patience())
        wait_until(lambda: [made.slow.taken, *made.taken] == [list(range(count))] * 3)
        assert made.losses() == []

    def test_a_flow_that_a_peer_does_not_read_costs_the_other_flows_nothing(self, crowd: MakeCrowd) -> None:
        made = crowd("iterating", pace="slowest", send_timeout=0.5, retention=4 * MIB)
        with pytest.raises(twinlink.SendTimeout):
            made.send_on(8 * MIB)
        taken: list[int] = []
        made.slow.link.receiver("other", handler=partial(_take, taken))
        other = made.listener.sender("other")
        for _ in range(20):
            other.send(PAYLOAD)
            other.flush(patience())
            time.sleep(0.05)  # meanwhile the path is taken for slow, as nothing more gets through
        wait_until(lambda: taken == list(range(20)))
        assert made.slow.taken == []
        made.slow.release()
        made.sender.flush(patience())
        assert made.losses() == []


def numbers(events: Sequence[twinlink.Gap] | Sequence[twinlink.Lost]) -> list[int]:
    """The sequence numbers of these events, in order."""
    return sorted(number for event in events for number in range(event.first, event.end))


def _take(taken: list[int], message: twinlink.Message) -> None:
    taken.append(message.sequence)
