"""Interferers below static UEs: a scan statistic on the variance of the UE's modulation.

The *smoothness* of a UE is one minus the variance of its subcarriers' powers relative to their squared mean, corrected
for the noise floor.  It does not depend on fading, only on the modulation: 1 for QPSK, 0.6 for 64QAM, 0 for Gaussian
samples.  An interferer below the UE reduces it.  One record carries little information, hundreds carry much: the scan
searches for a window of PRBs and records in which the UE is less smooth than usual, then estimates the interferer's
level, PRBs and records in turn.

A UE that changes its modulation changes its smoothness on all of its PRBs at once; this common part is removed first.
"""

from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .emitter_templates import smoothed_log_odds
from .likelihoods import Array, borders

Mask = NDArray[np.bool_]

STEP = 16  # records in a step of the scan
SIDES = (1, 2, 4, 8, 16)  # of scan windows, in steps and in PRBs
NARROW = (1, 2, 4)  # PRBs over which the highest smoothness of a UE is estimated
EDGE = 0.3  # share of the records with a step of power where one UE ends beside another
STILL = 0.5  # minimum share of all steps at such edges; with less, the UEs move
MIN_SMOOTHNESS = 0.3  # minimum smoothness, and ...
WEAKEST = 1.5  # ... minimum log power relative to the noise floor, of a UE that can be scanned
ENOUGH = 60  # records of such a UE, at least
COMMON = 0.08  # correlation of a PRB's smoothness with the UE's other PRBs, where the modulation changes, ...
APART = 0.2  # ... on all but this share of them
FEW = 4  # PRBs of a UE; with fewer, a change of modulation cannot be detected
SCATTER = 0.03  # minimum standard deviation of the smoothness from record to record
BEST = 4.0  # standard deviations by which the highest smoothness is lowered, to allow for chance
SURE = 7.0  # standard deviations by which a window must be less smooth
CONTRAST = 0.25  # the same as a mean over its cells; fainter windows may be the channel's
FOUND = 25.0  # nats of all records of an interferer, at least
CLIP = 4.0  # standard deviations of one PRB in one record, at most; colliding UEs exceed it
MAX_LLR_PRB, MAX_LLR_RECORD = 3.0, 6.0  # nats
LEVELS = np.exp(np.arange(1.0, 6.2, 0.35))[:, None]  # of interferers, relative to the noise floor
MOST = 4  # interferers searched for in one block
MEMORY = 4e4  # sum of inverse variances after which old records are forgotten


@dataclass(frozen=True, slots=True)
class _Smoothness:
    """Smoothness of the PRBs with a static UE, shape ``(records, prbs)``.

    Attributes:
        prbs: numbers of the PRBs, shape ``(prbs,)``.
        above: power above the noise floor, relative to it, linear.
        value: smoothness.
        scatter: its standard deviation.
    """

    prbs: NDArray[np.intp]
    above: Array
    value: Array
    scatter: Array


class Underlay:
    """Estimates the usual smoothness of each PRB's UE.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._sum, self._weight = np.zeros(n_prbs), np.zeros(n_prbs)

    def smooth(
        self, log_power: Array, rough: Array, static: Mask, known: Mask, count: int
    ) -> Generator[None, None, Mask]:
        """Where an interferer is below a static UE, in steps; bool, shape ``(records, n_prbs)``.

        Args:
            log_power: relative to the noise floor, in nats, shape ``(records, n_prbs)``.
            rough: roughness of each PRB itself, same shape.
            static: PRBs with a UE that has not left since the first record, bool, shape ``(n_prbs,)``.
            known: interferers found by other methods, bool, shape ``(records, n_prbs)``.
            count: number of records that become final; they update the usual smoothness.
        """
        answer = np.zeros(log_power.shape, bool)
        self._sum[~static] = self._weight[~static] = 0
        prbs = np.flatnonzero(static)
        border = borders(log_power)[:, 1:-1].mean(axis=0)
        if len(prbs) == 0 or border[border > EDGE].sum() < STILL * border.sum():
            return answer
        use = (log_power[:, prbs] > WEAKEST) & ~known[:, prbs]
        apart = (np.diff(prbs) > 1) | (border[prbs[1:] - 1] > EDGE)
        seen, changing = _smoothness(prbs, log_power[:, prbs], rough[:, prbs], use, apart)
        self._sum[prbs[changing]] = self._weight[prbs[changing]] = 0
        weight = np.where(use, 1 / np.square(seen.scatter), np.float32(0))
        best = _best(seen.value, weight, apart)
        for _ in range(MOST):
            total = self._sum[prbs] + (weight * seen.value).sum(axis=0)
            usual = np.maximum(total / np.maximum(self._weight[prbs] + weight.sum(axis=0), 1e-9), best)
            usual = np.minimum(usual, 1).astype(np.float32)
            use &= (usual > MIN_SMOOTHNESS) & (use.sum(axis=0) > ENOUGH)
            less = np.where(use, np.clip((usual - seen.value) / seen.scatter, -CLIP, CLIP), np.float32(0))
            gain = np.where(use, 2 * usual / seen.above / seen.scatter, np.float32(0))
            window = _scan(less, gain)
            if window is None:
                break
            found, part = _refine(window, seen, usual, less, use)
            answer[:, prbs] |= found
            use &= ~part
            weight = weight * use
            yield
        self._sum[prbs] += (weight * seen.value)[:count].sum(axis=0)
        self._weight[prbs] += weight[:count].sum(axis=0)
        forget = np.minimum(1, MEMORY / np.maximum(self._weight, 1))
        self._sum *= forget
        self._weight *= forget
        return answer


def _smoothness(
    prbs: NDArray[np.intp], log_power: Array, rough: Array, use: Mask, apart: Mask
) -> tuple[_Smoothness, Mask]:
    """Smoothness without changes of modulation, and the PRBs of UEs that change it, shape ``(prbs,)``."""
    power = np.exp(log_power)
    square = np.square(np.minimum(rough, np.float32(0.9)))
    # The variance of the powers relative to their squared mean is ``2 r^2 / (1 - r^2)``; see `emitter_templates`.
    value = np.maximum((1 - 3 * square) / (1 - square) / np.square(1 - 1 / np.maximum(power, 2)), -1)
    modulation = _modulation(value, use, apart)
    value = value - modulation
    noise = 1 / np.square(power) + SCATTER**2
    # From differences between successive records, which a lasting interferer does not increase.
    weight = (use[1:] & use[:-1]) / noise[1:]
    own = (np.square(np.diff(value, axis=0)) * weight).sum(axis=0) / np.maximum(2 * weight.sum(axis=0), 1e-9)
    return _Smoothness(prbs, np.maximum(power - 1, 1), value, np.sqrt(noise + own)), modulation.any(axis=0)


def _modulation(value: Array, use: Mask, apart: Mask) -> Array:
    """By how much each UE is smoother than usual on all of its PRBs; 0 for a UE with constant modulation.

    Args:
        value: smoothness, shape ``(records, prbs)``.
        use: cells with a valid smoothness, same shape.
        apart: whether the next PRB has another UE, shape ``(prbs - 1,)``.
    """
    off = np.where(use, value - (value * use).sum(axis=0) / np.maximum(use.sum(axis=0), 1), np.float32(0))
    common, few = np.zeros_like(off), np.zeros(off.shape[1], bool)
    for first, end in pairwise((0, *(np.flatnonzero(apart) + 1).tolist(), off.shape[1])):
        if end - first < FEW:
            few[first:end] = True
            continue
        mine, there = off[:, first:end], use[:, first:end]
        others = (mine.sum(axis=1, keepdims=True) - mine) * there
        norm = np.sqrt(np.square(mine).sum(axis=0) * np.square(others).sum(axis=0))
        if np.quantile((mine * others).sum(axis=0) / np.maximum(norm, 1e-9), APART) > COMMON:
            known = there.any(axis=1)
            middle = np.nanmedian(np.where(there[known], mine[known], np.nan), axis=1)
            common[known, first:end] = middle[:, None]
    if common.any():
        common[:, few] = off[:, few]  # no other PRB to compare with
    return common


def _sums(values: Array) -> Array:
    """Summed-area table over steps and PRBs, shape ``(steps + 1, prbs + 1)``."""
    count = -(-len(values) // STEP)
    steps = np.pad(values, ((0, count * STEP - len(values)), (0, 0))).reshape(count, STEP, -1).sum(axis=1)
    return np.asarray(np.pad(steps, ((1, 0), (1, 0))).cumsum(axis=0, dtype=np.float64).cumsum(axis=1))


def _window_sums(sums: Array, high: int, wide: int) -> Array:
    """Sums over each window of ``high`` steps and ``wide`` PRBs, from a summed-area table."""
    return np.asarray(sums[high:, wide:] - sums[:-high, wide:] - sums[high:, :-wide] + sums[:-high, :-wide])


def _best(value: Array, weight: Array, apart: Mask) -> Array:
    """The smoothness that each PRB surely reaches for some time, by itself or with other PRBs of the same UE."""
    sums = _sums(weight * value), _sums(weight)
    bounds = np.concatenate(([0], np.cumsum(apart)))
    best = np.full(value.shape[1], -1.0)
    for wide in NARROW:
        whole = bounds[wide - 1 :] == bounds[: len(bounds) - wide + 1]
        for high in SIDES:
            if high < len(sums[0]) and wide <= len(best):
                total, sure = (_window_sums(each, high, wide) for each in sums)
                low = (total - BEST * np.sqrt(np.maximum(sure, 0))) / np.maximum(sure, 1e-9)
                most = np.where(whole, low.max(axis=0), -1)
                for k in range(wide):
                    best[k : k + len(most)] = np.maximum(best[k : k + len(most)], most)
    return best


def _scan(less: Array, gain: Array) -> tuple[slice, slice] | None:
    """Records and PRBs of the window with the highest scan statistic; None if no statistic exceeds `SURE`.

    Args:
        less: standard deviations by which the UE is less smooth than usual, shape ``(records, prbs)``.
        gain: the same for an interferer of unit level, same shape.
    """
    sums = _sums(less * gain), _sums(np.square(gain))
    most, window = SURE, None
    for high in SIDES:
        for wide in SIDES:
            if high < len(sums[0]) and wide <= less.shape[1]:
                total, norm = (_window_sums(each, high, wide) for each in sums)
                score = total / np.sqrt(np.maximum(norm, 1e-6))
                k = int(score.argmax())
                if score.flat[k] > most:
                    row, first = divmod(k, score.shape[1])
                    most = score.flat[k]
                    window = slice(row * STEP, (row + high) * STEP), slice(first, first + wide)
    return window


def _refine(window: tuple[slice, slice], seen: _Smoothness, usual: Array, less: Array, use: Mask) -> tuple[Mask, Mask]:
    """Estimate the interferer's level, PRBs and records in turn, starting from a scan window.

    Returns:
        The interferer's cells, none if it is not significant, and the cells to leave out of the next scan; both bool,
        shape ``(records, prbs)``.
    """
    records, prbs = window
    first, end = prbs.start, prbs.stop
    on = np.zeros(len(less), bool)
    on[records] = True
    run = seen.prbs - np.arange(len(seen.prbs))  # the same for adjacent PRBs
    for last in (False, True):
        cells = on[:, None] & use
        cells[:, :first] = cells[:, end:] = False
        share = np.minimum(LEVELS / seen.above[cells], 1)
        drop = (usual / seen.scatter)[cells] * (1 - np.square(1 - share))
        level = LEVELS[int((drop * (less[cells] - drop / 2)).sum(axis=1).argmax())]
        drop = usual / seen.scatter * (1 - np.square(1 - np.minimum(level / seen.above, 1)))
        llr = np.clip(drop * (less - np.minimum(drop / 2, CLIP)), -MAX_LLR_PRB, MAX_LLR_PRB) * use
        total = np.concatenate(([0.0], np.cumsum(llr[on].sum(axis=0))))
        middle = first + int(np.diff(total[first : end + 1]).argmax())
        low, high = np.searchsorted(run, run[middle]), np.searchsorted(run, run[middle], "right")
        first = int(low + total[low : middle + 1].argmin())
        end = middle + 1 + int(total[middle + 1 : high + 1].argmax())
        each = llr[:, first:end].sum(axis=1)
        each = np.clip(each, -MAX_LLR_RECORD, MAX_LLR_RECORD)
        on = (smoothed_log_odds(each[:, None])[:, 0] if last else np.convolve(each, np.ones(STEP), "same")) > 0
        if not on.any():
            break
    found = np.zeros_like(use)
    found[on, first:end] = True
    part = found.copy()
    part[records, max(prbs.start, int(low)) : min(prbs.stop, int(high))] = True
    if each[on].sum() < FOUND or less[found & use].mean() < CONTRAST:
        found[:] = False
    return found, part
