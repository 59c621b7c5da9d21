"""Statistics over the rows of an experiment: analysis of variance with its effect size, and correlations.

eta squared is the share of the variance that the groups explain; omega squared the same without the bias of few values
(Hays 1963).  The interval of a correlation is Fisher's.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import stats

from twinlink.appkit import formatting

from .description import Analysis, Experiment
from .outcome import Row


def analyse(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the data file asks for, ready for JSON, each with a ``text``."""
    asked = experiment.analysis
    return [*_analyse(experiment, asked, rows)] if asked else []


def _analyse(experiment: Experiment, asked: Analysis, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for place in dict.fromkeys(row.case.get(asked.within) for row in rows):
        mine = [row for row in rows if row.case.get(asked.within) == place]
        if asked.compare:
            found = variance([row.values for row in mine])
            if found:
                yield {"within": place, "anova": found, "text": f"{experiment.label(place)}: {_told(found)}"}
        for names in asked.correlate:
            pairs = [tuple(row.figures.get(name) for name in names) for row in mine]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            found = correlation(known)
            if found:
                both = " with ".join(experiment.table.head(name)[0] for name in names)
                low, high = found["ci95"] or (None, None)
                interval = "no interval" if low is None else f"CI95 {low:.2f} to {high:.2f}"
                text = (
                    f"{experiment.label(place)}: correlation of {both} {found['r']:.2f} (n = {found['n']}, {interval})"
                )
                yield {"within": place, "figures": list(names), "correlation": found, "text": text}


def variance(groups: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """One-way analysis of variance; None with fewer than two groups of two values, or where nothing varies."""
    arrays = [np.asarray(group, np.float64) for group in groups if len(group) > 1]
    if len(arrays) < 2 or all(np.ptp(each) == 0 for each in arrays):
        return None
    together = np.concatenate(arrays)
    between = sum(len(each) * (each.mean() - together.mean()) ** 2 for each in arrays)
    total = float(((together - together.mean()) ** 2).sum())
    degrees = len(arrays) - 1, len(together) - len(arrays)
    error = (total - between) / degrees[1]
    f, p = stats.f_oneway(*arrays)
    return {
        "f": float(f),
        "p": float(p),
        "df": list(degrees),
        "eta_squared": float(between / total),
        "omega_squared": float((between - degrees[0] * error) / (total + error)),
    }


def _told(found: dict[str, Any]) -> str:
    return (
        f"F({found['df'][0]}, {found['df'][1]}) = {found['f']:.1f}, p {formatting.p(found['p'])}, eta squared "
        f"{found['eta_squared']:.2f}, omega squared {found['omega_squared']:.2f}; single values, taken for independent"
    )


def correlation(pairs: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """Pearson's r with Fisher's CI95 (none with fewer than four pairs); None if it is not defined."""
    if len(pairs) < 3:
        return None
    a, b = np.asarray(pairs, np.float64).T
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    r = float(np.corrcoef(a, b)[0, 1])
    ci95 = None
    if len(pairs) > 3 and abs(r) < 1:
        half = 1.96 / math.sqrt(len(pairs) - 3)
        ci95 = [math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)]
    return {"r": r, "n": len(pairs), "ci95": ci95}
