"""The twin's side in GNU Radio: blocks (`twinlink_replay.blocks`), spectrum analysis, and ``twinlink-replay``.

The way of a message: `source`, `observer`, `twin` (`power`, `floor`, `evidence`, `detector`), `controller`, and back.
"""
