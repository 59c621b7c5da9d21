"""Calls of an application's handler on an event loop: one at a time, and no error of theirs stops delivery."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import Generic, NoReturn, TypeVar

from ..errors import LinkClosed
from .callbacks import CallbackQueue

T = TypeVar("T")

logger = logging.getLogger("twinlink")


class CoroutineHandler(Generic[T]):
    """One flow's handler, or that of the events: a task that takes and calls until the link is closed."""

    def __init__(
        self,
        source: AsyncIterator[T],
        waiting: Callable[[], int],
        flow: str,
        callbacks: CallbackQueue,
        on_idle: Callable[[], None],
    ) -> None:
        """``waiting()`` says how many calls are due; ``on_idle()`` is called when none is due any more."""
        self._source = source
        self._waiting = waiting
        self._flow = flow
        self._callbacks = callbacks
        self._on_idle = on_idle
        self._is_calling = False
        self._task: asyncio.Task[None] | None = None

    def set(self, handler: Callable[[T], object]) -> None:
        """Call ``handler`` from now on; a coroutine function's result is awaited before the next call."""
        self._handler = handler
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def due(self) -> int:
        """How many calls have not ended."""
        return self._waiting() + self._is_calling if self._task is not None else 0

    def runs_here(self) -> bool:
        """Whether the task that asks is the one in which the handler is called."""
        return self._task is not None and asyncio.current_task() is self._task

    async def ended(self) -> None:
        """Return when the task has, after the link was closed."""
        if self._task is not None and not self.runs_here() and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        async for one in self._source:
            self._is_calling = True
            try:
                result = self._handler(one)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # whatever an application does must not stop delivery
                self._failed(error)
            finally:
                self._is_calling = False
            if not self._waiting():
                self._on_idle()

    def _failed(self, error: Exception) -> None:
        """Have it counted and reported as other handlers' errors, on the thread that receives."""
        if not self._callbacks.closing:
            self._callbacks.enqueue(_raise, (error,), self._flow)
        elif not isinstance(error, LinkClosed):  # that is no news
            logger.error("a handler of %s raised after the link was closed", self._flow or "events", exc_info=error)


def _raise(error: Exception) -> NoReturn:
    raise error
