"""Recurring spectral segments: runs of adjacent PRBs with one level between two steps of power.

A lone transmission shows in a record as a segment.  Grants move, so a UE hardly has the same first PRB, end and level
twice; an interferer has them whenever no UE covers it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array, borders

WEAKEST = 1.1  # log power relative to the noise floor
SAME = 0.5  # log power within which two segments have the same level
MOSTLY = 0.7  # of the records that show a segment have it at one level, at least: a static UE fades
FEWEST = 5  # records that show a segment
ROUGH = -12.0  # LLR of a UE, summed over a segment's records, below which it is noise
APART = 2  # records between two dwells
AWAY = 8  # free records between two occasions, at least: a weak UE that fades is absent for some records
NOTHING = 0.6  # log power of a free PRB, at most
LOWER = 0.9  # log power below the level at which the segment is absent
WHOLE = 0.9  # of the records: a static segment that was present before
SEEN = 1 / 3  # of the records that a segment lasted show it
FEW = 8  # edges
CHANCE = 5e-3  # probability that a UE's segment recurs as often and lasts as long
WIDEST = 0.25  # of the carrier; the number of narrower segments estimates the number of different grants
SELDOM = 20  # weight of the prior on how often segments of UEs recur, in segments
ALONE = 0.25  # of the records that show a segment have free PRBs beside it, on either side
STEADY = 0.9  # of the records that show a frequent segment have it at its level or with a UE on top
BENEFIT = 3.0  # LLR of a UE on the outer PRBs of a segment, above which they are cut off
OFTEN = 5  # occasions, and ...
RIVALS = 2  # ... as a multiple of those of any other segment of at least the same width
SHOWN = 12  # records that show the segment
OWN = 1 / 3  # of the segments with the same first PRB, and of those with the same end, are this one: grants change
OLD = 0.25  # of the records have a border at a place: a static UE is there
MOVING = 0.3  # of the borders elsewhere are at such places, at most, where UEs move


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was observed more than once.

    Attributes:
        first, end: its PRBs are ``first`` to ``end - 1``.
        records: indices of the records that show it, shape ``(shown,)``.
        occasions: how often it came; 0 if it does not keep its level, or is part of a wider one.
        ue_llr: LLR of a UE in nats, summed over these records.
        lasted: number of records, including those between them in which a UE may have been on top.
        came: whether it was absent in the first record.
    """

    first: int
    end: int
    records: NDArray[np.intp]
    occasions: int
    ue_llr: float
    lasted: int
    came: bool

    def disjoint(self, other: "Segment") -> bool:
        """Whether both have no PRB in common."""
        return self.end <= other.first or other.end <= self.first


def recurring_segments(log_power: Array, ue_llr: Array, rough: bool) -> list[Segment]:
    """Segments that are not a UE's.

    Args:
        log_power: relative to the noise floor, in nats, shape ``(records, n_prbs)``.
        ue_llr: LLR of a UE against noise for each PRB by itself, in nats, same shape.
        rough: whether UEs are as rough as noise.
    """
    border = borders(log_power)
    found, every = find(log_power, ue_llr, border)
    events = border[:, 1:-1].sum(axis=0)
    answer: list[Segment] = []

    def add(segments: list[Segment]) -> None:
        for each in sorted(segments, key=lambda each: -len(each.records) * (each.end - each.first)):
            # Overlapping segments are parts of a larger one.  Every UE beside an interferer has a border there.
            ends = {end for other in answer for end in (other.first, other.end)}
            if all(each.disjoint(other) for other in answer) and not ends & {each.first, each.end}:
                answer.append(each)

    if not rough:
        add([each for each in found if each.ue_llr < ROUGH])
    found = [each for each in found if _keeps_its_ends(each, every) and each.end - each.first < log_power.shape[1]]
    if rough:
        add(_lasting(found, border))
    often = []
    for each in found:
        wide = [other for other in found if other.disjoint(each) and other.end - other.first >= each.end - each.first]
        elsewhere = events.copy()
        elsewhere[max(each.first - 1, 0) : each.end] = 0
        static = elsewhere[elsewhere > OLD * len(border)].sum()
        moving = static <= MOVING * elsewhere.sum()
        enough = each.occasions >= max([OFTEN] + [RIVALS * other.occasions for other in wide])
        if enough and moving and len(each.records) >= SHOWN:
            often.append(each)
    add(often)
    return answer


def find(log_power: Array, ue_llr: Array, border: NDArray[np.bool_]) -> tuple[list[Segment], NDArray[np.intp]]:
    """Find segments.

    Args:
        log_power, ue_llr: as of `recurring_segments`, shape ``(records, n_prbs)``.
        border: of `likelihoods.borders`, shape ``(records, n_prbs + 1)``.

    Returns:
        Segments that at least `FEWEST` records show; and for every segment its first PRB, its end, and the number of
        records that show it, shape ``(segments, 3)``.
    """
    n_prbs = log_power.shape[1]
    records, places = np.nonzero(border)
    same = records[1:] == records[:-1]
    record, first, end = records[:-1][same], places[:-1][same], places[1:][same]
    levels = np.cumsum(np.pad(log_power, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    level = (levels[record, end] - levels[record, first]) / (end - first)
    key = first * (n_prbs + 1) + end
    loud = level > WEAKEST
    record, level, key = record[loud], level[loud], key[loud]
    order = np.argsort(key, kind="stable")
    keys, starts, counts = np.unique(key[order], return_index=True, return_counts=True)
    segments = []
    for k in np.flatnonzero(counts >= FEWEST):
        mine = order[starts[k] : starts[k] + counts[k]]
        middle = np.median(level[mine])
        near = record[mine[np.abs(level[mine] - middle) < SAME]]
        if len(near) < max(FEWEST, MOSTLY * counts[k]):
            continue
        a, b = divmod(int(keys[k]), n_prbs + 1)
        mean = (levels[:, b] - levels[:, a]) / (b - a)
        # A UE that fades loses its level and its borders, too, but is hardly ever absent.
        away = np.cumsum(mean < NOTHING)
        shown = np.sort(record[mine])
        occasions = 1 + int((np.diff(away[shown]) >= AWAY).sum())
        # Its channel has steps at the same places again, but the UE is also on the other side of them.
        beside = [log_power[near, place] for place in (a - 1, b) if 0 <= place < n_prbs]
        alone = all((power < NOTHING).mean() >= ALONE for power in beside)
        if not alone or (level[mine] > middle - SAME).sum() < STEADY * counts[k]:
            occasions = 0
        gone = np.cumsum(mean < middle - LOWER)[near]
        dwells = np.split(near, np.flatnonzero(np.diff(gone) >= APART) + 1)
        lasted = sum(int(dwell[-1] - dwell[0]) + 1 for dwell in dwells)
        segments.append(_trimmed(a, b, near, occasions, ue_llr, lasted, bool(gone[0] >= APART)))
    return segments, np.stack([*np.divmod(keys, n_prbs + 1), counts], axis=1)


def _keeps_its_ends(segment: Segment, every: NDArray[np.intp]) -> bool:
    """Whether it is not one of the many segments that a scheduler causes which packs UEs from one PRB on."""
    first, end, count = every.T
    same_first, same_end = first == segment.first, end == segment.end
    own = count[same_first & same_end].sum()
    return bool(own >= OWN * max(count[same_first].sum(), count[same_end].sum()))


def _lasting(segments: list[Segment], border: NDArray[np.bool_]) -> list[Segment]:
    """Segments that lasted longer, or came more often, than the UEs' segments do."""
    edges = _edges(border)
    moving = []
    for each in segments:
        if not each.came and each.lasted > WHOLE * len(border):
            edges = edges[(edges[:, 0] < each.first) | (edges[:, 0] > each.end)]
        elif each.occasions:
            moving.append(each)
    # Each grant has two edges; two grants have the same PRBs only by coincidence.
    likely = min(1, len(edges) / 2 / (WIDEST * border.shape[1] ** 2))
    shown = [each for each in moving if len(each.records) >= SEEN * each.lasted]
    return [each for each in shown if _p_value(each, moving, edges, likely) < CHANCE]


def _edges(border: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Place of each border, and the number of records that it lasted, shape ``(edges, 2)``."""
    lasting = border[:, 1:-1].copy()
    lasting[1:-1] |= lasting[2:] & lasting[:-2]  # noise hides a border in a single record
    place, record = np.nonzero(np.diff(lasting.T.astype(np.int8), prepend=0, append=0))
    return np.stack([place[::2] + 1, record[1::2] - record[::2]], axis=1)


def _p_value(segment: Segment, moving: list[Segment], edges: NDArray[np.intp], likely: float) -> float:
    """Probability that a UE's segment comes as often and lasts as long.

    The durations of grants are taken from their edges, because fading and other UEs divide the segments.  With
    exponentially distributed durations, another one is ``ratio`` times as long as the second longest of ``n`` with
    probability ``k / (k + ratio)``, multiplied over ``k`` from 2 to ``n``; an upper limit on the durations makes it
    smaller.  The longest is left out because it may be another interferer's.

    Args:
        moving: all segments that are not static.
        edges: place and duration in records of each border, shape ``(edges, 2)``.
        likely: probability that a segment of a UE recurs by coincidence.
    """
    if segment.lasted <= FEWEST:
        return 1.0
    more = edges[:, 1] > 1  # noise causes edges of one record
    place, lasted = edges[more & (edges[:, 0] != segment.first) & (edges[:, 0] != segment.end)].T
    if len(lasted) < FEW and (lasted <= FEWEST).all():
        return 0.0  # no other transmission moves
    total = np.bincount(place, weights=lasted, minlength=2)
    lasted = np.sort(lasted[total[place] < np.sort(total)[-2]])[::-2]  # without the longest one's two edges
    ratio = segment.lasted / lasted.max(initial=1)
    rare = np.log1p(ratio / np.arange(2, len(lasted) + 2)).sum()  # minus the logarithm of the probability
    several = 1 + np.cumprod(rare / np.arange(1, segment.occasions)).sum()  # the sum of several dwells (Erlang)
    others = [other.occasions for other in moving if other.disjoint(segment)]
    again = (sum(others) - len(others) + SELDOM * likely) / (sum(others) + SELDOM)
    return float(again ** (segment.occasions - 1) * several * np.exp(-rare))


def _trimmed(
    first: int, end: int, records: NDArray[np.intp], occasions: int, ue_llr: Array, lasted: int, came: bool
) -> Segment:
    """A segment without outer PRBs that look like a UE's: a UE of the same level may be adjacent."""
    each = ue_llr[records, first:end].sum(axis=0)
    start, stop = _smooth_end(each), len(each) - _smooth_end(each[::-1])
    if each[start:stop].sum() < ROUGH:
        first, end, each = first + start, first + stop, each[start:stop]
    return Segment(first, end, records, occasions, float(each.sum()), lasted, came)


def _smooth_end(ue_llr: Array) -> int:
    """The number of first PRBs that together look like a UE's; ``ue_llr`` of shape ``(prbs,)``."""
    total = np.cumsum(ue_llr)
    best = int(np.argmax(total))
    return best + 1 if total[best] > BENEFIT else 0
