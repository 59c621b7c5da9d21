"""Whether what a paper found is found here, too: orderings of the figures of some cases, or their limits."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from twinlink.appkit import formatting

from .description import Experiment, Ordering
from .outcome import DONE, Row

FOUND, NOT_FOUND, OPEN, NOT_MEASURED = "found here", "not found here", "not decided here", "not measured here"


def judge(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A verdict for each ordering, ready for JSON."""
    return [_judge(experiment, ordering, rows) for ordering in experiment.orderings]


def _judge(experiment: Experiment, ordering: Ordering, rows: Sequence[Row]) -> dict[str, Any]:
    found: list[tuple[Any, Row, float]] = []
    unit = f" {experiment.table.head(ordering.figure)[1]}".rstrip()
    for value in ordering.order:
        wanted = {**ordering.where, ordering.by: value}
        row = next((each for each in rows if wanted.items() <= each.case.items()), None)
        figure = row.figures.get(ordering.figure) if row else None
        if row is None or figure is None or row.status != DONE:
            told = f"{experiment.told(ordering.by, value)} has no figure"
            return _verdict(ordering, NOT_MEASURED, told)
        found.append((value, row, figure))
    shown = [f"{experiment.told(ordering.by, value)}: {formatting.grouped(figure)}{unit}" for value, _, figure in found]
    if ordering.below is not None:
        told = f"{', '.join(shown)}; the limit is {ordering.below:g}{unit}"
        verdict = FOUND if all(figure < ordering.below for _, _, figure in found) else NOT_FOUND
        return _verdict(ordering, verdict, told)
    wrong = [pair for pair in pairwise(found) if pair[0][2] >= pair[1][2]]
    open_ = [pair for pair in pairwise(found) if ordering.figure == "mean" and _overlap(pair[0][1], pair[1][1])]
    if wrong and not all(pair in open_ for pair in wrong):
        verdict, told = NOT_FOUND, ", ".join(shown)
    elif open_:
        verdict, told = OPEN, f"{', '.join(shown)}; the intervals of the means overlap"
    else:
        verdict, told = FOUND, " < ".join(shown)
    return _verdict(ordering, verdict, told)


def _verdict(ordering: Ordering, verdict: str, told: str) -> dict[str, Any]:
    reason = "" if verdict in (FOUND, NOT_MEASURED) else ordering.reason
    return {"says": ordering.says, "verdict": verdict, "figures": told, "reason": reason}


def _overlap(one: Row, other: Row) -> bool:
    if one.ci95 is None or other.ci95 is None:
        return False
    return one.ci95[0] <= other.ci95[1] and other.ci95[0] <= one.ci95[1]
