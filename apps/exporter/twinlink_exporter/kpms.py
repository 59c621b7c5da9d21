"""What the gNB says of the usage of its uplink, for flow ``kpm``: one message of each window (`twinlink.kpm`).

What it is made of depends on the agent:

    agent                                       its KPM
    NVIDIA's, with the grants of UEs            they come with each slot, and are counted here
    the RAN emulator with --kpm                 it counts, and reports once a second: that is passed on
    any other                                   none
"""

from collections.abc import Callable

import numpy as np
from twinlink_e3 import MalformedPdu, SlotIndication, decode_kpm
from twinlink_e3.indication import Octets

from twinlink.appkit.journal import Journal
from twinlink.errors import MalformedPayload, TwinlinkError
from twinlink.kpm import GnbUsage, Kpm, Source


class Kpms:
    """Used by the exporter's thread.

    Args:
        n_prbs: PRBs of the carrier.
        journal: for complaints.
        has_twin: whether a twin is up; without one, nothing is sent.
        send: sends a message of flow ``kpm``; raises TwinlinkError.

    Attributes:
        newest: of the gNB; None before the first, and when the agent is gone.
    """

    def __init__(
        self, n_prbs: int, journal: Journal, has_twin: Callable[[], bool], send: Callable[[bytes], object]
    ) -> None:
        self.newest: Kpm | None = None
        self._journal, self._has_twin, self._send = journal, has_twin, send
        self._n_prbs = n_prbs
        self._granted = GnbUsage(n_prbs)

    def reported(self, octets: Octets) -> None:
        """The agent reports a KPM: ``protocol_data`` of its RAN function.  Raises MalformedPdu."""
        try:
            kpm = Kpm.decode(decode_kpm(octets))
        except MalformedPayload as error:
            raise MalformedPdu(f"the agent's report of KPMs: {error}") from error
        if kpm.source is not Source.GNB:
            raise MalformedPdu(f"the agent's report of KPMs is of the {kpm.source.name.lower()}")
        self._pass_on(kpm)

    def slot(self, slot: SlotIndication, observed_ns: int, skipped: int) -> None:
        """A slot of the exported cell was indicated, read at this Unix time, after so many that were not indicated."""
        if kpm := self._granted.add(observed_ns, self._used(slot), skipped):
            self._pass_on(kpm)

    def lost(self) -> None:
        """The agent is gone: what it did not report of this window is not known, and no usage is that of now."""
        self.newest, self._granted = None, GnbUsage(self._n_prbs)

    def _used(self, slot: SlotIndication) -> int | None:
        """PRBs granted in a slot, each once; None if that is not known."""
        several = (slot.n_cells or 1) > 1 and not slot.names_cells  # the grants may be those of another cell
        if slot.grants is None or several or any(first + count > self._n_prbs for first, count in slot.grants):
            return None
        used = np.zeros(self._n_prbs, np.bool_)
        for first, count in slot.grants:
            used[first : first + count] = True
        return int(used.sum())

    def _pass_on(self, kpm: Kpm) -> None:
        self.newest = kpm
        if not self._has_twin():
            return
        try:
            self._send(kpm.encode())
        except TwinlinkError as error:
            self._journal.complaint("not-sent", f"a KPM was not sent: {error}")
