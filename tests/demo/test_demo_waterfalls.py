"""The position of a record in a figure."""

from dataclasses import replace

import numpy as np
from twinlink_demo.waterfalls import PAUSE_PERIODS, _columns

from tests.demo.synthetic import PERIOD_NS, N, playout


def test_a_record_lasts_until_the_next_but_not_through_a_pause() -> None:
    truth, late = playout(), (PAUSE_PERIODS - 1) * PERIOD_NS
    edges_ns, column = _columns(truth)
    assert edges_ns.tolist() == [*truth.played_ns, N * PERIOD_NS]
    assert column.tolist() == [*range(N)]
    paused = truth.played_ns + np.where(np.arange(N) >= 50, late, 0) + np.where(np.arange(N) >= 200, 10 * PERIOD_NS, 0)
    edges_ns, column = _columns(replace(truth, played_ns=paused))
    assert edges_ns.tolist() == [*paused[:200], paused[199] + PERIOD_NS, *paused[200:], paused[-1] + PERIOD_NS]
    assert column.tolist() == [*range(200), -1, *range(200, N)]
