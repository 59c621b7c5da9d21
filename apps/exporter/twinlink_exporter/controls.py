"""The PRB block and the sensing policy in the RAN: each has a state machine of its own (`block`).  No I/O."""

from collections.abc import Callable
from itertools import count

from twinlink_e3 import CONTROL_PRB_BLOCK, CONTROL_SENSING_POLICY

from twinlink.control import Decision, PrbBlock

from .block import Blocks, Cause, Instant, Todo


class Controls:
    """Both controls; methods are those of `Blocks`.

    Args:
        next_message_id: returns the E3 message id of the next control.
    """

    def __init__(self, next_message_id: Callable[[], int]) -> None:
        sequence_ids = count(1)
        self.block = Blocks(next_message_id, CONTROL_PRB_BLOCK, sequence_ids)
        self.policy = Blocks(next_message_id, CONTROL_SENSING_POLICY, sequence_ids, lambda: self.block.prbs)
        self._both = (self.block, self.policy)

    def propose(self, decision: Decision, received_ns: int, now: Instant) -> list[Todo]:
        """Handle a decision that passed the guard."""
        control = self.block if isinstance(decision, PrbBlock) else self.policy
        return control.propose(decision, received_ns, now)

    def acknowledged(self, request_id: int, positive: bool, now: Instant, ran_ns: int | None = None) -> list[Todo]:
        """Handle the RAN's messageAck."""
        return [todo for each in self._both for todo in each.acknowledged(request_id, positive, now, ran_ns)]

    def timer(self, now: Instant) -> list[Todo]:
        """Handle the timer; called at `next_timer_ns` or soon after."""
        return [todo for each in self._both for todo in each.timer(now)]

    def next_timer_ns(self) -> int | None:
        """Monotonic time at which to call `timer`, or None."""
        return min((ns for each in self._both if (ns := each.next_timer_ns()) is not None), default=None)

    def clear(self, cause: Cause, now: Instant) -> list[Todo]:
        """Clear what stands."""
        return [todo for each in self._both for todo in each.clear(cause, now)]

    def e3_lost(self, now: Instant) -> list[Todo]:
        """Handle the loss of the E3 agent."""
        return [todo for each in self._both for todo in each.e3_lost(now)]

    def e3_ready(self, clear: bool = False, *, sequenced: bool = False) -> list[Todo]:
        """Handle a new E3 session."""
        return [todo for each in self._both for todo in each.e3_ready(clear, sequenced=sequenced)]
