"""Busy polling: whether a thread that waits polls for a moment before it sleeps, where answers come sooner for it.

Most of a short round trip is processors waking up.  In a closed loop, where each side waits for the other, polling
halves it, and costs little, as what sleeping and waking take is saved.  In a stream that comes at its own pace it gains
nothing and keeps a processor busy.  What tells them apart is the time from one message to the next, which in a stream
is the same however it is waited for.

Polling gains most where both ends poll; beside a peer that sleeps it may even lose.  So a trial compares while the
peer polls: both ends begin an epoch by polling, after the same number of waits, and have their trials one after the
other.
"""

from random import sample

RUN = 7  # waits in a row of one kind; the first is not counted, as it also shows how the one before it ended
RUNS = (False, True) * 3  # of a trial, slept and polled; in random order, as the pace may change meanwhile
TRIAL = RUN * len(RUNS)
FIRST, SECOND = 32, 112  # waits of an epoch before the trial of the end that has its own first, and of the other
MAX_POLL_NS = 300_000  # of polling; longer waits have less to gain and more to cost
REST_NS = 2_000_000  # a wait of so long is in no loop, or in one that paused; it says nothing of either kind
GAIN = 0.2  # of what waits take that are slept
NEVER = 2**63
SHORTEST_EPOCH, LONGEST_EPOCH = 4096, 16_384  # waits; four times as many while nothing changes


class BusyPoll:
    """Says how to wait; takes in how long each wait took.

    Args:
        allowed: whether to poll at all; else nothing is tried either.
        first: whether this end has its trials before its peer does.

    Attributes:
        polls: whether to poll before sleeping, the next time.
    """

    def __init__(self, allowed: bool = True, first: bool = True) -> None:
        self.polls = self._polls_usually = self._gains = allowed
        self._before_trial = FIRST if first else SECOND
        self._epoch = SHORTEST_EPOCH
        self._tried = False  # in this epoch
        self._left = self._before_trial if allowed else NEVER  # waits before the trial, or until the next epoch
        self._runs: list[bool] = []  # that are still to be tried
        self._run_polls = False
        self._run_ns: list[tuple[int, int]] = []  # periods and waits
        self._taken_ns: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # by runs slept, and polled

    def on_wait(self, wait_ns: int, period_ns: int) -> None:
        """A message came after so long, and so long after the one before."""
        if wait_ns > REST_NS:  # as `skip`
            self.polls = False
            self._run_ns.clear()
        elif self._left:
            self.polls = self._polls_usually
            self._left -= 1
            if not self._left:
                (self._start_epoch if self._tried else self._start_trial)()
        else:
            self.polls = self._run_polls
            self._run_ns.append((period_ns, wait_ns))
            if len(self._run_ns) == RUN:
                periods, waits = zip(*self._run_ns[1:], strict=True)
                self._taken_ns[self._run_polls].append((sum(periods), sum(waits)))
                self._start_run()

    def skip(self) -> None:
        """This was no loop: sleep once, and a run that is being tried begins anew."""
        self.polls = False
        self._run_ns.clear()

    def _start_epoch(self) -> None:
        self.polls = self._polls_usually = True
        self._tried, self._left = False, self._before_trial

    def _start_trial(self) -> None:
        self._runs = sample(RUNS, len(RUNS))
        self._taken_ns = ([], [])
        self._start_run()

    def _start_run(self) -> None:
        self._run_ns.clear()
        if self._runs:
            self.polls = self._run_polls = self._runs.pop()
        else:
            self._judge()

    def _judge(self) -> None:
        (slept_ns, slept_wait_ns), (polled_ns, polled_wait_ns) = (sorted(one)[len(one) // 2] for one in self._taken_ns)
        saved_ns, most_ns = slept_ns - polled_ns, (RUN - 1) * MAX_POLL_NS
        gains = saved_ns > GAIN * slept_wait_ns and polled_wait_ns < most_ns
        self._epoch = min(4 * self._epoch, LONGEST_EPOCH) if gains == self._gains else SHORTEST_EPOCH
        self.polls = self._polls_usually = self._gains = gains
        self._tried, self._left = True, self._epoch - self._before_trial - TRIAL
