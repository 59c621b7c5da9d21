"""Which PRBs carry interference, from four signs: `texture`, `envelope`, `lines` and `stays`.

Then all records that wait are looked at together: `boxes` finds what keeps its PRBs and its level, `emitters` tells
when that, and what else was found, is on, and `tracks` follows tones that move.

Transform-precoded UEs are as rough as noise; `precoded` tells them from it.  Where UEs are rough all the same (see
`world`), texture, envelope and lines tell tones, chirps and pulses from them and no more.

Two answers: the *prompt* one from the past alone, for decisions; the *settled* one, per record, which also uses the
`settle_records` that follow, and so puts the edges where the change was.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .dft_s_ofdm import Kurtosis, Precoded
from .dwell_time import Stays
from .edge_alignment import align
from .emitter_templates import Emitters
from .envelope_kurtosis import envelope
from .features import PrbFeatures
from .likelihoods import Evidence, weigh
from .min_inr import faint
from .noise_floor import NoiseFloor
from .occupancy_hmm import ALONE, FREE, Texture
from .tone_hmm import Lines
from .tone_tracker import Tracks, put
from .ue_statistics import World
from .underlay import Below

PROMPT_ON, PROMPT_OFF = 0.97, 0.2  # posterior; hysteresis of the prompt answer
SETTLED_AT = 0.4  # posterior; a missed PRB costs as much as a false one, and what UEs cover is underestimated
STEP = 16  # records weighed with one floor
BLOCK = 192  # records settled at once: more than come in the dozen steps that it takes, fewer than `STEP` each
DONE = object()


@dataclass(frozen=True, slots=True)
class Prompt:
    """Answers from the past alone, shape ``(records, n_prbs)``."""

    interfered: NDArray[np.bool_]
    occupied: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Settled:
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
        self._texture, self._stays, self._world = Texture(n_prbs), Stays(n_prbs), World(n_prbs)
        self._lines, self._tracks, self._emitters = Lines(n_prbs), Tracks(n_prbs), Emitters()
        self._below, self._precoded = Below(n_prbs), Precoded(n_prbs)
        self._waiting = 0  # records not yet settled
        # Not yet settled; with the kurtosis as long as that is not told.
        self._recent: deque[tuple[Evidence, Kurtosis | None, int]] = deque()
        self._on = np.zeros(n_prbs, bool)
        self._carried = np.zeros(n_prbs, bool)  # see `align`
        self._settled: deque[Settled] = deque()
        self._settling: Iterator[None] = iter(())  # what is left to do for a block

    @property
    def floor(self) -> float | None:
        """The noise floor in LSB^2."""
        return self._floor.level

    def add(self, features: PrbFeatures) -> Prompt:
        """Take in records; returns the prompt answers for them."""
        count = len(features.power)
        interfered = np.zeros((count, self.n_prbs), bool)
        occupied = np.zeros((count, self.n_prbs), bool)
        for start in range(0, count, STEP):
            where = slice(start, start + STEP)
            part = features.part(where)
            evidence = weigh(part, self._floor.add(part.power))
            here = self._precoded.here
            kurtosis = None if part.samples is None else self._precoded.add(part.samples, evidence)
            if here and kurtosis:
                evidence, kurtosis = self._precoded.tell(evidence, kurtosis), None
            if part.samples is not None:
                evidence = envelope(part.samples, evidence)
            self._tracks.add(part.line, evidence.log_power)
            for k in range(len(part.power)):
                self._texture.add(evidence, k, self._world.rough)
                self._recent.append((evidence, kurtosis, k))
                posterior = self._texture.posterior
                free = posterior[FREE] > 0.5
                self._world.add(evidence, k, free)
                p = posterior[ALONE:].sum(axis=0)
                self._on = np.where(self._on, p > PROMPT_OFF, p > PROMPT_ON)
                interfered[start + k] = self._on | (self._lines.add(part.line[k], part.cells[k]) & ~free)
                occupied[start + k] = ~free
            interfered[where] |= self._stays.add(evidence, interfered[where], self._world.rough)
            if self._precoded.here and not here:
                self._precoded_found()
            if self._world.judge():
                self._again()
            self.records += len(part.power)
            self._waiting += len(part.power)
            self._go_on_settling(1 if len(part.power) < STEP else STEP)
        return Prompt(interfered, occupied)

    def settled(self) -> list[Settled]:
        """What has settled since the last call, in order."""
        done = list(self._settled)
        self._settled.clear()
        return done

    def finish(self) -> list[Settled]:
        """Settle what is left; no record follows."""
        for _ in self._settling:
            pass
        if self._waiting:
            for _ in self._settle(self._waiting):
                pass
        return self.settled()

    def _again(self) -> None:
        """Whether UEs are rough was found to be otherwise: texture says something else of all that waits."""
        self._texture = Texture(self.n_prbs)
        for evidence, _, k in self._recent:
            self._texture.add(evidence, k, self._world.rough)

    def _precoded_found(self) -> None:
        """There are precoded UEs: what waits says something else, also of how rough UEs are."""
        told: dict[int, Evidence] = {}
        for evidence, kurtosis, _ in self._recent:
            if kurtosis and id(evidence) not in told:
                told[id(evidence)] = self._precoded.tell(evidence, kurtosis)
        self._recent = deque((told.get(id(evidence), evidence), None, k) for evidence, _, k in self._recent)
        self._texture, self._world = Texture(self.n_prbs), World(self.n_prbs, precoded=True)
        for evidence, _, k in self._recent:
            self._texture.add(evidence, k, self._world.rough)
            self._world.add(evidence, k, self._texture.posterior[FREE] > 0.5)

    def _go_on_settling(self, steps: int) -> None:
        """A step with each record that comes alone, so that none waits for all of them; with a full batch all."""
        for _ in range(steps):
            if next(self._settling, DONE) is DONE:
                if self._waiting < self.settle_records + BLOCK:
                    return
                self._settling = self._settle(BLOCK)

    def _settle(self, count: int) -> Iterator[None]:
        """Look back over all that waits now, in steps, and let go of the first `count` records."""
        waiting = self._waiting  # more come between the steps
        free, chance = yield from self._texture.look_back(waiting)
        yield
        tracks, fixed, peaks = self._tracks.look_back(waiting)
        yield
        recent = [(evidence, k) for evidence, _, k in islice(self._recent, waiting)]
        apart = self._emitters.look(recent, self._world.rough)
        yield
        apart[fixed] = True
        for track in tracks:
            apart[track.prbs] = True
        self._stays.leave_out(apart)
        long = self._stays.look_back(waiting, self._world.rough)
        yield
        tones = self._lines.look_back(waiting) & (free < 0.5)
        yield
        found = long | tones | (chance > SETTLED_AT)
        interfered, carried = align(found, free < 0.5, self._carried)
        self._carried = carried[count - 1]
        yield
        interfered = self._emitters.complete(interfered, tones | long)
        yield
        peaks[:, fixed] = True
        interfered = put(interfered, long | peaks, tracks)
        yield
        seen, put_ues = self._emitters.seen, self._world.put()
        interfered |= yield from self._below.look_back(seen.log_power, seen.unlike, put_ues, tones, count)
        interfered &= ~faint(interfered, seen.log_power)
        self._texture.let_go(count)
        for _ in range(count):
            self._recent.popleft()
        self._stays.let_go(count)
        self._lines.let_go(count)
        self._tracks.let_go(count)
        self._settled.append(Settled(self.records - self._waiting, interfered[:count], free[:count] < 0.5))
        self._waiting -= count
