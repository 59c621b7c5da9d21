"""The Digital Twin's side: GNU Radio blocks, interference detection, and the command ``twinlink-replay``.

A message passes `blocks.source`, `blocks.observer` and `twin.twin`, which calls `detection` and `twin.controller`; the
controller's PRB blocks go back over the link.
"""
