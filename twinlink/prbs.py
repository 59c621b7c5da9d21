"""Lists of PRBs as people write them: ``0-3,50``."""

from collections.abc import Iterable


def parse_prbs(text: str) -> frozenset[int]:
    """``"0-3,50"`` as a set; empty text is the empty set.  Raises ValueError."""
    prbs: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"{part!r} is neither a PRB nor a range of PRBs, as in 0-3,50")
        prbs.update(range(int(first), int(last) + 1))
    return frozenset(prbs)


def format_prbs(prbs: Iterable[int]) -> str:
    """The inverse of `parse_prbs`, for people: ``"0-3,50"``; empty for none."""
    runs: list[list[int]] = []
    for prb in sorted(prbs):
        if runs and prb == runs[-1][1] + 1:
            runs[-1][1] = prb
        else:
            runs.append([prb, prb])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
