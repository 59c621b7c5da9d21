"""How long things take under faults: figures of many equal runs, from the ledgers."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import faults
from .closer import FLOW as CLOSERS_FLOW
from .faults import Fault
from .ledger import Numbers, Session
from .schedule import Flow, draw
from .trial import OTHER, PORT, Moment, Outcome, Trial

SMALL = (Flow("traffic", "rw", 200.0, (100,)), Flow("control", "dt", 200.0, (100,)))
SETTLE_S = 2.0
SAMPLE_S = 1.0
SOAK_FAULT_S = 10.0


@dataclass(frozen=True)
class Job:
    """What a measurement is given."""

    folder: Path
    transport: str
    count: int
    seconds: float
    rate_hz: float
    reliability: str

    def trial(self, flows: tuple[Flow, ...]) -> Trial:
        return Trial(self.folder, self.transport, flows, reliability=self.reliability)

    def flows(self) -> tuple[Flow, ...]:
        return tuple(Flow(flow.name, flow.sender, self.rate_hz, flow.octets) for flow in SMALL)


def heal(job: Job) -> list[str]:
    """Partitions: from the heal to the first message that was sent after it; and to the last of the backlog."""
    with job.trial(job.flows()) as trial:
        time.sleep(SETTLE_S)
        for _ in range(job.count):
            _during(trial, faults.Partition(), job.seconds)
            time.sleep(SETTLE_S + job.seconds / 4)
        outcome = trial.finish()
    first, backlog, up = [], [], []
    for moment in outcome.moments:
        for side in trial.nodes:
            ups = [at for at in _event_times(outcome, side, "PeerUp") if at > moment.ended_ns]
            up += [(ups[0] - moment.ended_ns) / 1e9] if ups else []
        for begun_ns, got_ns in _deliveries(outcome):
            new = np.searchsorted(begun_ns, moment.ended_ns)
            if new < len(got_ns):
                first.append((int(got_ns[new]) - moment.ended_ns) / 1e9)
            after = got_ns[(begun_ns < moment.ended_ns) & (begun_ns > moment.began_ns) & (got_ns > moment.ended_ns)]
            if len(after):
                backlog.append((int(after.max()) - int(after.min())) / 1e9)
    what = f"{job.seconds:g} s partition at {job.rate_hz:g} msg/s"
    return [
        f"PeerUp after a {what}: {figures(up)}",
        f"first new message after a {what}: {figures(first)}",
        f"backlog of a {what}, first to last message of it: {figures(backlog)}",
        _verdict(outcome),
    ]


def beyond(job: Job) -> list[str]:
    """A partition that no retention outlasts, 10 KB a message: what both sides name, and what is missing."""
    flows = tuple(Flow(flow.name, flow.sender, job.rate_hz, (10_000,)) for flow in SMALL)
    with job.trial(flows) as trial:
        time.sleep(SETTLE_S)
        before = {side: _rss(trial, side) for side in trial.nodes}
        with sampled(trial) as samples:
            _during(trial, faults.Partition(), job.seconds)
            time.sleep(SETTLE_S * 3)
        outcome = trial.finish()
    lines = []
    for sender in outcome.sessions:
        for flow, sends in sender.sends.items():
            delivered = {int(n) for one in outcome.sessions for (name, epoch), got in one.deliveries.items()
                         if (name, epoch) == (flow, sender.epoch) for n in got.sequence}  # fmt: skip
            gaps = _named("Gap", flow, [one for one in outcome.sessions if one is not sender])
            lost = _named("Lost", flow, [sender])
            begin = min(delivered, default=0)  # what is sent before the other is up is owed to nobody
            missing = {number for number in range(begin, len(sends.sequence)) if number not in delivered}
            lost = {number for number in lost if number >= begin}
            peak = max((rss for side, _, rss, _, _ in samples if side == sender.node), default=0)
            lines.append(
                f"{job.seconds:g} s partition at {job.rate_hz:g} msg/s of 10 KB, {flow} from {sender.node}: "
                f"{len(sends.sequence)} sent, {len(missing)} missing, {len(gaps)} in gaps, {len(lost)} lost; "
                f"{'equal' if missing == gaps == lost else 'NOT EQUAL'}; "
                f"RSS {before[sender.node] / 2**20:.0f} MiB before, {peak / 2**20:.0f} at most"
            )
    return [*lines, _verdict(outcome)]


def _named(name: str, flow: str, sessions: list[Session]) -> set[int]:
    """The sequences in all events of a kind."""
    reports = [report for one in sessions for report in one.events if report.name == name]
    ranges = [(one.fields["first"], one.fields["end"]) for one in reports if one.fields["flow"] == flow]
    return {number for first, end in ranges for number in range(first, end)}


def restart(job: Job) -> list[str]:
    """kill -9 and restart: from the opening of the new link to the first message that it sends, or gets."""
    lines = []
    for side in ("rw", "dt"):
        with Trial(job.folder / side, job.transport, job.flows(), reliability=job.reliability) as trial:
            time.sleep(SETTLE_S)
            for _ in range(job.count):
                _during(trial, faults.Kill(side), 0.3)
                time.sleep(SETTLE_S)
            outcome = trial.finish()
        new = [session for session in outcome.sessions if session.node == side][1:]
        others = [session for session in outcome.sessions if session.node != side]
        gets, sends = [], []
        for session in new:
            mine = [int(got.at_ns[0]) for got in session.deliveries.values() if len(got.at_ns)]
            theirs = [
                int(got.at_ns[0])
                for other in others
                for (_, epoch), got in other.deliveries.items()
                if epoch == session.epoch and len(got.at_ns)
            ]
            gets += [(min(mine) - session.opened_ns) / 1e9] if mine else []
            sends += [(min(theirs) - session.opened_ns) / 1e9] if theirs else []
        lines += [
            f"{side} killed and restarted, from its opening until it gets a message: {figures(gets)} of {len(new)}",
            f"{side} killed and restarted, from its opening until the other gets its message: {figures(sends)}",
            _verdict(outcome),
        ]
    return lines


DOWN: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "killed": (faults.Kill("rw"), ("dt",)),
    "stopped": (faults.Stop("rw"), ("dt",)),
    "partitioned": (faults.Partition(), ("dt", "rw")),
    "one way, rw-dt": (faults.OneWay("rw-dt"), ("dt", "rw")),
    "one way, dt-rw": (faults.OneWay("dt-rw"), ("dt", "rw")),
    "PMTU hole": (faults.PmtuHole(), ("dt", "rw")),
}


def down(job: Job) -> list[str]:
    """From a fault to PeerDown, on every side that could notice; and how often PeerDown came without a reason."""
    lines = []
    flows = (*job.flows(), Flow("bulk", "rw", 50.0, (5000,)), Flow("bulk-back", "dt", 50.0, (5000,)))
    for number, (name, (fault, sides)) in enumerate(DOWN.items()):
        with Trial(job.folder / f"{number}", job.transport, flows, reliability=job.reliability) as trial:
            time.sleep(SETTLE_S)
            for _ in range(job.count):
                _during(trial, fault, job.seconds)
                time.sleep(SETTLE_S)
            outcome = trial.finish()
        for side in sides:
            taken = []
            for moment in outcome.moments:
                downs = [at for at in _event_times(outcome, side, "PeerDown") if moment.began_ns < at < moment.ended_ns]
                taken += [(downs[0] - moment.began_ns) / 1e9] if downs else []
            lines.append(f"{name}, PeerDown at {side}: {figures(taken)} of {len(outcome.moments)}")
        lines.append(_verdict(outcome))
    with Trial(job.folder / "loss", job.transport, flows, reliability=job.reliability) as trial:
        time.sleep(SETTLE_S)
        before_ns = time.monotonic_ns()
        for _ in range(job.count * 2):
            _during(trial, faults.Drop(50), 2.0)
            time.sleep(0.5)
        after_ns = time.monotonic_ns()
        outcome = trial.finish()
    alarms = [
        at for side in ("dt", "rw") for at in _event_times(outcome, side, "PeerDown") if before_ns < at < after_ns
    ]
    lines.append(f"{job.count * 2} bursts of 2 s with 5 % loss: {len(alarms)} times PeerDown")
    return [*lines, _verdict(outcome)]


# 0 to 200 ms and 0 to 400 ms, each packet for itself, so that they overtake each other; with a rate they keep their
# order.
DELAYS = ("delay 100ms 100ms", "delay 200ms 200ms")
JITTER = [f"{delay}{order}" for delay in DELAYS for order in (" rate 1gbit", "")]
BURST_S = 2.0
KILLS = 5


def jitter(job: Job) -> list[str]:
    """Bursts of 5 % loss where the delay varies (it needs netem): PeerDown without a reason, and after a kill."""
    lines = []
    for number, what in enumerate(JITTER):
        path = faults.Netem(what)
        with Trial(job.folder / f"{number}", job.transport, job.flows(), reliability=job.reliability) as trial:
            path.begin(trial)
            began_ns = time.monotonic_ns()
            time.sleep(SETTLE_S)
            for _ in range(job.count):
                _during(trial, faults.Drop(50), BURST_S)
                time.sleep(job.seconds)
            ended_ns = time.monotonic_ns()
            path.end(trial)
            outcome = trial.finish()
        if not outcome.broken:
            lines.append(f"{what}, {job.count} bursts of {BURST_S:g} s with 5 % loss at {job.rate_hz:g} msg/s each way")
            lines += false_alarms(outcome, began_ns, ended_ns)
        lines.append(_verdict(outcome))
        with Trial(job.folder / f"{number}-kill", job.transport, job.flows(), reliability=job.reliability) as trial:
            path.begin(trial)
            for _ in range(KILLS):
                time.sleep(SETTLE_S * 2)  # until it is up again
                _during(trial, faults.Kill("rw"), 3.0)
            time.sleep(SETTLE_S * 2)
            path.end(trial)
            outcome = trial.finish()
        taken = []
        for moment in outcome.moments:
            downs = [at for at in _event_times(outcome, "dt", "PeerDown") if moment.began_ns < at < moment.ended_ns]
            taken += [(downs[0] - moment.began_ns) / 1e9] if downs else []
        lines += [f"{what}, killed, PeerDown at dt: {figures(taken)} of {KILLS}", _verdict(outcome)]
    return lines


def false_alarms(outcome: Outcome, began_ns: int, ended_ns: int) -> list[str]:
    """How often PeerDown came although nobody was gone, with what could explain it; and how near it was."""
    sent = {flow.sender: _times(outcome, flow, "sends") for flow in SMALL}
    got = {OTHER[flow.sender]: _times(outcome, flow, "deliveries") for flow in SMALL}
    found = sorted(
        (report.at_ns, session.node, report.fields["reason"])
        for session in outcome.sessions
        for report in session.events
        if report.name == "PeerDown" and began_ns < report.at_ns < ended_ns
    )
    silence = ", ".join(f"{side} {pause_s(at_ns, began_ns, ended_ns):.2f} s" for side, at_ns in got.items())
    trips = [round_trips(outcome, flow) for flow in SMALL]
    lines = [
        f"  {len(found)} times PeerDown in {(ended_ns - began_ns) / 1e9:.0f} s; longest without a message: {silence}; "
        f"round trips: p50 {max(one['p50'] for one in trips) / 1e6:.0f}, "
        f"p99 {max(one['p99'] for one in trips) / 1e6:.0f} ms"
    ]
    for at_ns, side, reason in found:
        since_ns = at_ns - 2_000_000_000
        burst = any(one.began_ns < at_ns < one.ended_ns + 1_000_000_000 for one in outcome.moments)
        pauses = ", ".join(f"{one} {pause_s(times, since_ns, at_ns):.2f} s" for one, times in sent.items())
        lines.append(
            f"  PeerDown at {side} ({reason}) after {(at_ns - began_ns) / 1e9:.1f} s, {'' if burst else 'not '}in a "
            f"burst; in the 2 s before, longest without a message: {pause_s(got[side], since_ns, at_ns):.2f} s; "
            f"without sending one: {pauses}"
        )
    return lines


def stalled(job: Job) -> list[str]:
    """A peer stopped under 1 MB messages: memory, send, PeerDown, and what is accounted for afterwards."""
    flows = (Flow("bulk", "rw", 40.0, (1_000_000,)),)
    with job.trial(flows) as trial:
        time.sleep(SETTLE_S)
        with sampled(trial) as samples:
            before = _rss(trial, "rw")
            _during(trial, faults.Stop("dt"), job.seconds)
            time.sleep(SETTLE_S)
        outcome = trial.finish()
    moment = outcome.moments[0]
    peak = max(rss for side, _, rss, _, _ in samples if side == "rw")
    downs = [at for at in _event_times(outcome, "rw", "PeerDown") if moment.began_ns < at < moment.ended_ns]
    refused = sum(session.refused for session in outcome.sessions)
    after = f"{(downs[0] - moment.began_ns) / 1e9:.2f} s" if downs else "never"
    return [
        f"peer stopped for {job.seconds:g} s under 40 messages/s of 1 MB: RSS {before / 2**20:.0f} MiB before, "
        f"{peak / 2**20:.0f} at most (+{(peak - before) / 2**20:.0f}); slowest send {outcome.slowest_send_s:.3f} s, "
        f"{refused} refused; PeerDown after {after}",
        _verdict(outcome),
    ]


def close(job: Job) -> list[str]:
    """Closes under load and faults (tests/faults/closer.py): how long each took, and what was left over."""
    rng = random.Random(job.count)
    flows = (Flow("traffic", "dt", 1000.0, (100, 10_000)),)
    with job.trial(flows) as trial, (job.folder / "closer.txt").open("ab") as errors:
        closer = trial.world.start(
            trial.world.rw, "tests.faults.closer", job.transport, f"tcp/{trial.world.listener}:{PORT}", str(job.count),
            errors=errors,
        )  # fmt: skip
        taken: list[dict[str, float]] = []

        def read() -> None:
            taken.extend(json.loads(line) for line in closer.stdout)

        reading = threading.Thread(target=read)
        reading.start()
        choices: list[Fault] = [
            faults.Partition(), faults.OneWay("rw-dt"), faults.OneWay("dt-rw"), faults.PmtuHole(), faults.Reset(),
            faults.Stop("dt"), faults.KillSockets("dt"), faults.Drop(100),
        ]  # fmt: skip
        while closer.poll() is None:
            _during(trial, rng.choice(choices), rng.uniform(0.2, 3.0))
            time.sleep(rng.uniform(0.1, 1.0))
        reading.join()
        outcome = trial.finish()
    verdict = outcome.verdict
    verdict.findings = [one for one in verdict.findings if one.flow != CLOSERS_FLOW]  # the closer keeps no ledger
    close_s = [one["close_s"] for one in taken]
    first, middle, last = taken[min(10, len(taken) - 1)], taken[len(taken) // 2], taken[-1]
    return [
        f"{len(close_s)} of {job.count} closes under load and faults: {figures(close_s)}, "
        f"{sum(s > 1 for s in close_s)} above 1 s; exit code {closer.returncode}; "
        f"threads {first['threads']} -> {last['threads']}, descriptors {first['fds']} -> {last['fds']}, "
        f"RSS {first['rss'] / 2**20:.1f} -> {middle['rss'] / 2**20:.1f} -> {last['rss'] / 2**20:.1f} MiB",
        _verdict(outcome),
    ]


def soak(job: Job) -> list[str]:
    """A fault every 10 s that nobody dies of: slopes of memory, threads and descriptors of both nodes."""
    until = time.monotonic() + job.seconds
    flows = (*job.flows(), Flow("bulk", "rw", 20.0, (50_000,)))
    seed = 0
    with job.trial(flows) as trial:
        time.sleep(SETTLE_S)
        with sampled(trial) as samples:
            while time.monotonic() < until:
                seed += 1
                step = draw(seed).steps[0]
                if isinstance(step.fault, faults.Kill | faults.FullDisk) or step.fault.needs_proxy:
                    continue
                began = time.monotonic()
                _during(trial, step.fault, step.lasts_s)
                time.sleep(max(0.0, min(began + SOAK_FAULT_S, until) - time.monotonic()))
        outcome = trial.finish()
    lines = []
    for side in ("dt", "rw"):
        rows = np.array([row[1:] for row in samples if row[0] == side], float)
        rows = rows[len(rows) // 5 :]  # what a process needs once is no leak
        begin, end = (np.median(part, axis=0) for part in np.array_split(rows, 10)[::9])
        slope = np.polyfit(rows[:, 0], rows[:, 1:], 1)[0] * 3600
        lines.append(
            f"{side} over {job.seconds:g} s, {len(outcome.moments)} faults: "
            f"RSS {begin[1] / 1e6:.1f} -> {end[1] / 1e6:.1f} MB ({slope[0] / 1e6:+.2f} MB/h), "
            f"descriptors {begin[2]:.0f} -> {end[2]:.0f} ({slope[1]:+.2f}/h), "
            f"threads {begin[3]:.0f} -> {end[3]:.0f} ({slope[2]:+.2f}/h)"
        )
    return [*lines, _verdict(outcome)]


GIGABIT = faults.RateLimit(1000)
BULK = Flow("bulk", "rw", 1000.0, (1_000_000,))  # more than the cable takes
BULK_ON_THE_CABLE_MS = 8.4
LAST_ACKS = 2048  # of a flow and peer: the link keeps their delays


def urgent(job: Job) -> list[str]:
    """Round trips of 100 B beside 1 MB messages that fill a gigabit: out beside the bulk, and back (their acks)."""
    flows = (Flow("control", "rw", job.rate_hz, (100,), "high"), Flow("report", "dt", job.rate_hz, (100,), "high"))
    lines: list[str] = []
    verdicts: list[str] = []
    idle_p99_ms: dict[str, float] = {}
    for what, beside in (("idle", ()), ("beside bulk", (BULK,))):
        # Received by iterating: what the application does with bulk is not on the way of the acks.
        with Trial(
            job.folder / what[:4], job.transport, (*flows, *beside), iterating=frozenset(("dt", "rw")),
            reliability=job.reliability,
        ) as trial:  # fmt: skip
            GIGABIT.begin(trial)
            time.sleep(SETTLE_S + max(job.seconds, LAST_ACKS / job.rate_hz))  # the first are not among the last
            outcome = trial.finish()
        verdicts.append(_verdict(outcome))
        if outcome.broken:
            return lines + verdicts
        for flow in flows:
            trips = round_trips(outcome, flow)
            p50_ms, p99_ms = trips["p50"] / 1e6, trips["p99"] / 1e6
            line = f"{flow.name} from {flow.sender}, {what}: n {trips['n']}, p50 {p50_ms:.2f}, p99 {p99_ms:.2f} ms"
            if beside:
                limit_ms = 2 * idle_p99_ms[flow.name] + BULK_ON_THE_CABLE_MS
                line += f"; limit {limit_ms:.2f} ms: {'kept' if p99_ms <= limit_ms else 'NOT KEPT'}"
            idle_p99_ms[flow.name] = p99_ms
            lines.append(line)
    (bulk_ns,) = (
        got.at_ns for one in outcome.sessions for (name, _), got in one.deliveries.items() if name == BULK.name
    )
    bulk_s = int(bulk_ns[-1] - bulk_ns[0]) / 1e9
    lines.append(f"bulk: {len(bulk_ns)} messages, {(len(bulk_ns) - 1) * BULK.octets[0] / 1e6 / bulk_s:.0f} MB/s")
    return lines + verdicts


def round_trips(outcome: Outcome, flow: Flow) -> dict[str, int]:
    """Percentiles of the last round trips of a flow, in ns, as its link counted them."""
    (session,) = (session for session in outcome.sessions if session.node == flow.sender)
    (peer,) = session.counters["stats"]["sent"][flow.name]["peers"].values()
    trips: dict[str, int] = peer["rtt_ns"]
    return trips


MEASURES: dict[str, Callable[[Job], list[str]]] = {
    measure.__name__: measure for measure in (heal, beyond, restart, down, jitter, stalled, close, soak, urgent)
}


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
                    samples.append((side, time.monotonic(), _rss(trial, side), fds, threads))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def _rss(trial: Trial, side: str) -> int:
    pages = Path("/proc", str(trial.nodes[side].popen.pid), "statm").read_text().split()[1]
    return int(pages) * 4096


def _during(trial: Trial, fault: Fault, lasts_s: float) -> None:
    """A fault, noted with its times."""
    moment = Moment(type(fault).__name__, time.monotonic_ns())
    fault.begin(trial)
    time.sleep(lasts_s)
    moment.ended_ns = time.monotonic_ns()
    fault.end(trial)
    trial.moments.append(moment)


def _deliveries(outcome: Outcome) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # type: ignore[type-arg]
    """For each flow: when each delivered message was begun, and when it was delivered; by sending."""
    for sender in outcome.sessions:
        for flow, sends in sender.sends.items():
            for receiver in outcome.sessions:
                got = receiver.deliveries.get((flow, sender.epoch))
                if got is not None:
                    order = np.argsort(got.sequence, kind="stable")
                    yield sends.begun_ns[got.sequence[order]], got.at_ns[order]


def _times(outcome: Outcome, flow: Flow, what: str) -> Numbers:
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


def _event_times(outcome: Outcome, side: str, name: str) -> list[int]:
    sessions: list[Session] = [session for session in outcome.sessions if session.node == side]
    return [report.at_ns for session in sessions for report in session.events if report.name == name]


def _verdict(outcome: Outcome) -> str:
    verdict = outcome.verdict
    if outcome.broken:
        return f"  BROKEN: {outcome.broken}"
    wrong = "; ".join(map(str, verdict.findings[:3]))
    return (
        f"  ledgers: {verdict.sent} sent, {verdict.delivered} delivered, {verdict.reported} reported as gaps, "
        f"{verdict.never_owed} sent to nobody, {verdict.died_with_sender + verdict.died_with_receiver} in doubt: "
        f"{f'{len(verdict.findings)} FINDINGS, {wrong}' if wrong else 'clean'}"
    )
