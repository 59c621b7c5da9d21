"""Edge alignment: the PRBs of one interferer start and end together, so uncovered PRBs decide for covered ones."""

import numpy as np
from numpy.typing import NDArray

SHARE = 0.25  # of an interferer's PRBs that must show it, for the others to be interfered too
FEWEST = 3  # records in a row; a shorter interferer may have ended when a UE starts
TOGETHER = 0.3  # of the records with an interferer in either of two PRBs have it in both; otherwise it moves

Mask = NDArray[np.bool_]


def align_edges(interfered: Mask, occupied: Mask, carried: Mask) -> tuple[Mask, Mask]:
    """Let uncovered PRBs of an interferer decide for those that a UE covers.

    A PRB that has been occupied without a break since (or until) it was interfered is set to interfered in the records
    in which at least `SHARE` of the adjacent PRBs in the same state are interfered.  Adjacent PRBs belong together if
    they were interfered at the same time, and mostly so: the PRBs that a sweep passes in turn do not.

    Args:
        interfered, occupied: the answer of each PRB by itself, bool, shape ``(records, n_prbs)``.
        carried: PRBs that were interfered before the first record and occupied since, bool, shape ``(n_prbs,)``.

    Returns:
        ``interfered`` with the covered cells added, and ``carried`` after each record; both ``(records, n_prbs)``.
    """
    lasting = _lasting(interfered)
    since = _since(lasting, occupied, carried)
    possible = since | _until(lasting, occupied) | interfered
    pair, both = interfered[:, 1:] & interfered[:, :-1], occupied[:, 1:] & occupied[:, :-1]
    together = _since(pair, both, carried[1:] & carried[:-1]) | _until(pair, both) | pair
    either = (interfered[:, 1:] | interfered[:, :-1]).sum(axis=0)
    together &= pair.sum(axis=0) >= TOGETHER * either
    begins = possible.copy()
    begins[:, 1:] &= ~(possible[:, :-1] & together)
    run = np.cumsum(begins).reshape(begins.shape)[possible]  # of PRBs that belong together, numbered from 1
    shown = np.bincount(run, weights=interfered[possible]) >= SHARE * np.bincount(run)
    answer = interfered.copy()
    answer[possible] |= shown[run]
    return answer, since


def _lasting(interfered: Mask) -> Mask:
    """Cells within at least `FEWEST` interfered records in a row."""
    padded = np.pad(interfered, ((FEWEST - 1, FEWEST - 1), (0, 0)), mode="edge")
    whole = np.logical_and.reduce([padded[k : len(padded) - FEWEST + 1 + k] for k in range(FEWEST)])
    return np.asarray(np.logical_or.reduce([whole[k : k + len(interfered)] for k in range(FEWEST)]))


def _since(seen: Mask, occupied: Mask, state: Mask) -> Mask:
    """Where ``seen`` was true now or before, and ``occupied`` since."""
    since = np.empty_like(seen)
    for k in range(len(seen)):
        state = since[k] = occupied[k] & (state | seen[k])
    return since


def _until(seen: Mask, occupied: Mask) -> Mask:
    return _since(seen[::-1], occupied[::-1], np.zeros_like(seen[0]))[::-1]
