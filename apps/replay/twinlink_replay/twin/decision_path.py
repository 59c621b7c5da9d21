"""The way of a decision to its exporter: on flow ``control``, where it is answered, and as desired value of a state.

An exporter that knows the state ``prb-block`` reports there, below its name (docs/state.md), and the twin the story of
its decisions.
"""

from collections.abc import Callable
from contextlib import suppress

import twinlink
from twinlink.block_state import INSTALLED, STATE
from twinlink.stats import ClockOffset
from twinlink.story import COLUMN as STORY

STORY_S = 60.0  # a story stands for so long after its last change


class DecisionPath:
    """Any thread may use it.

    Args:
        link: to the exporter.
    """

    def __init__(self, link: twinlink.Link) -> None:
        # This policy never blocks; with "latest" some decisions would have no result.
        self._control = link.sender("control", overflow="drop-oldest")
        self._link, self._state = link, link.state(STATE)

    def send(self, decision: bytes, node: str, epoch: int | None, validity_ms: int) -> None:
        """Send a decision, signed or not, to the exporter with this name and session; raises TwinlinkError.

        It has left when it is on the flow: a state that is full, or whose versions are used up, lacks it.
        """
        self._control.send(decision)
        if self._knows_state(node, epoch):
            with suppress(twinlink.TwinlinkError):
                self._state.desire(node, decision, expires_s=validity_ms / 1000)

    def tell(self, stories: bytes, node: str) -> None:
        """Report the stories of the decisions for the exporter with this name, if it knows the state."""
        if self._knows_state(node):
            with suppress(twinlink.TwinlinkError):
                self._state.report(node, stories, column=STORY, expires_s=STORY_S)

    def follow(self, reported: Callable[[twinlink.Change], object]) -> None:
        """Give the changes of the state to a function, on the link's thread."""
        self._link.state(STATE, on_change=reported)

    def _knows_state(self, node: str, epoch: int | None = None) -> bool:
        """Whether the exporter with this name, and this session if one is given, reports in the state."""
        item = self._state.get(node) if node else None
        installed = item.columns.get(INSTALLED) if item is not None else None
        return installed is not None and installed.set_by == node and epoch in (None, installed.session)

    def clock_offset(self, epoch: int) -> ClockOffset | None:
        """What the acks of flow ``control`` tell of the offset of this exporter's clock; None without any."""
        peer = self._control.stats()["peers"].get(f"{epoch:016x}")
        return peer["clock_offset_ns"] if peer else None
