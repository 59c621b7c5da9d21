"""Which PRBs carry interference: a hidden Markov model of six states for each PRB.

There may be a UE or not, and an interferer of one of two kinds or none; they come and go independently.  `evidence`
says how well a record fits each state.  A *rough* interferer is told from a UE by its roughness, within a few records.
A *steady* one looks like a UE (QPSK on the carrier's grid, constant amplitude) and is known only by staying where it
is, on its level, far longer than UEs stay here; how long they do is learned from the stays that have ended, and
where it is long nothing is called steady.  An interferer is remembered below a UE that covers it: nothing speaks
against it there.  While a rough one is seen alone its level is learned; power below that level says that it has ended,
power well above it with the roughness of a UE says that it goes on below.

Two answers: the *prompt* one from the past alone, for decisions; the *settled* one, per record, which also uses the
`settle_records` that follow, and so puts the edges where the change was.

Where no UE with few amplitudes is ever seen although PRBs come and go all the time (transform-precoded UEs are
Gaussian like noise), roughness cannot help: the detector notices, and every interferer is a steady one.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .evidence import ELEVATED, MOST, NOISE_ROUGHNESS, Array, Evidence, expected_drop, weigh
from .floor import NoiseFloor
from .power import PrbFeatures

FREE, UE, ROUGH, ROUGH_UE, STEADY, STEADY_UE = range(6)
INTERFERED = slice(ROUGH, STEADY_UE + 1)

START = (0.6, 0.38, 0.008, 0.008, 0.002, 0.002)  # before the first record
# Chances per record (10 ms in the recordings that we know): the mean stay is the inverse.  UEs' stay is learned.
UE_COMES = 1 / 40
ROUGH_COMES, STEADY_COMES = 1 / 800, 1 / 8000
STEADY_COMES_PLAIN = 1 / 4000  # where every interferer is a steady one
INTERFERER_GOES = 1 / 200

PROMPT_ON, PROMPT_OFF = 0.97, 0.2  # posterior; hysteresis of the prompt answer
COVERED_COST = 0.08  # nats a record for an unseen interferer below a UE
SETTLED_AT = 0.4  # posterior; a missed PRB costs as much as a false one, and what UEs cover is underestimated
ALIGN_REACH, ALIGN_ROUNDS = 3, 4  # PRBs looked at on either side, and how often
LEVEL_GAIN = 0.4  # nats for staying on the learned level, and ...
LEVEL_COST = 2.0  # ... at most this much against for leaving it
LEVEL_SLACK = 0.4  # log power; a PRB's own scatter is 0.29
LEVEL_RECORDS = 10.0  # the learned level follows over as many records
UNKNOWN_LEVEL = math.log(5.0)  # before anything is learned: 6 dB above the floor

GONE = 0.03  # posterior below which an interferer's level is forgotten
NEVER = -30.0  # log-likelihood of what cannot be

# Nats a record for staying on the lowest level, which constant UEs do too as long as they stay: so much times how much
# more often they leave here than slow ones do; and a constant where roughness says nothing.
STEADY_GAIN, SLOW_STAY, STEADY_GAIN_PLAIN = 5.0, 25.0, 0.2
PRIOR_RUNS, PRIOR_STAY = 0.2, 100.0  # as if so many UEs a PRB had stayed so many records, before any has been seen
SHORTEST_STAY = 10.0
REJUDGED = 1.4  # what waits is judged anew when UEs' stay turns out that much shorter
WORLD_RECORDS = 1000.0  # memory of what UEs look like here
YOUNG = 8  # records after a PRB was taken in which its structure counts: who stays does not outvote who moves
STRUCTURED_SHARE = 0.1  # of those PRBs; where UEs are CP-OFDM it is 0.2 and more, else below 0.03
BUSY_RATE = 0.004  # PRBs taken per PRB and record; UEs at work make 0.01, lone interferers below 0.001
PRIOR_RUNS, PRIOR_STAY = 0.2, 100.0  # that many UEs a PRB are taken to have stayed so many records
SHORTEST_STAY = 10.0
COLD_RECORDS = 100  # a few interferers that begin at the start are not yet a busy carrier
STEP = 16  # records weighed with one floor
BLOCK = 96  # records settled at once


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
        settle_records: how many later records the settled answer may use.  Its lag is at most that plus 96.

    Attributes:
        floor: the noise floor in LSB^2, None before the first record.
    """

    def __init__(self, n_prbs: int, settle_records: int = 96) -> None:
        self.n_prbs = n_prbs
        self.settle_records = settle_records
        self.records = 0
        self._floor = NoiseFloor(n_prbs)
        self._world = _World(n_prbs)
        self._level, self._lowest = _Level(n_prbs), _Lowest(n_prbs)
        self._posterior = np.repeat(np.array([START], np.float32).T, n_prbs, axis=1)
        self._settled_posterior = self._posterior  # the state before the first record that waits
        self._on = np.zeros(n_prbs, bool)
        self._carried = np.zeros(n_prbs, bool)  # see `align`
        self._evidence: deque[tuple[Evidence, int]] = deque()  # of the records not yet settled
        self._likelihoods: deque[Array] = deque()  # of those records, each (6, n_prbs)
        self._posteriors: deque[Array] = deque()
        self._levels: deque[tuple[Array, Array]] = deque()  # what `_Level` had learned by then
        self._settled: deque[Settled] = deque()

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
            part = slice(start, start + STEP)
            power = features.power[part]
            evidence = weigh(PrbFeatures(power, features.roughness[part]), self._floor.add(power))
            for k in range(len(power)):
                self._evidence.append((evidence, k))
                self._filter(evidence, k)
                if self._world.note(evidence.power[k], evidence.structure[k], self._posterior[FREE]):
                    self._filter_again()
                p = self._posterior[INTERFERED].sum(axis=0)
                self._on = np.where(self._on, p > PROMPT_OFF, p > PROMPT_ON)
                interfered[start + k] = self._on
                occupied[start + k] = self._posterior[FREE] < 0.5
        self.records += count
        while len(self._likelihoods) >= self.settle_records + BLOCK:
            self._settle(BLOCK)
        return Prompt(interfered, occupied)

    def settled(self) -> list[Settled]:
        """What has settled since the last call, in order."""
        done = list(self._settled)
        self._settled.clear()
        return done

    def finish(self) -> list[Settled]:
        """Settle what is left; no record follows."""
        if self._likelihoods:
            self._settle(len(self._likelihoods))
        return self.settled()

    def _filter(self, evidence: Evidence, k: int) -> None:
        """One step forward in time (Bayes)."""
        log_power, present = evidence.log_power[k], evidence.present[k]
        structure = 0 if self._world.plain else evidence.structure[k]
        above, sure = self._level.against(log_power)
        off_level, below_level = _off_level(above, sure)
        if self._world.plain:
            rough = rough_ue = np.full_like(present, NEVER)
        else:
            rough = present + LEVEL_GAIN * sure - off_level
            rough_ue = present - below_level + self._below_ue(evidence, k, above, sure)
        over, known = self._lowest.against(log_power)
        off_level, below_level = _off_level(over, known)
        ue = evidence.ue_plain[k] + structure
        # Where roughness helps, only that it stays tells a steady interferer from a UE.
        like_ue = present if self._world.plain else np.minimum(evidence.ue_plain[k], present) + structure
        steady = like_ue + self._world.steady_gain * known - off_level
        logs = np.stack([evidence.free[k], ue, rough, rough_ue, steady, like_ue - below_level])
        likelihood = np.exp(logs - logs.max(axis=0))
        posterior = (self._world.transition.T @ self._posterior) * likelihood
        posterior /= posterior.sum(axis=0)
        self._posterior = posterior
        self._level.learn(log_power, posterior)
        self._lowest.learn(log_power, posterior)
        self._likelihoods.append(likelihood)
        self._posteriors.append(posterior)
        self._levels.append(self._level.known())

    def _filter_again(self) -> None:
        """What is known of UEs has changed: judge anew all that has not settled."""
        waiting = list(self._evidence)
        self._posterior = self._settled_posterior
        self._level, self._lowest = _Level(self.n_prbs), _Lowest(self.n_prbs)
        self._likelihoods.clear()
        self._posteriors.clear()
        self._levels.clear()
        for evidence, k in waiting:
            self._filter(evidence, k)

    def _below_ue(self, evidence: Evidence, k: int, above: Array, sure: Array) -> Array:
        """How well the roughness fits a UE with an interferer of the learned level below it."""
        share = np.maximum(1 - np.exp(-above), 0)  # of the UE in the power
        drop = expected_drop(share)
        fit = -evidence.weight[k] * (evidence.roughness[k] - (NOISE_ROUGHNESS - drop / 2)) * drop
        known = 0.9 * sure * (above > 1.1)
        # With the level unknown the UE may be any part of the power: not below 0, at a price.
        fit = np.clip(fit, -MOST * known, MOST) - COVERED_COST * (1 - known)
        return np.asarray(np.minimum(fit, np.maximum(evidence.structure[k], 0)), np.float32)

    def _settle(self, count: int) -> None:
        """Smooth over all that waits, and let go of the first `count` records."""
        waiting = len(self._likelihoods)
        if waiting == self.records:  # the first to settle were judged before anything was known of the UEs
            self._filter_again()
        after = np.ones((len(START), self.n_prbs), np.float32)
        free = np.empty((waiting, self.n_prbs), np.float32)
        clean = np.empty_like(free)  # the chance that there is no interferer
        later = _Later(self.n_prbs)
        for k in range(waiting - 1, -1, -1):
            evidence, row = self._evidence[k]
            after[ROUGH:STEADY] *= later.doubt(evidence.log_power[row], self._levels[k])
            joint = self._posteriors[k] * after
            total = joint.sum(axis=0)
            free[k] = joint[FREE] / total
            clean[k] = (joint[FREE] + joint[UE]) / total
            later.forget(clean[k] > 1 - GONE)
            after *= self._likelihoods[k]
            after = self._world.transition @ after
            after /= after.sum(axis=0)
        interfered, occupied = clean < 1 - SETTLED_AT, free < 0.5
        interfered, carried = align(interfered, occupied, self._carried)
        self._carried = carried[count - 1]
        for _ in range(count):
            self._likelihoods.popleft()
            self._settled_posterior = self._posteriors.popleft()
            self._evidence.popleft()
            self._levels.popleft()
        self._settled.append(Settled(self.records - waiting, interfered[:count], occupied[:count]))


def align(
    interfered: NDArray[np.bool_], occupied: NDArray[np.bool_], carried: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The PRBs of one interferer begin and end together, also where a UE covers the edge in time.

    A PRB that was occupied without a break since (or until) it was seen to be interfered is taken to be interfered
    whenever its neighbours are.

    Args:
        interfered, occupied: what each PRB said for itself, shape ``(records, n_prbs)``.
        carried: PRBs, shape ``(n_prbs,)``, that were interfered before the first record and occupied since.

    Returns:
        ``interfered`` with that added, and ``carried`` as it stands after each record.
    """
    since = np.empty_like(interfered)
    until = np.empty_like(interfered)
    state = carried
    for k in range(len(interfered)):
        state = occupied[k] & (state | interfered[k])
        since[k] = state
    state = np.zeros_like(carried)
    for k in range(len(interfered) - 1, -1, -1):
        state = occupied[k] & (state | interfered[k])
        until[k] = state
    candidates = since | until
    for _ in range(ALIGN_ROUNDS):
        near = np.pad(interfered, ((0, 0), (ALIGN_REACH, ALIGN_REACH)))
        width = interfered.shape[1]
        beside = np.logical_or.reduce([near[:, shift : shift + width] for shift in range(2 * ALIGN_REACH + 1)])
        interfered = interfered | (candidates & beside)
    return interfered, since


def _off_level(above: Array, sure: Array) -> tuple[Array, Array]:
    """What being off a level, above or below, speaks against an interferer alone, and against one below a UE."""
    off_level = np.maximum(np.abs(above) - LEVEL_SLACK, 0)
    off_level = sure * np.minimum(2 * off_level * off_level, LEVEL_COST)
    return off_level, off_level * (above < 0)


def _transition(ue_goes: float, steady_comes: float) -> Array:
    """Chances of going from one state (row) to another within one record."""
    comes, goes, c, g = ROUGH_COMES + steady_comes, INTERFERER_GOES, UE_COMES, ue_goes
    interferer = np.array([[1 - comes, ROUGH_COMES, steady_comes], [goes, 1 - goes, 0], [goes, 0, 1 - goes]])
    ue = np.array([[1 - c, c], [g, 1 - g]])
    # The Kronecker product: states in the order of FREE, UE, ROUGH ...
    return np.asarray((interferer[:, None, :, None] * ue[None, :, None, :]).reshape(6, 6), np.float32)


class _Level:
    """The level of an interferer in each PRB, seen alone, as log power against the floor."""

    def __init__(self, n_prbs: int) -> None:
        self._level = np.full(n_prbs, UNKNOWN_LEVEL, np.float32)
        self._seen = np.zeros(n_prbs, np.float32)  # records, weighted with the chance that it was seen alone

    def against(self, log_power: Array) -> tuple[Array, Array]:
        """How far the power is above the level, and how sure the level is (0 to 1)."""
        level, sure = self.known()
        return log_power - level, sure

    def known(self) -> tuple[Array, Array]:
        """The level, and how sure it is (0 to 1)."""
        return self._level, self._seen / (self._seen + 1)

    def learn(self, log_power: Array, posterior: Array) -> None:
        alone = posterior[ROUGH]
        self._seen = np.minimum(self._seen + alone, 20)
        rate = alone / np.maximum(np.minimum(self._seen, LEVEL_RECORDS), 1e-6)
        self._level = self._level + np.minimum(rate, 1) * (log_power - self._level)
        gone = alone + posterior[ROUGH_UE] < GONE
        self._seen[gone] = 0
        self._level[gone] = UNKNOWN_LEVEL


class _Later:
    """The level that an interferer will turn out to have: what is weaker before it is seen alone does not hold it."""

    def __init__(self, n_prbs: int) -> None:
        self._level = np.zeros(n_prbs, np.float32)
        self._sure = np.zeros(n_prbs, np.float32)

    def doubt(self, log_power: Array, known: tuple[Array, Array]) -> Array:
        """Factor for the chance of a rough interferer in a record, given what was known then; records go backwards."""
        level, sure = known
        news = sure > 0.5
        np.copyto(self._level, level, where=news)
        np.copyto(self._sure, sure, where=news)
        below = np.maximum(self._level - log_power - LEVEL_SLACK, 0)
        cost = np.minimum(2 * below * below, LEVEL_COST) * np.maximum(self._sure - sure, 0)
        return np.asarray(np.exp(-cost), np.float32)

    def forget(self, gone: NDArray[np.bool_]) -> None:
        """Where there is no interferer any more, going backwards."""
        self._sure[gone] = 0


class _Lowest:
    """The lowest log power in each PRB since it was last free."""

    def __init__(self, n_prbs: int) -> None:
        self._level = np.zeros(n_prbs, np.float32)
        self._age = np.zeros(n_prbs, np.float32)  # records since the PRB was last free

    def against(self, log_power: Array) -> tuple[Array, Array]:
        """How far the power is above the level, and how sure the level is (0 to 1)."""
        return log_power - self._level, self._age / (self._age + 10)

    def learn(self, log_power: Array, posterior: Array) -> None:
        above = log_power - self._level
        self._age = np.where(posterior[FREE] > 0.5, 0, np.minimum(self._age + 1, 60))
        tracked = self._level + 0.3 * np.minimum(above, 0) + 0.03 * np.clip(above, 0, 1)
        self._level = np.where(self._age <= 1, log_power, tracked)


class _World:
    """How UEs behave here: how long they stay, and whether roughness tells them from noise (``plain`` False) or not."""

    def __init__(self, n_prbs: int) -> None:
        self.plain = False
        self._n_prbs = n_prbs
        self._structured = self._elevated = self._taken = self._records = self._runs = self._root_runs = 0.0
        self._age = np.zeros(n_prbs)  # records since the PRB was last free
        self.stay = self._judged_stay = PRIOR_STAY
        self.transition = _transition(1 / PRIOR_STAY, STEADY_COMES)

    @property
    def steady_gain(self) -> float:
        """Nats a record for an interferer that stays on its level, against UEs that would do so too."""
        return STEADY_GAIN_PLAIN if self.plain else STEADY_GAIN * max(0.0, 1 / self.stay - 1 / SLOW_STAY)

    def note(self, power: Array, structure: Array, free: Array) -> bool:
        """Take in a record; says whether UEs have turned out to be such that what waits must be judged anew."""
        keep = 1 - 1 / WORLD_RECORDS
        now_free = free > 0.5
        ended = self._age[now_free & (self._age > 1)]
        self._age = np.where(now_free, 0, self._age + 1)
        young = (power > ELEVATED) & (self._age > 0) & (self._age <= YOUNG)
        self._structured = keep * self._structured + np.count_nonzero(young & (structure > 2))
        self._elevated = keep * self._elevated + np.count_nonzero(young)
        self._taken = keep * self._taken + np.count_nonzero(self._age == 1)
        self._records = keep * self._records + 1
        # The mean of the root hardly heeds the few long stays of interferers; 4 / pi: for exponentially distributed.
        self._runs = keep * self._runs + len(ended)
        self._root_runs = keep * self._root_runs + float(np.sqrt(ended).sum())
        prior = PRIOR_RUNS * self._n_prbs
        root = (self._root_runs + prior * math.sqrt(PRIOR_STAY * math.pi / 4)) / (self._runs + prior)
        self.stay = max(root**2 * 4 / math.pi, SHORTEST_STAY)
        before = self.plain
        self.plain = bool(
            self._structured < STRUCTURED_SHARE * self._elevated
            and self._taken > BUSY_RATE * (self._records + COLD_RECORDS) * self._n_prbs
        )
        self.transition = _transition(1 / self.stay, STEADY_COMES_PLAIN if self.plain else STEADY_COMES)
        anew = (self.plain and not before) or self.stay < self._judged_stay / REJUDGED
        if anew:
            self._judged_stay = self.stay
        return anew
