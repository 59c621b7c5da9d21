"""What raises in a block must not end it: GNU Radio ends the thread of a block whose function raises, and goes on."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from twinlink.process import internal_errors


class GuardedBlock:
    """Base of every block, before that of GNU Radio: an exception of ``work`` is counted, and the next input is taken.

    Attributes:
        raised: exceptions in functions that GNU Radio calls.
    """

    raised = 0
    _grain = 1  # input items that belong together

    def handle_general_work(
        self, noutput_items: int, ninput_items: Sequence[int], input_items: Any, output_items: Any
    ) -> int:
        """Called by the scheduler."""
        try:
            base: Any = super()
            return int(base.handle_general_work(noutput_items, ninput_items, input_items, output_items))
        except Exception as error:
            self._on_exception(error, "its input is left out, and the next taken")
            for port, count in enumerate(ninput_items):
                self.gateway.consume(port, count - count % self._grain)
            return 0

    def _on_exception(self, error: Exception, then: str) -> None:
        self.raised += 1
        internal_errors.of_process.add(f"GNU Radio block {self.gateway.name()}", error, then)

    gateway: Any  # of GNU Radio's base


def guarded(function: Callable[..., object]) -> Callable[..., bool]:
    """For ``start``, ``stop`` and handlers of messages: an exception is counted, and the block goes on."""

    @wraps(function)
    def call(block: Any, *arguments: Any) -> bool:
        try:
            function(block, *arguments)
        except Exception as error:
            block._on_exception(error, "the block goes on")
        return True

    return call
