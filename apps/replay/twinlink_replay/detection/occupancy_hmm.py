"""Four-state hidden Markov model for each PRB (free, UE, interferer, both): forward filter and fixed-lag smoother.

The model accumulates the per-record `likelihoods`.  It keeps an interferer that a UE covers, because no observation
contradicts it there.  While the interferer is alone, its level is learned.  Later, power below that level means that it
has ended; power well above it, with the roughness of a UE, means that it continues below the UE.  The transition
probabilities are estimated online (`transition_rates`).
"""

import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .likelihoods import MAX_LLR, NOISE_ROUGHNESS, Array, PrbLikelihoods, expected_drop
from .transition_rates import TransitionRates

FREE, UE, ALONE, BOTH = range(4)  # ALONE: an interferer and no UE

START = (0.6, 0.38, 0.01, 0.01)  # prior before the first record
RATES_EVERY = 16  # records between updates of the transition probabilities

COVERED_COST = 0.08  # nats a record against an unseen interferer below a UE
LEVEL_GAIN = 0.4  # nats for an interferer at its learned level, and ...
LEVEL_COST = 2.0  # ... at most this much against one at another level
LEVEL_SLACK = 0.4  # log power; a PRB's own scatter is 0.29
LEVEL_RECORDS = 10.0  # time constant of the learned level, in records
UNKNOWN_LEVEL = math.log(5.0)  # initial level: 6 dB above the noise floor
STEP = 128  # records smoothed in one step of the generator
GONE = 0.03  # posterior below which an interferer's level is forgotten


@dataclass(frozen=True, slots=True)
class _Filtered:
    """What the smoother needs of a filtered record, each ``(n_prbs,)``, the first two ``(4, n_prbs)``."""

    likelihood: Array
    posterior: Array
    log_power: Array
    level: Array
    sure: Array


class OccupancyHmm:
    """Takes the likelihoods of records in order.

    Args:
        n_prbs: PRBs in a record.
        settle: whether to buffer records for `smooth`.

    Attributes:
        posterior: probabilities of the four states after the last record, shape ``(4, n_prbs)``.
    """

    def __init__(self, n_prbs: int, settle: bool = True) -> None:
        self.posterior = np.repeat(np.array([START], np.float32).T, n_prbs, axis=1)
        self._level = _Level(n_prbs)
        self._rates = TransitionRates(n_prbs)
        self._transition = self._rates.transition()
        self._settle = settle
        self._count = 0
        self._buffer: deque[_Filtered] = deque()

    def add(self, likelihoods: PrbLikelihoods, k: int, rough: bool) -> None:
        """Take in record ``k`` of ``likelihoods``; where UEs are ``rough``, only tones can be told from them."""
        log_power, present = likelihoods.log_power[k], likelihoods.present[k]
        not_tone_llr = likelihoods.not_tone_llr[k]
        ue_llr = not_tone_llr if rough else likelihoods.ue_llr[k] + np.minimum(not_tone_llr, 0)
        above, sure = self._level.compare(log_power)
        off = np.maximum(np.abs(above) - LEVEL_SLACK, 0)
        off = sure * np.minimum(2 * off * off, LEVEL_COST)
        # Where UEs are rough, neither a steady nor a low level is evidence of an interferer: grants may be long.
        ue = np.maximum(likelihoods.ue[k], present) if rough else likelihoods.ue[k]
        alone = present + (0 if rough else LEVEL_GAIN * sure) - off
        both = present - off * (above < 0) + self._below_ue(likelihoods, k, above, sure, ue_llr, rough)
        logs = np.stack([likelihoods.free[k], ue + ue_llr, alone, both])
        likelihood = np.exp(logs - logs.max(axis=0))
        posterior = (self._transition * self.posterior[:, None]).sum(axis=0) * likelihood
        posterior /= posterior.sum(axis=0)
        self.posterior = posterior
        self._rates.learn(posterior[UE] + posterior[BOTH], posterior[ALONE] + posterior[BOTH])
        if self._count % RATES_EVERY == 0:
            self._transition = self._rates.transition()
        self._count += 1
        self._level.learn(log_power, posterior)
        if self._settle:
            self._buffer.append(_Filtered(likelihood, posterior, log_power, *self._level.known()))

    def smooth(self, count: int) -> Generator[None, None, tuple[Array, Array]]:
        """Smoothed probabilities of a free PRB and of an interferer for the first ``count`` buffered records, in steps.

        Both arrays are of shape ``(count, n_prbs)``.
        """
        n_prbs = self.posterior.shape[1]
        after = np.ones((4, n_prbs), np.float32)
        free = np.empty((count, n_prbs), np.float32)
        interfered = np.empty_like(free)
        later, transition = _LaterLevel(n_prbs), self._transition
        for k in range(count - 1, -1, -1):
            record = self._buffer[k]
            after[ALONE:] *= later.factor(record)
            joint = record.posterior * after
            joint /= joint.sum(axis=0)
            free[k] = joint[FREE]
            interfered[k] = joint[ALONE] + joint[BOTH]
            later.forget(interfered[k] < GONE)
            after *= record.likelihood
            after = (transition * after).sum(axis=1)
            after /= after.sum(axis=0)
            if k % STEP == STEP - 1:
                yield
        return free, interfered

    def drop_records(self, count: int) -> None:
        """Drop the first ``count`` buffered records: their smoothed answers are final."""
        for _ in range(count):
            self._buffer.popleft()

    def _below_ue(
        self, likelihoods: PrbLikelihoods, k: int, above: Array, sure: Array, ue_llr: Array, rough: bool
    ) -> Array:
        """Log-likelihood ratio of a UE with an interferer of the learned level below it, from the roughness."""
        share = np.maximum(1 - np.exp(-above), 0)  # the UE's share of the power
        drop = expected_drop(share)
        fit = -likelihoods.weight[k] * (likelihoods.roughness[k] - (NOISE_ROUGHNESS - drop / 2)) * drop
        known = 0.9 * sure * (above > 1.1)
        # With an unknown level the UE may have any share of the power: the ratio is not below 0, minus a cost.
        fit = np.clip(fit, -MAX_LLR * known, MAX_LLR) - COVERED_COST * (1 - known)
        if rough:
            fit = ue_llr - COVERED_COST
        return np.asarray(np.minimum(fit, np.maximum(ue_llr, 0)), np.float32)


class _Level:
    """Level of a lone interferer in each PRB, as log power relative to the noise floor."""

    def __init__(self, n_prbs: int) -> None:
        self._level = np.full(n_prbs, UNKNOWN_LEVEL, np.float32)
        self._seen = np.zeros(n_prbs, np.float32)  # records, weighted with the probability of a lone interferer

    def compare(self, log_power: Array) -> tuple[Array, Array]:
        """Log power above the level, and the confidence in the level (0 to 1)."""
        level, sure = self.known()
        return log_power - level, sure

    def known(self) -> tuple[Array, Array]:
        """The level, and the confidence in it (0 to 1)."""
        return self._level, self._seen / (self._seen + 1)

    def learn(self, log_power: Array, posterior: Array) -> None:
        alone = posterior[ALONE]
        seen = np.minimum(self._seen + alone, 20)
        rate = alone / np.maximum(np.minimum(seen, LEVEL_RECORDS), 1e-6)
        level = self._level + np.minimum(rate, 1) * (log_power - self._level)
        gone = alone + posterior[BOTH] < GONE
        self._seen = np.where(gone, np.float32(0), seen)
        self._level = np.where(gone, np.float32(UNKNOWN_LEVEL), level)


class _LaterLevel:
    """The level that an interferer turns out to have later: a weaker record before that cannot contain it."""

    def __init__(self, n_prbs: int) -> None:
        self._level = np.zeros(n_prbs, np.float32)
        self._sure = np.zeros(n_prbs, np.float32)

    def factor(self, record: _Filtered) -> Array:
        """Factor on the probability of an interferer in a record; records come in reverse order."""
        known = record.sure > 0.5
        np.copyto(self._level, record.level, where=known)
        np.copyto(self._sure, record.sure, where=known)
        below = np.maximum(self._level - record.log_power - LEVEL_SLACK, 0)
        cost = np.minimum(2 * below * below, LEVEL_COST) * np.maximum(self._sure - record.sure, 0)
        return np.asarray(np.exp(-cost), np.float32)

    def forget(self, gone: NDArray[np.bool_]) -> None:
        """Forget the level where, in reverse order, the interferer has not started yet."""
        self._sure[gone] = 0
