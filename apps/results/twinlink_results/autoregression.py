"""The memory of a series, as an autoregression AR(p): x(i) = phi(1) x(i-1) + ... + phi(p) x(i-p) + noise(i).

Series are centred on their mean and have at most `SERIES` values (`grouped`), so that the cost is the same for a
hundred messages and for a million.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special

Floats = NDArray[np.float64]

SERIES = 512  # a longer series is first averaged in groups, which keeps the mean and removes short memory
_MOST = 12  # coefficients
_BURN_IN = 300
_DRAWS = 8  # points of the distribution of the persistence


def grouped(x: Floats) -> Floats:
    """At most `SERIES` means of groups of equal size, centred; values at the end that fill no group are left out."""
    size = -(-len(x) // SERIES)
    count = len(x) // size
    means = x[: count * size].reshape(count, size).mean(axis=1)
    return np.asarray(means - means.mean(), np.float64)


def fit(centred: Floats) -> Floats:
    """The coefficients of the AR(p) that describes a series best (Burg's method, p by BIC)."""
    n = len(centred)
    phi = best = np.zeros(0)
    power = first = float((centred**2).mean())
    least = np.inf
    forward, backward = centred[1:], centred[:-1]
    for order in range(min(n // 8, _MOST) + 1):
        if order:
            energy = float((forward**2).sum() + (backward**2).sum())
            reflection = 2 * float((forward * backward).sum()) / energy if energy else 0.0
            phi = np.append(phi - reflection * phi[::-1], reflection)
            power *= 1 - reflection**2
            forward, backward = (forward - reflection * backward)[1:], (backward - reflection * forward)[:-1]
        if power <= 1e-12 * first:  # a deterministic series
            break
        criterion = n * np.log(power) + order * np.log(n)
        if criterion < least:
            least, best = criterion, phi
    return best


def standard_error(centred: Floats, phi: Floats) -> float:
    """Standard error of the mean: sqrt(spectral density of the unbiased autoregression at frequency 0 / n)."""
    n = len(centred)
    if len(phi):
        phi = _with_persistence(phi, _unbiased(phi, n))
    return float(_residuals(centred, phi).std() / np.sqrt(n) / (1 - phi.sum()))


def resampled(centred: Floats, phi: Floats, block: int, count: int, seed: int) -> Floats:
    """``count`` series of mean 0 and of the same memory, a row for each, from blocks of this one's residuals."""
    n, order = len(centred), len(phi)
    residuals = _residuals(centred, phi)
    residuals = (residuals - residuals.mean()) * np.sqrt(n / (n - order - 1))
    memories = _scattered(phi, n) if order else []
    burn_in = max((_burn_in(memory) for memory in memories), default=0)
    length = n + burn_in
    starts = np.random.default_rng(seed).integers(0, len(residuals) - block + 1, (count, -(-length // block)))
    noise: Floats = residuals[(starts[:, :, None] + np.arange(block)).reshape(count, -1)[:, :length]]
    noise -= noise.mean()  # residuals at both ends are in fewer blocks
    for draw, memory in enumerate(memories):
        rows = slice(draw, None, _DRAWS)
        noise[rows] = signal.lfilter([1.0], np.append(1, -memory), noise[rows], axis=1)
    return noise[:, burn_in:]


def _residuals(centred: Floats, phi: Floats) -> Floats:
    noise: Floats = np.convolve(centred, np.append(1, -phi))[len(phi) : len(centred)]
    return noise


def _unbiased(phi: Floats, n: int) -> float:
    """The persistence (sum of the coefficients) without the bias of a fit to n values (Kendall 1954)."""
    persistence = float(phi.sum())
    return persistence + max(1 + 3 * persistence, 0) / n


def _scattered(phi: Floats, n: int) -> list[Floats]:
    """``phi`` with an unbiased persistence, scattered as that of other series of n values would be."""
    deviation = np.sqrt(max(1 - phi.sum() ** 2, 0) / n)
    normal = special.ndtri((np.arange(_DRAWS) + 0.5) / _DRAWS)
    return [_with_persistence(phi, _unbiased(phi, n) + deviation * float(point)) for point in normal]


def _with_persistence(phi: Floats, persistence: float) -> Floats:
    """``phi`` with another sum; unchanged if that would not be stationary."""
    other = phi.copy()
    other[0] += min(persistence, 0.995) - phi.sum()
    return other if _radius(other) < 0.998 else phi


def _burn_in(phi: Floats) -> int:
    """Number of values after which the influence of the start has decayed to 1 %."""
    return int(min(_BURN_IN, np.ceil(np.log(0.01) / np.log(max(_radius(phi), 0.1)))))


def _radius(phi: Floats) -> float:
    """Radius of the largest pole: the factor by which a disturbance decays per value in the long run."""
    return float(np.abs(np.roots(np.append(1, -phi))).max(initial=0.0))
