"""The way of a decision to its exporter: on flow ``control``, where it is answered, and as desired value of a state.

An exporter that knows the state ``prb-block`` reports there, below its name (docs/state.md).
"""

from contextlib import suppress

import twinlink
from twinlink.stats import ClockOffset

STATE, INSTALLED = "prb-block", "installed"
FLOW = f"state.{STATE}"


class DecisionPath:
    """Any thread may use it.

    Args:
        link: to the exporter.
    """

    def __init__(self, link: twinlink.Link) -> None:
        # This policy never blocks; with "latest" some decisions would have no result.
        self._control = link.sender("control", overflow="drop-oldest")
        self._state = link.state(STATE)

    def send(self, decision: bytes, node: str, epoch: int | None, validity_ms: int) -> None:
        """Send a decision, signed or not, to the exporter with this name and session; raises TwinlinkError.

        It has left when it is on the flow: a state that is full, or whose versions are used up, lacks it.
        """
        self._control.send(decision)
        item = self._state.get(node) if node else None
        installed = item.columns.get(INSTALLED) if item is not None else None
        if installed is not None and (installed.set_by, installed.session) == (node, epoch):
            with suppress(twinlink.TwinlinkError):
                self._state.desire(node, decision, expires_s=validity_ms / 1000)

    def clock_offset(self, epoch: int) -> ClockOffset | None:
        """What the acks of flow ``control`` tell of the offset of this exporter's clock; None without any."""
        peer = self._control.stats()["peers"].get(f"{epoch:016x}")
        return peer["clock_offset_ns"] if peer else None
