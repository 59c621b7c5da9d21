"""What Zenoh's errors mean for a person."""

import errno
import os
import re

from .base import advice

SHARED_MEMORY = "/dev/shm"
SESSION_OCTETS = 20 * 1024 * 1024  # Zenoh's pool of 16 MiB, and its tables
FORKED = (
    "zenoh cannot be used here: this process was forked from one that has used it, and lacks the threads that Zenoh "
    "started there; fork before the first link is opened, or start a new interpreter: "
    'multiprocessing.get_context("spawn")'
)

NO_ROUTER = (
    "no Zenoh router answers there: check that one runs, that the address is right and that no firewall closes its port"
)


def no_peer_at_router(namespace: str, has_identity: bool) -> str:
    """Advice where a router answers, and no peer does."""
    granted = ", and that `twinlink key router` there gave it to both" if has_identity else ""
    return (
        "the router answers, but no peer does: check that the other side is connected to the same router network with "
        f"the same namespace, {namespace!r} here{granted}"
    )


def not_shared(lack: str) -> str:
    """Says why memory is not shared."""
    return (
        f"memory is not shared, and payloads go over TCP: {SHARED_MEMORY}: {lack}; `df {SHARED_MEMORY}` shows what is "
        "free: make room, mount it writable, or leave out the option shared_memory"
    )


def reason(error: Exception) -> str:
    """The useful part of Zenoh's message, or the resolver's: the system's reason, if there is one."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    found = re.search(r"([A-Z][^:\[\]]*) \(os error \d+\)", str(error))
    return found[1] if found else str(error).split(" at ")[0]


def not_opened(what: str, error: Exception) -> str:
    """The message for a session that cannot ``what``, which names the endpoint."""
    why = reason(error)
    return f"zenoh cannot {what}: {why}{advice(why)}"


def shared_memory_lack(error: Exception | None = None) -> str | None:
    """Why a session cannot share memory, for a person; None if it can, or if this error has another cause.

    Without an error, whether there is room for a session is found out before: one that finds none later panics on
    threads of its own.
    """
    if error is not None:
        number = re.search(r"OS error (\d+)", str(error), re.IGNORECASE)
        return (os.strerror(int(number[1])) if number else reason(error)) if "shm" in str(error) else None
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError as problem:
        return problem.strerror
    if found.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    free = found.f_bavail * found.f_frsize
    return None if free >= SESSION_OCTETS else f"{free:,} octets are free, and a session takes up to {SESSION_OCTETS:,}"
