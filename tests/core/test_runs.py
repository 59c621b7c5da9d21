"""A run is one frame and one entry of every table, and comes to the same as its messages one by one."""

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.interrupting import interrupted
from tests.core.pair import MS, WINDOW, End, Pair, deliver, mute, pair
from tests.core.sending import FlowSender
from twinlink import SendTimeout, run
from twinlink.protocol.frames import HEADER_OCTETS, RUN_AT, Hello, Kind, frame, nak_body, parse, run_header
from twinlink.protocol.receive import flow as receive_flow
from twinlink.protocol.receive import receiver
from twinlink.protocol.receive.flow import CREDIT_UPDATE_OCTETS, MESSAGE_WEIGHT_OCTETS
from twinlink.protocol.send import flow as send_flow
from twinlink.protocol.send import in_flight, kept_run, queue, record, retransmit_buffer
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.kept_run import KeptRun
from twinlink.protocol.send.queue import RUN_OCTETS
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS

# How many messages go together, and octets of each; 1: by itself.
BATCHES = st.lists(st.tuples(st.integers(1, 90), st.sampled_from([1, 4, 100, 1000])), min_size=1, max_size=12)
THIRD = 102  # epoch of the end that is added to a pair
COUNTERS = ("sent", "sent_octets", "acknowledged", "lost", "outstanding", "kept_octets", "in_flight_octets")


def without_runs(topic: bytes, octets: bytes) -> list[bytes]:
    """What a node sends that does not read runs."""
    if octets[3] != Kind.HELLO:
        return [octets]
    hello = Hello.decode(octets[HEADER_OCTETS:])
    hello = Hello(
        hello.node, hello.heard, hello.flows, hello.repairs, hello.detect, start_sequences=hello.start_sequences
    )
    _, epoch, number, sent_ns = parse(octets)
    return [frame(Kind.HELLO, epoch, number, sent_ns, hello.encode())]


def kinds_sent(end: End) -> "Counter[int]":
    """Counts the frames that an end sends from now on."""
    kinds, put_on_path = Counter[int](), end.outlet.send

    def send(topic: bytes, octets: bytes) -> None:
        kinds[octets[3]] += 1
        put_on_path(topic, octets)

    end.outlet.send = send  # type: ignore[method-assign,assignment]
    return kinds


def send_all(made: Pair, sender: FlowSender, payloads: list[bytes]) -> None:
    """As one batch; waits for room."""
    while payloads:
        if len(payloads) == 1:
            try:
                sender.send(payloads[0])
                count = 1
            except SendTimeout:
                count = 0
        else:
            count = sender.send_many(payloads)
        payloads = payloads[count:]
        if not count:
            made.run(MS)


def history(seed: int, batches: list[tuple[int, int]], together: bool, old: bool, window: int, **limits: Any) -> Any:
    """What two peers get over a path with loss, duplicates and reordering, and the sender's counters in the end.

    One of them has a ``window`` of its own, and does not read runs if it is ``old``.
    """
    made = pair(seed)
    if old:
        made.tampering[THIRD] = without_runs
    third = made.add("third", window)
    got = [made.far.receive("flow"), third.receive("flow")]
    sender = made.near.sender("flow", **limits)
    made.run(80 * MS)
    for name, value in {"loss": 0.15, "duplication": 0.1, "jitter_ns": 3 * MS}.items():
        setattr(made.path, name, value)
    number = 0
    for count, size in batches:
        payloads = [(number + one).to_bytes(4)[-size:].rjust(size, b".") for one in range(count)]
        number += count
        for part in [payloads] if together else [[one] for one in payloads]:
            send_all(made, sender, part)
        made.run(MS // 2)
    for name in ("loss", "duplication", "jitter_ns"):
        setattr(made.path, name, 0)
    made.run_until(lambda: not sender.stats()["outstanding"] and not sender.core.has_pending)
    made.run(3000 * MS)
    counters = sender.stats()
    arrived = [[(one.sequence, bytes(one.payload)) for one in messages] for messages in got]
    return arrived, {name: counters[name] for name in COUNTERS}


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 2**32),
    BATCHES,
    st.booleans(),
    # With little room to keep messages, a peer that is left behind on such a path would lose some.
    st.sampled_from([{}, {"in_flight": 9000}, {"retention": 60_000, "pace": "slowest"}, {"window": 20_000}]),
)
@example(1, [(90, 100), (1, 4), (50, 1000), (90, 1)], False, {"in_flight": 5000})
def test_over_a_path_with_loss_runs_come_to_the_same_as_single_messages(
    seed: int, batches: list[tuple[int, int]], old: bool, limits: dict[str, Any]
) -> None:
    limits = {"window": WINDOW, **limits}
    arrived, counters = history(seed, batches, together=True, old=old, **limits)
    singly, single_counters = history(seed, batches, together=False, old=old, **limits)
    assert arrived == singly
    assert counters == single_counters
    assert [number for number, _ in arrived[0]] == list(range(sum(count for count, _ in batches)))


def test_a_peer_that_does_not_read_runs_gets_none_and_all_messages() -> None:
    made = pair()
    made.tampering[THIRD] = without_runs
    third = made.add("third")
    got = [made.far.receive("flow"), third.receive("flow")]
    sender, kinds = made.near.sender("flow"), kinds_sent(made.near)
    made.run(80 * MS)
    sender.send_many([bytes(10)] * 50)
    made.run(20 * MS)
    assert Kind.RUN not in kinds
    assert [len(one) for one in got] == [50, 50]


def test_a_peer_that_comes_up_before_a_run_has_left_and_does_not_read_it_gets_its_messages() -> None:
    made = pair()
    got = made.far.receive("flow")
    sender, kinds = made.near.sender("flow", in_flight=3000), kinds_sent(made.near)
    made.run(50 * MS)
    sender.send_many([bytes(100)] * 500)
    made.tampering[THIRD] = without_runs
    third = made.add("third")
    of_third = third.receive("flow")
    made.run_until(lambda: sender.stats()["acknowledged"] == 500)
    made.run(200 * MS)
    assert kinds[Kind.RUN]
    assert len(got) == 500
    numbers = [one.sequence for one in of_third]
    assert numbers == list(range(500 - len(numbers), 500))
    assert sender.core.unacked.octets == sender.core.in_flight.budget.in_flight == 0


def test_a_slow_path_takes_a_run_in_parts() -> None:
    made = pair()
    got = made.far.receive("flow")
    sender, kinds = made.near.sender("flow", in_flight=20_000), kinds_sent(made.near)
    made.run(50 * MS)
    assert sender.send_many([bytes(100)] * 1000) == 1000
    made.run_until(lambda: sender.stats()["acknowledged"] == 1000)
    assert len(got) == 1000
    assert 5 <= kinds[Kind.RUN] <= 12
    assert not kinds[Kind.DATA]


def test_what_is_requested_of_a_run_is_retransmitted_and_no_more() -> None:
    made = pair()
    got = made.far.receive("flow")
    sender = made.near.sender("flow")
    made.run(50 * MS)
    made.tampering[made.far.epoch] = mute(b"ack/")
    sender.send_many([bytes([number]) for number in range(100)])
    made.run(5 * MS)
    kinds = kinds_sent(made.near)
    request = frame(Kind.NAK, made.far.epoch, 0, 1, nak_body(made.near.epoch, 100, [(10, 12), (50, 51)]))
    made.near.session.receive(b"ack/flow", request, made.now, made.now)
    assert sender.stats()["outstanding"] == 3
    made.near.send_due()
    made.run(5 * MS)
    assert kinds[Kind.BUNDLE] == 1
    assert len(got) == 100


@pytest.mark.parametrize("added", [b"", b"12345678"])
@pytest.mark.parametrize("at", [1, 7, 19])
def test_a_part_of_a_run_is_a_run_and_its_messages_are_data_frames(at: int, added: bytes) -> None:
    payloads = [bytes([number] * 3) for number in range(20)]
    octets = run_header(20, 3, 7, 100, 9) + b"".join(payloads) + added
    whole = KeptRun(100, 20, 3, octets, 1, frozenset({1}))
    parts = whole.cut(at)
    assert [part.frame for part in parts] == [
        run_header(len(some), 3, 7, first, 9) + b"".join(some) + added
        for first, some in ((100, payloads[:at]), (100 + at, payloads[at:]))
    ]
    expected = [frame(Kind.DATA, 7, 100 + n, 9, payload) + added for n, payload in enumerate(payloads)]
    assert list(whole.data_frames()) == [one for part in parts for one in part.data_frames()] == expected


def sent_runs(*counts: int, transmitted: bool = True) -> SendFlow:
    core = SendFlow("flow", 2**24, 2**24, InFlightBudget(2**20), epoch=7)
    for peer in (1, 2):
        core.on_peer_up(peer, True, 2**20, True)
    for count in counts:
        octets = run_header(count, 10, 7, core.next_sequence, 1) + bytes(10 * count)
        assert core.send_run(octets, count, 10, 1)
    while transmitted and core.next_frame(1, True):
        pass
    return core


SENDING = [str(module.__file__) for module in (send_flow, record, retransmit_buffer, in_flight, queue, kept_run)]


@pytest.mark.parametrize(
    "end", [(1, 0, 40), (1, 5, 30), (2, 60, 70)], ids=["a run", "across two runs", "a part of a run"]
)
def test_each_message_of_a_run_is_counted_once_when_ctrl_c_comes(end: tuple[int, int, int]) -> None:
    peer, first, stop = end

    def feed(core: SendFlow) -> None:
        core.on_ack_range(2, range(40), 2, 3, 4, 5, every_ack=False)
        core.on_ack_range(peer, range(first, stop), 2, 3, 4, 5, every_ack=True)
        core.on_nak(1, 100, [(45, 47)], 3, 4, 5)
        core.on_nak(2, 100, [], 3, 4, 5)

    for moment in itertools.count(1):
        core = sent_runs(40, 40, 20)
        cut_off = interrupted(moment, lambda: feed(core), *SENDING)  # noqa: B023
        if cut_off:
            core.recover_after_interrupt()
        counted = core.stats()
        assert counted["acknowledged"] + counted["outstanding"] + counted["lost"] == 100
        kept = core.unacked.entries
        assert counted["kept_octets"] == len(kept) * (10 + ENTRY_OVERHEAD_OCTETS)
        if not cut_off:
            assert sorted(kept) == [45, 46]
            break
        for one in (1, 2):
            core.on_ack(one, [(number, 1, 2) for number in range(100)], 3, 4, 5)
        assert core.in_flight.budget.in_flight == 0
        assert core.stats()["acknowledged"] == 100
    assert moment > 20


def test_a_run_is_taken_in_or_not_when_ctrl_c_comes() -> None:
    octets = run_header(20, 10, 7, 0, 1) + bytes(200)
    for moment in itertools.count(1):
        core = sent_runs()
        if not interrupted(moment, lambda: core.send_run(octets, 20, 10, 1), *SENDING):  # noqa: B023
            break
        core.recover_after_interrupt()
        assert core.next_sequence in {0, 20}
        assert sorted(core.unacked.entries) == list(range(core.next_sequence))
        assert core.has_pending or not core.next_sequence
    assert moment > 3


def test_each_message_of_a_run_is_delivered_once_when_ctrl_c_comes() -> None:
    """While the run is taken in, or taken by the application: the peer sends it again, as it is not acknowledged."""
    files = [str(module.__file__) for module in (receiver, receive_flow, run)]
    for moment in itertools.count(1):
        made = pair()
        flow = made.near.session.receive_flow("flow")
        flow.subscribed = True
        made.run(50 * MS)
        octets = run_header(20, 10, made.far.epoch, 0, 1) + bytes(200)

        def take_in(made: Pair = made, octets: bytes = octets) -> None:
            made.near.session.receive(b"traffic/flow", octets, made.now, made.now)

        cut_off = interrupted(moment, take_in, *files)
        take_in()
        parts: list[Any] = []
        flow.next_parts(100, parts)
        assert [one.sequence for part in parts for one in part] == list(range(20))
        stream = flow.streams[made.far.epoch]
        assert (stream.waiting_octets, stream.consumed, stream.tracker.received) == (0, 20, 20)
        if not cut_off:
            break
    assert moment > 5


@pytest.mark.parametrize("most", [1, 7, 30, 1000])
def test_messages_are_taken_from_runs_singly_or_together(most: int) -> None:
    made = pair()
    flow = made.near.session.receive_flow("flow")
    flow.subscribed = True
    made.run(50 * MS)
    epoch, first = made.far.epoch, 0
    for of_run in (1, 30, 0, 20, 0, 0, 40):
        count = of_run or 1
        octets = run_header(count, 3, epoch, first, 9) + b"".join(bytes([first + one] * 3) for one in range(count))
        if not of_run:
            octets = frame(Kind.DATA, epoch, first, 9, bytes([first] * 3))
        made.near.session.receive(b"traffic/flow", octets, made.now, made.now)
        first += count
    assert flow.queued == flow.stats()["queued"] == first
    assert flow.queued_octets == 3 * first
    taken: list[Any] = []
    while flow.queue:
        assert flow.queued == first - len(taken)
        if most == 1:
            one = flow.next_message()
            assert one is not None
            taken.append(one[0])
        else:
            parts: list[Any] = []
            flow.next_parts(most, parts)
            assert sum(map(len, parts)) == min(most, first - len(taken))
            taken += [message for part in parts for message in part]
    assert [(one.sequence, bytes(one.payload)) for one in taken] == [(n, bytes([n] * 3)) for n in range(first)]
    assert {(one.flow, one.epoch, one.node, one.sent_ns) for one in taken} == {("flow", epoch, "far", 9)}
    stream = flow.streams[epoch]
    assert (stream.waiting_octets, stream.consumed, flow.runs) == (0, first, 0)
    assert stream.unreported_octets == first * (3 + MESSAGE_WEIGHT_OCTETS)


def test_a_handler_that_comes_late_gets_the_messages_of_runs_one_by_one() -> None:
    made = pair()
    flow = made.near.session.receive_flow("flow")
    flow.subscribed = True
    made.run(50 * MS)
    made.near.session.receive(b"traffic/flow", run_header(30, 2, made.far.epoch, 0, 1) + bytes(60), made.now, made.now)
    got: list[Any] = []
    made.near.session.set_handler(flow, got.append)
    deliver(made.near.session)
    assert [one.sequence for one in got] == list(range(30))


def test_what_is_here_of_a_run_is_counted_and_the_others_are_taken() -> None:
    made = pair()
    got = made.near.receive("flow")
    made.run(50 * MS)
    for first, count in ((0, 10), (5, 10), (20, 5), (12, 10)):
        octets = run_header(count, 2, made.far.epoch, first, 1) + bytes(2 * count)
        made.near.session.receive(b"traffic/flow", octets, made.now, made.now)
        made.near.send_due()
    made.run(5 * MS)
    assert [one.sequence for one in got] == list(range(25))
    assert made.near.session.receive_flow("flow").stats()["duplicates"] == 5 + 3 + 2


def test_runs_that_find_no_room_are_refused_and_come_again() -> None:
    made = pair()
    third = made.add("third", 100_000)
    made.tampering[made.far.epoch] = mute(b"")
    made.run(8000 * MS)  # it is up no more
    flow = third.session.receive_flow("flow")
    flow.subscribed = True
    sender = made.near.sender("flow", in_flight=2**20)
    made.run(50 * MS)
    for _ in range(10):
        sender.send_many([bytes(100)] * 1000)
    made.run(100 * MS)
    assert sum(stream.waiting_octets for stream in flow.streams.values()) <= 2 * RUN_OCTETS + 262_144
    taken: list[int] = []

    def take() -> bool:
        while (message := third.take("flow")) is not None:
            taken.append(message.sequence)
        return len(taken) == 10_000

    made.run_until(take)
    assert taken == list(range(10_000))
    assert CREDIT_UPDATE_OCTETS >= RUN_OCTETS  # so that what is consumed of a run in part does not hold up its sender


def test_runs_on_a_flow_for_which_there_is_no_room_are_rejected_in_acks_of_their_length() -> None:
    made = pair()
    made.far.session.messages._flow_table._max_flows = 0
    sender = made.near.sender("flow", in_flight=2**20)
    made.run(50 * MS)
    kinds = kinds_sent(made.near)
    assert sender.send_many([bytes(100)] * 1000) == 1000
    made.run(2000 * MS)
    assert kinds[Kind.RUN]
    assert made.near.session.malformed == {}
    assert (sender.stats()["lost"], sender.stats()["outstanding"]) == (1000, 0)


def test_a_hostile_run_makes_no_message_before_it_is_checked() -> None:
    made = pair()
    made.near.receive("flow")
    made.run(50 * MS)
    for count, size, octets in ((2**32 - 1, 2**32 - 1, 40), (4096, 0, 0), (4097, 1, 4097), (0, 1, 1), (1, 2, 1)):
        head = frame(Kind.RUN, made.far.epoch, 0, 1, count.to_bytes(4) + size.to_bytes(4) + bytes(octets))
        made.near.session.receive(b"traffic/flow", head, made.now, made.now)
    assert {reason: many for reason, (many, _) in made.near.session.malformed.items()} == {"run": 5}
    assert RUN_AT == HEADER_OCTETS + 8


def test_an_ack_of_a_run_by_a_session_that_owes_none_changes_nothing() -> None:
    core = sent_runs(40)
    before = core.stats()
    assert core.on_ack_range(3, range(40), 2, 3, 4, 5, every_ack=True) == []
    assert (core.stats(), len(core.unacked.runs)) == (before, 1)
