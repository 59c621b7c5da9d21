"""Counters of the exporter."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """The counters, as in ``summary``."""

    indications: int = 0  # for this dApp
    exported: int = 0
    without_twin: int = 0  # not sent: no twin was up
    undecodable: int = 0  # undecodable PDUs, setup replies and symbols
    for_others: int = 0  # PDUs for other dApps, or of no use to one
    setups: int = 0
    e3_lost: int = 0  # lost, or silent for long
    blocks_installed: int = 0
    blocks_rejected: int = 0
    blocks_cleared: int = 0
    decisions_dropped: int = 0  # came faster than they could be handled
    out_of_sync: int = 0  # times that a twin was; see `TwinSync`
