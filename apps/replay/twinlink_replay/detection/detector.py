"""Which PRBs carry interference: the filtered (causal) and the smoothed (fixed-lag) answer of the detector.

Filtered, with each record: `occupancy_hmm` (roughness over time), `envelope_kurtosis`, `tone_hmm` and `dwell_time`.
Smoothed, over all buffered records: these again, and `segments` (spectral segments that recur), `emitter_templates`
(when such an emitter is on), `tone_tracker` (tones that sweep) and `underlay` (interferers below static UEs).

Transform-precoded UEs are as rough as noise; `dft_s_ofdm` tells them from noise.  Where UEs look Gaussian all the same
(`ue_statistics`), roughness and kurtosis identify tones, chirps and pulses only.
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
from .envelope_kurtosis import apply_envelope_test
from .features import PrbFeatures
from .likelihoods import PrbLikelihoods, prb_likelihoods
from .min_inr import below_min_inr
from .noise_floor import NoiseFloor
from .occupancy_hmm import ALONE, BOTH, FREE, UE, OccupancyHmm
from .tone_hmm import ToneHmm
from .tone_tracker import ToneTracker, apply_tracks
from .ue_statistics import UeStatistics
from .underlay import Underlay

FILTERED_ON, FILTERED_OFF = 0.97, 0.2  # posterior; hysteresis of the filtered answer
SMOOTHED_AT = 0.4  # posterior; a missed PRB costs as much as a false one, and what UEs cover is underestimated
STEP = 16  # records evaluated with one noise floor
BLOCK = 192  # records smoothed at once: more than arrive during its dozen steps, each of fewer than `STEP` records
DONE = object()


@dataclass(frozen=True, slots=True)
class Filtered:
    """Causal answers, from the current and earlier records; all bool, shape ``(records, n_prbs)``.

    Attributes:
        interfered: an interferer is on the PRB.
        occupied: a UE or an interferer transmits on the PRB.
        ue: a UE transmits on the PRB, as far as can be told: alone, or above an interferer of known level.
    """

    interfered: NDArray[np.bool_]
    occupied: NDArray[np.bool_]
    ue: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Final answers for records ``first`` to ``first + len(interfered) - 1``, counted from the detector's start.

    Attributes:
        interfered: an interferer is on the PRB, alone or below a UE; bool, shape ``(records, n_prbs)``.
        occupied: a UE or an interferer transmits on the PRB; same shape.
    """

    first: int
    interfered: NDArray[np.bool_]
    occupied: NDArray[np.bool_]


class Detector:
    """Takes the features of records in order.

    Args:
        n_prbs: PRBs in a record.
        settle_records: how many later records the smoothed answer uses at least.  Its lag is at most
            ``settle_records + BLOCK`` records, and the dozen calls of `add` over which the work is spread.
        settle: False for the filtered answer alone, as a control loop or a display needs it: no smoothing runs, and
            `smoothed` and `finish` return nothing.  The filtered answers can then differ in a few records: the smoother
            also finds dwells of interferers, and excludes them from the UEs' dwell times (`DwellTimes.exclude`).

    Attributes:
        records: number of records taken in.
    """

    def __init__(self, n_prbs: int, settle_records: int = 192, settle: bool = True) -> None:
        self.n_prbs = n_prbs
        self.settle_records = settle_records
        self.records = 0
        self._settle = settle
        self._floor = NoiseFloor(n_prbs)
        self._ue_statistics = UeStatistics(n_prbs)
        self._dft_s_ofdm = DftSOfdmTest(n_prbs)
        self._occupancy_hmm = OccupancyHmm(n_prbs, settle)
        self._tone_hmm = ToneHmm(n_prbs, settle)
        self._dwell_times = DwellTimes(n_prbs, settle)
        self._tone_tracker, self._emitter_templates = ToneTracker(n_prbs), EmitterTemplates()
        self._underlay = Underlay(n_prbs)
        self._buffered = 0  # records without a smoothed answer
        # The buffered records: likelihoods, kurtosis until precoded UEs have been detected, index within both.
        self._recent: deque[tuple[PrbLikelihoods, Kurtosis | None, int]] = deque()
        self._on = np.zeros(n_prbs, bool)
        self._carried = np.zeros(n_prbs, bool)  # see `edge_alignment`
        self._smoothed: deque[Smoothed] = deque()
        self._smoothing: Iterator[None] = iter(())  # remaining steps of the current block
        self._steps_due = 0

    @property
    def floor(self) -> float | None:
        """The noise floor in LSB^2 per subcarrier; None before the first record."""
        return self._floor.level

    def add(self, features: PrbFeatures) -> Filtered:
        """Take in records, arrays of shape ``(records, n_prbs)``; returns their filtered answers.

        The smoothing that they make due is left to `smoothed`, or else to the next call: no answer waits for it.
        """
        count = len(features.power)
        interfered = np.zeros((count, self.n_prbs), bool)
        occupied = np.zeros((count, self.n_prbs), bool)
        alone, both = np.zeros_like(occupied), np.zeros_like(occupied)  # a UE is
        for start in range(0, count, STEP):
            self._continue_smoothing()
            where = slice(start, start + STEP)
            part = features.part(where)
            precoded = self._dft_s_ofdm.detected
            likelihoods, kurtosis = self._likelihoods(part)
            for k in range(len(part.power)):
                self._occupancy_hmm.add(likelihoods, k, self._ue_statistics.rough)
                self._recent.append((likelihoods, kurtosis, k))
                posterior = self._occupancy_hmm.posterior
                free = posterior[FREE] > 0.5
                self._ue_statistics.add(likelihoods, k, free)
                p = posterior[ALONE:].sum(axis=0)
                self._on = np.where(self._on, p > FILTERED_OFF, p > FILTERED_ON)
                interfered[start + k] = self._on | (self._tone_hmm.add(part.tone_llr[k], part.cells[k]) & ~free)
                occupied[start + k] = ~free
                alone[start + k], both[start + k] = posterior[UE] > 0.5, posterior[BOTH] > 0.5
            interfered[where] |= self._dwell_times.add(likelihoods, interfered[where], self._ue_statistics.rough)
            if self._dft_s_ofdm.detected and not precoded:
                self._restart_with_precoded()
            if self._ue_statistics.judge():
                self._restart_hmm()
            self.records += len(part.power)
            self._buffered += len(part.power)
            self._steps_due = 1 if len(part.power) < STEP else STEP
        return Filtered(interfered, occupied, both | (alone & ~interfered))

    def smoothed(self) -> list[Smoothed]:
        """Smooth as much as is due; returns the answers that have become final since the last call, in order."""
        self._continue_smoothing()
        done = list(self._smoothed)
        self._smoothed.clear()
        return done

    def finish(self) -> list[Smoothed]:
        """Smooth the buffered records; no record follows."""
        self._continue_smoothing()
        for _ in self._smoothing:
            pass
        if self._buffered and self._settle:
            for _ in self._smooth(self._buffered):
                pass
        return self.smoothed()

    def _likelihoods(self, part: PrbFeatures) -> tuple[PrbLikelihoods, Kurtosis | None]:
        """Likelihoods with all kurtosis tests applied, and the kurtosis until precoded UEs have been detected."""
        likelihoods = prb_likelihoods(part, self._floor.add(part.power))
        kurtosis = None
        if part.samples is not None:
            precoded = self._dft_s_ofdm.detected
            kurtosis = self._dft_s_ofdm.add(part.samples, likelihoods)
            if precoded:
                likelihoods, kurtosis = self._dft_s_ofdm.apply(likelihoods, kurtosis), None
            likelihoods = apply_envelope_test(part.samples, likelihoods)
        if self._settle:
            self._tone_tracker.add(part.tone_llr, likelihoods.log_power)
        return likelihoods, kurtosis

    def _restart_hmm(self) -> None:
        """Filter the buffered records again: UEs were found to be rough, or smooth after all."""
        self._occupancy_hmm = OccupancyHmm(self.n_prbs, self._settle)
        for likelihoods, _, k in self._recent:
            self._occupancy_hmm.add(likelihoods, k, self._ue_statistics.rough)

    def _restart_with_precoded(self) -> None:
        """Filter the buffered records again, with the kurtosis test, and judge anew how rough UEs are."""
        applied: dict[int, PrbLikelihoods] = {}
        for likelihoods, kurtosis, _ in self._recent:
            if kurtosis and id(likelihoods) not in applied:
                applied[id(likelihoods)] = self._dft_s_ofdm.apply(likelihoods, kurtosis)
        self._recent = deque((applied.get(id(likelihoods), likelihoods), None, k) for likelihoods, _, k in self._recent)
        self._occupancy_hmm = OccupancyHmm(self.n_prbs, self._settle)
        self._ue_statistics = UeStatistics(self.n_prbs, precoded=True)
        for likelihoods, _, k in self._recent:
            self._occupancy_hmm.add(likelihoods, k, self._ue_statistics.rough)
            self._ue_statistics.add(likelihoods, k, self._occupancy_hmm.posterior[FREE] > 0.5)

    def _continue_smoothing(self) -> None:
        """One step with a record that comes alone, so that no record waits for a whole block; a block with a batch."""
        steps, self._steps_due = self._steps_due, 0
        full = self.settle_records + BLOCK
        if not self._settle:
            if self._buffered >= full:
                self._drop_recent(BLOCK)
            return
        for _ in range(steps):
            if next(self._smoothing, DONE) is DONE:
                if self._buffered < full:
                    return
                self._smoothing = self._smooth(BLOCK)

    def _drop_recent(self, count: int) -> None:
        for _ in range(count):
            self._recent.popleft()
        self._buffered -= count

    def _smooth(self, count: int) -> Iterator[None]:
        """Smooth over all records buffered now, in steps; the answers for the first ``count`` are final."""
        buffered = self._buffered  # more arrive between the steps
        free, interferer = yield from self._occupancy_hmm.smooth(buffered)
        yield
        tracks, fixed, peaks = self._tone_tracker.smooth(buffered)
        yield
        recent = [(likelihoods, k) for likelihoods, _, k in islice(self._recent, buffered)]
        not_ue = self._emitter_templates.observe(recent, self._ue_statistics.rough)
        yield
        not_ue[fixed] = True
        for track in tracks:
            not_ue[track.prbs] = True
        self._dwell_times.exclude(not_ue)
        long = self._dwell_times.smooth(buffered, self._ue_statistics.rough)
        yield
        tones = self._tone_hmm.smooth(buffered) & (free < 0.5)
        yield
        found = long | tones | (interferer > SMOOTHED_AT)
        interfered, carried = align_edges(found, free < 0.5, self._carried)
        self._carried = carried[count - 1]
        yield
        interfered = self._emitter_templates.complete(interfered, tones | long)
        yield
        peaks[:, fixed] = True
        interfered = apply_tracks(interfered, long | peaks, tracks)
        yield
        observed, static = self._emitter_templates.observed, self._ue_statistics.static_prbs()
        interfered |= yield from self._underlay.smooth(observed.log_power, observed.roughness_raw, static, tones, count)
        interfered &= ~below_min_inr(interfered, observed.log_power)
        for buffer in (self._occupancy_hmm, self._dwell_times, self._tone_hmm, self._tone_tracker):
            buffer.drop_records(count)
        self._smoothed.append(Smoothed(self.records - self._buffered, interfered[:count], free[:count] < 0.5))
        self._drop_recent(count)
