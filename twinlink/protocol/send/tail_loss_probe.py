"""Tail-loss probe: when nothing comes that would show a loss, ask the peers what they miss.  No I/O, no clock.

As RFC 8985 (RACK-TLP) does for TCP; here the peer answers with a nak.
"""

from .abandonment import lose_unacked
from .record import SendRecord

LOSS_TICKS = 10  # two seconds: a peer that is still up then has heard hellos that were behind what was in flight


class TailLossProbe:
    """Probes the peers of one flow; ticks come five times a second."""

    def __init__(self, flow: SendRecord) -> None:
        self._flow = flow
        self._awaited: tuple[int | None, ...] = ()  # at the last tick
        self._ticks = 0  # since which the same has been the oldest in flight
        self._presumed_lost: list[int] = []
        self._stalled_at = (0, 0)
        self._stalled_ticks = 0  # since which a peer that has something to consume has been there

    def on_tick(self) -> None:
        """Probe when something has been awaited since the last tick.

        That is an ack, room in the window, the answer of a peer that returned or lacks something, or that all skipped
        what was announced as abandoned.  The message, its ack, the nak, what was consumed or the announcement may have
        been lost.
        """
        flow = self._flow
        queue, receivers = flow.queue, flow.receivers
        fragmenting = queue.on_tick()
        # Of a lagging peer nothing is in flight, nor what was refused.
        lagged = flow.unacked.oldest() if receivers.lagging or receivers.have_any_refused else None
        slowest = receivers.consumed_by_all if receivers.up else queue.abandoned_end
        awaited = (
            flow.in_flight.oldest,
            flow.flow_control.awaited if queue.next_to_send < queue.next_sequence else None,
            0 if receivers.resuming or flow.unconfirmed.awaits_answer(receivers.up) else None,
            slowest if slowest < queue.abandoned_end else None,
            lagged,
        )
        before, self._awaited = self._awaited, awaited
        still_waiting = any(now is not None and now == then for now, then in zip(awaited, before, strict=False))
        self._ticks = self._ticks + 1 if awaited[:1] == before[:1] else 0
        queue.forget_below(min([slowest, *(receivers.of[epoch].consumed for epoch in receivers.suspended)]))
        if self._ticks >= LOSS_TICKS:
            self._ticks = 0  # the next have their two seconds, too
            self._presume_lost()
        self._probe_stalled_peer(slowest)
        if fragmenting:
            self._awaited = ()  # it is not to be compared with what will be
        elif receivers.repairing and still_waiting:
            queue.probe()

    @property
    def awaits_nothing(self) -> bool:
        """Whether no message is queued, in flight or kept, and each peer has consumed all messages that it is owed."""
        flow = self._flow
        queue, receivers, end = flow.queue, flow.receivers, flow.queue.next_sequence
        if queue.has_pending or flow.in_flight or flow.unacked or flow.unconfirmed.open:
            return False
        if receivers.all != receivers.pacing or receivers.resuming:
            return False
        untouched = flow.repair and not queue.abandoned_end
        return all(
            peer.consumed == end or (untouched and peer.consumed == peer.first_owed) for _, peer in receivers.those_up()
        )

    def _probe_stalled_peer(self, slowest: int) -> None:
        """Probe now and then where a peer has consumed nothing for long: what it waits for may not be kept here.

        Without retransmission it waits for nothing, and a gap shows when something later arrives; so then only while
        nothing leaves: when the flow is idle, or when what was lost has all the room in the window.
        """
        flow = self._flow
        queue, receivers = flow.queue, flow.receivers
        position = (0 if flow.repair else queue.next_to_send, slowest)
        due = slowest < queue.next_to_send
        self._stalled_ticks = self._stalled_ticks + 1 if due and position == self._stalled_at else 0
        self._stalled_at = position
        if self._stalled_ticks >= LOSS_TICKS and receivers.up and receivers.all_take_fragments:
            self._stalled_ticks = 0  # it has been asked: give it as long again
            queue.probe()

    def _presume_lost(self) -> None:
        """A message that only peers without retransmission owe an ack for is presumed lost, and in flight no more.

        It stays kept until they are past it, or until the next time, two seconds later: then it is lost.
        """
        flow = self._flow
        unacked, repairing = flow.unacked, flow.receivers.repairing
        runs = [run for run in map(unacked.run_of, flow.in_flight) if run is not None]
        unacked.split_runs([run for run in runs if repairing.isdisjoint(run.unacked_by)])
        for sequence in self._presumed_lost:
            unacked_by = unacked.owed_by(sequence)
            if unacked_by and repairing.isdisjoint(unacked_by):
                lose_unacked(flow, sequence, unacked_by)
        self._presumed_lost = [one for one in flow.in_flight if repairing.isdisjoint(unacked.owed_by(one))]
        flow.in_flight.remove(self._presumed_lost)
