"""The receive window: what messages may take here until the application has consumed them.  No I/O, no clock.

A sender of this library keeps to its own window, so mostly nothing is refused here.  What is refused is not
acknowledged.  A peer that retransmits is asked for it when there is room again, a little at a time: until then the
window is *closed*, and everything from `PeerStream.window_end` on is refused, so that what is due first finds room.
"""

from collections import Counter
from collections.abc import Callable

from ..context import Context
from ..frames import MAX_SEQUENCE, Kind, refused_body
from ..limits import LimitCounters
from ..send.flow_control import MAX_UNCONSUMED, SLACK_OCTETS
from .flow import PeerStream
from .nak import SelectiveRepeat

FIRST_GRANT_OCTETS = 64 * 1024
REFUSED_OCTETS = 64 * 1024  # then the sender is sent a refusal; and when all that has come is read
REQUEST_OCTETS = 256 * 1024  # of messages that are requested together
MAX_MISSING_RANGES = 4096  # of a stream, that a peer announces as lost; it announces them again when it is asked
MAX_SEQUENCE_JUMP = 2**26  # messages: more than a peer could send while it is suspended


class ReceiveWindow:
    """Grants the streams of one session room for messages.

    Each stream is granted room as it needs it, at most ``window`` octets, from ``buffer_octets`` for all of them.  Of
    these one peer gets half at most, and all nodes that are not up get a quarter together.  A peer that is up always
    gets `FIRST_GRANT_OCTETS` for a stream, whatever the others hold.
    """

    def __init__(
        self,
        context: Context,
        window: int,
        buffer_octets: int,
        repair: SelectiveRepeat,
        limits: LimitCounters,
        up: Callable[[], frozenset[int]],
    ) -> None:
        """``up()``: the peers that are up."""
        self._up = up
        self._context = context
        self._window = window
        self._buffer_octets = buffer_octets
        self._repair = repair
        self._limits = limits
        self._granted = 0
        self._refused: dict[PeerStream, None] = {}  # streams whose senders are to be told
        self._granted_to: Counter[int] = Counter()  # by peer; 0: nodes that are not up

    def admits(self, stream: PeerStream, sequence: int, size: int) -> bool:
        """Whether to take in this message, which is not of the fast lane; if not, it is counted as refused.

        Its sender is sent a refusal, as it is to go on at the pace of others only while this side reads.
        """
        next_expected, reorder_buffer = stream.tracker.next, stream.reorder_buffer
        if self.is_jump(stream, sequence):
            return False
        is_due = sequence == (reorder_buffer.next_due if reorder_buffer else next_expected)
        if sequence < next_expected and not (reorder_buffer and sequence in reorder_buffer.missing):
            return True  # it is here already
        if stream.window_end is None or sequence < stream.window_end or is_due:
            waiting = stream.waiting_octets
            fits = self._has_room(stream, waiting, size)
            if not fits and is_due and reorder_buffer is not None:  # what is held waits for this one
                fits = self._has_room(stream, waiting - reorder_buffer.octets, size)
            if fits and self._grant(stream, waiting + size):
                return True
        self._limits.exceeded("window")
        self._refuse(stream, sequence, size)
        return False

    def is_jump(self, stream: PeerStream, sequence: int) -> bool:
        """Whether this number is so far beyond all before it that it is not to be believed; then it is counted."""
        jumps = stream.tracker.next >= 0 and stream.tracker.next + MAX_SEQUENCE_JUMP < sequence <= MAX_SEQUENCE
        if jumps:
            self._limits.exceeded("sequence")
        return jumps

    def admits_announced(self, stream: PeerStream, ranges: list[tuple[int, int]], next_to_send: int) -> bool:
        """Whether to take in that these will not come, and that all below ``next_to_send`` was sent; else it is
        counted."""
        if self.is_jump(stream, max([next_to_send, *(end for _, end in ranges)])):
            return False
        missing = stream.reorder_buffer.missing if stream.reorder_buffer else ()
        if ranges and len(missing) + len(ranges) > MAX_MISSING_RANGES:
            self._limits.exceeded("ranges")
            return False
        return True

    def _has_room(self, stream: PeerStream, waiting: int, size: int) -> bool:
        """As `FlowControlWindow.admit` says at the peer."""
        fits = waiting + size <= self._window or waiting <= SLACK_OCTETS
        # A stream of which the first number is not known has consumed nothing, and may begin with any number.
        messages = min(stream.tracker.next - stream.consumed, stream.tracker.received)
        return fits and messages <= MAX_UNCONSUMED + MAX_UNCONSUMED // 8

    def _refuse(self, stream: PeerStream, sequence: int, size: int) -> None:
        if not stream.gaps.requests:
            return  # what comes next shows the gap
        if stream.window_end is None:
            stream.window_end = stream.tracker.next
        stream.refused_end = max(stream.refused_end, sequence + 1)
        stream.refused_size = size
        stream.refused_octets += size
        self._refused[stream] = None
        if stream.refused_octets >= REFUSED_OCTETS:
            self.report_refused()

    def report_refused(self) -> None:
        """Send senders what has been refused since the last refusal."""
        while self._refused:
            stream, _ = self._refused.popitem()
            stream.refused_octets, topic = 0, stream.receive_flow.ack_topic
            self._context.send_control(topic, Kind.REFUSED, refused_body(stream.epoch, stream.refused_end))

    def has_room(self, stream: PeerStream, octets: int) -> bool:
        """Whether so many octets more, of messages that are not held, may wait; they are granted."""
        if stream.window_end is not None or not self._has_room(stream, stream.waiting_octets, octets):
            return False
        return self._grant(stream, stream.waiting_octets + octets)

    def _grant(self, stream: PeerStream, octets: int) -> bool:
        """Let a stream hold so many octets, if there are so many left."""
        if octets <= stream.granted_octets:
            return True
        most = max(octets, min(self._window, max(FIRST_GRANT_OCTETS, 2 * octets)))
        return self._set_grant(stream, most) or self._set_grant(stream, octets)

    def _set_grant(self, stream: PeerStream, octets: int) -> bool:
        is_up = stream.epoch in self._up()
        holder, before = stream.epoch if is_up else 0, stream.granted_octets
        granted = self._granted - before + octets
        of_holder = self._granted_to[holder] - (before if stream.granted_as == holder else 0) + octets
        share = self._buffer_octets // (2 if is_up else 4)
        is_less = octets <= before or (is_up and octets <= FIRST_GRANT_OCTETS)
        if not is_less and (granted > self._buffer_octets or of_holder > share):
            return False
        self._granted_to[stream.granted_as] -= before
        self._granted_to[holder] += octets
        self._granted_to = +self._granted_to  # without those that hold nothing
        self._granted, stream.granted_octets, stream.granted_as = granted, octets, holder
        return True

    def release(self, stream: PeerStream) -> None:
        """Nothing of this stream waits any more."""
        self._set_grant(stream, 0)

    def on_tick(self, stream: PeerStream) -> None:
        """Take back what a stream does not use, and request what was refused."""
        if stream.granted_octets > 2 * max(stream.waiting_octets, FIRST_GRANT_OCTETS):
            self._set_grant(stream, max(stream.waiting_octets, FIRST_GRANT_OCTETS))
        self.request(stream)

    def request(self, stream: PeerStream, probed: bool = False) -> None:
        """Where the window is closed, and there is room: request what was refused first, unless that is on its way.

        ``probed``: the sender asks what is missing; it is told what was refused, too, as it may not know.
        """
        if stream.window_end is None:
            return
        if probed:
            self._refused[stream] = None
        reorder_buffer, next_expected = stream.reorder_buffer, stream.tracker.next
        if reorder_buffer is not None and reorder_buffer.missing:
            return
        if stream.refused_end <= next_expected:
            stream.window_end = None
            return
        room = min(self._window - stream.waiting_octets, REQUEST_OCTETS)
        if room < min(self._window // 2, REQUEST_OCTETS) or not self._has_room(stream, stream.waiting_octets, 0):
            return
        end = min(stream.refused_end, next_expected + max(1, room // max(1, stream.refused_size)))
        stream.window_end = None if end == stream.refused_end else end
        self._repair.request(stream, end)
