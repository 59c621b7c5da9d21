"""An asyncio loop on a thread of its own, for the servers of libraries that need one."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from twinlink.process.guarded_thread import GuardedThread

START_S = 10.0
Result = TypeVar("Result")


class LoopThread:
    """Runs from construction to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = GuardedThread(self._loop.run_forever, "twinlink-raw-loop")
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout_s: float = START_S) -> Result:
        """Execute a coroutine on the loop; returns its result or raises its error, TimeoutError after ``timeout_s``."""
        return self.start(coroutine).result(timeout_s)

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Begin to execute a coroutine on the loop; may be called on its thread, too."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
