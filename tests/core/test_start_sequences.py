"""From where on a peer owes us something, and what is a gap."""

import time

from hypothesis import given
from hypothesis import strategies as st

from tests.core.pair import Outlet
from tests.core.receiving import OURS, THEIRS, data, driver_on
from twinlink.events import Event, Gap
from twinlink.protocol.frames import HELLO_TOPIC, AbandonReason, Hello, Kind, abandoned_body, frame, parse, parse_nak
from twinlink.protocol.liveness import SEARCH_INTERVAL_NS
from twinlink.protocol.peers import NO_START_HELLOS, NO_START_NS
from twinlink.protocol.rangeset import RangeSet


@given(
    detect=st.booleans(),
    stood=st.integers(0, 6),
    joined=st.integers(0, 6),
    early=st.sets(st.integers(0, 11)),
    lost=st.sets(st.integers(0, 16)),
    told_after=st.integers(0, 17),
    tells=st.booleans(),
)
def test_what_left_before_we_joined_is_no_gap_unless_some_before_it_came(
    detect: bool, stood: int, joined: int, early: set[int], lost: set[int], told_after: int, tells: bool
) -> None:
    """``stood``: what was next to leave when we were first heard; ``joined``: how much later we came up.

    Not every peer ``tells``: then all that left since it was first heard is ours.
    """
    end, since = 17, stood + joined if tells else stood
    reported: list[Event] = []
    transport = Outlet()
    driver = driver_on(transport, "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    taken: list[int] = []
    receive_flow.handler = lambda message: taken.append(message.sequence)
    begin_ns = time.monotonic_ns()
    detecting = frozenset(["flow"] if detect else [])

    def hello(number: int, placing: dict[int, dict[str, int]]) -> None:
        heard = {OURS: newest_hello(transport)} if number > 1 else {}
        body = Hello("theirs", heard, {"flow": stood}, True, detecting, start_sequences=placing).encode()
        mono_ns = begin_ns + number * NO_START_NS
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), mono_ns, False)

    hello(1, {})
    early = {sequence for sequence in early if sequence < since}
    owed = [sequence for sequence in range(since, end) if sequence not in lost]
    for sequence in sorted(early):
        data(driver, sequence, at_once=True)
    for sequence in owed[:told_after]:
        data(driver, sequence, at_once=True)
    for number in range(2, 3 + NO_START_HELLOS):  # when it says the first one, it does not know that it is heard
        hello(number, {THEIRS + 1: {"flow": end}} | ({OURS: {"flow": since}} if tells else {}))
    for sequence in owed[told_after:]:
        data(driver, sequence, at_once=True)
    hello(10, {OURS: {"flow": 0}})  # once is enough
    absent = RangeSet((sequence, sequence + 1) for sequence in range(end) if sequence not in early.union(owed))
    for ranges in ([], [] if detect else list(absent)):
        body = abandoned_body(AbandonReason.EVICTED, ranges)
        driver.receive(b"traffic/flow", frame(Kind.ABANDONED, THEIRS, end, 1, body), 0, False)
    while driver.callbacks.pending:  # on a busy machine some calls are left for the next run
        driver.callbacks.run()
    gaps = [sequence for event in reported if isinstance(event, Gap) for sequence in range(event.first, event.end)]
    came = sorted(early) + owed
    assert sorted(gaps) == [sequence for sequence in range(min([since, *early]), end) if sequence not in came]
    assert taken == came
    assert receive_flow.stats()["missing"] == len(gaps)
    assert receive_flow.stats()["conflated"] == receive_flow.stats()["held"] == 0


def newest_hello(transport: Outlet) -> int:
    """The number of the last hello that this side has said; before the first one, of one that it may have said."""
    numbers = [parse(octets)[2] for topic, octets in transport.sent if topic == HELLO_TOPIC]
    return numbers[-1] if numbers else 1


def test_what_was_missing_before_anybody_was_up_is_asked_for_again_then() -> None:
    """The sender owes us nothing of it, so it does not ask, and our nak may have been lost."""
    transport = Outlet()
    driver = driver_on(transport, "ours", OURS, 1024 * 1024, 64 * 1024, lambda _: None)
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    data(driver, 5, at_once=True)  # as what is published reaches every peer

    def hello(number: int, placing: dict[int, dict[str, int]]) -> None:
        body = Hello("theirs", {OURS: number}, {"flow": 6}, True, start_sequences=placing).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), 0, False)

    hello(1, {})
    data(driver, 8, at_once=True)
    transport.sent.clear()  # so much for the nak
    hello(2, {OURS: {"flow": 9}})
    assert [parse_nak(octets)[1:] for _, octets in transport.sent if octets[3] == Kind.NAK] == [(9, [(6, 8)])]


def test_a_peer_on_a_long_path_has_time_to_say_from_where_on_it_owes() -> None:
    """It says hello twenty times a second until it is up, and is up a round trip after it has heard us."""
    reported: list[Event] = []
    driver = driver_on(Outlet(), "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)
    driver.session.messages.flow("flow").subscribed = True
    for number in range(1, 18):
        body = Hello("theirs", {OURS: number}, {"flow": 0}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), number * SEARCH_INTERVAL_NS, False)
        if number == 10:
            data(driver, 3, at_once=True)
    body = Hello("theirs", {OURS: 18}, {"flow": 4}, True, start_sequences={OURS: {"flow": 3}}).encode()
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 18, 1, body), 18 * SEARCH_INTERVAL_NS, False)
    data(driver, 4, at_once=True)
    assert not [event for event in reported if isinstance(event, Gap)]
    assert driver.session.messages.flow("flow").streams[THEIRS].reorder_buffer is None


def test_a_peer_that_reads_late_that_it_is_heard_says_from_where_on_it_owes_however_late_that_is() -> None:
    """Its thread that says hello goes on while the one that reads stands still: those hellos say nothing of it."""
    reported: list[Event] = []
    transport = Outlet()
    driver = driver_on(transport, "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)
    driver.session.messages.flow("flow").subscribed = True
    begin_ns, first = time.monotonic_ns(), 0
    for number in range(1, 60):
        body = Hello("theirs", {OURS: first} if first else {}, {"flow": 0}, True, frozenset(["flow"])).encode()
        mono_ns = begin_ns + number * SEARCH_INTERVAL_NS
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), mono_ns, False)
        driver.on_tick(mono_ns, mono_ns)  # after 1.3 s without news it is down
        first = first or newest_hello(transport)
        if number == 50:
            data(driver, 3, at_once=True)
    starts = {OURS: {"flow": 3}}
    heard, detecting = {OURS: newest_hello(transport)}, frozenset(["flow"])
    body = Hello("theirs", heard, {"flow": 4}, True, detecting, start_sequences=starts).encode()
    octets = frame(Kind.HELLO, THEIRS, 60, 1, body)
    driver.receive(HELLO_TOPIC, octets, begin_ns + 60 * SEARCH_INTERVAL_NS, False)
    data(driver, 4, at_once=True)
    assert not [event for event in reported if isinstance(event, Gap)]
