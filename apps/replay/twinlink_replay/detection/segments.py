"""Boxes: runs of adjacent PRBs with one level between two steps of power, and those of them that come back or last.

What transmits alone shows in a record as a box.  Grants move, so that a UE hardly has the same first PRB, end and level
twice; an interferer has, whenever no UE covers it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array, borders

WEAKEST = 1.1  # log power against the floor
SAME = 0.5  # log power within which a box is the same again
MOSTLY = 0.7  # of the records that show a box have to show it at one level: a UE that stays put fades
FEWEST = 5  # records that show a box
ROUGH = -12.0  # nats that the texture of a box says for a UE, summed up, to call it noise
APART = 2  # records between two stays
AWAY = 8  # records without anybody between two occasions: a weak UE that fades is gone for some
NOTHING = 0.6  # log power
LOWER = 0.9  # log power below its level: it is not there
WHOLE = 0.9  # of the records: a box that was there before and stays put
SEEN = 1 / 3  # of the records that a box lasted show it
FEW = 8  # edges
CHANCE = 5e-3  # that a UE's box comes so often and lasts so long; there are few that keep their level and ends
WIDEST = 0.25  # of the carrier: grants may have as many different PRBs as there are boxes that are not wider
SELDOM = 20  # boxes; fewer tell less about how often UEs' come back than chance does
ALONE = 0.25  # of the records that show a box have nothing beside it, on either side
STEADY = 0.9  # of the records that show a box that comes often show it at its level or with somebody on top
BENEFIT = 3.0  # nats that PRBs at a box's end have to look like a UE's not to belong to it
OFTEN = 5  # occasions, and ...
RIVALS = 2  # ... so many times as often as any other box that is not narrower
SHOWN = 12  # records that show it
OWN = 1 / 3  # of the boxes that begin where it does are it, and of those that end there: a UE's grants change
OLD = 0.25  # of the records that have a border at a place: somebody stays put there
MOVING = 0.3  # of the borders elsewhere are at most at such places where UEs move


@dataclass(frozen=True, slots=True)
class Segment:
    """A box that was seen more than once.

    Attributes:
        first, end: its PRBs are ``first`` to ``end - 1``.
        records: those that show it.
        occasions: how often it came; 0 if it does not keep its level, or is a part of something wider.
        look: what the texture of these says for a UE, summed up.
        lasted: records, with those between them in which somebody may have been on top.
        came: whether it was not there from the first record on.
    """

    first: int
    end: int
    records: NDArray[np.intp]
    occasions: int
    look: float
    lasted: int
    came: bool

    def beside(self, other: "Segment") -> bool:
        """Whether both have no PRB in common."""
        return self.end <= other.first or other.end <= self.first


def recurring_segments(log_power: Array, look: Array, rough: bool) -> list[Segment]:
    """Boxes that are no UE's; arguments of shape ``(records, n_prbs)``.

    Args:
        log_power: against the floor.
        look: what each PRB's texture says for a UE against noise, in nats.
        rough: whether UEs are as rough as noise.
    """
    border = borders(log_power)
    found, every = find(log_power, look, border)
    events = border[:, 1:-1].sum(axis=0)
    answer: list[Segment] = []

    def add(boxes: list[Segment]) -> None:
        for box in sorted(boxes, key=lambda box: -len(box.records) * (box.end - box.first)):
            # What is left are pieces of it.  Beside an interferer every UE has a border.
            ends = {end for other in answer for end in (other.first, other.end)}
            if all(box.beside(other) for other in answer) and not ends & {box.first, box.end}:
                answer.append(box)

    if not rough:
        add([box for box in found if box.look < ROUGH])
    found = [box for box in found if _keeps_its_ends(box, every) and box.end - box.first < log_power.shape[1]]
    if rough:
        add(_lasting(found, border))
    often = []
    for box in found:
        wide = [other for other in found if other.beside(box) and other.end - other.first >= box.end - box.first]
        elsewhere = events.copy()
        elsewhere[max(box.first - 1, 0) : box.end] = 0
        put = elsewhere[elsewhere > OLD * len(border)].sum()
        moving = put <= MOVING * elsewhere.sum()
        enough = box.occasions >= max([OFTEN] + [RIVALS * other.occasions for other in wide])
        if enough and moving and len(box.records) >= SHOWN:
            often.append(box)
    add(often)
    return answer


def find(log_power: Array, look: Array, border: NDArray[np.bool_]) -> tuple[list[Segment], NDArray[np.intp]]:
    """Boxes that some records show; and of any box at all first PRB, end, and how many records show it."""
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
    boxes = []
    for k in np.flatnonzero(counts >= FEWEST):
        mine = order[starts[k] : starts[k] + counts[k]]
        middle = np.median(level[mine])
        near = record[mine[np.abs(level[mine] - middle) < SAME]]
        if len(near) < max(FEWEST, MOSTLY * counts[k]):
            continue
        a, b = divmod(int(keys[k]), n_prbs + 1)
        mean = (levels[:, b] - levels[:, a]) / (b - a)
        # A UE that fades loses its level and its borders too, but is hardly ever gone.
        away = np.cumsum(mean < NOTHING)
        shown = np.sort(record[mine])
        occasions = 1 + int((np.diff(away[shown]) >= AWAY).sum())
        # Its channel has steps at the same places again, but with the UE on their other sides.
        beside = [log_power[near, place] for place in (a - 1, b) if 0 <= place < n_prbs]
        alone = all((power < NOTHING).mean() >= ALONE for power in beside)
        if not alone or (level[mine] > middle - SAME).sum() < STEADY * counts[k]:
            occasions = 0
        gone = np.cumsum(mean < middle - LOWER)[near]
        stays = np.split(near, np.flatnonzero(np.diff(gone) >= APART) + 1)
        lasted = sum(int(stay[-1] - stay[0]) + 1 for stay in stays)
        boxes.append(_noisiest(a, b, near, occasions, look, lasted, bool(gone[0] >= APART)))
    return boxes, np.stack([*np.divmod(keys, n_prbs + 1), counts], axis=1)


def _keeps_its_ends(box: Segment, every: NDArray[np.intp]) -> bool:
    """Whether it is not one of the many that UEs make which are put one beside the other from one place on."""
    first, end, count = every.T
    begin_there, end_there = first == box.first, end == box.end
    own = count[begin_there & end_there].sum()
    return bool(own >= OWN * max(count[begin_there].sum(), count[end_there].sum()))


def _lasting(boxes: list[Segment], border: NDArray[np.bool_]) -> list[Segment]:
    """Boxes that were there for longer, or came more often, than UEs' are here."""
    edges = _edges(border)
    moving = []
    for box in boxes:
        if not box.came and box.lasted > WHOLE * len(border):
            edges = edges[(edges[:, 0] < box.first) | (edges[:, 0] > box.end)]
        elif box.occasions:
            moving.append(box)
    # Each grant has two edges; if it has the PRBs of another one, it is by chance.
    likely = min(1, len(edges) / 2 / (WIDEST * border.shape[1] ** 2))
    shown = [box for box in moving if len(box.records) >= SEEN * box.lasted]
    return [box for box in shown if _chance(box, moving, edges, likely) < CHANCE]


def _edges(border: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Place of each border, and for how many records it was there, shape ``(edges, 2)``."""
    there = border[:, 1:-1].copy()
    there[1:-1] |= there[2:] & there[:-2]  # noise hides it in a single record
    place, record = np.nonzero(np.diff(there.T.astype(np.int8), prepend=0, append=0))
    return np.stack([place[::2] + 1, record[1::2] - record[::2]], axis=1)


def _chance(box: Segment, moving: list[Segment], edges: NDArray[np.intp], likely: float) -> float:
    """How likely a UE's box comes so often and lasts so long, if one is ``likely`` to come back by chance.

    How long grants last is seen from their edges, since fading and others take their boxes apart.  Were the lengths
    exponentially distributed, another one would be ``ratio`` times as long as the second longest of ``n`` with a chance
    of the product of ``k / (k + ratio)`` for ``k`` from 2 to ``n``; with an upper limit it is less.  The longest may be
    another interferer's.
    """
    if box.lasted <= FEWEST:
        return 1.0
    more = edges[:, 1] > 1  # in a single record noise makes them
    place, lasted = edges[more & (edges[:, 0] != box.first) & (edges[:, 0] != box.end)].T
    if len(lasted) < FEW and (lasted <= FEWEST).all():
        return 0.0  # nobody else moves
    total = np.bincount(place, weights=lasted, minlength=2)
    lasted = np.sort(lasted[total[place] < np.sort(total)[-2]])[::-2]  # without the longest one's two edges
    ratio = box.lasted / lasted.max(initial=1)
    rare = np.log1p(ratio / np.arange(2, len(lasted) + 2)).sum()  # minus the logarithm of the chance
    several = 1 + np.cumprod(rare / np.arange(1, box.occasions)).sum()  # as a sum of so many is longer (Erlang)
    others = [other.occasions for other in moving if other.beside(box)]
    again = (sum(others) - len(others) + SELDOM * likely) / (sum(others) + SELDOM)
    return float(again ** (box.occasions - 1) * several * np.exp(-rare))


def _noisiest(
    first: int, end: int, records: NDArray[np.intp], occasions: int, look: Array, lasted: int, came: bool
) -> Segment:
    """A box without those of its outer PRBs that look like a UE's, which may have the same level beside it."""
    each = look[records, first:end].sum(axis=0)
    start, stop = _smooth_end(each), len(each) - _smooth_end(each[::-1])
    if each[start:stop].sum() < ROUGH:
        first, end, each = first + start, first + stop, each[start:stop]
    return Segment(first, end, records, occasions, float(each.sum()), lasted, came)


def _smooth_end(look: Array) -> int:
    """How many of the first PRBs look like a UE's together."""
    total = np.cumsum(look)
    best = int(np.argmax(total))
    return best + 1 if total[best] > BENEFIT else 0
