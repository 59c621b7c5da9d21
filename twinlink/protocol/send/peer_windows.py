"""The windows of the peers, as far as their refusals show.  No I/O, no clock.

A peer may have a smaller window than this side.  What it refuses is in flight no more, and is retransmitted when the
peer requests it.  Until then no more is sent than the peer had room for.  So a flow that a peer's application does not
read holds up no other flow.
"""

from .flow_control import SLACK_OCTETS
from .record import SendRecord

GROWTH = 8  # a window may be larger by an eighth than it seemed; if it is not, as much is refused and sent twice


class PeerWindows:
    """The windows of the peers of one flow."""

    def __init__(self, flow: SendRecord) -> None:
        self._queue = flow.queue
        self._receivers = flow.receivers
        self._unacked = flow.unacked
        self._in_flight = flow.in_flight
        self._flow_control = flow.flow_control
        self._windows: dict[int, tuple[int, int]] = {}  # by peer: octets; the number up to which it is tried

    def on_refused(self, epoch: int) -> None:
        """A peer that the flow waits for has refused what is below its `ReceiverSet.refused`."""
        receivers, entries, oldest = self._receivers, self._unacked.entries, self._unacked.oldest()
        if oldest is None or (epoch in self._windows and not self._in_flight):
            return  # that is known
        end = receivers.refused[epoch]
        owed = range(max(oldest, receivers.consumed[epoch]), end)
        first = next((one for one in owed if one in entries and epoch in entries[one][1]), None)
        if first is None:
            return
        self._windows[epoch] = self._flow_control.octets_below(first), end
        self._in_flight.remove(
            [
                one
                for one in self._in_flight
                if first <= one < end and receivers.have_refused(one, entries[one][1] & receivers.pacing)
            ]
        )
        self.apply()

    def apply(self) -> None:
        """The smallest window counts, of the peers that the flow waits for; to be called when those are others."""
        windows = [octets for epoch, (octets, _) in self._windows.items() if epoch in self._receivers.pacing]
        self._flow_control.limit_to(min(windows, default=self._flow_control.most))

    def on_tick(self) -> None:
        """To be called five times a second: a peer that has consumed what it had room for may have room for more."""
        if not self._windows:
            return
        consumed, next_to_send, most = self._receivers.consumed, self._queue.next_to_send, self._flow_control.most
        for epoch, (octets, end) in list(self._windows.items()):
            if epoch in consumed and consumed[epoch] >= end:
                self._windows[epoch] = max(octets, SLACK_OCTETS) * (GROWTH + 1) // GROWTH, next_to_send
            if epoch not in consumed or self._windows[epoch][0] >= most:
                del self._windows[epoch]
        self.apply()
