"""What-if: the model of the cell, and which policies leave."""

from dataclasses import replace
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twinlink_ran_emulator.interferer import Episode
from twinlink_replay.trial.cell import LOADS, MIN_STEPS, Cell, Emitter, fit
from twinlink_replay.trial.futures import draw
from twinlink_replay.trial.heard import MAX_GAP, STEP_NS, STEPS, Heard
from twinlink_replay.trial.policy import NOTHING, Policy, Span, blocked
from twinlink_replay.trial.trying import MIN_KEPT, SPACING_MS, Rule, try_policies

from .cells import N_PRBS, heard, interferer_rows, ue_rows

INTERFERED = tuple(range(80, 88))
NO_PRB = np.zeros(4, np.bool_)


@pytest.fixture(scope="module")
def cell() -> Cell:
    """Five seconds of UEs, at the end of which an interferer has been there for 50 ms."""
    records = 500
    there = interferer_rows(records, Episode(2.0, 0.8, 10, 6, 30), Episode(4.95, 1.0, 80, 8, 30))
    it = fit(heard(ue_rows(1, records), there))
    assert it is not None
    return it


def _block(prbs: tuple[int, ...], release_ms: int | None = 400, end_ms: int = 2000) -> Policy:
    return Policy("block", (Span(10, end_ms, prbs, release_ms),))


def test_a_gap_is_filled_and_after_a_long_one_hearing_begins_anew() -> None:
    one, other = np.array([True, False, True, False]), np.array([False, True, False, False])
    it = Heard(4)
    it.add(0, one, NO_PRB, NO_PRB)
    it.add(STEP_NS // 2, other, NO_PRB, NO_PRB)  # of the same step
    it.add(3 * STEP_NS, other, NO_PRB, NO_PRB)
    assert it.rows[0].tolist() == [one.tolist()] * 3 + [other.tolist()]
    it.add((4 + MAX_GAP) * STEP_NS, one, NO_PRB, NO_PRB)
    assert it.anew == 1
    assert it.steps == 1
    it.add(0, one, NO_PRB, NO_PRB)
    assert it.anew == 2


def test_the_oldest_is_forgotten() -> None:
    it = Heard(4)
    for k in range(2 * STEPS + 500):
        it.add(k * STEP_NS, np.array([k % 2, k % 3, k % 5, 1], np.bool_), NO_PRB, NO_PRB)
    last = np.arange(STEPS + 500, 2 * STEPS + 500)
    assert it.steps == STEPS
    assert (it.rows[0] == np.stack([last % 2, last % 3, last % 5, last * 0 + 1], axis=1).astype(bool)).all()


def test_the_model_knows_the_interferers_their_age_and_how_long_others_stayed(cell: Cell) -> None:
    assert cell.emitters == (Emitter(80, 8, 5),)
    assert cell.stays == (80,)
    assert cell.silence == 0
    quiet = fit(heard(ue_rows(1, 200), interferer_rows(200, Episode(0.5, 0.6, 10, 6, 30))))
    assert quiet is not None
    assert (quiet.emitters, quiet.stays, quiet.silence) == ((), (60,), 90)


def test_there_is_no_model_of_what_is_too_short() -> None:
    assert fit(heard(ue_rows(1, MIN_STEPS - 1), interferer_rows(MIN_STEPS - 1))) is None
    assert fit(heard(ue_rows(1, MIN_STEPS), interferer_rows(MIN_STEPS))) is not None


@pytest.mark.parametrize("n_ues", [0, 2, 7])
def test_the_model_finds_the_load_and_the_number_of_ues_of_the_emulators_scheduler(n_ues: int) -> None:
    rows = ue_rows(n_ues, 6000, n_ues)[-STEPS:]
    it = fit(heard(rows, np.zeros_like(rows)))
    assert it is not None
    assert it.load == pytest.approx(LOADS[n_ues], abs=0.05)
    assert it.n_ues == pytest.approx(n_ues, abs=max(1, 0.3 * n_ues))


@pytest.mark.parametrize("mean_grant", [10, 60])
def test_the_model_finds_the_length_of_grants(mean_grant: float) -> None:
    rows = ue_rows(7, 6000, mean_grant=mean_grant)[-STEPS:]
    it = fit(heard(rows, np.zeros_like(rows)))
    assert it is not None
    assert it.grant_steps == pytest.approx(mean_grant + 3.5, rel=0.3)


def test_futures_begin_with_what_was_heard_and_forget_it(cell: Cell) -> None:
    futures = draw(cell, 400, 64)
    seen = np.ones(N_PRBS, np.bool_)
    seen[list(INTERFERED)] = False
    assert (futures.ue[:, 0, seen] == (cell.used[seen] > 0)).all()
    late = futures.ue[:, 300:].mean(axis=(0, 1))
    assert late.mean() == pytest.approx(cell.load, abs=0.07)
    inner = slice(10, 96)  # the emulator's UEs use the edges of the carrier less
    used, unused = (late[inner][cell.used[inner] == state].mean() for state in (1, 0))
    assert used == pytest.approx(unused, abs=0.15)
    assert futures.interferer[:, 0][:, list(INTERFERED)].all()


def test_an_interferer_that_has_left_comes_back_only_if_one_was_heard(cell: Cell) -> None:
    assert not draw(replace(cell, emitters=(), silence=None), 200, 32).interferer.any()
    assert draw(replace(cell, emitters=(), silence=3), 200, 32).interferer.any(axis=(1, 2)).all()


def test_one_older_than_all_of_the_emulators_stays_as_long_again(cell: Cell) -> None:
    old = replace(cell, emitters=(Emitter(80, 8, 250),), stays=())
    stays = draw(old, 1000, 64).interferer[:, :, 80].sum(axis=1)
    assert 120 < stays.mean() < 500


def test_the_same_seed_gives_the_same_answer(cell: Cell) -> None:
    policies = [_block(INTERFERED), _block((1, 2))]
    assert try_policies(cell, policies, 2.0, seed=3) == try_policies(cell, policies, 2.0, seed=3)
    assert try_policies(cell, policies, 2.0, seed=3) != try_policies(cell, policies, 2.0, seed=4)


def test_on_the_prbs_of_the_policies_alone_the_answer_is_the_same(cell: Cell) -> None:
    policies = [_block((*range(70, 76), *INTERFERED)), _block((3, 7, 12), release_ms=None)]
    both = [try_policies(cell, policies, 2.0, everywhere=everywhere).outcomes for everywhere in (True, False)]
    for one, other in zip(*both, strict=True):
        assert one.refusal is None or other.refusal is not None
        assert [one.figures[name] for name in ("gain", "taken", "kept")] == [
            other.figures[name] for name in ("gain", "taken", "kept")
        ]


def test_the_block_of_an_interferer_leaves_and_is_the_best(cell: Cell) -> None:
    others = [_block(tuple(range(40, 48))), _block(tuple(range(60, 106)))]
    trial = try_policies(cell, [*others, _block(INTERFERED)], 2.0)
    assert trial.best is trial.outcomes[2]
    gain = trial.best.figures["gain"]
    assert 0 < gain.low < gain.mean < gain.high
    assert [one.refusal.rule for one in trial.outcomes if one.refusal] == ["worse", "worse"]


def test_a_block_of_an_interferer_that_is_about_to_leave_is_refused(cell: Cell) -> None:
    leaving = replace(cell, emitters=(Emitter(80, 8, 190),))
    refusal = try_policies(leaving, [_block(INTERFERED)], 2.0).outcomes[0].refusal
    assert refusal is not None
    assert refusal.rule == "worse"
    assert "80-87" in refusal.text


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (_block((105, 106)), "range"),
        (_block((-1,)), "range"),
        (Policy("backwards", (Span(100, 100, (1,)),)), "range"),
        (Policy("late", (Span(0, 10_001, (1,)),)), "range"),
        (_block(tuple(range(54))), "capacity"),
        (_block(tuple(range(N_PRBS))), "capacity"),
        (Policy("together", (Span(0, 500, tuple(range(30))), Span(100, 900, tuple(range(30, 60))))), "capacity"),
        (Policy("flapping", tuple(Span(k, k + 20, INTERFERED) for k in range(0, 2000, 40))), "flapping"),
        (NOTHING, "no-gain"),
        (_block(()), "no-gain"),
    ],
)
def test_a_refusal_names_its_rule(cell: Cell, policy: Policy, rule: Rule) -> None:
    refusal = try_policies(cell, [policy], 2.0).outcomes[0].refusal
    assert refusal is not None
    assert refusal.rule == rule
    assert len(refusal.text) > 10


def test_without_a_model_nothing_leaves() -> None:
    trial = try_policies(None, [_block(INTERFERED)], 2.0)
    assert [one.refusal.rule for one in trial.outcomes if one.refusal] == ["model"]
    assert trial.best is trial.nothing


def test_a_block_lets_go_after_the_interferer_and_takes_hold_again(cell: Cell) -> None:
    futures = draw(cell, 200, 8)
    rows = blocked(_block(INTERFERED, release_ms=100), futures)
    for row, interferer in zip(rows[:, :, 80], futures.interferer[:, :, 80], strict=True):
        for step in range(1, 200):
            assert row[step] == interferer[max(0, step - 10) : step + 1].any()
    assert not rows[:, 0].any()  # a block is on the air after 10 ms


prbs = st.one_of(
    st.sets(st.integers(0, N_PRBS - 1), max_size=N_PRBS),
    st.tuples(st.integers(0, N_PRBS - 1), st.integers(0, 20)).map(lambda it: set(range(it[0], it[0] + it[1]))),
    st.sets(st.sampled_from(INTERFERED)),
).map(lambda it: tuple(sorted(it)))
spans = st.builds(
    lambda start, length, prbs, release: Span(start, start + length, prbs, release),
    st.integers(0, 2000), st.integers(0, 2000), prbs, st.none() | st.integers(0, 500),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(spans, max_size=4))
def test_no_policy_that_does_harm_leaves(cell: Cell, spans: list[Span]) -> None:
    judged_by_hand(cell, Policy("random", tuple(spans)))


def judged_by_hand(cell: Cell, policy: Policy) -> bool:
    """Whether it leaves; what does is held against each future, cell by cell."""
    outcome = try_policies(cell, [policy], 2.0).outcomes[0]
    if outcome.refusal is not None:
        assert outcome.refusal.rule in get_args(Rule)
        assert len(outcome.refusal.text) > 10
        return False
    futures = draw(cell, 200, 32)
    block = blocked(policy, futures)
    wanted, hit = futures.ue, futures.interferer
    better = (wanted & hit & block).sum(axis=(1, 2)) - (wanted & ~hit & block).sum(axis=(1, 2))
    assert better.mean() > 0
    assert outcome.figures["gain"].mean == pytest.approx(10 * better.mean())
    assert block[0].sum(axis=1).max() <= (1 - MIN_KEPT) * N_PRBS
    changes = policy.changes_ms
    assert all(after - before >= SPACING_MS for before, after in pairwise(changes))
    return True


def _random_policy(rng: np.random.Generator, kind: int) -> Policy:
    """Of ten kinds: at random, and on purpose."""
    start, end = sorted(rng.integers(0, 2001, 2).tolist())
    release = None if rng.random() < 0.5 else int(rng.integers(0, 600))
    first, count = int(rng.integers(0, N_PRBS)), int(rng.integers(1, 20))
    some = tuple(np.flatnonzero(rng.random(N_PRBS) < rng.random()).tolist())
    run = tuple(range(first, min(first + count, N_PRBS)))
    near = tuple(range(max(0, INTERFERED[0] - int(rng.integers(0, 9))), INTERFERED[-1] + int(rng.integers(-6, 9))))
    prbs = [some, run, near, (), tuple(range(N_PRBS)), near, run, near, (first, N_PRBS + first), near][kind]
    if kind in (5, 6):  # flapping, slowly or too fast
        period = int(rng.integers(10, 400))
        times = range(start, 2000, period)
        return Policy("flapping", tuple(Span(time, time + period // 2, prbs, release) for time in times))
    if kind == 7:  # several at a time
        return Policy("several", (Span(start, end, prbs, release), Span(0, 2000, run, release), Span(0, end, some)))
    if kind == 9:  # for the whole time, as the twin asks for it
        return Policy("as the twin", (Span(10, 2000, prbs, 400),))
    return Policy("random", (Span(start, end, prbs, release),))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
def test_of_ten_thousand_policies_none_that_does_harm_leaves(cell: Cell, seed: int) -> None:
    """A thousand for each seed; those that leave are held against other futures than those that they were tried in."""
    rng = np.random.Generator(np.random.PCG64(seed))
    left = harmful = 0
    for k in range(1000):
        policy = _random_policy(rng, k % 10)
        if not judged_by_hand(cell, policy):
            continue
        left += 1
        futures = draw(cell, 200, 32, seed=seed + 100)
        block, ue, there = blocked(policy, futures), futures.ue, futures.interferer
        harmful += bool(np.count_nonzero(ue & there & block) < np.count_nonzero(ue & ~there & block))
    assert left > 50
    assert harmful <= 0.025 * left
