"""The links that are open in this process: what becomes of them when it ends, and in a child that it forks."""

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from .signals import defer_signals

EXIT_S = 3.0  # what is being given back in the background gets this long
CHECK_INTERVAL_S = 0.01


class OpenLink(Protocol):
    """A link, as far as the end of its process needs it."""

    def close(self) -> None:
        """Wait briefly for acks, say goodbye, and give everything back."""

    def _close_flows(self) -> None:
        """A handler does not return: name what is not acknowledged, and keep no message any more."""

    def _abandon(self) -> None:
        """In a child that was forked: the link belongs to the parent."""


_links: "weakref.WeakValueDictionary[int, OpenLink]" = weakref.WeakValueDictionary()  # by id, as they were opened
_hooks: list[Callable[[], object]] = []
_ends_without_atexit: int | None = None  # the process that has been told to close links all the same


def register(link: OpenLink) -> None:
    """It is to be closed before the process ends."""
    global _ends_without_atexit  # noqa: PLW0603
    _links[id(link)] = link
    if "multiprocessing.util" in sys.modules:  # a process that it has forked does not come to atexit
        from multiprocessing import parent_process, util

        if parent_process() is not None and _ends_without_atexit != os.getpid():
            _ends_without_atexit = os.getpid()
            util.Finalize(None, close_all, exitpriority=0)


def unregister(link: OpenLink) -> None:
    """It has been given back."""
    _links.pop(id(link), None)


def when_closed(hook: Callable[[], object]) -> None:
    """Call ``hook()`` when the process ends and all links have been given back."""
    _hooks.append(hook)


def open_links() -> list[OpenLink]:
    """Those that have not been given back, in the order in which they were opened."""
    return list(_links.values())


@atexit.register
@defer_signals  # what a second Ctrl-C raised would cut the wait, and the process might abort
def close_all() -> None:
    """Close them, and wait for what is being given back."""
    for link in open_links():
        link.close()
    # A thread of ours that is still in a driver when the interpreter ends would abort the process.  Looks are counted,
    # as a deadline may pass while the machine stands still, and then the thread needs a moment.
    for _ in range(round(EXIT_S / CHECK_INTERVAL_S)):
        if not any(thread.name.startswith("twinlink-") for thread in threading.enumerate()):
            for hook in _hooks if not open_links() else ():
                hook()
            return
        time.sleep(CHECK_INTERVAL_S)  # join returns at once, before Python 3.13, where an earlier one was interrupted
    for link in open_links():  # a handler of theirs does not return
        link._close_flows()


def _after_fork_in_child() -> None:
    for link in open_links():
        link._abandon()
    _links.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
