"""The peer's clock against ours: offset, skew, and their bounds.

An exchange has four timestamps (RFC 5905 section 8): T1, the message leaves; T2, it arrives; T3, the answer leaves; T4,
the answer arrives.  T1 and T4 are on our clock, T2 and T3 on the peer's.  With ``offset`` the peer's clock minus ours::

    T2 - T1 = offset + delay there          T3 - T4 = offset - delay back

No delay is negative, so T3 - T4 <= offset <= T2 - T1.  Every exchange bounds the offset by an interval as wide as its
network round trip; all of them, with drift removed, by the intersection.  Timestamps cannot tell where in it the true
offset is: an asymmetric path looks like an offset.  The estimate assumes that the quickest exchanges take equally long
both ways; the bound reaches to the farther end of the interval, for any path, and is at least half of the least network
round trip.  It assumes that clocks keep their rates between steps: a change within the intervals cannot be detected.

Method:

1. *Steps.*  Two exchanges with disjoint intervals, although `MAX_DRIFT` is granted between them, mean that a clock
   was set.  Each segment between steps is estimated separately.
2. *Skew.*  A weighted Theil-Sen line, which tolerates a third of outliers, through the least delays of each leg in up
   to 64 windows (minimum-delay filter, RFC 5905 section 10).  The slope is adopted only if scatter and a changing
   asymmetry do not explain it, and a clock can have it.
3. *Offset.*  With the slope removed, half the difference of both legs' least delays, of each twenty exchanges; then the
   mean of these, weighted so that the quickest decide: a group that takes a tenth longer has a third of the weight.
   The least delay of all would be an outlier of one leg.

The line's slope and the clocks' drift are those of C. Sen (1968), H. Theil (1950) and S. Moon et al., "Estimation and
removal of clock skew from network delay measurements" (INFOCOM 1999); intervals as in K. Marzullo (1984).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

METHOD = "minimum-delay filter per leg, Theil-Sen line, bound from the causal interval"
MAX_DRIFT = 500e-6  # s/s between two clocks: two crystals of 100 ppm, or one that the kernel slews (adjtimex(2))
WINDOWS = 64
WINDOW = 50  # exchanges; fewer where there are few
GROUP = 20  # exchanges of which the least delay of each leg is taken
QUICKEST = 0.05  # of the groups have equal weight: a single one may be an outlier
STEEPNESS = 12  # the others' weight falls with this power of how much longer they took
_SIGNIFICANT = 3.0  # standard errors that make a slope ...
_VISIBLE = 0.5  # ... if over the run it amounts to this share of the bound: less may be a changing asymmetry
LATEST_NS = 2**62  # in the year 2116; differences of values in [0, LATEST_NS) fit into 64-bit integers
_CHUNK = 8192

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of time in which no clock was set: offset = offset_ns + skew x (t - origin_ns).

    Attributes:
        first_ns, last_ns: from the first exchange to the last, Unix time on our clock.
        peer_first_ns, peer_last_ns: the same on the peer's clock; an exchange that the peer began starts earlier there.
        origin_ns, offset_ns: the offset (peer minus ours) at one instant.
        skew: rate of the peer's clock against ours minus 1, s/s; 0 where ``skew_known`` is false.
        skew_known: whether drift is significant against scatter.
        linear: whether a line fits into all intervals; if not, a clock is being slewed, or wanders.
        n: exchanges.
    """

    first_ns: int
    last_ns: int
    peer_first_ns: int
    peer_last_ns: int
    origin_ns: int
    offset_ns: float
    skew: float
    skew_known: bool
    linear: bool
    n: int
    _bound_times: Floats = field(repr=False)  # since origin_ns, ascending
    _bounds: Floats = field(repr=False)

    def offset_at(self, t_ns: NDArray[Any]) -> Floats:
        """Peer minus ours, in ns."""
        return np.asarray(self.offset_ns + self.skew * (t_ns - self.origin_ns), np.float64)

    def bound_at(self, t_ns: NDArray[Any]) -> Floats:
        """Bound of `offset_at`, in ns; it grows with `MAX_DRIFT` beyond the exchanges."""
        t, times = (t_ns - self.origin_ns).astype(np.float64), self._bound_times
        beyond = np.maximum(times[0] - t, 0) + np.maximum(t - times[-1], 0)
        return np.asarray(np.interp(t, times, self._bounds) + (MAX_DRIFT + abs(self.skew)) * beyond, np.float64)

    def reversed(self) -> "Segment":
        """The same as the peer sees it, on its clock."""
        return Segment(
            self.peer_first_ns,
            self.peer_last_ns,
            self.first_ns,
            self.last_ns,
            self.origin_ns + round(float(self.offset_at(np.array(self.origin_ns)))),
            -self.offset_ns,
            -self.skew / (1 + self.skew),
            self.skew_known,
            self.linear,
            self.n,
            self._bound_times * (1 + self.skew),
            self._bounds,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The peer's clock, over a run.

    Attributes:
        segments: in the order of the exchanges; more than one when a clock was set.
        n: exchanges used.
        negative: exchanges left out because their network round trip is negative: a clock was set between their
            timestamps.
    """

    segments: tuple[Segment, ...]
    n: int
    negative: int

    @property
    def main(self) -> Segment:
        """The segment with the most exchanges."""
        return max(self.segments, key=lambda segment: segment.n)

    @property
    def stepped(self) -> bool:
        """Whether a clock was set meanwhile."""
        return len(self.segments) > 1

    @property
    def steps(self) -> list[tuple[int, float]]:
        """Time (our clock, ns) and size (ns) of each step of the peer's clock against ours."""
        found = []
        for before, after in pairwise(self.segments):
            at = np.array(after.first_ns)
            found.append((after.first_ns, float(after.offset_at(at) - before.offset_at(at))))
        return found

    @property
    def offset_ns(self) -> float:
        """Peer minus ours in the middle of the main segment."""
        return float(self.main.offset_at(np.array((self.main.first_ns + self.main.last_ns) // 2)))

    @property
    def skew_ppm(self) -> float | None:
        """Skew of the peer's clock; None if it is not significant."""
        return self.main.skew * 1e6 if self.main.skew_known else None

    @property
    def bound_ns(self) -> float:
        """The largest bound within the main segment."""
        return float(self.main._bounds.max())

    def offset_at(self, t_ns: ArrayLike) -> Floats:
        """Peer minus ours, in ns, at Unix times of our clock."""
        return self._of_segment(t_ns, Segment.offset_at)

    def bound_at(self, t_ns: ArrayLike) -> Floats:
        """Bound of `offset_at`, in ns."""
        return self._of_segment(t_ns, Segment.bound_at)

    def _of_segment(self, t_ns: ArrayLike, figure: Any) -> Floats:
        t = np.asarray(t_ns, np.int64)
        found: Floats = figure(self.segments[0], t)
        for segment in self.segments[1:]:  # a segment holds until the next one begins
            found = np.where(t >= segment.first_ns, figure(segment, t), found)
        return found

    def reversed(self) -> "Estimate":
        """The same as the peer sees it: our clock minus its own, at times of its clock."""
        return Estimate(tuple(segment.reversed() for segment in self.segments), self.n, self.negative)

    def figures(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "offset_ns": round(self.offset_ns),
            "skew_ppm": self.skew_ppm,
            "bound_ns": round(self.bound_ns),
            "method": METHOD,
            "n": self.n,
            "linear": self.main.linear,
            "steps": [{"at_ns": at, "size_ns": round(size)} for at, size in self.steps],
            "negative": self.negative,
        }


def estimate(t1_ns: ArrayLike, t2_ns: ArrayLike, t3_ns: ArrayLike, t4_ns: ArrayLike) -> Estimate:
    """The peer's clock from exchanges in the order in which they were made; T1 to T4 in ns, one value each.

    Short messages are best: an asymmetry of the path shows as an offset.

    Raises:
        ValueError: the arrays differ in length or are empty, a time is below 0 or not below `LATEST_NS`, or every
            exchange has a negative network round trip.
    """
    t1, t2, t3, t4 = (np.asarray(values, np.int64) for values in (t1_ns, t2_ns, t3_ns, t4_ns))
    if not t1.shape == t2.shape == t3.shape == t4.shape or t1.ndim != 1 or not t1.size:
        raise ValueError(f"T1 to T4 must be four arrays of the same length, at least 1: {t1.shape}, {t2.shape}, ...")
    if min(t.min() for t in (t1, t2, t3, t4)) < 0 or max(t.max() for t in (t1, t2, t3, t4)) >= LATEST_NS:
        raise ValueError(f"T1 to T4 must be Unix time in ns, from 0 to below {LATEST_NS}")
    possible = (t4 - t1) - (t3 - t2) >= 0
    if not possible.any():
        raise ValueError(f"each of {t1.size} exchanges has a negative network round trip: the clocks are not steady")
    at = (t1 + (t4 - t1) // 2)[possible]
    begins, ends = np.minimum(t1, t4)[possible], np.maximum(t1, t4)[possible]
    peer_begins, peer_ends = np.minimum(t2, t3)[possible], np.maximum(t2, t3)[possible]
    # Each interval holds at an instant of its own within the exchange; until its middle the clocks may drift.
    slack = np.ceil(MAX_DRIFT / 2 * (ends - begins)).astype(np.int64) + 1
    upper, lower = (t2 - t1)[possible] + slack, (t3 - t4)[possible] - slack
    starts = [*_segment_starts(at, upper, lower), len(at)]
    segments = tuple(
        _segment(
            (int(begins[first]), int(ends[end - 1]), int(peer_begins[first]), int(peer_ends[end - 1])),
            at[first:end],
            upper[first:end],
            lower[first:end],
        )
        for first, end in pairwise(starts)
    )
    return Estimate(segments, len(at), int(t1.size - len(at)))


def pooled(parts: Iterable[tuple[NDArray[Any], bool]]) -> Estimate:
    """One estimate from the exchanges that both sides began.

    Args:
        parts: each an array of shape (4, n), T1 to T4, and whether the peer began them.

    Pooling removes the asymmetry between a message and its answer, because each path carries both.  Raises ValueError
    as `estimate` does.
    """
    # An exchange that the peer began is one of ours, too, with its answer as the forward leg.
    ours = [array[[2, 3, 0, 1]] if reverse else array for array, reverse in parts]
    together = np.concatenate(ours, axis=1) if ours else np.zeros((4, 0), np.int64)
    return estimate(*together[:, np.argsort(together[0] + (together[3] - together[0]) // 2, kind="stable")])


def _segment_starts(at: Ints, upper: Ints, lower: Ints) -> Iterator[int]:
    """Indices from which on the intervals no longer meet those since the last such index."""
    yield 0
    start = index = 0
    least, most = np.inf, -np.inf  # of the upper and lower ends, drift granted, since `start`
    while index < len(at):
        part = slice(index, index + _CHUNK)
        drift = MAX_DRIFT * (at[part] - at[start])
        high = np.minimum(np.minimum.accumulate(upper[part] - drift), least)
        low = np.maximum(np.maximum.accumulate(lower[part] + drift), most)
        apart = low - drift > high + drift
        if apart.any():
            start = index = index + int(apart.argmax())
            least, most = np.inf, -np.inf
            yield start
        else:
            least, most = high[-1], low[-1]
            index += _CHUNK


def _segment(ends_ns: tuple[int, int, int, int], at: Ints, upper: Ints, lower: Ints) -> Segment:
    n = len(at)
    origin = int(at[0])
    t = (at - origin).astype(np.float64)
    base = int(upper[0])  # offsets of years keep their nanoseconds
    high, low = (upper - base).astype(np.float64), (lower - base).astype(np.float64)
    starts = np.linspace(0, n, max(1, min(WINDOWS, max(n // WINDOW, min(n, 8)))) + 1).astype(int)[:-1]

    slope, scatter = _slope(t, high, low, starts)
    flat_fits = high.min() >= low.max()
    seen = abs(slope) * t[-1] > _VISIBLE * (high - low).min() / 2
    known = len(starts) >= 4 and ((abs(slope) > _SIGNIFICANT * scatter and seen) or not flat_fits)
    known = known and abs(slope) <= MAX_DRIFT
    slope = slope if known else 0.0
    high, low = high - slope * t, low - slope * t
    offset = _middle(high, low)
    linear = bool(high.min() >= low.max())
    if linear:
        offset = float(np.clip(offset, low.max(), high.min()))
    nodes = np.concatenate(([min(0.0, t[-1])], np.add.reduceat(t, starts) / np.diff([*starts, n]), [max(0.0, t[-1])]))
    nodes.sort()
    tops, bottoms = _best(-high, starts), _best(low, starts)
    above = _reach(nodes, t[tops], high[tops] - offset, t[bottoms], offset - low[bottoms], slope, linear)
    below = _reach(nodes, t[bottoms], offset - low[bottoms], t[tops], high[tops] - offset, slope, linear)
    # A clock that is slewed or set by less than this, and back, is not linear, but the intervals cannot show it.
    bounds = np.maximum(np.maximum(above, below), (high - low).min() / 2)
    return Segment(*ends_ns, origin, float(base + offset), float(slope), bool(known), linear, n, nodes, bounds)


def _slope(t: Floats, high: Floats, low: Floats, starts: NDArray[np.int_]) -> tuple[float, float]:
    """The weighted Theil-Sen slope through the windows' quickest exchanges, and its standard error."""
    count = len(starts)
    if count < 3:
        return 0.0, np.inf
    bounds = [*starts, len(t)]
    best = np.array(
        [first + int((high - low)[first:end].argmin()) for first, end in zip(starts, bounds[1:], strict=True)]
    )
    slope = _theil_sen(t[best], (high[best] + low[best]) / 2, (high[best] - low[best]))
    times = np.add.reduceat(t, starts) / np.diff(bounds)
    centre = float(times.mean())
    for _ in range(2):  # least delays can be compared only with the drift within the window removed
        drift = slope * (t - centre)
        top, bottom = np.minimum.reduceat(high - drift, starts), np.maximum.reduceat(low + -drift, starts)
        middles = (top + bottom) / 2 + slope * (times - centre)
        slope = _theil_sen(times, middles, np.maximum(top - bottom, 0))
    residuals = middles - slope * times
    residuals -= np.median(residuals)
    spread = 1.4826 * float(np.median(np.abs(residuals))) * np.sqrt(count / (count - 2))
    length = float(np.sqrt(((times - centre) ** 2).sum()))
    return slope, (1.25 * spread / length if length else np.inf)


def _theil_sen(times: Floats, values: Floats, widths: Floats) -> float:
    """The weighted median of the slopes of all pairs; distant pairs with narrow intervals have more weight."""
    first, second = np.triu_indices(len(times), 1)
    apart = times[second] - times[first]
    usable = apart > 0
    if not usable.any():
        return 0.0
    first, second, apart = first[usable], second[usable], apart[usable]
    slopes = (values[second] - values[first]) / apart
    weights = apart / (widths[first] + widths[second] + max(float(np.median(widths)), 1.0))
    order = np.argsort(slopes)
    cumulated = np.cumsum(weights[order])
    return float(slopes[order][np.searchsorted(cumulated, cumulated[-1] / 2)])


def _middle(high: Floats, low: Floats) -> float:
    """The offset of clocks that do not drift."""
    groups = np.linspace(0, len(high), max(1, len(high) // GROUP) + 1).astype(int)[:-1]
    tops, bottoms = np.minimum.reduceat(high, groups), np.maximum.reduceat(low, groups)
    widths = np.maximum(tops - bottoms, 1.0)
    least = float(np.quantile(widths, QUICKEST))
    weights = np.minimum(least / widths, 1.0) ** STEEPNESS
    return float(((tops + bottoms) / 2 * weights).sum() / weights.sum())


def _best(values: Floats, starts: NDArray[np.int_]) -> NDArray[np.int_]:
    """The index of the greatest value of each window."""
    ends = np.append(starts[1:], len(values))
    return np.array([first + int(values[first:end].argmax()) for first, end in zip(starts, ends, strict=True)])


def _reach(
    at: Floats, times: Floats, room: Floats, other_times: Floats, other_room: Floats, slope: float, line: bool
) -> Floats:
    """Greatest distance of the true offset from the estimate, to one side, at some instants.

    Exchanges limit it to ``room`` on this side at ``times`` and to ``other_room`` on the other side at ``other_times``.
    It changes by no more than the drift.  Where truth and estimate are both linear, it is linear, too: between two
    instants it is below the line through their room, and beyond an instant below the line that starts from the limit on
    the other side.
    """
    apart = at[:, None] - times
    least = (room + (MAX_DRIFT + abs(slope)) * np.abs(apart)).min(axis=1)
    if not line:
        return np.asarray(least, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = times - times[:, None]
        share = apart[:, :, None] / between  # of the way from the first instant to the second
        through = room[:, None] + share * (room - room[:, None])
        least = np.minimum(least, np.where((share >= 0) & (share <= 1), through, np.inf).min(axis=(1, 2)))
        between = times[:, None] - other_times
        share = apart[:, :, None] / between
        beyond = room[:, None] + share * (room[:, None] + other_room)
        least = np.minimum(least, np.where((share >= 0) & np.isfinite(share), beyond, np.inf).min(axis=(1, 2)))
    return np.asarray(least, np.float64)
