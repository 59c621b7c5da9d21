"""Leader and followers: a thread that waits for something is the one that receives (POSA2's pattern).

A thread that waits for something (an ack, a message, a peer) takes the *lead* and reads the transport itself, so that
what it waits for costs no hand-over between threads.  While no thread waits, the link's own thread leads.

1. Exactly one thread leads at any time; everything that arrives is handled on it, handlers included.
2. A thread that stops waiting will probably wait again: the link's own thread steps back for STEP_BACK_S,
   and notices after CHECK_INTERVAL_S at the latest.
3. The leader keeps the time.
4. After `close`, the thread that holds the lead gives the link back when it lets go of it.
"""

import math
import threading
import time
from collections.abc import Callable
from threading import get_ident

from ..errors import ConfigurationError
from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors, of_process
from ..process.wakeup import WaiterList

STEP_BACK_S = 0.002
# how often the link's own thread checks whether a waiting thread still leads; each check costs a wake-up
CHECK_INTERVAL_S = 0.01
IDLE_S = (
    0.1  # the longest that a thread stays in the transport, so the longest that close or another thread waits for it
)

_FOR_EVER = float("inf")
_monotonic = time.monotonic


class LeaderFollower:
    """The lead of one link, and its own thread.

    Attributes:
        closed: whether `close` was called; no thread begins to wait any more.
        followers: how many threads wait while another one leads; they check whenever something may have arrived.
    """

    def __init__(
        self,
        name: str,
        receive: Callable[[float], None],
        shut_down: Callable[[], None],
        errors: InternalErrors = of_process,
    ) -> None:
        """``receive(timeout_s)`` receives, handles and keeps the time; ``shut_down()`` ends the link, once."""
        self.closed = False
        self._receive = receive
        self._shut_down = shut_down
        self._is_shut_down = False
        self._new_lock()
        self._leader = 0  # thread id
        self._released_at = 0.0
        self._waiting = False  # whether a thread in wait leads
        self.followers = 0
        self._exclusive_waiters = 0  # threads that want to do something while nothing arrives
        self._waiters = WaiterList()
        self._check_coroutines: Callable[[], None] | None = None
        # What a handler or the transport raises must not end it: the others still count on us.
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self.closed)

    def _new_lock(self) -> None:
        self._lock = threading.RLock()  # which knows its owner
        self._is_ours: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]

    def start(self) -> None:
        """Start the link's own thread."""
        self._thread.start()

    @property
    def is_leading(self) -> bool:
        """Whether the calling thread leads: then we are inside a handler."""
        return self._leader == get_ident()

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        """Return when ``done()`` holds, after ``timeout`` seconds, or when the link closes.

        Raises ConfigurationError for a timeout that is not a number.
        """
        if done():
            return
        deadline = _FOR_EVER if timeout is None else _monotonic() + timeout
        if math.isnan(deadline):
            raise ConfigurationError("timeout is NaN; give seconds, or None to wait without end")
        if self._leader == get_ident():
            self._lead_until(done, deadline)
            return
        try:
            if self._lock.acquire(False) or self._follow(done, deadline):
                self._lead(done, deadline)
        finally:
            if self._is_ours():
                self._release_after_interrupt()

    def run_exclusively(self, action: Callable[[], None]) -> None:
        """Do something while nothing arrives."""
        if self.is_leading:
            action()
            return
        self._exclusive_waiters += 1
        try:
            try:
                self._lock.acquire()
                self._leader = get_ident()
            finally:
                self._exclusive_waiters -= 1
            try:
                action()
            finally:
                self._release()
        finally:
            if self._is_ours():
                self._release_after_interrupt()

    def notify(self) -> None:
        """Something has arrived: let the followers check whether it is what they wait for."""
        self._waiters.wake_all()

    def serve_coroutines(self, check: Callable[[], None]) -> None:
        """From now on call ``check()`` after each turn of receiving, which takes 0.1 s at most, and at `close`."""
        receive = self._receive

        def receive_and_check(timeout_s: float) -> None:
            receive(timeout_s)
            check()

        self._receive, self._check_coroutines = receive_and_check, check

    def close(self, patience_s: float) -> bool:
        """End the link; whether it has been given back.

        It has not when a handler is running, in which `close` was perhaps called: its thread gives back when the
        handler returns.
        """
        self.closed = True
        self.notify()
        if self._check_coroutines is not None:
            self._check_coroutines()
        if self.is_leading:
            return False
        # In two goes: one may be over because the machine stood still; the leader needs a moment after that.
        if not any(self._lock.acquire(timeout=patience_s / 2) for _ in range(2)):
            return False
        self._leader = get_ident()  # handlers that are called now may wait, as elsewhere
        self._release()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(patience_s)
        return True

    def abandon(self) -> None:
        """The link is closed, and nothing is given back: it belongs to another process."""
        self.closed = self._is_shut_down = True
        if not self.is_leading:
            self._new_lock()
            self._leader = 0
        self.followers = 0
        self._waiters = WaiterList()

    def _lead(self, done: Callable[[], object], deadline: float) -> None:
        """Lead, the lock being ours, until done; a thread that wants to act exclusively gets a turn."""
        while True:
            self._leader = get_ident()
            self._waiting = True
            try:
                self._lead_until(done, deadline, steps_aside=True)
            finally:
                self._waiting = False
                self._released_at = _monotonic()
                self._release()
            if not self._exclusive_waiters or not self._follow(done, deadline):
                return

    def _release_after_interrupt(self) -> None:
        """Ctrl-C came between taking the lock and noting that, or before it was released; only the lock knows."""
        self._waiting = False
        self._release()

    def _release(self) -> None:
        try:
            if self.closed and not self._is_shut_down:
                self._is_shut_down = True
                self._shut_down()
        finally:
            self._leader = 0
            self._lock.release()
            if self.followers:
                self.notify()  # one of them leads now

    def _follow(self, done: Callable[[], object], deadline: float) -> bool:
        """Wait while another thread leads; True: it has stopped, and the lead is ours."""
        self.followers += 1
        try:
            while not done() and not self.closed:
                left = min(IDLE_S, deadline - _monotonic())
                if left <= 0:
                    return False
                if not self._exclusive_waiters and self._lock.acquire(False):
                    return True
                wakeup = self._waiters.add()
                try:
                    if not done():
                        wakeup.wait(left)
                finally:
                    self._waiters.remove(wakeup)
            return False
        finally:
            self.followers -= 1

    def _lead_until(self, done: Callable[[], object], deadline: float, steps_aside: bool = False) -> None:
        while not self.closed:
            left = deadline - _monotonic()
            if left <= 0:
                return
            self._receive(left if left < IDLE_S else IDLE_S)
            if self.followers:
                self.notify()
            if done():
                return
            if steps_aside and self._exclusive_waiters:
                return

    def _run(self) -> None:
        """The link's own thread."""
        while not self.closed:
            if self._waiting:
                time.sleep(CHECK_INTERVAL_S)
                continue
            just_led = _monotonic() - self._released_at < STEP_BACK_S
            if just_led or self.followers or self._exclusive_waiters or not self._lock.acquire(False):
                time.sleep(STEP_BACK_S)
                continue
            self._leader = get_ident()
            try:
                while not (self.followers or self._exclusive_waiters or self.closed):
                    self._receive(IDLE_S)
            finally:
                self._release()
