"""Which PRBs carry interference, from four signs: `occupancy_hmm`, `envelope_kurtosis`, `tone_hmm` and `dwell_time`.

Then all records that wait are looked at together: `segments` finds what keeps its PRBs and its level,
`emitter_templates` tells when that, and what else was found, is on, and `tone_tracker` follows tones that move.

Transform-precoded UEs are as rough as noise; `dft_s_ofdm` tells them from it.  Where UEs are rough all the same (see
`ue_statistics`), texture, envelope and lines tell tones, chirps and pulses from them and no more.

Two answers: the *prompt* one from the past alone, for decisions; the *settled* one, per record, which also uses the
`settle_records` that follow, and so puts the edges where the change was.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .dft_s_ofdm import DftSOfdmTest, Kurtosis
from .dwell_time import DwellTimes
from .edge_alignment import align_edges
from .emitter_templates import EmitterTemplates
from .envelope_kurtosis import envelope
from .features import PrbFeatures
from .likelihoods import PrbLikelihoods, prb_likelihoods
from .min_inr import below_min_inr
from .noise_floor import NoiseFloor
from .occupancy_hmm import ALONE, FREE, OccupancyHmm
from .tone_hmm import ToneHmm
from .tone_tracker import ToneTracker, apply_tracks
from .ue_statistics import UeStatistics
from .underlay import Underlay

FILTERED_ON, FILTERED_OFF = 0.97, 0.2  # posterior; hysteresis of the prompt answer
SMOOTHED_AT = 0.4  # posterior; a missed PRB costs as much as a false one, and what UEs cover is underestimated
STEP = 16  # records weighed with one floor
BLOCK = 192  # records settled at once: more than come in the dozen steps that it takes, fewer than `STEP` each
DONE = object()


@dataclass(frozen=True, slots=True)
class Filtered:
    """Answers from the past alone, shape ``(records, n_prbs)``."""

    interfered: NDArray[np.bool_]
    occupied: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Final answers for records ``first`` to ``first + len(interfered) - 1``, counted from the detector's start.

    ``interfered``: an interferer is on the PRB, alone or below a UE.  ``occupied``: somebody transmits there.
    """

    first: int
    interfered: NDArray[np.bool_]
    occupied: NDArray[np.bool_]


class Detector:
    """Feed it the features of records in order.

    Args:
        n_prbs: PRBs in a record.
        settle_records: how many later records the settled answer uses at least.  Its lag is at most that, `BLOCK`,
            and the dozen times that records are added over which the work is spread.

    Attributes:
        floor: the noise floor in LSB^2, None before the first record.
    """

    def __init__(self, n_prbs: int, settle_records: int = 192) -> None:
        self.n_prbs = n_prbs
        self.settle_records = settle_records
        self.records = 0
        self._floor = NoiseFloor(n_prbs)
        self._occupancy_hmm, self._dwell_times, self._ue_statistics = (
            OccupancyHmm(n_prbs),
            DwellTimes(n_prbs),
            UeStatistics(n_prbs),
        )
        self._tone_hmm, self._tone_tracker, self._emitter_templates = (
            ToneHmm(n_prbs),
            ToneTracker(n_prbs),
            EmitterTemplates(),
        )
        self._underlay, self._dft_s_ofdm = Underlay(n_prbs), DftSOfdmTest(n_prbs)
        self._waiting = 0  # records not yet settled
        # Not yet settled; with the kurtosis as long as that is not told.
        self._recent: deque[tuple[PrbLikelihoods, Kurtosis | None, int]] = deque()
        self._on = np.zeros(n_prbs, bool)
        self._carried = np.zeros(n_prbs, bool)  # see `edge_alignment`
        self._settled: deque[Smoothed] = deque()
        self._settling: Iterator[None] = iter(())  # what is left to do for a block

    @property
    def floor(self) -> float | None:
        """The noise floor in LSB^2."""
        return self._floor.level

    def add(self, features: PrbFeatures) -> Filtered:
        """Take in records; returns the prompt answers for them."""
        count = len(features.power)
        interfered = np.zeros((count, self.n_prbs), bool)
        occupied = np.zeros((count, self.n_prbs), bool)
        for start in range(0, count, STEP):
            where = slice(start, start + STEP)
            part = features.part(where)
            likelihoods = prb_likelihoods(part, self._floor.add(part.power))
            here = self._dft_s_ofdm.here
            kurtosis = None if part.samples is None else self._dft_s_ofdm.add(part.samples, likelihoods)
            if here and kurtosis:
                likelihoods, kurtosis = self._dft_s_ofdm.tell(likelihoods, kurtosis), None
            if part.samples is not None:
                likelihoods = envelope(part.samples, likelihoods)
            self._tone_tracker.add(part.line, likelihoods.log_power)
            for k in range(len(part.power)):
                self._occupancy_hmm.add(likelihoods, k, self._ue_statistics.rough)
                self._recent.append((likelihoods, kurtosis, k))
                posterior = self._occupancy_hmm.posterior
                free = posterior[FREE] > 0.5
                self._ue_statistics.add(likelihoods, k, free)
                p = posterior[ALONE:].sum(axis=0)
                self._on = np.where(self._on, p > FILTERED_OFF, p > FILTERED_ON)
                interfered[start + k] = self._on | (self._tone_hmm.add(part.line[k], part.cells[k]) & ~free)
                occupied[start + k] = ~free
            interfered[where] |= self._dwell_times.add(likelihoods, interfered[where], self._ue_statistics.rough)
            if self._dft_s_ofdm.here and not here:
                self._on_dft_s_ofdm()
            if self._ue_statistics.judge():
                self._restart_hmm()
            self.records += len(part.power)
            self._waiting += len(part.power)
            self._continue_settling(1 if len(part.power) < STEP else STEP)
        return Filtered(interfered, occupied)

    def settled(self) -> list[Smoothed]:
        """What has settled since the last call, in order."""
        done = list(self._settled)
        self._settled.clear()
        return done

    def finish(self) -> list[Smoothed]:
        """Settle what is left; no record follows."""
        for _ in self._settling:
            pass
        if self._waiting:
            for _ in self._settle(self._waiting):
                pass
        return self.settled()

    def _restart_hmm(self) -> None:
        """Whether UEs are rough was found to be otherwise: texture says something else of all that waits."""
        self._occupancy_hmm = OccupancyHmm(self.n_prbs)
        for likelihoods, _, k in self._recent:
            self._occupancy_hmm.add(likelihoods, k, self._ue_statistics.rough)

    def _on_dft_s_ofdm(self) -> None:
        """There are precoded UEs: what waits says something else, also of how rough UEs are."""
        told: dict[int, PrbLikelihoods] = {}
        for likelihoods, kurtosis, _ in self._recent:
            if kurtosis and id(likelihoods) not in told:
                told[id(likelihoods)] = self._dft_s_ofdm.tell(likelihoods, kurtosis)
        self._recent = deque((told.get(id(likelihoods), likelihoods), None, k) for likelihoods, _, k in self._recent)
        self._occupancy_hmm, self._ue_statistics = OccupancyHmm(self.n_prbs), UeStatistics(self.n_prbs, precoded=True)
        for likelihoods, _, k in self._recent:
            self._occupancy_hmm.add(likelihoods, k, self._ue_statistics.rough)
            self._ue_statistics.add(likelihoods, k, self._occupancy_hmm.posterior[FREE] > 0.5)

    def _continue_settling(self, steps: int) -> None:
        """A step with each record that comes alone, so that none waits for all of them; with a full batch all."""
        for _ in range(steps):
            if next(self._settling, DONE) is DONE:
                if self._waiting < self.settle_records + BLOCK:
                    return
                self._settling = self._settle(BLOCK)

    def _settle(self, count: int) -> Iterator[None]:
        """Look back over all that waits now, in steps, and let go of the first `count` records."""
        waiting = self._waiting  # more come between the steps
        free, chance = yield from self._occupancy_hmm.smooth(waiting)
        yield
        tracks, fixed, peaks = self._tone_tracker.smooth(waiting)
        yield
        recent = [(likelihoods, k) for likelihoods, _, k in islice(self._recent, waiting)]
        apart = self._emitter_templates.look(recent, self._ue_statistics.rough)
        yield
        apart[fixed] = True
        for track in tracks:
            apart[track.prbs] = True
        self._dwell_times.exclude(apart)
        long = self._dwell_times.smooth(waiting, self._ue_statistics.rough)
        yield
        tones = self._tone_hmm.smooth(waiting) & (free < 0.5)
        yield
        found = long | tones | (chance > SMOOTHED_AT)
        interfered, carried = align_edges(found, free < 0.5, self._carried)
        self._carried = carried[count - 1]
        yield
        interfered = self._emitter_templates.complete(interfered, tones | long)
        yield
        peaks[:, fixed] = True
        interfered = apply_tracks(interfered, long | peaks, tracks)
        yield
        seen, put_ues = self._emitter_templates.seen, self._ue_statistics.stays_put()
        interfered |= yield from self._underlay.smooth(seen.log_power, seen.roughness_raw, put_ues, tones, count)
        interfered &= ~below_min_inr(interfered, seen.log_power)
        self._occupancy_hmm.drop_records(count)
        for _ in range(count):
            self._recent.popleft()
        self._dwell_times.drop_records(count)
        self._tone_hmm.drop_records(count)
        self._tone_tracker.drop_records(count)
        self._settled.append(Smoothed(self.records - self._waiting, interfered[:count], free[:count] < 0.5))
        self._waiting -= count
