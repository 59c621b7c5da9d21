"""The estimate of the peer's clock, on exchanges with a known offset."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from twinlink.appkit import clock

US = 1_000
MS = 1_000_000
S = 1_000_000_000
START = 1_700_000_000 * S


@dataclass
class Exchanges:
    stamps: NDArray[np.int64]  # (4, n)
    truth_ns: NDArray[np.float64]  # peer minus ours at T1

    def error_ns(self, estimate: clock.Estimate) -> NDArray[np.float64]:
        return np.asarray(np.abs(estimate.offset_at(self.stamps[0]) - self.truth_ns), np.float64)


def exchanges(
    n: int,
    *,
    offset_ns: int = 0,
    drift_ppm: float = 0.0,
    forward_ns: int = 50 * US,
    back_ns: int = 50 * US,
    noise_ns: int = 20 * US,
    interval_ns: int = 10 * MS,
    seed: int = 1,
) -> Exchanges:
    """A peer's clock that is off and drifts; delays are a floor and exponential noise on both ways."""
    generator = np.random.default_rng(seed)

    def noise() -> NDArray[np.int64]:
        return generator.exponential(noise_ns, n).astype(np.int64)

    def theirs(ours: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(ours + offset_ns + np.round((ours - START) * drift_ppm * 1e-6).astype(np.int64))

    t1 = START + np.arange(n) * interval_ns
    arrived = t1 + forward_ns + noise()
    answered = arrived + 5 * US
    t4 = answered + back_ns + noise()
    return Exchanges(np.stack([t1, theirs(arrived), theirs(answered), t4]), (theirs(t1) - t1).astype(np.float64))


@pytest.mark.parametrize("n", [20, 200, 5_000])
@pytest.mark.parametrize("drift_ppm", [0.0, 50.0, -50.0])
@pytest.mark.parametrize("offset_ns", [0, -7 * MS, 3_600 * S])
@pytest.mark.parametrize("extra_ns", [0, 3 * MS])
def test_the_bound_holds(n: int, drift_ppm: float, offset_ns: int, extra_ns: int) -> None:
    """For any offset, drift and asymmetry of the path; and it is no larger than necessary."""
    made = exchanges(n, offset_ns=offset_ns, drift_ppm=drift_ppm, forward_ns=50 * US + extra_ns)
    estimate = clock.estimate(*made.stamps)
    assert not estimate.stepped
    assert estimate.negative == 0
    assert (made.error_ns(estimate) <= estimate.bound_at(made.stamps[0])).all()
    assert np.median(made.error_ns(estimate)) <= extra_ns / 2 + 15 * US
    if n > 20:  # the floor of the round trip is 100 us and what was put in
        assert np.median(estimate.bound_at(made.stamps[0])) < 1.5 * (50 * US + extra_ns / 2)
        assert estimate.main.linear


@pytest.mark.parametrize("drift_ppm", [50.0, -8.0])
def test_drift_is_measured(drift_ppm: float) -> None:
    made = exchanges(3_000, drift_ppm=drift_ppm)  # 30 s
    skew_ppm = clock.estimate(*made.stamps).skew_ppm
    assert skew_ppm is not None
    assert abs(skew_ppm - drift_ppm) < 0.3


def test_no_drift_is_claimed_where_none_can_be_told() -> None:
    for seed in range(20):
        assert clock.estimate(*exchanges(100, interval_ns=MS, seed=seed).stamps).skew_ppm is None


@pytest.mark.parametrize("trend_us", [60, 90, -90])
def test_a_delay_that_changes_is_no_drift_that_no_clock_has(trend_us: int) -> None:
    """Within 30 ms the warm-up of a host looks like a clock that gains thousands of ppm."""
    given = exchanges(195, forward_ns=100 * US, noise_ns=5 * US, interval_ns=150 * US)
    given.stamps[1:] -= np.linspace(0, trend_us * US, 195).astype(np.int64)  # what the way there took less
    assert clock.estimate(*given.stamps).skew_ppm is None


def test_noise_does_not_move_the_estimate() -> None:
    """Outliers are ignored: every tenth exchange waits 20 ms on one way."""
    made = exchanges(1_000)
    plain = clock.estimate(*made.stamps).offset_ns
    made.stamps[1:, ::10] += 20 * MS
    assert abs(clock.estimate(*made.stamps).offset_ns - plain) < 2 * US


@pytest.mark.parametrize("size_ns", [2 * MS, -2 * MS, 3_600 * S, -3_600 * S])
def test_a_step_of_the_peers_clock(size_ns: int) -> None:
    made = exchanges(400, drift_ppm=20.0)
    made.stamps[1:3, 150:] += size_ns
    made.truth_ns[150:] += size_ns
    estimate = clock.estimate(*made.stamps)
    assert estimate.stepped
    ((at_ns, found_ns),) = estimate.steps
    assert made.stamps[0, 149] < at_ns <= made.stamps[3, 150]
    assert abs(found_ns - size_ns) < 100 * US
    assert (made.error_ns(estimate) <= estimate.bound_at(made.stamps[0])).all()


def test_a_step_of_our_clock() -> None:
    made = exchanges(400)
    made.stamps[0, 250:] += 5 * MS
    made.stamps[3, 250:] += 5 * MS
    estimate = clock.estimate(*made.stamps)
    assert [round(size / MS) for _, size in estimate.steps] == [-5]


@pytest.mark.parametrize("size_ns", [2 * MS, -2 * MS, 3_600 * S])
def test_a_step_of_the_senders_clock(size_ns: int) -> None:
    """As in a sweep with messages from a twin with a step of its clock: the first one after it is already shifted."""
    made = exchanges(400)
    made.stamps[::3, 150:] += size_ns
    made.truth_ns[150:] -= size_ns
    estimate = clock.pooled([(made.stamps, True)]).reversed()
    assert [at_ns for at_ns, _ in estimate.steps] == [made.stamps[0, 150]]
    assert (made.error_ns(estimate) <= estimate.bound_at(made.stamps[0])).all()


def test_a_step_within_an_exchange_is_counted_not_clamped() -> None:
    made = exchanges(100)
    made.stamps[2:3, 40] += 10 * MS  # the peer's clock went on between T2 and T3, and its old value came back
    estimate = clock.estimate(*made.stamps)
    assert (estimate.negative, estimate.n) == (1, 99)
    assert estimate.figures()["negative"] == 1
    assert (made.error_ns(estimate) <= estimate.bound_at(made.stamps[0])).all()


def test_a_slewed_clock_is_not_linear() -> None:
    """Its rate changes by 400 ppm halfway: no line fits, and the bound holds nevertheless."""
    made = exchanges(2_000)
    bent_ns = np.maximum(made.stamps[0] - made.stamps[0, 1_000], 0) * 400e-6
    made.stamps[1:3] += bent_ns.astype(np.int64)
    made.truth_ns += bent_ns
    estimate = clock.estimate(*made.stamps)
    assert not estimate.main.linear
    assert not estimate.stepped
    assert (made.error_ns(estimate) <= estimate.bound_at(made.stamps[0])).all()


def test_the_bound_holds_for_a_clock_that_swings_by_less_than_a_round_trip() -> None:
    """No exchange shows it, so the bound must be at least that large."""
    made = exchanges(400, noise_ns=5 * US, interval_ns=S)
    swings = np.round(38 * US * np.sin((made.stamps - START) * (2 * np.pi / (200 * S)))).astype(np.int64)
    made.stamps[1:3] += swings[1:3]
    made.truth_ns += swings[0]
    estimate = clock.estimate(*made.stamps)
    assert estimate.main.linear
    assert (made.error_ns(estimate) <= estimate.bound_at(made.stamps[0])).all()


def test_one_quick_exchange_does_not_decide() -> None:
    """One leg took a twentieth of its usual delay, once; that says nothing about the clocks."""
    made = exchanges(400, noise_ns=5 * US)
    made.stamps[1:, 200] -= 48 * US
    assert np.median(made.error_ns(clock.estimate(*made.stamps))) < 4 * US


def test_the_bound_grows_where_nothing_was_measured() -> None:
    made = exchanges(100)
    estimate = clock.estimate(*made.stamps)
    last = int(made.stamps[3, -1])
    later = estimate.bound_at([last, last + S, last + 10 * S])
    assert estimate.skew_ppm is None
    assert later[1] - later[0] == pytest.approx(clock.MAX_DRIFT * S, rel=1e-3)
    assert later[2] - later[0] == pytest.approx(clock.MAX_DRIFT * 10 * S, rel=1e-3)


@pytest.mark.parametrize("drift_ppm", [0.0, 100.0])
def test_the_peer_sees_the_same(drift_ppm: float) -> None:
    made = exchanges(1_000, offset_ns=3_600 * S, drift_ppm=drift_ppm)
    estimate = clock.estimate(*made.stamps)
    back = estimate.reversed()
    ours = made.stamps[0]
    theirs = ours + np.round(estimate.offset_at(ours)).astype(np.int64)
    assert np.abs(back.offset_at(theirs) + estimate.offset_at(ours)).max() < 3
    assert np.abs(back.bound_at(theirs) - estimate.bound_at(ours)).max() < 3


def test_pooling_both_sides_cancels_what_a_message_takes_longer_than_its_answer() -> None:
    offset_ns = 123 * MS
    ours = exchanges(500, offset_ns=offset_ns, forward_ns=90 * US, back_ns=50 * US)
    theirs = exchanges(500, offset_ns=-offset_ns, forward_ns=90 * US, back_ns=50 * US, seed=2)
    theirs.stamps += offset_ns + 3 * MS  # so that it happens at the same time
    alone = clock.estimate(*ours.stamps)
    together = clock.pooled([(ours.stamps, False), (theirs.stamps, True)])
    assert abs(alone.offset_ns - offset_ns) > 15 * US
    assert abs(together.offset_ns - offset_ns) < 3 * US
    assert together.bound_ns < alone.bound_ns
    assert together.n == 1_000


def test_a_single_exchange() -> None:
    estimate = clock.estimate([START], [START + 30], [START + 40], [START + 100])
    assert estimate.offset_ns == pytest.approx(-15)  # ((30 - 0) + (40 - 100)) / 2
    assert 45 <= estimate.bound_ns < 48
    assert estimate.skew_ppm is None


@pytest.mark.parametrize("stamps", [([], [], [], []), ([1], [2], [3], [4, 5]), (1, 2, 3, 4)])
def test_what_are_no_exchanges(stamps: tuple[list[int], ...]) -> None:
    with pytest.raises(ValueError, match="four arrays of the same length"):
        clock.estimate(*stamps)


@pytest.mark.parametrize("stamps", [(2**63 - 1, -(2**63), 0, 1), (0, 2**62, 2**62, 1), (-1, 0, 0, 0)])
def test_what_are_no_times(stamps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="from 0 to below"):
        clock.pooled([(exchanges(60).stamps, False), (np.array([stamps] * 3).T, True)])


def test_nothing_but_negative_round_trips() -> None:
    with pytest.raises(ValueError, match="each of 2 exchanges has a negative network round trip"):
        clock.estimate([10, 20], [10, 20], [100, 200], [11, 21])
    with pytest.raises(ValueError, match="four arrays"):
        clock.pooled([])


DELAYS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**8)), min_size=1, max_size=80
)


@given(
    delays=DELAYS,
    offset_ns=st.integers(-(10**15), 10**15),
    drift_ppm=st.floats(-400, 400),
    interval_ns=st.integers(0, 10**10),
)
def test_truth_is_within_the_bound_for_any_delays(
    delays: list[tuple[int, int, int]], offset_ns: int, drift_ppm: float, interval_ns: int
) -> None:
    """The only assumptions are delays that are not negative, and clocks with constant rates."""
    there, pauses, back = np.array(delays, np.int64).T
    t1 = START + np.arange(len(there)) * interval_ns + np.concatenate(([0], np.cumsum(there + back + pauses)[:-1]))
    arrived = t1 + there
    t4 = arrived + back

    def theirs(ours: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(ours + offset_ns + np.round((ours - START) * drift_ppm * 1e-6).astype(np.int64))

    estimate = clock.estimate(t1, theirs(arrived), theirs(arrived), t4)
    assert not estimate.stepped
    for at in (t1, t1 + (t4 - t1) // 2, t4, t4 + 10**9):
        error = np.abs(estimate.offset_at(at) - (theirs(at) - at))
        assert (error <= estimate.bound_at(at) + 2).all()


@given(shift_ns=st.integers(-(10**16), 10**16))
def test_shifting_the_peers_clock_shifts_the_offset_and_nothing_else(shift_ns: int) -> None:
    made = exchanges(60)
    before = clock.estimate(*made.stamps)
    made.stamps[1:3] += shift_ns
    after = clock.estimate(*made.stamps)
    assert after.offset_ns - before.offset_ns == pytest.approx(shift_ns, abs=4)
    assert after.bound_ns == pytest.approx(before.bound_ns, abs=4)
