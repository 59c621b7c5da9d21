"""Coroutines that wait for what the receiving thread of a link brings."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..errors import ConfigurationError

YIELD_S = 0.001  # a task that never has to wait lets the others of its event loop run so often


class CoroutineWaiters:
    """Those of one link.

    The receiving thread checks after each of its turns what they wait for, and wakes an event loop only when it is
    there.  No thread waits on behalf of a coroutine, and no event loop polls.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], object], asyncio.Future[None]]] = deque()
        self._yield_at = 0.0

    def check(self) -> None:
        """Wake the coroutines whose condition holds.  For the receiving thread, and the one that closes the link."""
        for waiter in tuple(self._waiting):
            done, future = waiter
            if done():
                with suppress(ValueError):  # the coroutine has given up
                    self._waiting.remove(waiter)
                with suppress(RuntimeError):  # its event loop is closed
                    future.get_loop().call_soon_threadsafe(_resolve, future)

    async def wait(self, done: Callable[[], object], timeout: float | None) -> bool:
        """Whether ``done()`` holds, at once or within ``timeout`` seconds.

        ``done`` is also called by the receiving thread, and must not block.  Between its last call here and the return
        no other task runs, so that several tasks may wait for the same.
        """
        if timeout is not None and math.isnan(timeout):
            raise ConfigurationError("timeout is NaN; give seconds, or None to wait without end")
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not done():
            if until is not None and loop.time() >= until:
                return False
            future: asyncio.Future[None] = loop.create_future()
            timer = None if until is None else loop.call_at(until, _resolve, future)
            waiter = done, future
            self._waiting.append(waiter)
            try:
                if not done():  # it may have come before the receiving thread could see this waiter
                    await future
            finally:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
                if timer is not None:
                    timer.cancel()
        return True

    async def checkpoint(self) -> None:
        """Let the other tasks of the event loop run, if they have not for a while."""
        if time.monotonic() >= self._yield_at:
            await asyncio.sleep(0)
            self._yield_at = time.monotonic() + YIELD_S


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
