"""Shared parts of the measurements: a trial, and figures from its ledgers."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .faults import Fault
from .ledger import Numbers, Session
from .schedule import Flow
from .trial import Moment, Outcome, Trial

SMALL = (Flow("traffic", "rw", 200.0, (100,)), Flow("control", "dt", 200.0, (100,)))
SETTLE_S = 2.0
SAMPLE_S = 1.0


@dataclass(frozen=True)
class Job:
    """What a measurement is given."""

    folder: Path
    transport: str
    count: int
    seconds: float
    rate_hz: float
    reliability: str

    def trial(self, flows: tuple[Flow, ...], buffered: bool = False) -> Trial:
        return Trial(self.folder, self.transport, flows, reliability=self.reliability, buffered=buffered)

    def flows(self) -> tuple[Flow, ...]:
        return tuple(Flow(flow.name, flow.sender, self.rate_hz, flow.octets) for flow in SMALL)


def round_trips(outcome: Outcome, flow: Flow) -> dict[str, int]:
    """Percentiles of the last round trips of a flow, in ns, as its link counted them."""
    (session,) = (session for session in outcome.sessions if session.node == flow.sender)
    (peer,) = session.counters["stats"]["sent"][flow.name]["peers"].values()
    trips: dict[str, int] = peer["rtt_ns"]
    return trips


def figures(seconds: list[float]) -> str:
    """n, median, p95, p99 and maximum, in seconds."""
    if not seconds:
        return "never"
    p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
    return f"n {len(seconds)}, p50 {p50:.3f}, p95 {p95:.3f}, p99 {p99:.3f}, max {max(seconds):.3f} s"


@contextlib.contextmanager
def sampled(trial: Trial) -> Iterator[list[tuple[str, float, int, int, int]]]:
    """Side, time, RSS, descriptors and threads of both nodes, every second."""
    samples: list[tuple[str, float, int, int, int]] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            for side, process in trial.nodes.items():
                with contextlib.suppress(OSError):
                    proc = Path("/proc", str(process.popen.pid))
                    fds, threads = (len(list((proc / name).iterdir())) for name in ("fd", "task"))
                    samples.append((side, time.monotonic(), rss(trial, side), fds, threads))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def rss(trial: Trial, side: str) -> int:
    pages = Path("/proc", str(trial.nodes[side].popen.pid), "statm").read_text().split()[1]
    return int(pages) * 4096


def during(trial: Trial, fault: Fault, lasts_s: float) -> None:
    """A fault, noted with its times."""
    moment = Moment(type(fault).__name__, time.monotonic_ns())
    fault.begin(trial)
    time.sleep(lasts_s)
    moment.ended_ns = time.monotonic_ns()
    fault.end(trial)
    trial.moments.append(moment)


def deliveries(outcome: Outcome) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # type: ignore[type-arg]
    """For each flow: when each delivered message was begun, and when it was delivered; by sending."""
    for sender in outcome.sessions:
        for flow, sends in sender.sends.items():
            for receiver in outcome.sessions:
                got = receiver.deliveries.get((flow, sender.epoch))
                if got is not None:
                    order = np.argsort(got.sequence, kind="stable")
                    yield sends.begun_ns[got.sequence[order]], got.at_ns[order]


def times_of(outcome: Outcome, flow: Flow, what: str) -> Numbers:
    """When the messages of a flow were sent, or delivered; in order."""
    found = []
    for one in outcome.sessions:
        if what == "sends":
            found += [sends.begun_ns for name, sends in one.sends.items() if name == flow.name]
        else:
            found += [got.at_ns for (name, _), got in one.deliveries.items() if name == flow.name]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def pause_s(times_ns: Numbers, began_ns: float, ended_ns: float) -> float:
    """The longest time without one of them."""
    inside = times_ns[(times_ns > began_ns) & (times_ns < ended_ns)]
    return float(np.diff(np.concatenate(([began_ns], inside, [ended_ns]))).max()) / 1e9


def event_times(outcome: Outcome, side: str, name: str) -> list[int]:
    sessions: list[Session] = [session for session in outcome.sessions if session.node == side]
    return [report.at_ns for session in sessions for report in session.events if report.name == name]


def verdict_of(outcome: Outcome) -> str:
    verdict = outcome.verdict
    if outcome.broken:
        return f"  BROKEN: {outcome.broken}"
    wrong = "; ".join(map(str, verdict.findings[:3]))
    return (
        f"  ledgers: {verdict.sent} sent, {verdict.delivered} delivered, {verdict.reported} reported as gaps, "
        f"{verdict.never_owed} sent without a peer, {verdict.died_with_sender + verdict.died_with_receiver} in doubt: "
        f"{f'{len(verdict.findings)} FINDINGS, {wrong}' if wrong else 'clean'}"
    )
