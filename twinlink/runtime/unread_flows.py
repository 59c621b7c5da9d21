"""A flow whose messages nothing reads, beside receivers that get nothing: most likely one name was misspelt."""

import logging
from collections.abc import Mapping

from ..protocol.session import ReceiveFlow
from ..spelling import near

LOOK_NS = 1_000_000_000
STATE_FLOWS = "state."  # and the name of a `link.state`: one that no peer sets anything in is no misspelt flow
PATIENCE_LOOKS = 5  # in which a program may open its receivers one after the other

logger = logging.getLogger("twinlink")


class UnreadFlows:
    """Logs such a flow of one link, once; for the thread that receives."""

    def __init__(self, flows: Mapping[str, ReceiveFlow]) -> None:
        self._flows = flows
        self._next_mono_ns = 0
        self._looks = 0
        self._told = False

    def on_tick(self, mono_ns: int, node: str) -> None:
        """Look once a second; ``node`` is the name of this side."""
        if self._told or mono_ns < self._next_mono_ns:
            return
        self._next_mono_ns = mono_ns + LOOK_NS
        flows = list(self._flows.values())
        states = [one for one in flows if one.flow.startswith(STATE_FLOWS)]
        others = [one for one in flows if not one.flow.startswith(STATE_FLOWS)]
        reads = any(one.subscribed and one.streams for one in others)
        found = _mistaken(others, "receivers", only_alike=reads) or _mistaken(states, "states", only_alike=True)
        self._looks = self._looks + 1 if found else 0
        if self._looks > PATIENCE_LOOKS:
            self._told = True
            logger.warning("%s: %s", node, found)


def _mistaken(flows: list[ReceiveFlow], what: str, only_alike: bool) -> str:
    """Which flow nothing reads, beside others of the kind ``what`` that get nothing; empty: none is taken for misspelt.

    ``only_alike``: their names must be similar.
    """
    idle = [one.flow.removeprefix(STATE_FLOWS) for one in flows if one.subscribed and not one.streams]
    for flow in [one for one in flows if idle and not one.subscribed and one.queue]:
        name = flow.flow.removeprefix(STATE_FLOWS)
        meant = near(name, idle)
        if meant or not only_alike:
            call = f"link.{'state' if what == 'states' else 'receiver'}({name!r})"
            return (
                f"nothing reads flow {flow.flow!r} here (messages that wait: {flow.queued}), and the {what} of "
                f"{', '.join(map(repr, idle[:3]))} get nothing{meant}: "
                f"call {call}, or have it sent under the other name"
            )
    return ""
