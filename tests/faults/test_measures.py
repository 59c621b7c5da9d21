"""What measurements read from ledgers, on made-up ones."""

import numpy as np

from .ledger import Deliveries, Numbers, Report, Sends, Session
from .measuring import pause_s
from .silence import false_alarms
from .trial import Moment, Outcome
from .verdict import Verdict

S = 1_000_000_000


def test_the_longest_pause_reaches_from_the_beginning_to_the_end() -> None:
    times_ns = np.array([0, 1, 2, 5, 6]) * S
    assert pause_s(times_ns, 0, 6 * S) == 3
    assert pause_s(times_ns, 1 * S, 9 * S) == 3
    assert pause_s(times_ns, 5.5 * S, 9.5 * S) == 3.5
    assert pause_s(times_ns, 10 * S, 14 * S) == 4


def test_an_alarm_is_told_with_what_could_explain_it() -> None:
    every = np.arange(0, 20 * S, S // 10)
    late = every[(every <= 10 * S) | (every > 11.5 * S)]  # it went on sending, and nothing came for 1.5 s
    dt = _session("dt", 1, "control", every, "traffic", 2, late)
    rw = _session("rw", 2, "traffic", every, "control", 1, every)
    for at_s, reason in ((1, "silent"), (11.4, "deaf"), (19, "closed")):
        dt.events.append(Report(int(at_s * S), "PeerDown", {"reason": reason}))
    bursts = [Moment("Drop", 9 * S, 11 * S)]
    first, *told = false_alarms(Outcome(Verdict(), [dt, rw], bursts), 2 * S, 18 * S)
    assert first == (
        "  1 times PeerDown in 16 s; longest without a message: dt 1.60 s, rw 0.10 s; round trips: p50 40, p99 50 ms"
    )
    assert told == [
        "  PeerDown at dt (deaf) after 9.4 s, in a burst; in the 2 s before, longest without a message: 1.40 s; "
        "without sending one: rw 0.10 s, dt 0.10 s"
    ]


def _session(node: str, epoch: int, sends: str, sent_ns: Numbers, receives: str, peer: int, got_ns: Numbers) -> Session:
    """One flow out and one in, a message at each of the times."""
    numbers = [np.arange(len(times)) for times in (sent_ns, got_ns)]
    digests = [one.astype(np.uint64) for one in numbers]
    trips = {"n": len(sent_ns), "p50": 40_000_000, "p99": 50_000_000}
    return Session(
        node, "listen" if node == "dt" else "connect", epoch, 0,
        sends={sends: Sends(numbers[0], digests[0], sent_ns, sent_ns)},
        deliveries={(receives, peer): Deliveries(numbers[1], digests[1], got_ns)},
        counters={"stats": {"sent": {sends: {"peers": {"other": {"rtt_ns": trips}}}}}},
    )  # fmt: skip
