"""Messages sent as a batch come to the same as those sent one by one, and messages taken as a batch likewise."""

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.interrupting import interrupted
from tests.core.pair import MS, Pair, pair
from tests.core.sending import FlowSender
from twinlink import SendTimeout
from twinlink.events import Lost
from twinlink.message import Message
from twinlink.protocol.frames import Kind, frame
from twinlink.protocol.receive.flow import CREDIT_UPDATE_OCTETS
from twinlink.protocol.send import flow as send_flow
from twinlink.protocol.send import retransmit_buffer
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS
from twinlink.protocol.session import FlowOptions
from twinlink.runtime.outgoing_batch import ALONE_OCTETS, OutgoingBatch

SIZES = st.lists(st.integers(0, 120) | st.sampled_from([1000, 20_000, 100_000]), min_size=1, max_size=60)
PATHS = {"loss": 0.2, "duplication": 0.1, "jitter_ns": 3 * MS}


def payloads_of(sizes: list[int]) -> list[bytes]:
    return [number.to_bytes(4)[-size:].rjust(size, b".") if size else b"" for number, size in enumerate(sizes)]


def send(sender: FlowSender, made: Pair, payloads: list[bytes], cuts: list[int]) -> None:
    """In batches that end at these places; one of a single message is sent by `send`.  Waits for room."""
    places = sorted({0, *(cut % (len(payloads) + 1) for cut in cuts), len(payloads)})
    for first, end in itertools.pairwise(places):
        left = payloads[first:end]
        while left:
            if len(left) == 1 and end - first == 1:
                try:
                    sender.send(left[0])
                    count = 1
                except SendTimeout:
                    count = 0
            else:
                count = sender.send_many(left)
            left = left[count:]
            if not count:
                made.run(MS)
        made.run(MS // 2)


def delivered(seed: int, payloads: list[bytes], cuts: list[int], **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """Numbers and payloads that arrive over a path with loss, and the sender's counters in the end."""
    made = pair(seed)
    got = made.far.receive("flow")
    sender = made.near.sender("flow", **options)
    made.run(50 * MS)
    for name, value in PATHS.items():
        setattr(made.path, name, value)
    send(sender, made, payloads, cuts)
    made.run(20 * MS)
    for name in PATHS:
        setattr(made.path, name, 0)
    made.run_until(lambda: not sender.stats()["outstanding"] and not sender.core.has_pending)
    made.run(3000 * MS)  # what is behind a gap is delivered when the gap is known to be one
    return [(message.sequence, bytes(message.payload)) for message in got], sender.stats()


ONE_BY_ONE = list(range(100))


@settings(max_examples=25)
@given(st.integers(0, 2**32), SIZES, st.lists(st.integers(0, 100), max_size=6), st.sampled_from([2**24, 300_000]))
def test_over_a_path_with_loss_a_batch_comes_to_the_same_as_single_messages(
    seed: int, sizes: list[int], cuts: list[int], retention: int
) -> None:
    payloads = payloads_of(sizes)
    got, counters = delivered(seed, payloads, cuts, retention=retention)
    assert got == list(enumerate(payloads))
    singly, single_counters = delivered(seed, payloads, ONE_BY_ONE, retention=retention)
    assert got == singly
    for name in ("sent", "sent_octets", "acknowledged", "lost", "outstanding", "kept_octets", "conflated"):
        assert counters[name] == single_counters[name], name


@settings(max_examples=20)
@given(st.integers(0, 2**32), SIZES, st.lists(st.integers(0, 100), max_size=6))
@pytest.mark.parametrize("overflow", ["drop-oldest", "drop-newest", "latest"])
def test_under_every_policy_each_message_of_a_batch_is_accounted_for_once(
    overflow: str, seed: int, sizes: list[int], cuts: list[int]
) -> None:
    payloads = payloads_of(sizes)
    got, counters = delivered(seed, payloads, cuts, retention=10 * ENTRY_OVERHEAD_OCTETS, overflow=overflow)
    numbers = [sequence for sequence, _ in got]
    assert numbers == sorted(set(numbers))
    assert all(payload == payloads[sequence] for sequence, payload in got)
    assert counters["sent"] == len(payloads)
    assert counters["acknowledged"] <= len(got)  # what was given up may have arrived
    assert counters["acknowledged"] + counters["lost"] + counters["conflated"] == len(payloads)
    assert counters["outstanding"] == counters["kept_octets"] == 0
    if overflow != "drop-newest":
        assert numbers[-1] == len(payloads) - 1


@settings(max_examples=20)
@given(st.integers(0, 2**32), SIZES, st.lists(st.integers(0, 100), max_size=6))
def test_without_repair_what_is_lost_of_a_batch_is_reported_once(seed: int, sizes: list[int], cuts: list[int]) -> None:
    payloads = payloads_of(sizes)
    got, counters = delivered(seed, payloads, cuts, reliability="detect")
    assert all(payload == payloads[sequence] for sequence, payload in got)
    assert counters["sent"] == len(payloads) == counters["acknowledged"] + counters["lost"]
    assert counters["acknowledged"] >= len({sequence for sequence, _ in got}) == len(got)


def test_a_batch_leaves_in_runs_and_is_acknowledged_by_ranges() -> None:
    made = pair()
    got = made.far.receive("flow")
    sender = made.near.sender("flow", in_flight=2**20)
    made.run(50 * MS)
    kinds: list[int] = []
    made.tampering = {end.epoch: lambda _, frame: kinds.append(frame[3]) or [frame] for end in made.ends}  # type: ignore[func-returns-value]
    assert sender.send_many([bytes(100)] * 1000) == 1000
    made.run(5 * MS)
    assert len(got) == 1000
    assert sender.stats()["acknowledged"] == 1000
    assert kinds.count(Kind.RUN) == kinds.count(Kind.ACK_RANGE) == 1
    assert not {Kind.DATA, Kind.BUNDLE, Kind.ACK, Kind.NAK} & set(kinds)


def test_what_does_not_fit_of_a_batch_is_neither_numbered_nor_counted() -> None:
    made = pair()
    made.far.receive("flow")
    sender = made.near.sender("flow", retention=10 * (100 + ENTRY_OVERHEAD_OCTETS))
    made.run(50 * MS)
    made.path.cut = True
    assert sender.send_many([bytes(100)] * 25) == 10
    assert not sender.core.has_pending
    assert sender.send_many([bytes(100)] * 15) == 0
    assert not sender.core.has_pending  # or what is sent next would wait for good
    assert {sender.stats()[name] for name in ("sent", "outstanding")} == {10}
    assert sender.stats()["sent_octets"] == 1000
    made.path.cut = False
    made.run_until(lambda: sender.stats()["acknowledged"] == 10)
    assert sender.send_many([bytes(100)] * 15) == 10
    assert sender.core.next_sequence == 20


@pytest.mark.parametrize("sizes", [[5] * 20, [5] * 10 + [2000] + [5] * 9])
def test_a_batch_that_is_cut_off_by_ctrl_c_is_taken_in_or_not(sizes: list[int]) -> None:
    frames = [frame(Kind.DATA, 7, sequence, 1, bytes(size)) for sequence, size in enumerate(sizes)]
    for moment in itertools.count(1):
        core = SendFlow("flow", 2**20, 2**20, InFlightBudget(2**20))
        core.on_peer_up(1, True, 1000)
        core.on_peer_up(2, True, 2**24)
        cut_off = interrupted(
            moment,
            lambda: core.send_many(frames, sizes, 1),  # noqa: B023
            send_flow.__file__,
            retransmit_buffer.__file__,
        )
        if not cut_off:
            break
        core.recover_after_interrupt()
        sent, counters = core.next_sequence, core.stats()
        if len(set(sizes)) == 1:
            assert sent in {0, 20}
        assert list(core.unacked.entries) == list(range(sent))
        assert counters["outstanding"] + counters["lost"] == sent
        kept = sum(sizes[:sent]) + sent * ENTRY_OVERHEAD_OCTETS
        assert counters["kept_octets"] == kept
        assert core.has_pending or not sent
    assert moment > 3
    assert core.next_sequence == 20


def test_without_a_peer_a_batch_is_lost_and_reported_as_one() -> None:
    made = Pair(pair().path)
    sender = made.near.sender("flow")
    assert sender.send_many([b"1", b"2", b"3"]) == 3
    assert sender.stats()["lost"] == 3
    made.run(300 * MS)
    assert [(lost.first, lost.end) for lost in made.near.told(Lost)] == [(0, 3)]  # type: ignore[attr-defined]


def test_what_some_peer_does_not_take_of_a_batch_it_alone_loses() -> None:
    flows = []
    for _ in range(2):
        core = SendFlow("flow", 2**20, 2**20, InFlightBudget(2**20), FlowOptions("repair"))
        core.on_peer_up(1, True, 1000)
        core.on_peer_up(2, True, 2**24)
        flows.append(core)
    singly, together = flows
    sizes = [10, 2000, 20]
    frames = [frame(Kind.DATA, 7, sequence, 1, bytes(size)) for sequence, size in enumerate(sizes)]
    for one, size in zip(frames, sizes, strict=True):
        assert singly.send(one, size, 1) is not None
    assert together.send_many(frames, sizes, 1) == 3
    assert together.unacked.entries == singly.unacked.entries
    assert [entry[1] for entry in together.unacked.entries.values()] == [{1, 2}, {2}, {1, 2}]
    assert together.stats() == {**singly.stats(), "in_flight_octets": 0}
    assert together.losses.take_unreported(9) == singly.losses.take_unreported(9)


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
def test_messages_of_several_peers_are_taken_as_one_by_one(most: int) -> None:
    """What is left, what is counted as consumed, and when the senders are told so."""
    taken: dict[int, Any] = {}
    for each in (1, most):
        made = pair()
        others = [made.near, made.add("another")]
        far = made.far
        flow = far.session.receive_flow("flow")
        flow.subscribed = True
        random = Random(5)
        got: list[Message] = []
        due = []
        for number in range(400):
            epoch = others[number % 2].epoch if number < 200 else others[random.randrange(2)].epoch
            stream = flow.streams.get(epoch) or flow.add_stream(epoch, "x", 0, far.session.messages._repair)
            message = Message(bytes(random.randrange(3000)), "flow", stream.tracker.next, epoch, "x", 1, 2)
            stream.tracker.next += 1
            stream.waiting_octets += len(message.payload)
            flow.queue.append(message)
        while flow.queue:
            if each == 1:
                one = flow.next_message()
                assert one is not None
                batch, streams = [one[0]], [one[1]] if one[1] else []
            else:
                parts: list[Any] = []
                streams = flow.next_parts(each, parts)
                batch = [message for part in parts for message in part]
                assert len(batch) == min(each, 400 - len(got))
            got += batch
            for stream in streams:
                due.append(stream.epoch)
                assert stream.unreported_octets >= CREDIT_UPDATE_OCTETS
                stream.unreported_octets = 0
        state = {epoch: (one.waiting_octets, one.consumed) for epoch, one in flow.streams.items()}
        assert all(waiting == 0 for waiting, _ in state.values())
        taken[each] = got, state
        assert len(due) == len(set(due)) if each == 1000 else len(due) > 2
    assert taken[1] == taken[most]


@given(SIZES)
def test_what_may_leave_in_fragments_has_a_sent_ns_of_its_own(sizes: list[int]) -> None:
    """Those of a batch that go together have one; fragment progress tells long messages apart by it."""
    batch, got = OutgoingBatch(list(map(bytes, sizes))), list[int]()
    while not batch.is_sent:
        _, together = batch.next_messages()
        assert len(together) == 1 or max(together) <= ALONE_OCTETS
        batch.on_sent(range(len(got), len(got) + len(together)))
        got += together
    assert got == sizes
