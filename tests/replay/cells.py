"""Cells for the tests of the what-if: what the emulator's UEs and interferers do, heard as it is."""

import numpy as np
from twinlink_ran_emulator.interferer import Episode
from twinlink_ran_emulator.scheduler import schedule
from twinlink_replay.trial.heard import STEP_NS, Heard, Rows

N_PRBS = 106


def ue_rows(
    seed: int | np.random.SeedSequence, records: int, n_ues: int = 5, n_prbs: int = N_PRBS, mean_grant: float = 25
) -> Rows:
    """Where the emulator's UEs transmit, bool, shape ``(records, n_prbs)``."""
    rows = np.zeros((records, n_prbs), np.bool_)
    rng = np.random.Generator(np.random.PCG64(seed))
    for one in schedule(rng, n_ues, records, n_prbs, mean_grant_records=mean_grant):
        rows[one.first_record : one.end_record, one.first_prb : one.first_prb + one.n_prbs] = True
    return rows


def interferer_rows(records: int, *episodes: Episode, n_prbs: int = N_PRBS) -> Rows:
    """Where interferers transmit, of the same shape."""
    rows = np.zeros((records, n_prbs), np.bool_)
    for one in episodes:
        when = one.records(10, records)
        rows[when.start : when.stop, one.first_prb : one.first_prb + one.n_prbs] = True
    return rows


def heard(ue: Rows, interferer: Rows) -> Heard:
    """All of it, without a block."""
    it = Heard(ue.shape[1])
    for k, (one, other) in enumerate(zip(ue, interferer, strict=True)):
        it.add(k * STEP_NS, one | other, other, np.zeros_like(one))
    return it
