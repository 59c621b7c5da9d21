"""The PRBs of one interferer begin and end together: where a UE covers some, the others show when."""

import numpy as np
from numpy.typing import NDArray

SHARE = 0.25  # of an interferer's PRBs that have to show the interferer for the others to have it too
FEWEST = 3  # records in a row; what comes for fewer may well have gone when a UE comes
TOGETHER = 0.3  # of the records that show it in either of two PRBs show it in both, or it moves from one to the other

Mask = NDArray[np.bool_]


def align_edges(interfered: Mask, occupied: Mask, carried: Mask) -> tuple[Mask, Mask]:
    """Let the neighbours decide for the PRBs that cannot tell.

    A PRB that was occupied without a break since (or until) it was seen to be interfered is taken to be interfered
    whenever enough (`SHARE`) of the adjacent ones are of which the same can be said.  Adjacent PRBs belong together if
    they were seen to be interfered at one time, and mostly so: those that a sweep passes one after the other do not.

    Args:
        interfered, occupied: what each PRB said for itself, shape ``(records, n_prbs)``.
        carried: PRBs, shape ``(n_prbs,)``, that were interfered before the first record and occupied since.

    Returns:
        ``interfered`` with that added, and ``carried`` as it stands after each record.
    """
    stays = _stays(interfered)
    since = _since(stays, occupied, carried)
    possible = since | _until(stays, occupied) | interfered
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


def _stays(interfered: Mask) -> Mask:
    """Those of records in a row, at least `FEWEST`."""
    padded = np.pad(interfered, ((FEWEST - 1, FEWEST - 1), (0, 0)), mode="edge")
    whole = np.logical_and.reduce([padded[k : len(padded) - FEWEST + 1 + k] for k in range(FEWEST)])
    return np.asarray(np.logical_or.reduce([whole[k : k + len(interfered)] for k in range(FEWEST)]))


def _since(seen: Mask, occupied: Mask, state: Mask) -> Mask:
    """Where something was seen now or before, and has been occupied since."""
    since = np.empty_like(seen)
    for k in range(len(seen)):
        state = since[k] = occupied[k] & (state | seen[k])
    return since


def _until(seen: Mask, occupied: Mask) -> Mask:
    return _since(seen[::-1], occupied[::-1], np.zeros_like(seen[0]))[::-1]
