"""A flow whose messages nothing reads, beside receivers that get nothing: most likely one name was misspelt."""

import logging
from collections.abc import Mapping

from ..protocol.session import ReceiveFlow
from ..spelling import near

LOOK_NS = 1_000_000_000
STATE_FLOWS = "state."  # of `link.state`: a state that no peer sets anything in is no misspelt flow
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
        flows = [one for one in self._flows.values() if not one.flow.startswith(STATE_FLOWS)]
        idle = [one.flow for one in flows if one.subscribed and not one.streams]
        unread = [one for one in flows if not one.subscribed and one.queue]
        if len(idle) < sum(one.subscribed for one in flows):  # something is read: only a name that is like it counts
            unread = [one for one in unread if near(one.flow, idle)]
        self._looks = self._looks + 1 if idle and unread else 0
        if self._looks > PATIENCE_LOOKS:
            self._told = True
            flow = unread[0]
            logger.warning(
                "%s: nothing reads flow %r here (messages that wait: %d), and the receivers of %s get nothing%s: call "
                "link.receiver(%r), or have it sent under the other name",
                node, flow.flow, flow.queued, ", ".join(map(repr, idle[:3])), near(flow.flow, idle), flow.flow,
            )  # fmt: skip
