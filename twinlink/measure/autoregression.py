"""The memory of a series, as an autoregression AR(p): x(i) = phi(1) x(i-1) + ... + phi(p) x(i-p) + noise(i).

Series are centred on their mean and at most `SERIES` long (`grouped`), so that whatever is made of them costs the same
for a hundred messages and a million.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special

Floats = NDArray[np.float64]

SERIES = 512  # a longer series is first averaged in groups: the mean stays, and short memory goes
_MOST = 12  # coefficients
_BURN_IN = 300
_DRAWS = 8  # points of the distribution of the persistence


def grouped(x: Floats) -> Floats:
    """At most `SERIES` means of groups of equal size, centred; what fills no group at the end is left out."""
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
        if power <= 1e-12 * first:  # a series that follows from its beginning
            break
        criterion = n * np.log(power) + order * np.log(n)
        if criterion < least:
            least, best = criterion, phi
    return best


def standard_error(centred: Floats, phi: Floats) -> float:
    """That of the mean: sqrt(spectral density of the autoregression, freed from its bias, at frequency 0 / n)."""
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
    """The persistence (sum of the coefficients), which a fit to n values finds too small by this (Kendall 1954)."""
    persistence = float(phi.sum())
    return persistence + max(1 + 3 * persistence, 0) / n


def _scattered(phi: Floats, n: int) -> list[Floats]:
    """``phi`` with a persistence free of bias, and scattered as that of other series of n values would be."""
    deviation = np.sqrt(max(1 - phi.sum() ** 2, 0) / n)
    normal = special.ndtri((np.arange(_DRAWS) + 0.5) / _DRAWS)
    return [_with_persistence(phi, _unbiased(phi, n) + deviation * float(point)) for point in normal]


def _with_persistence(phi: Floats, persistence: float) -> Floats:
    """``phi`` with another sum, or as it is when that would not be stationary."""
    other = phi.copy()
    other[0] += min(persistence, 0.995) - phi.sum()
    return other if _radius(other) < 0.998 else phi


def _burn_in(phi: Floats) -> int:
    """After how many values a series that began at 0 has forgotten it, to 1 %."""
    return int(min(_BURN_IN, np.ceil(np.log(0.01) / np.log(max(_radius(phi), 0.1)))))


def _radius(phi: Floats) -> float:
    """That of the largest pole: by how much a disturbance shrinks from value to value in the end."""
    return float(np.abs(np.roots(np.append(1, -phi))).max(initial=0.0))
