"""The sender's three modes: closed loop, open loop at a fixed rate, flood."""

import contextlib
import ctypes
import threading
import time

from .channels import Channel, PeerLost
from .channels.base import UNANSWERED

_PR_SET_TIMERSLACK = 29
_S = 1_000_000_000
SLEEP_NS = 15_000  # the shortest sleep; for less, the thread polls


def closed(channel: Channel, count: int, timeout_s: float, cancelled: threading.Event) -> None:
    """Send each message when the last one is answered.

    Raises:
        PeerLost: several in a row are not answered.
    """
    unanswered = 0
    for _ in range(count):
        if cancelled.is_set():
            return
        if channel.exchange(timeout_s):
            unanswered = 0
            continue
        unanswered += 1
        if reason := channel.peer_gone():
            raise PeerLost(reason)
        if unanswered == UNANSWERED:
            raise PeerLost(f"no answer to {UNANSWERED} messages in a row within {timeout_s:g} s each")


def paced(channel: Channel, count: int, rate_hz: float, timeout_s: float, cancelled: threading.Event) -> None:
    """Send by a schedule on the monotonic clock, independent of answers; then wait for the answers.

    A message that is due while the one before is still being sent leaves late and keeps its scheduled time: the wait
    is part of its delay (no coordinated omission).
    """
    precise_sleep()
    channel.collect()
    try:
        interval = _S / rate_hz
        begin = time.monotonic_ns() + 1_000_000
        ahead = max(time.time_ns() - time.monotonic_ns() for _ in range(5))  # a thread may be preempted between the two
        wall = begin + ahead  # start of the schedule on the wall clock
        for number in range(count):
            due = int(number * interval)
            while (left := begin + due - time.monotonic_ns()) > 0:
                time.sleep(left / _S if left > SLEEP_NS else 0)
            if cancelled.is_set():
                break
            channel.send(wall + due)
    finally:
        channel.settle(timeout_s, cancelled)


def flood(channel: Channel, count: int, timeout_s: float, cancelled: threading.Event) -> None:
    """Send without pauses; then wait for the answers."""
    channel.collect()
    try:
        for _ in range(count):
            if cancelled.is_set():
                break
            channel.send()
    finally:
        channel.settle(timeout_s, cancelled)


def precise_sleep() -> None:
    """Set this thread's timer slack to 1 ns, instead of 50 us."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
