import numpy as np
from twinlink_replay.twin.controller import (
    BAR_NS,
    HOLD_NS,
    MS,
    RETRY_NS,
    SYNC_RETRY_NS,
    TRIAL_RETRY_NS,
    Change,
    Controller,
    Held,
)

from twinlink.control import PrbBlock, PrbBlockResult, unread_id

WALL = 1_700_000_000_000_000_000
SEEN = 1_600_000_000_000_000_000  # the exporter's clock


class Run:
    """A controller of 10 PRBs, with a record every 10 ms."""

    def __init__(self, session: str = "session", **options: object) -> None:
        self.controller = Controller(10, session, 2000, **options)  # type: ignore[arg-type]
        self.now = 0
        self.in_sync = True
        self.blocks: list[tuple[int, PrbBlock]] = []
        self.changes: list[tuple[int, ...]] = []
        self.holds = False
        self.held: list[tuple[int, ...]] = []
        self.refuses: set[tuple[int, ...]] = set()  # lists, as the twin's model
        self.refused: list[int] = []

    def records(self, count: int, *prbs: int) -> "Run":
        row = np.zeros(10, bool)
        row[list(prbs)] = True
        for _ in range(count):
            for item in self.controller.observe(
                row, SEEN + self.now, WALL + self.now, self.now, self.in_sync, self.holds
            ):
                if isinstance(item, Change):
                    self.changes.append(item.prbs)
                elif isinstance(item, Held):
                    self.held.append(item.prbs)
                elif item.prbs in self.refuses:
                    self.refused.append(self.now)
                    if rest := self.controller.refused(WALL + self.now, self.now):
                        self.blocks.append((self.now, rest))
                else:
                    self.blocks.append((self.now, item))
            self.now += 10 * MS
        return self

    @property
    def requested(self) -> list[tuple[int, ...]]:
        return [block.prbs for _, block in self.blocks]


def test_requests_at_once_renews_and_withdraws() -> None:
    run = Run().records(20).records(250, 3, 4).records(60)
    assert run.requested == [(3, 4), (3, 4), (3, 4), ()]
    first, again, _, last = run.blocks
    assert first[0] == 200 * MS
    assert again[1].id == first[1].id
    assert again[0] - first[0] == 1000 * MS
    assert again[1].issued_ns == WALL + again[0]
    assert last[1].id != first[1].id
    assert last[0] == 2690 * MS + HOLD_NS
    assert run.changes == [(3, 4), ()]


def test_what_is_forgotten_is_not_requested_again_and_what_is_detected_then_is() -> None:
    run = Run().records(1, 3).records(30, 3, 4)
    assert run.controller.withdraw(WALL + run.now, run.now) is not None
    run.controller.forget()
    begun = run.now
    run.records(20, 4)
    assert run.requested == [(3,), (3, 4), (4,)]
    assert run.blocks[-1][0] == begun
    assert run.changes == [(3,), (3, 4), (4,)]


def test_growing_lists_are_spaced() -> None:
    run = Run().records(1, 3).records(1, 3, 4).records(20, 3, 4, 5)
    assert run.requested == [(3,), (3, 4, 5)]
    assert run.blocks[1][0] == 20 * MS


def test_growing_lists_are_spaced_by_the_times_of_the_records() -> None:
    """A record that is decided on late, or comes early by its jitter, costs the next list no turn."""
    late_ns = (9, 8, 0, 0)
    times_ns = [SEEN + k * 10 * MS + jitter_ns for k, jitter_ns in enumerate((2 * MS, 0, -2 * MS, 0))]
    for back_ns in (0, 3600 * 1000 * MS):  # the exporter's clock may be set back
        controller, row, lists = Controller(10, "session", 2000), np.zeros(10, bool), []
        for k, (observed_ns, late) in enumerate(zip(times_ns, late_ns, strict=True)):
            row[k] = True
            now_ns = (k * 10 + late) * MS
            todo = controller.observe(row, observed_ns - (k > 0) * back_ns, WALL + now_ns, now_ns)
            lists += [item.prbs for item in todo if isinstance(item, PrbBlock)]
        assert lists == ([(0,), (0, 1, 2)] if not back_ns else [(0,), (0, 1), (0, 1, 2, 3)])


def test_short_pauses_release_nothing() -> None:
    run = Run()
    for _ in range(5):
        run.records(10, 3).records(10)
    assert set(run.requested) == {(3,)}


def test_protected_prbs_are_never_requested() -> None:
    run = Run(protected=frozenset({3, 9})).records(10, 2, 3).records(100, 3)
    assert run.requested == [(2,), ()]
    assert run.changes == [(2, 3), (3,)]


def test_without_control_it_only_observes() -> None:
    run = Run(enabled=False).records(10, 2).records(60)
    assert run.requested == []
    assert run.changes == [(2,), ()]


def test_nothing_is_requested_or_renewed_on_stale_records() -> None:
    run = Run()
    run.in_sync = False
    run.records(20, 3)
    assert (run.requested, run.changes) == ([], [(3,)])
    run.in_sync = True
    run.records(1, 3)
    run.in_sync = False
    run.records(300, 3)
    assert run.requested == [(3,)]


def test_out_of_sync_the_block_is_withdrawn_and_requested_again_afterwards() -> None:
    run = Run()
    assert run.controller.withdraw(WALL, 0) is None
    run.records(10, 3)
    block = run.controller.withdraw(WALL + run.now, run.now)
    assert block
    assert (block.prbs, block.reason) == ((), "the twin is out of sync")
    assert run.controller.withdraw(WALL + run.now, run.now) is None
    run.records(1, 3)
    assert run.requested == [(3,), (3,)]
    assert len({run.blocks[0][1].id, block.id, run.blocks[1][1].id}) == 3


def result(block: PrbBlock, status: str) -> PrbBlockResult:
    return PrbBlockResult(block.id, status, (), 0)  # type: ignore[arg-type]


def test_a_rejected_list_waits_unless_it_changes() -> None:
    run = Run().records(1, 3)
    run.controller.result(result(run.blocks[0][1], "rejected"))
    run.records(200, 3)
    assert run.requested == [(3,)]
    run.records(1, 3, 4)
    assert run.requested == [(3,), (3, 4)]
    run.controller.result(result(run.blocks[1][1], "rejected"))
    run.records(RETRY_NS // (10 * MS) + 1, 3, 4)
    assert run.requested == [(3,), (3, 4), (3, 4)]


def test_a_list_that_was_rejected_unread_waits_and_one_that_was_rejected_for_its_signature_does_not() -> None:
    session, other = 0x0123456789ABCDEF, 0xFEDCBA9876543210
    for epoch, rule, requested in ((session, "identity", 1), (session, "unsigned", 2), (other, "identity", 2)):
        run = Run(session=f"{session:016x}"[:8]).records(1, 3)
        rejected = PrbBlockResult(unread_id(epoch, 0), "rejected", (), 0, f"{rule}: it does not count")
        assert run.controller.is_own(rejected) is (epoch == session)
        run.controller.result(rejected)
        run.records(150, 3)
        assert len(run.requested) == requested


def test_a_list_that_was_rejected_for_want_of_sync_is_repeated_soon() -> None:
    run = Run().records(1, 3)
    block = run.blocks[0][1]
    run.controller.result(PrbBlockResult(block.id, "rejected", (), 0, "sync: twin-1 is stale"))
    run.records(SYNC_RETRY_NS // (10 * MS) + 1, 3)
    assert run.requested == [(3,), (3,)]
    run.records(50, 3)
    assert len(run.requested) == 2  # that one was not rejected


def test_a_twin_beside_the_holder_asks_seldom_and_knows_why() -> None:
    run = Run().records(1, 3)
    first = run.blocks[0][1]
    other = PrbBlockResult("prb-block-other-1", "installed", (4,), 0)
    rejected = PrbBlockResult(first.id, "rejected", (4,), 0, "holder: twin-2 holds the block")
    assert run.controller.shows_another_twin(other)
    assert run.controller.shows_another_twin(rejected)
    assert not run.controller.shows_another_twin(PrbBlockResult(first.id, "installed", (3,), 0))
    assert (run.controller.is_own(other), run.controller.is_own(rejected)) == (False, True)
    run.controller.result(other)
    run.controller.result(rejected)
    run.records(RETRY_NS // (10 * MS) - 1, 3)
    assert run.requested == [(3,)]
    run.records(2, 3)
    assert run.requested == [(3,), (3,)]


def test_a_cleared_list_is_requested_again() -> None:
    run = Run().records(1, 3)
    run.controller.result(result(run.blocks[0][1], "cleared"))
    run.records(1, 3)
    assert run.requested == [(3,), (3,)]
    assert run.blocks[0][1].id != run.blocks[1][1].id
    run.controller.result(result(run.blocks[0][1], "cleared"))  # an old result
    run.records(5, 3)
    assert len(run.requested) == 2


def test_what_is_held_back_is_reported_once_and_requested_afterwards() -> None:
    run = Run().records(20)
    run.holds = True
    run.records(100, 3, 4).records(60).records(30, 5)
    assert run.requested == []
    assert run.held == [(3, 4), (5,)]  # to end a block that was not requested is not due
    run.holds = False
    run.records(1, 5)
    assert run.requested == [(5,)]


def test_a_block_is_not_renewed_while_decisions_are_held_back() -> None:
    run = Run().records(100, 3)
    before = len(run.requested)
    run.holds = True
    run.records(300, 3)
    assert len(run.requested) == before
    assert run.held == [(3,)]


def test_a_list_was_seen_when_the_first_prb_was_that_it_adds() -> None:
    run = Run().records(20).records(1, 3)
    first_ns = run.now - 10 * MS
    assert run.controller.seen_ns == SEEN + first_ns
    run.records(1, 3, 4).records(8, 3, 4, 5)
    assert run.requested == [(3,), (3, 4, 5)]
    assert run.controller.seen_ns == SEEN + first_ns + 10 * MS  # that of PRB 4, which waited for its turn
    run.records(100, 3, 4, 5)
    assert len(run.requested) == 3  # renewed
    assert run.controller.seen_ns == SEEN + first_ns + 10 * MS
    run.records(60, 3)
    assert run.requested[-1] == (3,)
    assert run.controller.seen_ns == SEEN + run.blocks[-1][0]  # it adds nothing


def test_what_was_taken_back_is_left_alone_for_a_while_and_the_rest_is_not() -> None:
    run = Run(first_prb=50).records(10, 3, 4)
    block = run.controller.withdraw(WALL + run.now, run.now, "taken back: no effect", bar=True)
    assert block is not None
    assert (block.prbs, block.reason) == ((), "taken back: no effect")
    run.records(20, 3, 4).records(20, 3, 4, 7)
    assert run.requested == [(53, 54), (57,)]
    run.records(BAR_NS // (10 * MS), 3, 4, 7)
    assert run.requested[-1] == (53, 54, 57)
    run = Run().records(10, 3, 4)
    run.controller.withdraw(WALL + run.now, run.now, "taken back: fidelity is low")
    run.records(1, 3, 4)
    assert run.controller.seen_ns == SEEN + run.now - 10 * MS  # it could not leave before
    assert run.requested == [(3, 4), (3, 4)]  # it may be asked for at once


def test_of_records_that_are_at_hand_the_newest_decides() -> None:
    run, row = Run().records(20), np.zeros(10, bool)
    for prb, waits in ((3, True), (4, True), (5, False)):
        row[prb] = True
        todo = run.controller.observe(row, SEEN + run.now, WALL, run.now, waits=waits)
        run.now += 10 * MS
        assert bool(todo) is not waits
    change, block = todo
    assert isinstance(block, PrbBlock)
    assert isinstance(change, Change)
    assert change.prbs == block.prbs == (3, 4, 5)
    assert run.controller.seen_ns == SEEN + 200 * MS  # PRB 3


def test_a_list_that_the_model_refuses_is_tried_again_and_what_stands_is_not_renewed() -> None:
    run = Run().records(20, 3)
    run.refuses = {(3,), (3, 4)}
    run.records(100, 3, 4)
    assert run.requested == [(3,)]
    assert np.diff(run.refused[:4]).tolist() == [TRIAL_RETRY_NS] * 3
    run.refuses = set()
    assert run.records(30, 3, 4).requested == [(3,), (3, 4)]


def test_a_refusal_keeps_no_prb_blocked_that_the_interferer_has_left() -> None:
    run = Run().records(20, 3, 4, 7)
    run.refuses = {(3, 4), (3, 4, 9)}
    run.records(80, 3, 4)
    first, rest = run.blocks
    assert rest[1].prbs == (3, 4)
    assert rest[1].id != first[1].id
    assert rest[0] + rest[1].validity_ms * MS == first[0] + first[1].validity_ms * MS  # no longer than it stood anyway
    run.records(30, 3, 4, 9)
    assert run.requested == [(3, 4, 7), (3, 4)]
    run.refuses |= {(9,)}
    assert run.records(60, 9).requested[2:] == [()]


def test_of_a_rejected_list_nothing_stands_that_a_refusal_could_end() -> None:
    run = Run().records(20, 3, 4)
    run.controller.result(result(run.blocks[-1][1], "rejected"))
    run.refuses = {(4,)}
    assert run.records(80, 4).requested == [(3, 4)]


def test_what_did_not_leave_of_a_list_does_not_leave_with_a_refusal_either() -> None:
    run = Run().records(20, 3, 4, 7)
    run.controller.parted((3, 7))
    run.refuses = {(3, 4)}
    assert run.records(80, 3, 4).requested == [(3, 4, 7), (3,)]
