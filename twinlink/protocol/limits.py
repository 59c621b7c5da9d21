"""Limits of what peers may have this side hold: what exceeds one is counted, and reported once a second."""

from dataclasses import dataclass

from .. import events as ev
from .context import Context

REPORT_INTERVAL_NS = 1_000_000_000
RECEIVE_BUFFER = 512 * 1024 * 1024  # octets; the default, as is what follows
MAX_FLOWS = 4096
MAX_PEERS = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one session, as `twinlink.open` describes them; ``max_frame``: octets of the longest frame."""

    window: int
    max_payload: int
    max_frame: int
    receive_buffer: int = RECEIVE_BUFFER
    max_flows: int = MAX_FLOWS
    max_peers: int = MAX_PEERS


class LimitCounters:
    """Counts what exceeds a limit of one session.

    Attributes:
        counts: by limit, how often it was exceeded.
    """

    def __init__(self, context: Context) -> None:
        self.counts: dict[str, int] = {}
        self._context = context
        self._reported: dict[str, tuple[int, int]] = {}  # by limit: monotonic ns of the last event, its count

    def exceeded(self, limit: str, times: int = 1) -> None:
        """Something was refused for this limit."""
        self.counts[limit] = self.counts.get(limit, 0) + times
        if limit not in self._reported:
            self._report(limit)

    def on_tick(self) -> None:
        """Report what was exceeded since the last event."""
        now = self._context.mono_ns
        for limit, (reported_mono_ns, count) in list(self._reported.items()):
            if self.counts[limit] > count and now - reported_mono_ns >= REPORT_INTERVAL_NS:
                self._report(limit)

    def _report(self, limit: str) -> None:
        context, count = self._context, self.counts[limit]
        self._reported[limit] = (context.mono_ns, count)
        context.report(ev.LimitExceeded(context.now_ns, limit, count))
