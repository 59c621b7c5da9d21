"""Waiting until a descriptor is ready, whatever its number: select(2) takes none above 1023."""

import ctypes
import errno
import os
import select
import time


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc = ctypes.CDLL(None, use_errno=True)


def is_readable(descriptor: int, timeout_s: float | None = 0.0) -> bool:
    """Whether there is something to read, or becomes so within this time; None: wait without end."""
    return _is_ready(descriptor, select.POLLIN, timeout_s)


def is_writable(descriptor: int, timeout_s: float | None = 0.0) -> bool:
    """Whether writing does not block, or becomes so within this time; None: wait without end."""
    return _is_ready(descriptor, select.POLLOUT, timeout_s)


def _is_ready(descriptor: int, event: int, timeout_s: float | None) -> bool:
    """By ppoll(2): the time-out of Python's own poll is rounded up to a millisecond, two slots of a gNB."""
    asked = _PollFd(descriptor, event, 0)
    until_ns = None if timeout_s is None else time.monotonic_ns() + int(timeout_s * 1e9)
    while True:
        left = None
        if until_ns is not None:
            left = ctypes.byref(_Timespec(*divmod(max(0, until_ns - time.monotonic_ns()), 1_000_000_000)))
        found = _libc.ppoll(ctypes.byref(asked), ctypes.c_ulong(1), left, None)
        code = ctypes.get_errno() if found < 0 else errno.EBADF if asked.revents & select.POLLNVAL else 0
        if code == errno.EINTR:  # the handlers of signals are called now
            continue
        if code:
            raise OSError(code, os.strerror(code))
        return bool(found > 0)
