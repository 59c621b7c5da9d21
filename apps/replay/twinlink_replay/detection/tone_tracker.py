"""Tones that move: peaks of single records that line up, each some subcarriers on from the one before.

A tone that sweeps is on a subcarrier for a record or two, too short for `tone_hmm`, but a peak that comes where the
ones before it point to is hardly chance: a peak is seen once a record or less somewhere on the carrier where there is
none.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .likelihoods import Array

PEAK = 3.0  # nats that a peak says for a tone
WEAKEST = 1.1  # log power of its PRB against the floor
FIXED = 0.1  # of the records that have a peak on one subcarrier: a tone that does not move
FASTEST = 40.0  # subcarriers a record
GAP = 4  # records without a peak in a track; a UE may be on top
OFF = 2.0  # subcarriers that a peak may be off its track, and ...
FOLLOW = 0.3  # ... how much of that turns the track
HIDDEN = 60  # records that a UE may hide a track, which ...
POINT, TURN = 30, 0.3  # ... its speed over so many shows how to go on, within so many subcarriers a record
FEWEST = 6  # peaks of a track
DENSE = 0.5  # of a track's records have a peak
FAR = 12  # subcarriers that a track moves at least

Mask = NDArray[np.bool_]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ToneTrack:
    """Where a tone is in each of its records, which follow each other: ``subcarriers[k]`` in ``first + k``."""

    first: int
    subcarriers: Places

    @property
    def prbs(self) -> Places:
        """Its PRB in each record."""
        return self.subcarriers // SUBCARRIERS_PER_PRB


class ToneTracker:
    """Feed it what records say of each subcarrier, in order.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._n_prbs = n_prbs
        self._waiting: deque[Places] = deque()  # subcarriers of peaks

    def add(self, line: Array, log_power: Array) -> None:
        """Take in records: `PrbFeatures.line`, and the log power of PRBs against the floor, ``(records, n_prbs)``."""
        best = line.argmax(axis=2)
        fine = np.take_along_axis(line, best[..., None], 2)[..., 0]
        for peaks, places in zip((fine > PEAK) & (log_power > WEAKEST), best, strict=True):
            prbs = np.flatnonzero(peaks)
            self._waiting.append(prbs * SUBCARRIERS_PER_PRB + places[prbs])

    def smooth(self, count: int) -> tuple[list[ToneTrack], Places, Mask]:
        """What was in the first ``count`` records since `drop_records`, numbered from 0.

        Returns:
            Tones that moved, the PRBs of those that did not, and which PRBs have a peak, shape ``(records, n_prbs)``.
        """
        waiting = list(islice(self._waiting, count))
        record = np.repeat(np.arange(count), [len(places) for places in waiting])
        place = np.concatenate(waiting).astype(np.intp)
        fixed = np.bincount(place, minlength=1) > FIXED * count
        moving = ~fixed[place]
        peaks = np.zeros((count, self._n_prbs), bool)
        peaks[record, place // SUBCARRIERS_PER_PRB] = True
        return link(record[moving], place[moving]), np.flatnonzero(fixed) // SUBCARRIERS_PER_PRB, peaks

    def drop_records(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()


def link(record: Places, place: Places) -> list[ToneTrack]:
    """Tracks through peaks, given by record (in order) and subcarrier."""
    n = len(record)
    before = np.full(n, -1)
    length = np.ones(n, int)
    speed = np.zeros(n)
    starts = np.searchsorted(record, record - GAP)
    ends = np.searchsorted(record, record)
    for k in range(n):
        them = slice(starts[k], ends[k])
        if them.start == them.stop:
            continue
        apart = record[k] - record[them]
        pace = (place[k] - place[them]) / apart
        off = np.where(length[them] > 1, (pace - speed[them]) * apart, 0)
        near = (np.abs(off) <= OFF) & (np.abs(pace) <= FASTEST)
        if not near.any():
            continue
        best = int(np.argmax(np.where(near, length[them] - 0.2 * np.abs(off), -1)))
        j = them.start + best
        before[k], length[k] = j, length[j] + 1
        speed[k] = speed[j] + FOLLOW * off[best] / apart[best] if length[j] > 1 else pace[best]
    tracks = []
    used = np.zeros(n, bool)
    for last in np.argsort(-length, kind="stable"):
        if length[last] < FEWEST:
            break
        chain = []
        k = int(last)
        while k >= 0 and not used[k]:
            chain.append(k)
            k = int(before[k])
        if len(chain) < FEWEST:
            continue
        used[chain] = True
        chain.reverse()
        at, where = record[chain], place[chain]
        span = int(at[-1] - at[0]) + 1
        if len(chain) >= DENSE * span and abs(int(where[-1] - where[0])) >= FAR:
            between = np.interp(np.arange(at[0], at[-1] + 1), at, where)
            tracks.append(ToneTrack(int(at[0]), np.rint(between).astype(np.intp)))
    return join(tracks)


def join(tracks: list[ToneTrack]) -> list[ToneTrack]:
    """Those that go on where another one points to are one: a UE was on top between them."""
    joined: list[ToneTrack] = []
    for track in sorted(tracks, key=lambda track: track.first):
        for k, before in enumerate(joined):
            gap = track.first - before.first - len(before.subcarriers) + 1
            if not 0 < gap <= HIDDEN:
                continue
            ahead, back = _speed(before.subcarriers[-POINT:]), _speed(track.subcarriers[:POINT])
            step = float(track.subcarriers[0] - before.subcarriers[-1])
            if abs(step - ahead * gap) <= OFF + TURN * gap and abs(step - back * gap) <= OFF + TURN * gap:
                between = np.rint(before.subcarriers[-1] + step * np.arange(1, gap) / gap).astype(np.intp)
                joined[k] = ToneTrack(before.first, np.concatenate([before.subcarriers, between, track.subcarriers]))
                break
        else:
            joined.append(track)
    return joined


def _speed(places: Places) -> float:
    return float(places[-1] - places[0]) / max(len(places) - 1, 1)


def apply_tracks(found: Mask, sure: Mask, tracks: list[ToneTrack]) -> Mask:
    """``found``, shape ``(records, n_prbs)``, with tracks, and without what it has just before and after them.

    Args:
        found: what is known otherwise; it takes a tone below a UE to stay.
        sure: what of it is so.
        tracks: where tones moved.
    """
    answer = found.copy()
    on = np.zeros_like(found)
    for track in tracks:
        last = track.first + len(track.subcarriers)
        while_on = slice(track.first, last)
        where = np.zeros_like(found[while_on])
        where[np.arange(len(where)), track.prbs] = True
        on[while_on] |= where
        for prb in np.unique(track.prbs):
            # What touches the time that the tone was there is its trace.
            run = np.cumsum(np.diff(answer[while_on, prb] | where[:, prb], prepend=False))
            trace = np.isin(run, run[where[:, prb]])
            answer[while_on, prb] &= ~trace | sure[while_on, prb]
    return answer | on
