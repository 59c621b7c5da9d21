"""Numbers, times, payloads and lists as text for a person."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from textwrap import wrap

SEPARATED = 10_000  # from which on `grouped` separates thousands

LOPSIDED = 1.5  # ratio of an interval's sides from which on both are printed

_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3))


def payload(octets: int) -> str:
    """As in the paper, K = 1024: "100 B", "10 KB", "1 MB"."""
    for unit, size in (("MB", 1 << 20), ("KB", 1 << 10)):
        if octets >= size:
            return f"{octets / size:g} {unit}" if octets % size == 0 else f"{octets / size:.1f} {unit}"
    return f"{octets} B"


def ms(value_ns: float | None) -> str:
    """A time in ms without its unit, to about three digits."""
    if value_ns is None:
        return "-"
    return decimal(value_ns / 1e6)


def decimal(value: float) -> str:
    """A figure to about three digits, without an exponent."""
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.01 else 4}f}"


def time(value_ns: float) -> str:
    """A time with the unit that suits it."""
    unit, one = _unit(value_ns)
    return f"{value_ns:.0f} ns" if one == 1 else f"{decimal(value_ns / one)} {unit}"


def grouped(value: float) -> str:
    """As `decimal`; 0 without digits, and thousands separated from 10,000 on."""
    return "0" if value == 0 else f"{value:,.0f}" if abs(value) >= SEPARATED else decimal(value)


def around(value: float, low: float, high: float, short: bool = False) -> str:
    """A figure and how far its interval reaches: "1.23 ±0.04", or "1.23 -0.02 +0.30" where that is not alike.

    `short` gives only the farther end, unless that would reach below 0 and the interval does not.
    """
    shown = grouped(value)
    digits = len(shown.partition(".")[2])
    below, above = max(0.0, value - low), max(0.0, high - value)
    farther = max(below, above)
    if (short or farther <= LOPSIDED * min(below, above)) and not value - farther < 0 <= low:
        return f"{shown} ±{farther:.{digits}f}"
    return f"{shown} -{below:.{digits}f} +{'∞' if math.isinf(above) else f'{above:.{digits}f}'}"


def within(value_ns: int, bound_ns: float) -> str:
    """A time and its bound, both to the bound's third digit, such as "-4.999 812 3 s ± 24.7 µs"."""
    unit, one = _unit(max(abs(value_ns), bound_ns))
    decimals = len(str(one)) - 1 - max(0, len(str(int(bound_ns))) - 3)
    whole, dot, fraction = f"{Decimal(value_ns) / one:+.{max(0, decimals)}f}".partition(".")
    return f"{whole}{dot}{' '.join(wrap(fraction, 3))} {unit} ± {time(bound_ns)}"


def _unit(value_ns: float) -> tuple[str, int]:
    """The unit that suits a time, and its number of ns."""
    return next((each for each in _UNITS if abs(value_ns) >= each[1]), ("ns", 1))


def p(value: float | None) -> str:
    """The p-value of a test."""
    return "-" if value is None else "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def between(values_ns: Iterable[float | None]) -> str:
    """The least and the greatest of some times, such as "1 µs to 2 ms"; None is skipped."""
    known = sorted(value for value in values_ns if value is not None)
    texts = list(dict.fromkeys(time(value) for value in (known[:1] + known[-1:])))
    return " to ".join(texts) or "not known"


def date(value_ns: int) -> str:
    """An instant, to the minute, in UTC."""
    return datetime.fromtimestamp(value_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")


def listed(items: Iterable[str]) -> str:
    """ "a, b and c"."""
    *first, last = list(items) or [""]
    return f"{', '.join(first)} and {last}" if first else last
