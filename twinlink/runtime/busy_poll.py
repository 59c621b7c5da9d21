"""Busy polling: whether a thread that waits polls for a moment before it sleeps, where answers come sooner for it.

Most of a short round trip is processors waking up.  In a closed loop, where each side waits for the other, looking
halves it, and costs little, as what sleeping and waking take is saved.  In a stream that comes at its own pace it gains
little and keeps a processor busy.  What tells them apart: from one message to the next, a stream takes as long as ever.
"""

from random import sample

RUN = 6  # waits in a row of one kind; the first is not counted, as it also shows how the one before it ended
RUNS = (False, True) * 3  # of a trial, slept and polled; in random order, so that the two sides' do not align
MIN_WAIT_NS = 15_000  # a message that comes sooner was there already, and this process was busy
MAX_POLL_NS = 300_000  # of polling; longer waits have less to gain and more to cost
REST_NS = 2_000_000  # a wait of so long is in no loop, or in one that paused; it says nothing of either kind
GAIN = 0.85  # of what waits take that are slept
FIRST_PAUSE = (
    128  # waits until the first trial, all polled: a program that sends a few messages only is not to wait for one
)
NEVER = 2**63
SHORTEST_PAUSE, LONGEST_PAUSE = 32, 8192  # until the next one: four times as many while nothing changes


class BusyPoll:
    """Says how to wait; takes in how long each wait took.

    Args:
        allowed: whether to poll at all; else nothing is tried either.

    Attributes:
        polls: whether to poll before sleeping, the next time.
    """

    def __init__(self, allowed: bool = True) -> None:
        self.polls = self._gains = allowed
        self._pause = SHORTEST_PAUSE
        self._until_trial = FIRST_PAUSE if allowed else NEVER  # waits until the next trial
        self._runs: list[bool] = []  # that are still to be tried
        self._run_polls = False
        self._run_ns: list[int] = []
        self._taken_ns: tuple[list[int], list[int]] = ([], [])  # slept and polled

    def on_wait(self, ns: int) -> None:
        """A message came after so long."""
        if ns > REST_NS:  # as `skip`
            self.polls = False
            self._run_ns.clear()
        elif self._until_trial:
            self.polls = self._gains
            self._until_trial -= 1
            if not self._until_trial:
                self._start_trial()
        else:
            self.polls = self._run_polls
            self._run_ns.append(ns)
            if len(self._run_ns) == RUN:
                self._taken_ns[self._run_polls].extend(self._run_ns[1:])
                self._start_run()

    def skip(self) -> None:
        """This was no loop: sleep once, and a run that is being tried begins anew."""
        self.polls = False
        self._run_ns.clear()

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
        slept_ns, polled_ns = (sorted(taken)[len(taken) // 2] for taken in self._taken_ns)
        gains = MIN_WAIT_NS <= polled_ns < min(GAIN * slept_ns, MAX_POLL_NS)
        self._pause = min(4 * self._pause, LONGEST_PAUSE) if gains == self._gains else SHORTEST_PAUSE
        self.polls = self._gains = gains
        self._until_trial = self._pause
