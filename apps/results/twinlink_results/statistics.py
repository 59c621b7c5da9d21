"""Confidence intervals of means, percentiles and ratios of series of delays.

Consecutive messages meet the same queues, processor frequency and interrupts, so delays are correlated, and an interval
that assumes independence is too narrow (for an AR(1) series with rho 0.9 its "95 %" are 35 %).  `mean_interval`
accounts for this; docs/metrics.md has its coverage.

The interval of the mean is a moving-block bootstrap with pre-whitening and post-blackening (Davison and Hinkley,
"Bootstrap Methods and their Application", 1997, section 8.2.3):

1. an autoregression AR(p) is fitted (Burg; p by BIC) and its persistence corrected for its bias (Kendall 1954, Shaman
   and Stine 1988: a short series underestimates a long memory);
2. blocks of its residuals are drawn and passed through it: new series with the same memory.  Its persistence is taken
   from eight points of its own distribution, so that its uncertainty widens the interval;
3. the 2.5 % and 97.5 % points of the new series' means are the interval's ends, with their distance to the mean
   expanded by t / z, because a percentile interval of few values is too narrow (Hesterberg 2015).  It is not
   studentised: one message in a hundred with a thousand times the delay would make such an interval useless.

A plain moving-block bootstrap needs many blocks longer than the memory.  With 200 values of an AR(1) of rho 0.9 its
"95 %" are 77 % with the best block length, 61 % with the usual n^(1/3).

Every random draw is seeded: the same records give the same figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from . import autoregression

Floats = NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 999  # so that the 2.5 % and 97.5 % points are the 25th and the 975th
FEW = 30  # independent values, below which the estimate of the memory is not trusted
MIN_FIT = 16  # values below which no autoregression can be fitted
MIN_ROUNDS = 3  # below which a ratio has no interval: of two rounds Student's t reaches 12.7 standard errors
MIN_BOOTSTRAP = 10  # rounds below which a bootstrap over them is too narrow
_SEED = 20260101


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of 95 %.

    Attributes:
        low, high: its ends.
        n_eff: number of independent values with the same precision of the mean; at most n.
        method: name of the method.
    """

    low: float
    high: float
    n_eff: float
    method: str


def mean_interval(values: ArrayLike) -> Interval | None:
    """The interval of the mean of values in the order of time; None with fewer than two.

    Below `MIN_FIT` values it is Student's t interval, which assumes independence.
    """
    x = np.asarray(values, np.float64)
    if len(x) < 2:
        return None
    low, high = float(x.min()), float(x.max())
    if low == high:
        return Interval(low, high, float(len(x)), "all values are the same")
    if len(x) < MIN_FIT:
        return Interval(*plain_interval(x), float(len(x)), f"Student t; n < {MIN_FIT}, taken for independent")
    mean = float(x.mean())
    scale = max(high - mean, mean - low)  # avoids overflow and underflow of squares
    centred = (x - mean) / scale
    series = autoregression.grouped(centred)
    n = len(series)
    phi = autoregression.fit(series)
    block = round(n ** (1 / 3))
    means = np.sort(autoregression.resampled(series, phi, block, RESAMPLES, _SEED).mean(axis=1))
    rank = round((1 - LEVEL) / 2 * (RESAMPLES + 1))
    expand = scale * float(special.stdtrit(n - 1, (1 + LEVEL) / 2) / special.ndtri((1 + LEVEL) / 2))
    groups = "" if n == len(x) else f" of means of {len(x) // n}"
    return Interval(
        max(mean + expand * float(means[rank - 1]), low),  # no mean is below the least value
        min(mean + expand * float(means[-rank]), high),
        _independent(float(centred.std()), len(x), series, phi),
        f"moving-block bootstrap, post-blackened AR({len(phi)}), blocks of {block}{groups}, {RESAMPLES} resamples",
    )


def _independent(sd: float, n: int, series: Floats, phi: Floats) -> float:
    """Number of independent values of this deviation that give the mean the precision of the n behind ``series``."""
    error = autoregression.standard_error(series, phi)
    return float(np.clip((sd / error) ** 2, 1, n)) if error else float(n)


def plain_interval(values: ArrayLike) -> tuple[float, float]:
    """Student's CI95 of the mean, mean +- t x sd / sqrt(n), which assumes independent values; n is 2 or more."""
    x = np.asarray(values, np.float64)
    half = float(special.stdtrit(len(x) - 1, (1 + LEVEL) / 2) * x.std(ddof=1) / np.sqrt(len(x)))
    return float(x.mean()) - half, float(x.mean()) + half


def percentile(ordered: NDArray[Any], share: float) -> float:
    """The least of the values, given in ascending order, that at least ``share`` of them do not exceed."""
    return float(ordered[max(0, int(np.ceil(share * len(ordered) - 1e-9)) - 1)])


def percentile_interval(
    values: ArrayLike, ordered: NDArray[Any], share: float, n_eff: float = np.inf
) -> tuple[float, float] | None:
    """The interval of a percentile between two of the values; None if there are too few.

    Order statistics and the binomial distribution, without any assumption on the values' distribution (David and
    Nagaraja, "Order Statistics", section 7.1).  n is replaced by the number of independent values with the same
    precision of the share below the percentile (Woodruff 1952); or by ``n_eff``, that of the mean, if it is less and
    below `FEW`, because the memory of so few crossings of the percentile cannot be fitted.
    """
    x = np.asarray(values)
    n = len(x)
    if n < MIN_FIT:
        return None
    below = (x <= percentile(ordered, share)).astype(np.float64)
    m = n
    series = autoregression.grouped(below - below.mean())
    if series.any():
        m = round(_independent(float(below.std()), n, series, autoregression.fit(series)))
    if n_eff < FEW:
        m = min(m, int(n_eff))
    tail = (1 - LEVEL) / 2
    first, last = _binomial_point(tail, m, share), _binomial_point(1 - tail, m, share) + 1
    if first < 1 or last > m:
        return None
    low, high = int(np.floor(first / m * n)), int(np.ceil(last / m * n))
    return float(ordered[max(low, 1) - 1]), float(ordered[min(high, n) - 1])


def _binomial_point(probability: float, n: int, share: float) -> int:
    """The least k for which at most k of n, each with probability ``share``, has at least this probability."""
    k = max(0, int(special.bdtrik(probability, n, share)) - 1)  # scipy.stats.binom.ppf, without its 0.3 ms
    while special.bdtr(k, n, share) < probability:
        k += 1
    return k


def share_interval(count: int, n: int) -> tuple[float, float] | None:
    """The interval of a share, ``count`` of ``n``, each independent of the others (Clopper and Pearson 1934)."""
    if n == 0:
        return None
    tail = (1 - LEVEL) / 2
    low = float(stats.beta.ppf(tail, count, n - count + 1)) if count else 0.0
    high = float(stats.beta.ppf(1 - tail, count + 1, n - count)) if count < n else 1.0
    return low, high


def compare(groups: Mapping[str, Sequence[NDArray[Any]]]) -> dict[str, Any] | None:
    """One-way analysis of variance: whether the groups' means differ.

    Args:
        groups: of each subject one array of values for each round.

    Returns None unless two groups or more have values.  ``f`` and ``p`` are taken over the rounds' means, which are
    independent replications; they are None with fewer than two rounds in each group.  ``messages`` holds the same over
    single messages, which are correlated, so that its p is too small.
    """
    rounds = {name: [array for array in arrays if len(array)] for name, arrays in groups.items()}
    rounds = {name: arrays for name, arrays in rounds.items() if arrays}
    if len(rounds) < 2:
        return None
    means = [np.array([array.mean() for array in arrays]) for arrays in rounds.values()]
    replicated = all(len(values) > 1 for values in means)
    return {
        "method": "one-way ANOVA over the rounds' means",
        "groups": {name: {"n_rounds": len(arrays), "n": sum(map(len, arrays))} for name, arrays in rounds.items()},
        **(_anova(means) if replicated else {"f": None, "p": None, "df": None}),
        "messages": _anova([np.concatenate(arrays) for arrays in rounds.values()]),
    }


def _anova(groups: Sequence[Floats]) -> dict[str, Any]:
    between, within = len(groups) - 1, sum(map(len, groups)) - len(groups)
    if within < 1 or all(np.ptp(group) == 0 for group in groups):
        return {"f": None, "p": None, "df": [between, within]}
    f, p = stats.f_oneway(*groups)
    return {"f": float(f), "p": float(p), "df": [between, within]}


def paired(
    a_rounds: Sequence[NDArray[Any]],
    b_rounds: Sequence[NDArray[Any]],
) -> dict[str, Any] | None:
    """The ratio of ``a`` to ``b``, from rounds in which both were measured one after the other.

    ``ratio`` is the geometric mean of the rounds' ratios of means: the mean is what the tables have, too.  ``ci95`` and
    ``p`` (that it is 1) are Student's t on their logarithms, exact also for few rounds when those are normal; None
    below `MIN_ROUNDS`.  ``bootstrap_ci95`` draws rounds and, in them, blocks of messages; None below `MIN_BOOTSTRAP`
    rounds.  Rounds in which either side has no value, or a mean that is not above 0, are left out; None when none is
    left.
    """
    both = [(np.asarray(a), np.asarray(b)) for a, b in zip(a_rounds, b_rounds, strict=True) if len(a) and len(b)]
    figures = [(float(np.mean(a)), float(np.mean(b))) for a, b in both]
    kept = [index for index, (a, b) in enumerate(figures) if a > 0 and b > 0]
    if not kept:
        return None
    both, logs = [both[i] for i in kept], np.array([np.log(figures[i][0] / figures[i][1]) for i in kept])
    n = len(logs)
    result: dict[str, Any] = {
        "ratio": float(np.exp(logs.mean())),
        "ci95": None,
        "p": None,
        "n_rounds": n,
        "method": "Student t on the logarithms of the rounds' ratios of means",
        "bootstrap_ci95": None,
        "ratios": [float(value) for value in np.exp(logs)],
    }
    if n >= MIN_ROUNDS:
        error = float(logs.std(ddof=1) / np.sqrt(n))
        half = float(special.stdtrit(n - 1, (1 + LEVEL) / 2)) * error
        result["ci95"] = [float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))]
        if error:
            result["p"] = float(2 * special.stdtr(n - 1, -abs(logs.mean()) / error))
    if n >= MIN_BOOTSTRAP:
        result["bootstrap_ci95"] = _bootstrapped_ratio(both)
    return result


def _bootstrapped_ratio(both: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> list[float] | None:
    generator = np.random.default_rng(_SEED)
    draws = 200
    logs = np.empty((len(both), draws))
    for row, pair in enumerate(both):
        a, b = (np.asarray(np.mean(_blocks(side, draws, generator), axis=1), np.float64) for side in pair)
        if (a <= 0).any() or (b <= 0).any():
            return None
        logs[row] = np.log(a / b)
    rounds = generator.integers(0, len(both), (len(both), RESAMPLES))
    means = np.sort(logs[rounds, generator.integers(0, draws, rounds.shape)].mean(axis=0))
    rank = round((1 - LEVEL) / 2 * (RESAMPLES + 1))
    return [float(np.exp(means[rank - 1])), float(np.exp(means[-rank]))]


def _blocks(values: NDArray[Any], draws: int, generator: np.random.Generator) -> NDArray[Any]:
    """Series of the same length from blocks of this one, a row for each."""
    n = len(values)
    block = max(1, round(n ** (1 / 3)))
    starts = generator.integers(0, n - block + 1, (draws, -(-n // block)))
    drawn: NDArray[Any] = values[(starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :n]]
    return drawn
