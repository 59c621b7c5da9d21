"""Interferers below UEs that never leave, told by how rough they make them, compared with how rough these were before.

A UE's *smoothness* is one minus the variance of its subcarriers' powers relative to their squared mean, with what the
noise floor takes of it put back.  However the UE fades, that is its modulation's: 1 for QPSK, 0.6 for 64QAM, 0 for
Gaussian samples.  An interferer below makes it less.  One record says little, hundreds say much: a box of PRBs and
records is looked for in which a UE is less smooth than usual, then that box's level, PRBs and times, each in turn.

A UE whose modulation changes is more or less smooth on all of its PRBs at once; that is taken out first.
"""

from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .emitter_templates import smooth
from .likelihoods import Array, borders

Mask = NDArray[np.bool_]

STEP = 16  # records summed up before a box is looked for
SIDES = (1, 2, 4, 8, 16)  # of boxes that are looked for, in such steps and in PRBs
NARROW = (1, 2, 4)  # PRBs that tell together how smooth their UE is at best
EDGE = 0.3  # of the records have a step of power where one UE ends beside another
STILL = 0.5  # of all such steps are at such places, or UEs that never leave some PRBs move all the same
LEAST = 0.3  # smoothness, and ...
WEAKEST = 1.5  # ... log power against the floor of a UE that can tell
ENOUGH = 60  # records of it
COMMON = 0.08  # correlation of a PRB's smoothness with that of its UE's others, where the modulation changes, ...
APART = 0.2  # ... on all but so many of them
FEW = 4  # PRBs of a UE that do not tell
SCATTER = 0.03  # of the smoothness from record to record, at the least
BEST = 4.0  # standard deviations by which a UE's best time may be so by chance
SURE = 7.0  # standard deviations by which a box is less smooth
CONTRAST = 0.25  # the same in the mean of its cells: fainter boxes may be the channel's
FOUND = 25.0  # nats that a box's records say in all
CLIP = 4.0  # standard deviations that a PRB may differ in a record; two UEs that collide say no more
SAYS, SAYS_ALL = 3.0, 6.0  # nats that a PRB, and a record, may say
LEVELS = np.exp(np.arange(1.0, 6.2, 0.35))[:, None]  # of interferers, against the floor
MOST = 4  # boxes looked for at once
MEMORY = 4e4  # sum of inverse variances that is remembered


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of records and PRBs that a UE has always had, shape ``(records, prbs)``.

    Attributes:
        prbs: numbers of the PRBs, shape ``(prbs,)``.
        above: power above the noise floor.
        value: smoothness.
        scatter: its standard deviation.
    """

    prbs: NDArray[np.intp]
    above: Array
    value: Array
    scatter: Array


class Underlay:
    """Remembers how smooth each PRB's UE usually is.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._sum, self._weight = np.zeros(n_prbs), np.zeros(n_prbs)

    def smooth(self, log_power: Array, rough: Array, put: Mask, known: Mask, count: int) -> Generator[None, None, Mask]:
        """Where an interferer is below a UE, in steps; the first ``count`` records will not come again.

        Args:
            log_power: against the floor, shape ``(records, n_prbs)``.
            rough: each PRB's own roughness.
            put: PRBs with a UE that has not left since the first record.
            known: where interferers are known otherwise.
        """
        answer = np.zeros(log_power.shape, bool)
        self._sum[~put] = self._weight[~put] = 0
        prbs = np.flatnonzero(put)
        border = borders(log_power)[:, 1:-1].mean(axis=0)
        if len(prbs) == 0 or border[border > EDGE].sum() < STILL * border.sum():
            return answer
        use = (log_power[:, prbs] > WEAKEST) & ~known[:, prbs]
        apart = (np.diff(prbs) > 1) | (border[prbs[1:] - 1] > EDGE)
        seen, changing = _look(prbs, log_power[:, prbs], rough[:, prbs], use, apart)
        self._sum[prbs[changing]] = self._weight[prbs[changing]] = 0
        weight = np.where(use, 1 / np.square(seen.scatter), np.float32(0))
        best = _best(seen.value, weight, apart)
        for _ in range(MOST):
            total = self._sum[prbs] + (weight * seen.value).sum(axis=0)
            usual = np.maximum(total / np.maximum(self._weight[prbs] + weight.sum(axis=0), 1e-9), best)
            usual = np.minimum(usual, 1).astype(np.float32)
            use &= (usual > LEAST) & (use.sum(axis=0) > ENOUGH)
            less = np.where(use, np.clip((usual - seen.value) / seen.scatter, -CLIP, CLIP), np.float32(0))
            gain = np.where(use, 2 * usual / seen.above / seen.scatter, np.float32(0))
            box = _search(less, gain)
            if box is None:
                break
            found, part = _refine(box, seen, usual, less, use)
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


def _look(prbs: NDArray[np.intp], log_power: Array, rough: Array, use: Mask, apart: Mask) -> tuple[_Seen, Mask]:
    """Also where a UE's modulation changes, shape ``(prbs,)``, which is taken out."""
    power = np.exp(log_power)
    square = np.square(np.minimum(rough, np.float32(0.9)))
    # The powers' variance against their squared mean is ``2 r^2 / (1 - r^2)``; see `emitter_templates`.
    value = np.maximum((1 - 3 * square) / (1 - square) / np.square(1 - 1 / np.maximum(power, 2)), -1)
    modulation = _modulation(value, use, apart)
    value = value - modulation
    noise = 1 / np.square(power) + SCATTER**2
    # From one record to the next, which an interferer that stays does not make more.
    weight = (use[1:] & use[:-1]) / noise[1:]
    own = (np.square(np.diff(value, axis=0)) * weight).sum(axis=0) / np.maximum(2 * weight.sum(axis=0), 1e-9)
    return _Seen(prbs, np.maximum(power - 1, 1), value, np.sqrt(noise + own)), modulation.any(axis=0)


def _modulation(value: Array, use: Mask, apart: Mask) -> Array:
    """By how much each UE is smoother than usual on all of its PRBs; 0 for one whose modulation does not change.

    Args:
        value: smoothness, shape ``(records, prbs)``.
        use: where it tells.
        apart: whether a PRB's UE is another one than the next one's.
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
        common[:, few] = off[:, few]  # nothing is left to tell
    return common


def _sums(values: Array) -> Array:
    """Of all steps and PRBs before each, shape ``(steps + 1, prbs + 1)``."""
    count = -(-len(values) // STEP)
    steps = np.pad(values, ((0, count * STEP - len(values)), (0, 0))).reshape(count, STEP, -1).sum(axis=1)
    return np.asarray(np.pad(steps, ((1, 0), (1, 0))).cumsum(axis=0, dtype=np.float64).cumsum(axis=1))


def _in_boxes(sums: Array, high: int, wide: int) -> Array:
    """Sums over each box of so many steps and PRBs."""
    return np.asarray(sums[high:, wide:] - sums[:-high, wide:] - sums[high:, :-wide] + sums[:-high, :-wide])


def _best(value: Array, weight: Array, apart: Mask) -> Array:
    """The smoothness that each PRB surely has for some time, by itself or with others that one UE has."""
    sums = _sums(weight * value), _sums(weight)
    bounds = np.concatenate(([0], np.cumsum(apart)))
    best = np.full(value.shape[1], -1.0)
    for wide in NARROW:
        whole = bounds[wide - 1 :] == bounds[: len(bounds) - wide + 1]
        for high in SIDES:
            if high < len(sums[0]) and wide <= len(best):
                total, sure = (_in_boxes(each, high, wide) for each in sums)
                low = (total - BEST * np.sqrt(np.maximum(sure, 0))) / np.maximum(sure, 1e-9)
                most = np.where(whole, low.max(axis=0), -1)
                for k in range(wide):
                    best[k : k + len(most)] = np.maximum(best[k : k + len(most)], most)
    return best


def _search(less: Array, gain: Array) -> tuple[slice, slice] | None:
    """Records and PRBs of the box that is less smooth than usual by most standard deviations."""
    sums = _sums(less * gain), _sums(np.square(gain))
    most, box = SURE, None
    for high in SIDES:
        for wide in SIDES:
            if high < len(sums[0]) and wide <= less.shape[1]:
                says, norm = (_in_boxes(each, high, wide) for each in sums)
                score = says / np.sqrt(np.maximum(norm, 1e-6))
                k = int(score.argmax())
                if score.flat[k] > most:
                    row, first = divmod(k, score.shape[1])
                    most, box = score.flat[k], (slice(row * STEP, (row + high) * STEP), slice(first, first + wide))
    return box


def _refine(box: tuple[slice, slice], seen: _Seen, usual: Array, less: Array, use: Mask) -> tuple[Mask, Mask]:
    """Where the interferer is of which a box shows some, if it is one; and what is not to be looked at again."""
    records, prbs = box
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
        says = np.clip(drop * (less - np.minimum(drop / 2, CLIP)), -SAYS, SAYS) * use
        total = np.concatenate(([0.0], np.cumsum(says[on].sum(axis=0))))
        middle = first + int(np.diff(total[first : end + 1]).argmax())
        low, high = np.searchsorted(run, run[middle]), np.searchsorted(run, run[middle], "right")
        first = int(low + total[low : middle + 1].argmin())
        end = middle + 1 + int(total[middle + 1 : high + 1].argmax())
        each = says[:, first:end].sum(axis=1)
        each = np.clip(each, -SAYS_ALL, SAYS_ALL)
        on = (smooth(each[:, None])[:, 0] if last else np.convolve(each, np.ones(STEP), "same")) > 0
        if not on.any():
            break
    found = np.zeros_like(use)
    found[on, first:end] = True
    part = found.copy()
    part[records, max(prbs.start, int(low)) : min(prbs.stop, int(high))] = True
    if each[on].sum() < FOUND or less[found & use].mean() < CONTRAST:
        found[:] = False
    return found, part
