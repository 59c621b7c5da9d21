"""The PRBs of one interferer begin and end together: where a UE covers some, the others show when."""

import numpy as np
from numpy.typing import NDArray

SHARE = 0.25  # of adjacent PRBs that have to show the interferer for the others to have it too

Mask = NDArray[np.bool_]


def align(interfered: Mask, occupied: Mask, carried: Mask) -> tuple[Mask, Mask]:
    """Let the neighbours decide for the PRBs that cannot tell.

    A PRB that was occupied without a break since (or until) it was seen to be interfered is taken to be interfered
    whenever enough (`SHARE`) of the adjacent ones are of which the same can be said.

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
    possible = since | until | interfered
    begins = possible.copy()
    begins[:, 1:] &= ~possible[:, :-1]
    run = np.cumsum(begins).reshape(begins.shape)[possible]  # of adjacent PRBs, numbered from 1
    shown = np.bincount(run, weights=interfered[possible]) >= SHARE * np.bincount(run)
    answer = interfered.copy()
    answer[possible] |= shown[run]
    return answer, since
