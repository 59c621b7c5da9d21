"""Intervals on series with a known mean, and tests on groups that do or do not differ."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats
from twinlink_results import statistics

Series = Callable[[np.random.Generator, int], NDArray[np.float64]]


def autoregressive(rho: float) -> Series:
    """AR(1) of mean 0."""

    def series(generator: np.random.Generator, n: int) -> NDArray[np.float64]:
        noise = generator.standard_normal(n)
        noise[0] /= np.sqrt(1 - rho**2)  # as if it had begun long ago
        return np.asarray(signal.lfilter([1.0], [1.0, -rho], noise))

    return series


def coverage(
    interval: Callable[[NDArray[np.float64]], tuple[float, float]], series: Series, n: int, runs: int
) -> float:
    """How often the interval holds the true mean, 0."""
    generator = np.random.default_rng(n)
    found = [interval(series(generator, n)) for _ in range(runs)]
    return float(np.mean([low <= 0 <= high for low, high in found]))


def ours(x: NDArray[np.float64]) -> tuple[float, float]:
    found = statistics.mean_interval(x)
    assert found is not None
    return found.low, found.high


# 95 % of 200 runs come out with a standard deviation of 1.5 %; the seeds are fixed, so this cannot flake.  The long run
# (2000 series and more of each length) stands in docs/metrics.md.
@pytest.mark.parametrize("n", [100, 200, 1000])
def test_the_interval_of_the_mean_covers_correlated_series(n: int) -> None:
    assert 0.915 <= coverage(ours, autoregressive(0.9), n, 200) <= 0.985


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.5])
def test_it_covers_others_too(rho: float) -> None:
    assert 0.90 <= coverage(ours, autoregressive(rho), 150, 150) <= 0.985


def test_long_series_are_grouped_and_covered() -> None:
    assert 0.90 <= coverage(ours, autoregressive(0.9), 10_000, 60) <= 1.0
    found = statistics.mean_interval(autoregressive(0.9)(np.random.default_rng(1), 10_000))
    assert found is not None
    assert "means of 20" in found.method
    assert 300 < found.n_eff < 900  # in truth 10000 x (1 - 0.9) / (1 + 0.9) = 526


def test_the_plain_interval_does_not_cover_them() -> None:
    """What the tests above would catch."""
    assert coverage(statistics.plain_interval, autoregressive(0.9), 200, 300) < 0.5
    assert coverage(statistics.plain_interval, autoregressive(0.0), 200, 300) > 0.9


def test_no_memory_costs_nothing() -> None:
    """For independent values the interval is about as wide as the plain one, and n_eff is n."""
    x = np.random.default_rng(3).exponential(1.0, 400)
    found = statistics.mean_interval(x)
    assert found is not None
    low, high = statistics.plain_interval(x)
    assert (found.high - found.low) / (high - low) == pytest.approx(1.0, abs=0.15)
    assert found.n_eff > 300
    assert "moving-block bootstrap" in found.method


def test_one_value_far_off_does_not_blow_it_up() -> None:
    x = np.random.default_rng(4).exponential(1.0, 100)
    x[50] = 1e6
    found = statistics.mean_interval(x)
    assert found is not None
    assert x.min() <= found.low <= x.mean() <= found.high <= 1e5


def test_scale_and_shift_carry_over() -> None:
    x = autoregressive(0.7)(np.random.default_rng(5), 120)
    low, high = ours(x)
    shifted = ours(1e-30 * x + 1e-27)
    assert shifted == pytest.approx((1e-30 * low + 1e-27, 1e-30 * high + 1e-27))
    assert ours(1e200 * x) == pytest.approx((1e200 * low, 1e200 * high))
    assert ours(x) == (low, high)  # seeded


@pytest.mark.parametrize(
    "x", [np.arange(50.0), np.tile([0.0, 1.0], 30), np.sin(np.arange(200) / 5), np.repeat([0.0, 1.0], 40)]
)
def test_series_that_are_no_noise(x: NDArray[np.float64]) -> None:
    low, high = ours(x)
    assert x.min() <= low <= x.mean() <= high <= x.max()


def test_too_few_values() -> None:
    assert statistics.mean_interval([]) is None
    assert statistics.mean_interval([1.0]) is None
    few = statistics.mean_interval([1.0, 2.0, 3.0])
    assert few is not None
    assert "Student" in few.method
    same = statistics.mean_interval([7.0] * 20)
    assert same is not None
    assert (same.low, same.high) == (7.0, 7.0)


def test_the_plain_interval_is_the_textbooks() -> None:
    x = np.random.default_rng(6).standard_normal(50)
    expected = stats.t.interval(0.95, 49, loc=x.mean(), scale=stats.sem(x))
    assert statistics.plain_interval(x) == pytest.approx(expected)


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = np.arange(1, 101)
    assert [statistics.percentile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)] == [50, 90, 95, 99, 100]
    assert statistics.percentile(np.array([3]), 0.99) == 3


def test_percentile_intervals_cover() -> None:
    generator = np.random.default_rng(7)
    for share in (0.5, 0.95):
        truth, hits = stats.norm.ppf(share), 0
        for _ in range(300):
            x = generator.standard_normal(300)
            between = statistics.percentile_interval(x, np.sort(x), share)
            assert between is not None
            hits += between[0] <= truth <= between[1]
        assert 0.91 <= hits / 300 <= 1.0


def test_percentile_intervals_widen_with_memory() -> None:
    x = autoregressive(0.9)(np.random.default_rng(8), 1_000)
    shuffled = np.random.default_rng(9).permutation(x)
    low, high = statistics.percentile_interval(x, np.sort(x), 0.5) or (0, 0)
    plain_low, plain_high = statistics.percentile_interval(shuffled, np.sort(x), 0.5) or (0, 0)
    assert high - low > 2 * (plain_high - plain_low)


def test_no_percentile_interval_where_values_are_too_few() -> None:
    x = np.random.default_rng(10).standard_normal(100)
    assert statistics.percentile_interval(x, np.sort(x), 0.99) is None  # 0.99^100 = 37 % that none is above it
    assert statistics.percentile_interval(x[:10], np.sort(x[:10]), 0.5) is None
    assert statistics.percentile_interval(x, np.sort(x), 0.5, n_eff=4) is None


def test_percentile_intervals_without_memory_are_the_binomial_ones() -> None:
    x = np.random.default_rng(11).permutation(np.arange(1.0, 1001.0))
    low, high = statistics.percentile_interval(x, np.sort(x), 0.5) or (0, 0)
    first, last = stats.binom.ppf([0.025, 0.975], 1000, 0.5)
    assert abs(low - first) <= 12
    assert abs(high - (last + 1)) <= 12


def test_shares() -> None:
    assert statistics.share_interval(0, 0) is None
    assert statistics.share_interval(0, 100) == pytest.approx((0.0, 0.0362), abs=1e-4)  # the textbook's
    assert statistics.share_interval(100, 100) == pytest.approx((0.9638, 1.0), abs=1e-4)
    assert statistics.share_interval(5, 100) == pytest.approx((0.0164, 0.1128), abs=1e-4)


def rounds(generator: np.random.Generator, mean: float, count: int = 5, n: int = 40) -> list[NDArray[np.float64]]:
    return [mean * generator.lognormal(0.0, 0.3, n) for _ in range(count)]


def test_analysis_of_variance() -> None:
    generator = np.random.default_rng(12)
    same = statistics.compare({name: rounds(generator, 100.0) for name in ("a", "b", "c")})
    other = statistics.compare({name: rounds(generator, mean) for name, mean in (("a", 100.0), ("b", 130.0))})
    assert same is not None
    assert other is not None
    assert same["p"] > 0.05
    assert other["p"] < 0.01
    assert same["df"] == [2, 12]
    assert other["messages"]["df"] == [1, 398]


def test_rounds_that_differ_make_no_difference_between_groups() -> None:
    """Each round has a level of its own: over messages everything is significant, over rounds nothing is."""
    generator = np.random.default_rng(13)
    groups = {name: [level + generator.standard_normal(100) for level in generator.normal(100, 10, 5)] for name in "ab"}
    found = statistics.compare(groups)
    assert found is not None
    assert found["p"] > 0.01
    assert found["messages"]["p"] < 1e-3


def test_analysis_of_variance_where_there_is_nothing_to_compare() -> None:
    empty: list[NDArray[np.float64]] = []
    one = [np.array([1.0, 2.0])]
    assert statistics.compare({}) is None
    assert statistics.compare({"a": one, "b": empty}) is None
    single = statistics.compare({"a": one, "b": [np.array([2.0, 3.0])]})
    assert single is not None
    assert single["p"] is None
    assert single["messages"]["p"] is not None
    constant = statistics.compare({"a": [np.ones(3), np.ones(3)], "b": [np.ones(3), np.ones(3)]})
    assert constant is not None
    assert constant["p"] is None


def test_the_paired_ratio_covers_the_truth() -> None:
    generator = np.random.default_rng(14)
    hits = significant = 0
    for _ in range(200):
        levels = generator.lognormal(0, 0.5, 5)  # a machine that is slower in some rounds, for both alike
        a = [150 * level * generator.lognormal(0, 0.3, 20) for level in levels]
        b = [100 * level * generator.lognormal(0, 0.3, 20) for level in levels]
        found = statistics.paired(a, b)
        assert found is not None
        hits += found["ci95"][0] <= 1.5 <= found["ci95"][1]
        significant += found["p"] < 0.05
    assert 0.90 <= hits / 200 <= 0.99
    assert significant / 200 > 0.9  # five rounds see a factor of 1.5 although the levels vary by more


def test_the_paired_test_finds_nothing_where_nothing_is() -> None:
    generator = np.random.default_rng(15)
    found = [statistics.paired(rounds(generator, 100.0), rounds(generator, 100.0)) for _ in range(200)]
    false = sum(each is not None and each["p"] < 0.05 for each in found)
    assert false / 200 <= 0.09


def test_pairs_that_cannot_be_compared() -> None:
    nothing: NDArray[np.float64] = np.zeros(0)
    some = np.array([1.0, 2.0, 3.0])
    assert statistics.paired([], []) is None
    assert statistics.paired([nothing], [some]) is None
    one = statistics.paired([2 * some, nothing], [some, some])
    assert one is not None
    assert (one["ratio"], one["n_rounds"], one["ci95"], one["p"]) == (2.0, 1, None, None)
    same = statistics.paired([some, some], [some, some])
    assert same is not None
    assert (same["ratio"], same["p"]) == (1.0, None)
    with pytest.raises(ValueError, match="zip"):
        statistics.paired([some], [])
