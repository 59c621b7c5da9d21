"""The twin's side in GNU Radio: blocks (`twinlink_replay.blocks`), spectrum analysis, and ``twinlink-replay``.

The way of a message: `source`, `observer`, `twin` (`features`, `noise_floor`, `likelihoods`, `detector`), `controller`,
and back.
"""
