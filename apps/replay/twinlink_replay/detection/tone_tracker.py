"""Tone tracking: links peaks of consecutive records into tracks of tones that sweep.

A sweeping tone occupies a subcarrier for one or two records, which is too short for `tone_hmm`.  But a peak at the
position that a track predicts is hardly coincidence: false peaks occur at most about once a record over the carrier.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .features import SUBCARRIERS_PER_PRB
from .likelihoods import Array

PEAK = 3.0  # nats for a tone, at least
WEAKEST = 1.1  # log power of the peak's PRB relative to the noise floor, at least
FIXED = 0.1  # share of the records with a peak on one subcarrier, above which the tone does not move
FASTEST = 40.0  # subcarriers a record
GAP = 4  # records without a peak in a track, at most; a UE may be on top
OFF = 2.0  # largest distance in subcarriers of a peak from its track, and ...
FOLLOW = 0.3  # ... the gain with which this distance corrects the speed
HIDDEN = 60  # records for which a UE may hide a track, at most
POINT, TURN = 30, 0.3  # records for the speed that predicts a hidden part; tolerance in subcarriers a record
FEWEST = 6  # peaks of a track
DENSE = 0.5  # of a track's records have a peak
FAR = 12  # subcarriers that a track moves, at least

Mask = NDArray[np.bool_]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ToneTrack:
    """A sweeping tone: its subcarrier is ``subcarriers[k]`` in record ``first + k``; intp, shape ``(records,)``."""

    first: int
    subcarriers: Places

    @property
    def prbs(self) -> Places:
        """Its PRB in each record, shape ``(records,)``."""
        return self.subcarriers // SUBCARRIERS_PER_PRB


class ToneTracker:
    """Takes the tone LLRs of records in order.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._n_prbs = n_prbs
        self._buffer: deque[Places] = deque()  # subcarriers of peaks

    def add(self, tone_llr: Array, log_power: Array) -> None:
        """Take in records.

        Args:
            tone_llr: of `PrbFeatures`, shape ``(records, n_prbs, 12)``.
            log_power: relative to the noise floor, in nats, shape ``(records, n_prbs)``.
        """
        best = tone_llr.argmax(axis=2)
        highest = np.take_along_axis(tone_llr, best[..., None], 2)[..., 0]
        for peaks, places in zip((highest > PEAK) & (log_power > WEAKEST), best, strict=True):
            prbs = np.flatnonzero(peaks)
            self._buffer.append(prbs * SUBCARRIERS_PER_PRB + places[prbs])

    def smooth(self, count: int) -> tuple[list[ToneTrack], Places, Mask]:
        """Track tones through the first ``count`` buffered records, numbered from 0.

        Returns:
            Tracks of tones that moved, the PRBs of tones that did not, and which PRBs have a peak, bool, shape
            ``(count, n_prbs)``.
        """
        buffered = list(islice(self._buffer, count))
        record = np.repeat(np.arange(count), [len(places) for places in buffered])
        place = np.concatenate(buffered).astype(np.intp)
        fixed = np.bincount(place, minlength=1) > FIXED * count
        moving = ~fixed[place]
        peaks = np.zeros((count, self._n_prbs), bool)
        peaks[record, place // SUBCARRIERS_PER_PRB] = True
        return link(record[moving], place[moving]), np.flatnonzero(fixed) // SUBCARRIERS_PER_PRB, peaks

    def drop_records(self, count: int) -> None:
        """Drop the first ``count`` buffered records: their smoothed answers are final."""
        for _ in range(count):
            self._buffer.popleft()


def link(record: Places, place: Places) -> list[ToneTrack]:
    """Link peaks into tracks.

    Args:
        record: record of each peak, ascending, shape ``(peaks,)``.
        place: subcarrier of each peak, same shape.
    """
    n = len(record)
    before = np.full(n, -1)
    length = np.ones(n, int)
    speed = np.zeros(n)
    starts = np.searchsorted(record, record - GAP)
    ends = np.searchsorted(record, record)
    for k in range(n):
        earlier = slice(starts[k], ends[k])
        if earlier.start == earlier.stop:
            continue
        apart = record[k] - record[earlier]
        pace = (place[k] - place[earlier]) / apart
        off = np.where(length[earlier] > 1, (pace - speed[earlier]) * apart, 0)
        near = (np.abs(off) <= OFF) & (np.abs(pace) <= FASTEST)
        if not near.any():
            continue
        best = int(np.argmax(np.where(near, length[earlier] - 0.2 * np.abs(off), -1)))
        j = earlier.start + best
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
    """Join tracks that continue where an earlier one points to: a UE was on top between them."""
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
    """Add the tracks of sweeping tones to ``found``, and remove its traces just before and after them.

    Args:
        found: interfered cells from the other methods, which assume that a tone below a UE stays; bool, shape
            ``(records, n_prbs)``.
        sure: cells of ``found`` that are never removed, same shape.
        tracks: of sweeping tones.

    Returns:
        bool, same shape.
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
            # A run of cells that touches the track is its trace.
            run = np.cumsum(np.diff(answer[while_on, prb] | where[:, prb], prepend=False))
            trace = np.isin(run, run[where[:, prb]])
            answer[while_on, prb] &= ~trace | sure[while_on, prb]
    return answer | on
