"""Loss, reordering, duplication, partition and restart, between two sessions on a simulated path and clock."""

import pytest

from tests.core.pair import MS, Pair, mute, pair
from tests.core.sending import FlowSender
from twinlink.events import Duplicate, Gap, Lost, PeerDown, PeerUp, Reordered, Restarted
from twinlink.protocol.liveness import PEER_TIMEOUT_NS, TICK_NS
from twinlink.protocol.session import Reliability

COUNT = 400
SIZES = (0, 100, 5000, 60_000, 200_000)


def stream(made: Pair, sender: FlowSender, count: int = COUNT) -> None:
    """A message a millisecond, of sizes in turn."""
    for number in range(count):
        sender.send(number.to_bytes(8) + bytes(SIZES[number % len(SIZES)]))
        made.run(MS)


def settle(made: Pair, sender: FlowSender) -> None:
    made.run_until(lambda: sender.core.is_settled and not sender.core.has_pending)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "path",
    [
        {},
        {"loss": 0.02},
        {"loss": 0.2},
        {"jitter_ns": 5 * MS},
        {"duplication": 0.3},
        {"loss": 0.1, "jitter_ns": 20 * MS, "duplication": 0.1},
    ],
    ids=lambda path: " ".join(f"{name} {value:g}" for name, value in path.items()) or "clean",
)
def test_everything_arrives_in_order_and_once(path: dict[str, float], seed: int) -> None:
    made = pair(seed, **path)
    got, sender = made.far.receive("flow"), made.near.sender("flow")
    stream(made, sender)
    settle(made, sender)
    assert [message.sequence for message in got] == list(range(COUNT))
    assert all(int.from_bytes(message.payload[:8]) == message.sequence for message in got)
    assert not made.far.told(Gap)
    assert not made.near.told(Lost)
    assert sender.stats()["acknowledged"] == COUNT
    if path.get("loss"):
        assert sender.stats()["repaired"] > 0


@pytest.mark.parametrize("reliability", ["repair", "detect"])
@pytest.mark.parametrize("path", [{}, {"loss": 0.1, "jitter_ns": 20 * MS}], ids=["clean", "lossy"])
def test_numbers_that_are_skipped_are_a_gap(path: dict[str, float], reliability: Reliability) -> None:
    made = pair(1, **path)
    got, sender = made.far.receive("flow"), made.near.sender("flow", reliability)
    for number in range(COUNT):
        if number % 50 == 10:
            made.near.session.skip(sender.core, 3)
        sender.send(bytes(100))
        made.run(MS)
    made.near.session.skip(sender.core, 2)
    made.run(10_000 * MS)
    skipped = [(first, first + 3) for first in range(10, COUNT + 24, 53)] + [(COUNT + 24, COUNT + 26)]
    numbers = {number for first, end in skipped for number in range(first, end)}
    missing = {number for gap in made.far.told(Gap) for number in range(gap.first, gap.end)}  # type: ignore[attr-defined]
    assert numbers <= missing
    assert made.near.told(Lost)
    assert sender.stats()["sent"] == COUNT + 26
    if reliability == "repair":
        assert [message.sequence for message in got] == sorted({*range(COUNT + 26)} - numbers)
        assert missing == numbers
        assert [(lost.first, lost.end) for lost in made.near.told(Lost)] == skipped  # type: ignore[attr-defined]
        assert (sender.stats()["acknowledged"], sender.stats()["lost"]) == (COUNT, 26)


@pytest.mark.parametrize("seed", range(4))
def test_without_retransmission_every_loss_is_a_gap_and_every_message_is_accounted_for(seed: int) -> None:
    made = pair(seed, loss=0.1, jitter_ns=3 * MS, duplication=0.1)
    got, sender = made.far.receive("flow"), made.near.sender("flow", "detect")
    for number in range(COUNT):
        sender.send(number.to_bytes(8))
        made.run(MS)
    made.run(10_000 * MS)
    counted = sender.stats()
    assert counted["outstanding"] == 0
    assert counted["acknowledged"] + counted["lost"] == COUNT
    received = {message.sequence for message in got}
    assert len(received) == len(got)
    late = {event.sequence for event in made.far.told(Reordered)}  # type: ignore[attr-defined]
    missing = {n for event in made.far.told(Gap) for n in range(event.first, event.end)} - late  # type: ignore[attr-defined]
    assert received | missing == set(range(COUNT))
    assert not received & missing
    assert made.far.told(Duplicate)


@pytest.mark.parametrize("seed", range(4))
def test_without_retransmission_what_counts_as_lost_after_partitions_is_what_the_receiver_lacks(seed: int) -> None:
    made = pair(seed, loss=0.02)
    got, sender = made.far.receive("flow"), made.near.sender("flow", "detect")
    made.run(500 * MS)
    for number in range(10 * COUNT):
        made.path.cut = number >= COUNT and number % COUNT < 300 + 20 * seed
        sender.send(number.to_bytes(8))
        made.run(5 * MS)
    made.path.loss = 0.0
    made.run(10_000 * MS)
    counted = sender.stats()
    assert made.near.told(PeerDown)
    assert counted["outstanding"] == 0
    assert counted["lost"] == 10 * COUNT - len(got)
    assert counted["acknowledged"] == len(got)


@pytest.mark.parametrize("ms", [200, 1000, 5000, 30_000])
def test_a_partition_costs_nothing_but_time(ms: int) -> None:
    made = pair()
    got, sender = made.far.receive("flow"), made.near.sender("flow")
    stream(made, sender, 20)
    made.path.cut = True
    cut = made.now
    for _ in range(ms // 10):
        sender.send(bytes(100))
        made.run(10 * MS)
    if ms * MS > PEER_TIMEOUT_NS + 2 * TICK_NS:
        assert [event.reason for event in made.near.told(PeerDown)] == ["silent"]  # type: ignore[attr-defined]
        assert made.near.told(PeerDown)[0].time_ns - cut <= 1500 * MS
    else:
        assert not made.near.told(PeerDown)
    made.path.cut = False
    settle(made, sender)
    assert [message.sequence for message in got] == list(range(20 + ms // 10))
    assert len(made.near.told(PeerUp)) == 1 + len(made.near.told(PeerDown))
    assert not made.near.told(Lost)


def test_a_cut_of_one_direction_is_noticed_by_both() -> None:
    made = pair()
    near, transmit = made.near, made.transmit
    made.transmit = lambda end, topic, frame: None if end is near else transmit(end, topic, frame)  # type: ignore[method-assign]
    made.run(2000 * MS)
    assert [event.reason for event in made.far.told(PeerDown)] == ["silent"]  # type: ignore[attr-defined]
    assert [event.reason for event in near.told(PeerDown)] == ["deaf"]  # type: ignore[attr-defined]


def test_a_restart_loses_what_the_dead_session_had_not_acknowledged_and_names_it() -> None:
    made = pair()
    got, sender = made.far.receive("flow"), made.near.sender("flow")
    stream(made, sender, 50)
    settle(made, sender)
    made.path.cut = True
    for _ in range(5):
        sender.send(b"lost with the session")
    made.run(50 * MS)
    made.path.cut = False
    far = made.restart(1)
    again = far.receive("flow")
    made.run_until(lambda: made.near.told(Restarted))
    sender.send(b"to the next session")
    settle(made, sender)
    assert len(got) == 50
    lost = {number for event in made.near.told(Lost) for number in range(event.first, event.end)}  # type: ignore[attr-defined]
    delivered = {message.sequence for message in again}
    assert 55 in delivered
    assert lost | delivered == set(range(50, 56))
    assert not lost & delivered
    assert not far.told(Gap)


def test_both_directions_at_once_over_a_bad_path() -> None:
    made = pair(loss=0.15, jitter_ns=10 * MS)
    there, back = made.far.receive("there"), made.near.receive("back")
    out, home = made.near.sender("there"), made.far.sender("back")
    for number in range(COUNT):
        out.send(number.to_bytes(8))
        home.send(number.to_bytes(8))
        made.run(MS)
    settle(made, out)
    settle(made, home)
    for got in (there, back):
        assert [message.sequence for message in got] == list(range(COUNT))


def test_a_node_whose_name_is_taken_comes_back_and_goes_on() -> None:
    made = pair()
    true, got, sender = made.far, made.near.receive("flow"), made.far.sender("flow")
    stream(made, sender, 20)
    made.add("far")
    made.tampering[true.epoch] = mute(b"")
    made.run_until(lambda: made.near.told(Restarted))
    made.tampering.clear()
    stream(made, sender, 20)
    made.run_until(lambda: true.epoch in made.near.session.peer_manager.up)
    stream(made, sender, 20)
    settle(made, sender)
    assert [message.sequence for message in got] == list(range(60))
    made.run(5_000 * MS)
    assert len(made.near.session.peer_manager.up) == 2
    assert not made.near.told(Gap)
    assert not true.told(Lost)


def test_a_backlog_of_long_messages_is_repaired_as_fast_as_it_is_acknowledged() -> None:
    """More of them than a peer that acknowledges nothing may request at once."""
    made = pair()
    got, sender = made.far.receive("f"), made.near.sender("f", in_flight=2**23)
    made.path.cut = True
    for _ in range(100):
        sender.send(bytes(60_000))  # all of it is transmitted, and lost
    made.run(2000 * MS)
    made.path.cut = False
    made.run_until(lambda: made.near.is_up and made.far.is_up)
    assert made.run_until(lambda: len(got) == 100) < 1000 * MS  # not 1 MiB a probe
