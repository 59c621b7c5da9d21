"""The next single message, and its ack, in one call each: the long way does the same."""

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.interrupting import interrupted
from tests.core.pair import MS, End, Pair, pair
from twinlink import SendTimeout
from twinlink.protocol import session as session_module
from twinlink.protocol.frames import REJECTED, Kind
from twinlink.protocol.frames import frame as make_frame
from twinlink.protocol.rangeset import RangeSet
from twinlink.protocol.send import feedback, single
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.flow_control import MAX_UNCONSUMED, MAX_UNREPORTED_ACKS, SLACK_OCTETS
from twinlink.protocol.send.in_flight import FRAMING_OCTETS
from twinlink.protocol.send.queue import BULK_MESSAGES

FLOWS: dict[str, dict[str, Any]] = {
    "repair": {},
    "detect": {"reliability": "detect"},
    "latest": {"overflow": "latest"},
    "small": {"overflow": "drop-oldest", "retention": 20_000, "window": 20_000, "in_flight": 20_000},
}
STEPS = st.one_of(
    st.tuples(st.just("trip"), st.sampled_from(sorted(FLOWS)), st.integers(0, 3000)),
    st.tuples(st.just("send"), st.sampled_from(sorted(FLOWS)), st.integers(0, 3000)),
    st.tuples(st.just("many"), st.sampled_from(sorted(FLOWS)), st.integers(1, 100)),
    st.tuples(st.just("skip"), st.sampled_from(sorted(FLOWS)), st.integers(1, 3)),
    st.tuples(st.just("run"), st.just(""), st.sampled_from([1, 3, 30, 300])),
    st.tuples(st.just("loss"), st.just(""), st.integers(0, 60)),
    st.tuples(st.just("jitter"), st.just(""), st.integers(0, 5)),
    st.tuples(st.just("cut"), st.just(""), st.integers(0, 1)),
    st.tuples(st.just("add"), st.just(""), st.just(0)),
    st.tuples(st.just("restart"), st.just(""), st.just(1)),
)
Step = tuple[str, str, int]


def state_of(value: Any, seen: dict[int, int]) -> Any:
    """All that an object of the protocol stores, as values that compare; what it calls is left out."""
    if callable(value):
        return "called"
    if isinstance(value, RangeSet | deque | list | tuple | range):
        return [state_of(one, seen) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, dict | OrderedDict):
        return [(state_of(key, seen), state_of(one, seen)) for key, one in value.items()]
    if not type(value).__module__.startswith("twinlink"):
        return value
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
    return [(name, state_of(getattr(value, name), seen)) for name in names]


class Node:
    """A pair of which the near end sends on every flow; writes down what comes of each step."""

    def __init__(self) -> None:
        self.pair: Pair = pair()
        self.frames: list[tuple[int, int, bytes, bytes]] = []
        transmit = self.pair.transmit

        def noted(end: End, topic: bytes, frame: bytes) -> None:
            self.frames.append((self.pair.now, end.epoch, topic, bytes(frame)))
            transmit(end, topic, frame)

        self.pair.transmit = noted  # type: ignore[method-assign]
        self.acks: list[Any] = []
        for name, options in FLOWS.items():
            self.pair.near.sender(name, **options).core.ack_handler = self.acks.append
            self.pair.far.receive(name)
        self.pair.run(20 * MS)

    def take(self, step: Step) -> Any:
        """Take a step; returns all that can be seen of the node then."""
        kind, flow, number = step
        made = self.pair
        if kind in {"trip", "send"}:
            try:
                made.near.senders[flow].send(bytes(number))
            except SendTimeout as error:
                self.acks.append(str(error))
            made.run(3 * MS if kind == "trip" else 0)
        elif kind == "many":
            made.near.senders[flow].send_many([bytes(one % 7) for one in range(number)])
        elif kind == "skip":
            made.near.session.skip(made.near.senders[flow].core, number)
        elif kind == "run":
            made.run(number * MS)
        elif kind == "loss":
            made.path.loss = number / 100
        elif kind == "jitter":
            made.path.jitter_ns = number * MS
        elif kind == "cut":
            made.path.cut = bool(number)
        elif kind == "restart":
            made.restart(1)
            for name in FLOWS:
                made.far.receive(name)
        elif len(made.ends) < 3 and not made.path.cut and not made.path.loss:
            for name in FLOWS:
                made.add("another").receive(name)
                break
        flows = [state_of(sender.core, {}) for sender in made.near.senders.values()]
        got = [(name, list(map(tuple, messages))) for end in made.ends for name, messages in end.received.items()]
        events = [(repr(event)) for end in made.ends for event in end.events]
        return list(self.frames), list(map(str, self.acks)), flows, got, events


@contextmanager
def long_way() -> Iterator[None]:
    """All messages and acks take the long way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "sends_single", lambda *_: False)
        patch.setattr(feedback, "on_single_ack", lambda *_: None)
        yield


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How many messages, and acks, were taken in one call."""
    counts = {"sent": 0, "acked": 0}

    def counting(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            done = do(*arguments)
            counts[name] += bool(done)
            return done

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "sends_single", counting("sent", single.sends_single))
        patch.setattr(feedback, "on_single_ack", counting("acked", single.on_single_ack))
        yield counts


@given(st.lists(STEPS, min_size=1, max_size=40))
def test_both_ways_do_the_same(steps: list[Step]) -> None:
    short = Node()
    with long_way():
        long = Node()
    for step in steps:
        taken = short.take(step)
        with long_way():
            assert long.take(step) == taken, step


@pytest.mark.parametrize("flow", sorted(FLOWS))
def test_a_closed_loop_takes_one_call_a_message_and_one_an_ack(flow: str) -> None:
    node = Node()
    with counted() as counts:
        for _ in range(20):
            node.take(("trip", flow, 100))
    # a newer state may take the place of one that waits, which the long way looks after
    assert counts == {"sent": 0 if flow == "latest" else 20, "acked": 20}
    assert node.pair.near.senders[flow].stats()["acknowledged"] == 20


@pytest.mark.parametrize("at_ack", [False, True])
def test_each_is_counted_once_after_ctrl_c(at_ack: bool) -> None:
    for moment in itertools.count(1):
        node = Node()
        near, sender = node.pair.near, node.pair.near.senders["repair"]
        if at_ack:
            sender.send(bytes(100))
        act = (lambda: node.pair.run(3 * MS)) if at_ack else (lambda: sender.send(bytes(100)))  # noqa: B023
        cut_off = interrupted(moment, act, single.__file__)
        node.pair.run(500 * MS)
        counts = sender.stats()
        assert counts["acknowledged"] == counts["sent"]
        assert counts["outstanding"] == counts["lost"] == counts["kept_octets"] == 0
        assert not list(sender.core.in_flight)
        assert sender.core.in_flight.budget.in_flight == 0
        assert near.session.sending["repair"].flow_control.octets <= 100  # of a message that was not sent
        sender.send(bytes(100))
        node.pair.run(10 * MS)
        assert sender.stats()["in_flight_octets"] == 0
        if not cut_off:
            break
    assert moment > 3


FAR, OTHER, SIZE = 2, 3, 100


def _send(flow: SendFlow, count: int = 1) -> None:
    for _ in range(count):
        frame = make_frame(Kind.DATA, 1, flow.next_sequence, 1, bytes(SIZE))
        assert single.sends_single(flow, frame, SIZE, 1)


def _fill_window(flow: SendFlow) -> None:
    flow.flow_control.octets = SLACK_OCTETS + 1
    flow.flow_control.limit_to(SLACK_OCTETS)


def _share(flow: SendFlow) -> None:
    _send(flow)
    flow.in_flight.budget.inline_share = 2 * SIZE


def _detect(flow: SendFlow) -> None:
    flow.repair = False
    _send(flow)


def _owed_by(*epochs: int) -> Callable[[SendFlow], None]:
    def owe(flow: SendFlow) -> None:
        sent_mono_ns, _, frame = flow.unacked.singles[0]
        flow.unacked.singles[0] = sent_mono_ns, frozenset(epochs), frame

    return owe


def _replace_peer(flow: SendFlow) -> None:
    """It fell silent, and another is up."""
    flow.on_peer_up(OTHER, True)
    flow.receivers.on_down(FAR, may_return=True)


def _set(of: Callable[[SendFlow], Any], name: str, value: Any) -> Callable[[SendFlow], None]:
    return lambda flow: setattr(of(flow), name, value)


UNFIT_TO_SEND: dict[str, Callable[[SendFlow], object]] = {
    "no peer is up": lambda flow: flow.on_peer_ended(FAR, "gone"),
    "no more is kept": _set(lambda flow: flow.unacked, "room", SIZE - 1),
    "too long for a peer": _set(lambda flow: flow.receivers, "least_payload", SIZE - 1),
    "one at a time": _set(lambda flow: flow.in_flight, "_single", True),
    "in bulk": lambda flow: _send(flow, BULK_MESSAGES - 1),
    "a peer came back": lambda flow: flow.receivers.resuming.add(FAR),
    "a peer lags": lambda flow: flow.in_flight.limit_unseen(0),
    "the transport is full": _set(lambda flow: flow.in_flight.budget, "inline", SIZE + FRAMING_OCTETS - 1),
    "it would leave in fragments": _set(lambda flow: flow.in_flight.budget, "unfragmented", SIZE + FRAMING_OCTETS - 1),
    "others share": _share,
    "the window is full": _fill_window,
    "of many messages": _set(lambda flow: flow.flow_control, "_messages", MAX_UNCONSUMED),
    "acks wait": _set(lambda flow: flow.flow_control, "unreported_acks", MAX_UNREPORTED_ACKS),
}
UNFIT_TO_ACK: dict[str, tuple[dict[str, int], Callable[[SendFlow], object]]] = {
    "of another message": ({"sequence": 7}, lambda flow: None),
    "of another peer": ({"epoch": OTHER}, lambda flow: None),
    "a rejection": ({"t2_ns": REJECTED}, lambda flow: None),
    "owed by two": ({}, _owed_by(FAR, OTHER)),
    "owed by another": ({}, _owed_by(OTHER)),
    "the peer is not up": ({}, _replace_peer),
    "another is up": ({}, lambda flow: flow.on_peer_up(OTHER, True)),
    "there are runs": ({}, lambda flow: flow.unacked.runs.append(None)),  # type: ignore[arg-type]
    "lost to some": ({}, lambda flow: flow.unacked.lost.add(0)),
    "retransmitted": ({}, lambda flow: flow.queue.retransmitted.add(0)),
    "to be retransmitted": ({}, lambda flow: flow.queue._to_retransmit.update({0: FAR})),
    "others may be skipped": ({}, _detect),
}


def _flow() -> SendFlow:
    return Node().pair.near.senders["repair"].core


@pytest.mark.parametrize("case", UNFIT_TO_SEND)
def test_a_message_that_is_not_simply_the_next_one_changes_nothing(case: str) -> None:
    flow = _flow()
    UNFIT_TO_SEND[case](flow)
    before = state_of(flow, {})
    assert not single.sends_single(flow, make_frame(Kind.DATA, 1, flow.next_sequence, 1, bytes(SIZE)), SIZE, 1)
    assert state_of(flow, {}) == before


@pytest.mark.parametrize("case", UNFIT_TO_ACK)
def test_an_ack_that_is_not_simply_the_one_that_is_owed_changes_nothing(case: str) -> None:
    flow = _flow()
    _send(flow)
    said, prepare = UNFIT_TO_ACK[case]
    prepare(flow)
    before = state_of(flow, {})
    of = {"epoch": FAR, "sequence": 0, "t2_ns": 2, **said}
    assert single.on_single_ack(flow, of["epoch"], 0, (of["sequence"], 1, of["t2_ns"]), 3, 4, 5) is None
    assert state_of(flow, {}) == before


@pytest.mark.parametrize("was_full", [False, True])
def test_the_other_flows_are_told_when_an_ack_makes_room_where_there_was_none(was_full: bool) -> None:
    flow, told = _flow(), list[bool]()
    _send(flow)
    budget = flow.in_flight.budget
    budget.on_room = lambda: told.append(True)
    budget.limit = budget.in_flight + (not was_full)
    assert single.on_single_ack(flow, FAR, 0, (0, 1, 2), 3, 4, 5)
    assert told == [True] * was_full
