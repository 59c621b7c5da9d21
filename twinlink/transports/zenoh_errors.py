"""What Zenoh's errors mean for a person."""

import os
import re

from .base import advice

FORKED = (
    "zenoh cannot be used here: this process was forked from one that has used it, and lacks the threads that Zenoh "
    "started there; fork before the first link is opened, or start a new interpreter: "
    'multiprocessing.get_context("spawn")'
)


def reason(error: Exception) -> str:
    """The useful part of Zenoh's message, or the resolver's: the system's reason, if there is one."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    found = re.search(r"([A-Z][^:\[\]]*) \(os error \d+\)", str(error))
    return found[1] if found else str(error).split(" at ")[0]


def shared_memory_problem(error: Exception) -> str | None:
    """Why there is no shared memory, and what to do; None if the error is another one."""
    if "shm" not in str(error):
        return None
    number = re.search(r"OS error (\d+)", str(error), re.IGNORECASE)
    why = os.strerror(int(number[1])) if number else reason(error)
    return (
        f"zenoh cannot share memory (option shared_memory), as no segment can be made in /dev/shm: {why}; "
        "`df /dev/shm` shows what is free there: make room, mount it writable, or leave out the option"
    )


def not_opened(what: str, error: Exception) -> str:
    """The message for a session that cannot ``what``, which names the endpoint."""
    why = reason(error)
    return shared_memory_problem(error) or f"zenoh cannot {what}: {why}{advice(why)}"
