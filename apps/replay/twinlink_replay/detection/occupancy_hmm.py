"""Interferers told by their texture: a hidden Markov model of four states for each PRB (free, UE, interferer, both).

It sums up what `likelihoods` says of each record.  An interferer is remembered below a UE that covers it: nothing
speaks against it there.  While it is seen alone its level is learned; power below that level says that it has ended,
power well above it with the roughness of a UE says that it goes on below.  How often UEs and interferers come is
learned (`transition_rates`).
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

START = (0.6, 0.38, 0.01, 0.01)  # before the first record
RENEWED = 16  # records between two looks at how often UEs and interferers come

COVERED_COST = 0.08  # nats a record for an unseen interferer below a UE
LEVEL_GAIN = 0.4  # nats for staying on the learned level, and ...
LEVEL_COST = 2.0  # ... at most this much against for leaving it
LEVEL_SLACK = 0.4  # log power; a PRB's own scatter is 0.29
LEVEL_RECORDS = 10.0  # the learned level follows over as many records
UNKNOWN_LEVEL = math.log(5.0)  # before anything is learned: 6 dB above the floor
STEP = 128  # records looked back over at once
GONE = 0.03  # posterior below which an interferer's level is forgotten


@dataclass(frozen=True, slots=True)
class _Judged:
    """A record that may still be judged anew by what follows it."""

    likelihood: Array
    posterior: Array
    log_power: Array
    level: Array
    sure: Array


class OccupancyHmm:
    """Feed it the evidence of records in order.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        posterior: of the four states after the last record, shape ``(4, n_prbs)``.
    """

    def __init__(self, n_prbs: int) -> None:
        self.posterior = np.repeat(np.array([START], np.float32).T, n_prbs, axis=1)
        self._level = _Level(n_prbs)
        self._rates = TransitionRates(n_prbs)
        self._transition = self._rates.transition()
        self._waiting: deque[_Judged] = deque()

    def add(self, likelihoods: PrbLikelihoods, k: int, rough: bool) -> None:
        """Take in record ``k`` of ``likelihoods``; where UEs are ``rough``, only tones are told from them."""
        log_power, present = likelihoods.log_power[k], likelihoods.present[k]
        even = likelihoods.not_tone_llr[k]
        structure = even if rough else likelihoods.ue_llr[k] + np.minimum(even, 0)
        above, sure = self._level.against(log_power)
        off = np.maximum(np.abs(above) - LEVEL_SLACK, 0)
        off = sure * np.minimum(2 * off * off, LEVEL_COST)
        # Where UEs are rough neither a steady level nor a low one speaks for an interferer: grants may be long.
        ue = np.maximum(likelihoods.ue[k], present) if rough else likelihoods.ue[k]
        alone = present + (0 if rough else LEVEL_GAIN * sure) - off
        both = present - off * (above < 0) + self._below_ue(likelihoods, k, above, sure, structure, rough)
        logs = np.stack([likelihoods.free[k], ue + structure, alone, both])
        likelihood = np.exp(logs - logs.max(axis=0))
        posterior = (self._transition * self.posterior[:, None]).sum(axis=0) * likelihood
        posterior /= posterior.sum(axis=0)
        self.posterior = posterior
        self._rates.learn(posterior[UE] + posterior[BOTH], posterior[ALONE] + posterior[BOTH])
        if len(self._waiting) % RENEWED == 0:
            self._transition = self._rates.transition()
        self._level.learn(log_power, posterior)
        self._waiting.append(_Judged(likelihood, posterior, log_power, *self._level.known()))

    def smooth(self, count: int) -> Generator[None, None, tuple[Array, Array]]:
        """Chances of a free PRB, and an interferer, for the first ``count`` records since `drop_records`; in steps."""
        n_prbs = self.posterior.shape[1]
        after = np.ones((4, n_prbs), np.float32)
        free = np.empty((count, n_prbs), np.float32)
        interfered = np.empty_like(free)
        later, transition = _Later(n_prbs), self._transition
        for k in range(count - 1, -1, -1):
            judged = self._waiting[k]
            after[ALONE:] *= later.doubt(judged)
            joint = judged.posterior * after
            joint /= joint.sum(axis=0)
            free[k] = joint[FREE]
            interfered[k] = joint[ALONE] + joint[BOTH]
            later.forget(interfered[k] < GONE)
            after *= judged.likelihood
            after = (transition * after).sum(axis=1)
            after /= after.sum(axis=0)
            if k % STEP == STEP - 1:
                yield
        return free, interfered

    def drop_records(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()

    def _below_ue(
        self, likelihoods: PrbLikelihoods, k: int, above: Array, sure: Array, structure: Array, rough: bool
    ) -> Array:
        """How well the roughness fits a UE with an interferer of the learned level below it."""
        share = np.maximum(1 - np.exp(-above), 0)  # of the UE in the power
        drop = expected_drop(share)
        fit = -likelihoods.weight[k] * (likelihoods.roughness[k] - (NOISE_ROUGHNESS - drop / 2)) * drop
        known = 0.9 * sure * (above > 1.1)
        # With the level unknown the UE may be any part of the power: not below 0, at a price.
        fit = np.clip(fit, -MAX_LLR * known, MAX_LLR) - COVERED_COST * (1 - known)
        if rough:
            fit = structure - COVERED_COST
        return np.asarray(np.minimum(fit, np.maximum(structure, 0)), np.float32)


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
        alone = posterior[ALONE]
        seen = np.minimum(self._seen + alone, 20)
        rate = alone / np.maximum(np.minimum(seen, LEVEL_RECORDS), 1e-6)
        level = self._level + np.minimum(rate, 1) * (log_power - self._level)
        gone = alone + posterior[BOTH] < GONE
        self._seen = np.where(gone, np.float32(0), seen)
        self._level = np.where(gone, np.float32(UNKNOWN_LEVEL), level)


class _Later:
    """The level that an interferer will turn out to have: what is weaker before it is seen alone does not hold it."""

    def __init__(self, n_prbs: int) -> None:
        self._level = np.zeros(n_prbs, np.float32)
        self._sure = np.zeros(n_prbs, np.float32)

    def doubt(self, judged: _Judged) -> Array:
        """Factor for the chance of an interferer in a record, given what was known then; records go backwards."""
        news = judged.sure > 0.5
        np.copyto(self._level, judged.level, where=news)
        np.copyto(self._sure, judged.sure, where=news)
        below = np.maximum(self._level - judged.log_power - LEVEL_SLACK, 0)
        cost = np.minimum(2 * below * below, LEVEL_COST) * np.maximum(self._sure - judged.sure, 0)
        return np.asarray(np.exp(-cost), np.float32)

    def forget(self, gone: NDArray[np.bool_]) -> None:
        """Where there is no interferer any more, going backwards."""
        self._sure[gone] = 0
