"""The cell run ahead of time: what UEs and interferers do next, once for each seed.

A PRB keeps its state for an exponentially distributed time, and then follows a run of the emulator's scheduler at the
same load, which has forgotten how the cell was.  An interferer that is on the air stays as long as one that was as old,
of those that were heard and of the emulator's; after it come those that follow one in the emulator.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from twinlink_ran_emulator.interferer import Episode, draw_episodes
from twinlink_ran_emulator.make_recording import Settings
from twinlink_ran_emulator.scheduler import MIN_GRANT_RECORDS, schedule

from .cell import Cell, Emitter
from .heard import STEP_MS

MAX_STEPS = 1000
BURN_IN = 100  # steps after which a run of the scheduler, which begins with an empty carrier, is as usual
SEQUENCES = 64  # runs of the emulator's interferer
ENTRIES = 3  # of each, where it is entered: as many as a recording of the usual length has
LEAST_PRBS = 26  # the emulator's interferer needs them; of smaller cells, the rest of its PRBs are outside
PRIOR_STAYS = 1.0  # ended interferers, as which all of the emulator's count beside those that were heard
GROWTH = 1.25  # between the lengths of grants for which runs of the scheduler are kept
_SECONDS = Settings().seconds + MAX_STEPS * STEP_MS / 1000

Rows = NDArray[np.bool_]
Prbs = NDArray[np.int64]
Episodes = list[Episode]


@dataclass(frozen=True, slots=True)
class Futures:
    """What happens next, if nothing is blocked.

    Attributes:
        ue: where a UE wants to transmit; bool, shape ``(seeds, steps, n_prbs)``.
        interferer: where an interferer transmits; same shape.
        prbs: the PRBs of the last axis, ascending, shape ``(n_prbs,)``; None: all of the cell.
    """

    ue: Rows
    interferer: Rows
    prbs: Prbs | None = None


def draw(cell: Cell, steps: int, seeds: int, seed: int = 0, prbs: Prbs | None = None) -> Futures:
    """The next steps, so many times, all drawn from the seed.

    With another seed, or in another cell, PRBs keep their state for other times, interferers stay for others, and the
    same runs of the scheduler are entered at other places.  If only some PRBs are asked for, ascending, these are as
    they are among all.  Raises ValueError if there is no step, or more than `MAX_STEPS`.
    """
    if not 1 <= steps <= MAX_STEPS or seeds < 1:
        raise ValueError(f"{steps} steps and {seeds} seeds: 1 to {MAX_STEPS} steps, and 1 seed or more, can be drawn")
    # By the cell, too: futures that were entered alike in each trial would err alike in each.
    now = crc32(cell.used.tobytes())
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((1, seed, now))))
    chosen = slice(None) if prbs is None else prbs
    ue = _ues(cell, steps, seeds, rng, chosen)
    return Futures(ue, _interferers(cell, steps, seeds, rng)[:, :, chosen], prbs)


def prepare(cell: Cell, steps: int, seeds: int) -> bool:
    """Make one run of the scheduler that `draw` will need and that is not kept yet; whether there was one."""
    for key in _members(cell, steps, seeds):
        before = _scheduled.cache_info().misses
        _scheduled(*key)
        if _scheduled.cache_info().misses > before:
            return True
    return False


Member = tuple[int, int, int, int, int]


def _members(cell: Cell, steps: int, seeds: int) -> list[Member]:
    """The arguments of `_scheduled` for each seed; UEs of two numbers, so that the mean is that of the cell."""
    length = MAX_STEPS if steps > 250 else 250
    grant = round(log(max(cell.grant_steps - MIN_GRANT_RECORDS, 1)) / log(GROWTH))
    low, part = divmod(round(4 * cell.n_ues), 4)  # in quarters, so that a slight change needs no other runs
    return [
        (low + (ceil((k + 1) * part / 4) > ceil(k * part / 4)), cell.n_prbs, grant, length, k) for k in range(seeds)
    ]


@lru_cache(maxsize=512)
def _scheduled(n_ues: int, n_prbs: int, grant: int, steps: int, member: int) -> Rows:
    """Where UEs transmit in a run of the emulator's scheduler, shape ``(steps, n_prbs)``."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((2, member))))
    rows = np.zeros((BURN_IN + steps, n_prbs), np.bool_)
    if n_prbs < 3:  # fewer than the scheduler can share: all of them, or none
        rows[:] = n_ues > 0
    else:
        for one in schedule(rng, n_ues, len(rows), n_prbs, mean_grant_records=GROWTH**grant):
            rows[one.first_record : one.end_record, one.first_prb : one.first_prb + one.n_prbs] = True
    return rows[BURN_IN:]


def _ues(cell: Cell, steps: int, seeds: int, rng: np.random.Generator, prbs: "Prbs | slice[None]") -> Rows:
    groups, group = int(cell.group[-1]) + 1, cell.group[prbs]
    kept = np.ceil(rng.exponential(cell.memory_steps, (seeds, groups))).astype(np.int32)[:, group]
    # A group is used as a whole, or not: the same draw for all its PRBs.
    used = rng.random((seeds, groups))[:, group] < cell.used[prbs]
    runs = [_scheduled(*key) for key in _members(cell, steps, seeds)]
    entries = rng.integers(0, len(runs[0]), seeds).tolist()
    rows: Rows = np.stack([_entered(run, entry, steps, prbs) for run, entry in zip(runs, entries, strict=True)])
    keeps = np.arange(steps, dtype=np.int32)[None, :, None] < kept[:, None, :]
    np.copyto(rows, used[:, None, :], where=keeps)
    return rows


def _entered(run: Rows, entry: int, steps: int, prbs: "Prbs | slice[None]") -> Rows:
    """Steps of a run from one on; after its last the first one follows."""
    end = entry + steps
    before = run[entry:end, prbs]
    return before if end <= len(run) else np.concatenate((before, run[: end - len(run), prbs]))


@lru_cache(maxsize=8)
def _sequences(n_prbs: int, seconds: float) -> list[Episodes]:
    """Runs of the emulator's interferer."""
    draws = (np.random.Generator(np.random.PCG64(np.random.SeedSequence((3, k)))) for k in range(SEQUENCES))
    return [draw_episodes(rng, seconds, max(n_prbs, LEAST_PRBS), Settings().inr_db) for rng in draws]


def _interferers(cell: Cell, steps: int, seeds: int, rng: np.random.Generator) -> Rows:
    rows = np.zeros((seeds, steps, cell.n_prbs), np.bool_)
    if cell.silence is None:
        return rows
    sequences = _sequences(cell.n_prbs, _SECONDS)
    entries = [(one, k) for one in sequences for k in range(ENTRIES)]
    for place, emitter in enumerate(cell.emitters):
        prbs = slice(emitter.first_prb, emitter.first_prb + emitter.n_prbs)
        stays = _stays(cell, emitter.age, seeds, rng)
        # The emulator's next one is elsewhere.
        following = [(one, k) for one, k in entries if not _overlaps(one[k + 1], emitter)] or entries
        for row, stay, pick in zip(rows, stays, rng.integers(0, len(following), seeds), strict=True):
            row[:stay, prbs] = True
            if place == 0:
                one, k = following[pick]
                _mark(row, one[k + 1 :], _end_s(one[k]) - stay * STEP_MS / 1000)
    if not cell.emitters:
        silence_s = cell.silence * STEP_MS / 1000
        waiting = [(one, k) for one, k in entries if one[k + 1].start_s - _end_s(one[k]) > silence_s]
        for row, pick in zip(rows, rng.integers(0, max(len(waiting), 1), seeds), strict=True):
            if waiting:
                one, k = waiting[pick]
                _mark(row, one[k + 1 :], _end_s(one[k]) + silence_s)
    return rows


def _stays(cell: Cell, age: int, seeds: int, rng: np.random.Generator) -> list[int]:
    """For how many steps an interferer of this age stays on: as those that were heard, and the emulator's."""
    usual = [_step(one[k].duration_s) for one in _sequences(cell.n_prbs, _SECONDS) for k in range(ENTRIES)]
    stays = np.array([*usual, *cell.stays])
    weights = np.array([PRIOR_STAYS / len(usual)] * len(usual) + [1.0] * len(cell.stays)) * (stays > age)
    if not weights.any():  # none is as old: as long again, in the mean
        return [ceil(stay) for stay in rng.exponential(age, seeds)]
    return [int(stay) - age for stay in rng.choice(stays, seeds, p=weights / weights.sum())]


def _overlaps(episode: Episode, emitter: Emitter) -> bool:
    first, end = emitter.first_prb, emitter.first_prb + emitter.n_prbs
    return episode.first_prb < end and first < episode.first_prb + episode.n_prbs


def _end_s(episode: Episode) -> float:
    return episode.start_s + episode.duration_s


def _mark(row: Rows, episodes: Episodes, now_s: float) -> None:
    for one in episodes:
        first = _step(one.start_s - now_s)
        if first >= len(row):
            return
        row[max(first, 0) : _step(_end_s(one) - now_s), one.first_prb : one.first_prb + one.n_prbs] = True


def _step(seconds: float) -> int:
    return round(seconds * 1000 / STEP_MS)
