"""Several peers on one flow, of which some are slow: sessions on a simulated path and clock."""

import pytest

from tests.core.pair import MS, End, Pair, mute, pair
from tests.core.sending import FlowSender, acknowledge, send
from twinlink.events import Gap, LimitExceeded, Lost, PeerCaughtUp, PeerSlow
from twinlink.message import Message
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow

SIZE = 2000
WINDOW = 2**20
SLOW_MS = 50  # for each message
COUNT = 4000  # of 2 KB: more than a window and the retention together


class Reader:
    """An application that takes a message from the queue now and then."""

    def __init__(self, end: End, every_ms: int) -> None:
        self.end = end
        self.every_ms = every_ms
        self.got: list[Message] = []
        self.flow = end.session.messages.flow("flow")
        self.flow.subscribed = True
        self.most_octets = 0

    def step(self, number: int) -> None:
        self.most_octets = max(self.most_octets, self.flow.queued_octets)
        while number % self.every_ms == 0 and (taken := self.flow.next_message()) is not None:
            self.got.append(taken[0])
            if self.every_ms > 1:
                break

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for message in self.got]


def missing(end: End) -> set[int]:
    return {number for event in end.told(Gap) for number in range(event.first, event.end)}  # type: ignore[attr-defined]


def lost(end: End, node: str) -> set[int]:
    events = [event for event in end.told(Lost) if node in event.peers]  # type: ignore[attr-defined]
    return {number for event in events for number in range(event.first, event.end)}  # type: ignore[attr-defined]


def crowd(slow: int, loss: float = 0.0) -> tuple[Pair, list[Reader]]:
    """Two quick readers and some slow ones, all hearing the first end."""
    made = pair(loss=loss)
    readers = [Reader(made.far, 1), Reader(made.add("quick"), 1)]
    readers += [Reader(made.add(f"slow-{number}", WINDOW), SLOW_MS + 10 * number) for number in range(slow)]
    return made, readers


def stream(made: Pair, sender: FlowSender, readers: list[Reader], count: int = COUNT) -> dict[int, int]:
    """A message a millisecond; returns when each was sent."""
    sent = {}
    for number in range(count):
        sent[sender.send(number.to_bytes(8) + bytes(SIZE - 8))] = made.now
        made.run(MS)
        for reader in readers:
            reader.step(number)
    return sent


def drain(made: Pair, readers: list[Reader], at_most_ms: int = 300_000) -> None:
    """Let the slow ones read on, ten times as quickly, until nothing is left."""
    number = 0
    while number < at_most_ms:
        made.run(MS)
        number += 1
        for reader in readers:
            reader.step(number * 10)
        senders = [sender.core for end in made.ends for sender in end.senders.values()]
        settled = all(one.is_settled and not one.unconfirmed.open for one in senders)
        if number % 500 == 0 and settled and not any(reader.flow.queue for reader in readers):
            return
    raise AssertionError("something is left")


@pytest.mark.parametrize(("slow", "loss"), [(1, 0.02), (2, 0.0)])
def test_a_slow_peer_costs_the_quick_ones_nothing(slow: int, loss: float) -> None:
    made, readers = crowd(slow, loss)
    quick, slow_ones = readers[:2], readers[2:]
    sender = made.near.sender("flow", retention=4 * WINDOW)
    sent = stream(made, sender, readers)
    made.run(500 * MS)
    for reader in quick:
        reader.step(0)
        assert reader.sequences == list(range(COUNT))
        assert not missing(reader.end)
        if not loss:
            assert max(message.received_ns - message.sent_ns for message in reader.got) < 50 * MS
    named = {event.node: event for event in made.near.told(PeerSlow)}  # type: ignore[attr-defined]
    assert named.keys() >= {f"slow-{number}" for number in range(slow)}
    assert all(named[f"slow-{number}"].time_ns - sent[0] < 2000 * MS for number in range(slow))
    made.path.loss = 0.0
    drain(made, readers)
    for reader in slow_ones:
        node = reader.end.session.peer_manager._node
        gone = missing(reader.end)
        assert gone
        assert set(reader.sequences) | gone == set(range(COUNT))
        assert reader.sequences == sorted(set(reader.sequences) - gone)
        assert lost(made.near, node) == gone
        assert reader.most_octets <= WINDOW * 1.1
    assert sender.stats()["lost"] == len(set.union(*(missing(reader.end) for reader in slow_ones)))
    made.run(2000 * MS)
    assert {event.node for event in made.near.told(PeerCaughtUp)} >= set(named)  # type: ignore[attr-defined]


def test_a_slow_peer_that_stays_within_what_is_kept_loses_nothing() -> None:
    made, readers = crowd(1, 0.02)
    sender = made.near.sender("flow")
    stream(made, sender, readers, COUNT // 2)
    drain(made, readers)
    assert [reader.sequences for reader in readers] == [list(range(COUNT // 2))] * 3
    assert not made.near.told(Lost)
    assert sender.stats()["acknowledged"] == COUNT // 2


def test_with_pace_slowest_every_peer_gets_everything() -> None:
    made, readers = crowd(1)
    sender = made.near.sender("flow", retention=2 * WINDOW, pace="slowest")
    number = sent = 0
    while sent < COUNT // 2:
        if sender.fits(SIZE):
            sender.send(bytes(SIZE))
            sent += 1
        made.run(MS)
        number += 1
        for reader in readers:
            reader.step(number * 10)
    drain(made, readers)
    assert [reader.sequences for reader in readers] == [list(range(COUNT // 2))] * 3
    assert not made.near.told(Lost)
    assert not any(end.told(Gap) for end in made.ends)


def test_a_peer_with_a_small_window_gets_everything_from_a_sender_with_a_large_one() -> None:
    made = pair()
    reader = Reader(made.add("small", WINDOW), 5)
    made.ends.remove(made.far)
    sender = made.near.sender("flow")
    stream(made, sender, [reader], 2000)
    drain(made, [reader])
    assert reader.sequences == list(range(2000))
    assert reader.most_octets <= WINDOW * 1.1
    assert {event.limit for event in reader.end.told(LimitExceeded)} == {"window"}  # type: ignore[attr-defined]


def test_a_peer_that_says_hello_and_acknowledges_nothing_is_a_slow_peer() -> None:
    made, readers = crowd(0)
    silent = made.add("mute")
    made.tampering[silent.epoch] = mute(b"ack/")
    sender = made.near.sender("flow", retention=4 * WINDOW)
    stream(made, sender, readers)
    made.run(500 * MS)
    for reader in readers:
        reader.step(0)
        assert reader.sequences == list(range(COUNT))
        late = sorted(message.received_ns - message.sent_ns for message in reader.got)
        assert late[len(late) * 9 // 10] < 10 * MS
    assert {event.node for event in made.near.told(PeerSlow)} == {"mute"}  # type: ignore[attr-defined]


def test_where_hellos_overtake_data_a_peer_on_a_slow_path_is_waited_for() -> None:
    """It has a probe's time to acknowledge, or to request what the transport dropped; else it withholds its acks."""
    core = SendFlow("flow", WINDOW, WINDOW, InFlightBudget(WINDOW, hellos_overtake=True))
    for epoch in (1, 2):
        core.on_peer_up(epoch, repairs=True)
    sent = [number for number in range(10) if send(core, SIZE)]
    acknowledge(core, 1, sent)
    for after_ms, pacing in ((0, {1, 2}), (600, {1, 2}), (1200, {1})):
        core.pace_keeper.check((1 + after_ms) * MS, 0, {1: len(sent), 2: len(sent)})
        assert core.receivers.pacing == pacing
