"""What the exporter counts."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Everything counted; ``summary`` holds it."""

    indications: int = 0  # for this dApp
    exported: int = 0
    without_twin: int = 0  # not sent: no twin was up
    undecodable: int = 0  # PDUs, setup replies and symbols that cannot be read
    for_others: int = 0  # PDUs for other dApps, or such as a dApp has no use for
    setups: int = 0
    e3_lost: int = 0  # gone, or silent for long
    blocks_installed: int = 0
    blocks_rejected: int = 0
    blocks_cleared: int = 0
    decisions_dropped: int = 0  # came faster than they could be looked at
    out_of_sync: int = 0  # times that a twin was: see `Consumption`
