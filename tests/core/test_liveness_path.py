"""Two PeerTables that greet each other over a path with delay, stalls and cuts; the clock is the test's."""

from dataclasses import dataclass, field

import pytest

from twinlink.protocol.frames import Hello
from twinlink.protocol.liveness import (
    BEHIND_NS,
    HELLO_INTERVAL_NS,
    SEARCH_INTERVAL_NS,
    TICK_NS,
    PeerTable,
    PeerTransition,
)

MS = 1_000_000
STEP = 5 * MS
CUT = 5_000 * MS
NOTICED = 1_500 * MS
PHASES = range(0, HELLO_INTERVAL_NS, 35 * MS)


@dataclass
class End:
    """One side: a table, the thread that says hello on time, and the way to the other side."""

    epoch: int
    next_hello: int
    delay: int
    table: PeerTable = field(init=False)
    way: list[tuple[int, int, Hello]] = field(default_factory=list)  # arrives, number, hello; in order, as TCP has it
    stalls: list[tuple[int, int]] = field(default_factory=list)  # nothing gets to the other side between these times
    busy: list[tuple[int, int]] = field(default_factory=list)  # and nothing is read here: a handler runs
    read: int = 0
    told: list[tuple[int, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = PeerTable(self.epoch, 0)

    def say(self, now: int) -> None:
        heard = {peer.epoch: peer.hello_number for peer in self.table.all()}
        behind = now - self.read > BEHIND_NS
        self.way.append((now + self.delay, now, Hello(str(self.epoch), heard, {}, behind=behind)))

    def note(self, changes: list[PeerTransition], now: int) -> None:
        self.told += [(now, change.reason) for change in changes]

    def step(self, now: int, other: "End") -> None:
        if now >= self.next_hello:
            self.next_hello = now + (
                HELLO_INTERVAL_NS if any(peer.up for peer in self.table.all()) else SEARCH_INTERVAL_NS
            )
            self.say(now)
        if within(now, self.busy):
            return
        self.read = now
        while other.way and other.way[0][0] <= now and not within(now, other.stalls):
            _, number, hello = other.way.pop(0)
            answer, changes = self.table.on_hello(other.epoch, number, number, hello, now)
            self.note(changes, now)
            if answer:
                self.say(now)
        if now % TICK_NS == 0:
            changes = self.table.expire(now, now)
            self.note(changes, now)
            if changes:
                self.say(now)

    def after(self, since: int) -> list[str | None]:
        return [reason for at, reason in self.told if at >= since]


def within(now: int, spans: list[tuple[int, int]]) -> bool:
    return any(begin <= now < end for begin, end in spans)


def ends(phase: int, delay: int = 0) -> tuple[End, End]:
    return End(1, 0, delay), End(2, phase, delay)


def run(one: End, two: End, until: int) -> None:
    for now in range(STEP, until, STEP):
        one.step(now, two)
        two.step(now, one)


@pytest.mark.parametrize("delay", [0, 20 * MS, 100 * MS])
@pytest.mark.parametrize("stuck_after", [0, 200 * MS, 400 * MS, 10_000 * MS])
def test_both_sides_notice_a_cut_of_one_way(delay: int, stuck_after: int) -> None:
    """A side that is no longer acknowledged still gets through until its TCP waits to send again."""
    for phase in PHASES:
        one, two = ends(phase, delay)
        one.stalls, two.stalls = [(CUT, 2 * CUT)], [(CUT + stuck_after, 2 * CUT)]
        run(one, two, 3 * CUT)
        for end in (one, two):
            assert end.after(0)[0] is None
            at, reason = end.told[1]
            assert 0 < at - CUT <= NOTICED
            assert reason in {"silent", "deaf"}
            assert end.after(2 * CUT) == [None]  # up again, once
            assert end.told[-1][0] - 2 * CUT <= 2 * delay + 2 * HELLO_INTERVAL_NS
        assert stuck_after < CUT or one.told[1][1] == "deaf"


@pytest.mark.parametrize("delay", [0, 100 * MS, 1_000 * MS])
def test_what_tcp_makes_up_for_is_no_reason(delay: int) -> None:
    there, back = (600 * MS, 200 * MS) if delay < 200 * MS else (450 * MS, 200 * MS)
    for phase in PHASES:
        for shift in PHASES:
            one, two = ends(phase, delay // 2)
            one.stalls = [(CUT + shift, CUT + shift + there)]
            two.stalls = [(CUT + shift + there, CUT + shift + there + back)]
            run(one, two, 2 * CUT)
            assert one.after(0) == two.after(0) == [None]


def test_who_is_in_a_long_handler_is_not_deaf() -> None:
    for phase in PHASES:
        one, two = ends(phase)
        two.busy = [(CUT, CUT + 5_000 * MS)]
        run(one, two, CUT + 5_000 * MS)
        assert one.after(0) == [None]


def test_who_stops_is_silent_also_in_a_long_handler() -> None:
    for phase in PHASES:
        for busy in ([], [(CUT - 1_000 * MS, CUT)]):
            one, two = ends(phase)
            two.busy = [*busy, (CUT, 2 * CUT)]
            two.stalls = [(CUT, 2 * CUT)]
            run(one, two, 2 * CUT)
            assert one.after(0) == [None, "silent"]
            assert 0 < one.told[1][0] - CUT <= NOTICED


def test_what_was_said_during_a_partition_brings_nobody_up() -> None:
    for phase in PHASES:
        one, two = ends(phase)
        one.stalls = two.stalls = [(CUT, 2 * CUT)]
        run(one, two, 3 * CUT)
        assert len(one.way) + len(two.way) < 4  # all of it was read
        for end in (one, two):
            assert end.after(CUT) == ["silent", None]
