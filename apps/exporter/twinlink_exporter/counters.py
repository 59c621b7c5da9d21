"""Counters of the exporter."""

from dataclasses import dataclass

from twinlink_e3 import CONTROL_PRB_BLOCK

from twinlink.control import Status


@dataclass(slots=True)
class Counters:
    """The counters, as in ``summary``."""

    # For this dApp, of I/Q that can be decoded: exported + left_out + slots_late + slots_unreadable + without_twin.
    indications: int = 0
    exported: int = 0  # symbols, or slots in the messages that were sent
    left_out: int = 0  # slots that were not to be sent: --every
    slots_late: int = 0  # read when the gNB may have written the next slot there; reported as missing
    slots_unreadable: int = 0  # in shared memory that cannot be read, or may not be written yet; reported as missing
    slots_not_indicated: int = 0  # at least; reported as missing
    sensing: int = 0  # slots with sensing ranges that were sent
    sensing_missing: int = 0  # and that were not, because they could not be read, or were not indicated
    without_twin: int = 0  # not sent: no twin was up
    undecodable: int = 0  # undecodable PDUs, setup replies and symbols
    for_others: int = 0  # PDUs for other dApps, or of no use to one
    setups: int = 0
    e3_lost: int = 0  # lost, or silent for long
    blocks_installed: int = 0
    blocks_rejected: int = 0
    blocks_cleared: int = 0
    policies_installed: int = 0  # sensing policies
    policies_rejected: int = 0  # by the RAN
    policies_cleared: int = 0
    decisions_dropped: int = 0  # came faster than they could be handled
    digest_requests: int = 0  # of twins whose picture was not that of the network, answered
    out_of_sync: int = 0  # times that a twin was; see `TwinSync`

    def decided(self, control: int, status: Status) -> None:
        """Count what became of a decision."""
        name = f"{'blocks' if control == CONTROL_PRB_BLOCK else 'policies'}_{status}"
        setattr(self, name, getattr(self, name) + 1)
