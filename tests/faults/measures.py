"""Durations under faults: figures of many equal runs, from the ledgers."""

import json
import random
import threading
import time
from collections.abc import Callable

import numpy as np

from . import faults
from .closer import FLOW as CLOSERS_FLOW
from .ledger import Session
from .measuring import (
    SETTLE_S,
    SMALL,
    Job,
    deliveries,
    during,
    event_times,
    figures,
    round_trips,
    rss,
    sampled,
    verdict_of,
)
from .schedule import Flow, draw
from .silence import down, jitter
from .trial import PORT, Trial

SOAK_FAULT_S = 10.0


def heal(job: Job) -> list[str]:
    """Partitions: from the heal to the first message that was sent after it; and to the last of the backlog."""
    return _healed(job, job.flows(), "each way")


def heal_one_way(job: Job) -> list[str]:
    """The same with one flow, from the Real World to the Digital Twin."""
    return _healed(job, tuple(flow for flow in job.flows() if flow.sender == "rw"), "one way")


def _healed(job: Job, flows: tuple[Flow, ...], ways: str) -> list[str]:
    with job.trial(flows, buffered=True) as trial:
        time.sleep(SETTLE_S)
        for _ in range(job.count):
            during(trial, faults.Partition(), job.seconds)
            time.sleep(SETTLE_S + job.seconds / 4)
        outcome = trial.finish()
    first, backlog, up = [], [], []
    for moment in outcome.moments:
        for side in trial.nodes:
            ups = [at for at in event_times(outcome, side, "PeerUp") if at > moment.ended_ns]
            up += [(ups[0] - moment.ended_ns) / 1e9] if ups else []
        for begun_ns, got_ns in deliveries(outcome):
            new = np.searchsorted(begun_ns, moment.ended_ns)
            if new < len(got_ns):
                first.append((int(got_ns[new]) - moment.ended_ns) / 1e9)
            after = got_ns[(begun_ns < moment.ended_ns) & (begun_ns > moment.began_ns) & (got_ns > moment.ended_ns)]
            if len(after):
                backlog.append((int(after.max()) - int(after.min())) / 1e9)
    what = f"{job.seconds:g} s partition at {job.rate_hz:g} msg/s {ways}"
    return [
        f"PeerUp after a {what}: {figures(up)}",
        f"first new message after a {what}: {figures(first)}",
        f"backlog of a {what}, first to last message of it: {figures(backlog)}",
        verdict_of(outcome),
    ]


def beyond(job: Job) -> list[str]:
    """A partition that no retention outlasts, 10 KB a message: what both sides name, and what is missing."""
    flows = tuple(Flow(flow.name, flow.sender, job.rate_hz, (10_000,)) for flow in SMALL)
    with job.trial(flows) as trial:
        time.sleep(SETTLE_S)
        before = {side: rss(trial, side) for side in trial.nodes}
        with sampled(trial) as samples:
            during(trial, faults.Partition(), job.seconds)
            time.sleep(SETTLE_S * 3)
        outcome = trial.finish()
    lines = []
    for sender in outcome.sessions:
        for flow, sends in sender.sends.items():
            delivered = {int(n) for one in outcome.sessions for (name, epoch), got in one.deliveries.items()
                         if (name, epoch) == (flow, sender.epoch) for n in got.sequence}  # fmt: skip
            gaps = _named("Gap", flow, [one for one in outcome.sessions if one is not sender])
            lost = _named("Lost", flow, [sender])
            ups = [report.at_ns for report in sender.events if report.name == "PeerUp"]
            begin = int(np.searchsorted(sends.begun_ns, min(ups)))  # no peer is owed earlier messages
            missing = set(range(begin, len(sends.sequence))) - delivered
            gaps, lost = ({number for number in named if number >= begin} for named in (gaps, lost))
            peak = max((rss for side, _, rss, _, _ in samples if side == sender.node), default=0)
            lines.append(
                f"{job.seconds:g} s partition at {job.rate_hz:g} msg/s of 10 KB, {flow} from {sender.node}: "
                f"{len(sends.sequence)} sent, {len(missing)} missing, {len(gaps)} in gaps, {len(lost)} lost; "
                f"{'equal' if missing == gaps == lost else 'NOT EQUAL'}; "
                f"RSS {before[sender.node] / 2**20:.0f} MiB before, {peak / 2**20:.0f} at most"
            )
    return [*lines, verdict_of(outcome)]


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
                during(trial, faults.Kill(side), 0.3)
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
            verdict_of(outcome),
        ]
    return lines


def stalled(job: Job) -> list[str]:
    """A peer stopped under 1 MB messages: memory, send, PeerDown, and what is accounted for afterwards."""
    flows = (Flow("bulk", "rw", 40.0, (1_000_000,)),)
    with job.trial(flows) as trial:
        time.sleep(SETTLE_S)
        with sampled(trial) as samples:
            before = rss(trial, "rw")
            during(trial, faults.Stop("dt"), job.seconds)
            time.sleep(SETTLE_S)
        outcome = trial.finish()
    moment = outcome.moments[0]
    peak = max(rss for side, _, rss, _, _ in samples if side == "rw")
    downs = [at for at in event_times(outcome, "rw", "PeerDown") if moment.began_ns < at < moment.ended_ns]
    refused = sum(session.refused for session in outcome.sessions)
    after = f"{(downs[0] - moment.began_ns) / 1e9:.2f} s" if downs else "never"
    return [
        f"peer stopped for {job.seconds:g} s under 40 messages/s of 1 MB: RSS {before / 2**20:.0f} MiB before, "
        f"{peak / 2**20:.0f} at most (+{(peak - before) / 2**20:.0f}); slowest send {outcome.slowest_send_s:.3f} s, "
        f"{refused} refused; PeerDown after {after}",
        verdict_of(outcome),
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
        choices: list[faults.Fault] = [
            faults.Partition(), faults.OneWay("rw-dt"), faults.OneWay("dt-rw"), faults.PmtuHole(), faults.Reset(),
            faults.Stop("dt"), faults.KillSockets("dt"), faults.Drop(100),
        ]  # fmt: skip
        while closer.poll() is None:
            during(trial, rng.choice(choices), rng.uniform(0.2, 3.0))
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
        verdict_of(outcome),
    ]


def soak(job: Job) -> list[str]:
    """A fault every 10 s that kills no process: slopes of memory, threads and descriptors of both nodes."""
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
                during(trial, step.fault, step.lasts_s)
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
    return [*lines, verdict_of(outcome)]


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
        verdicts.append(verdict_of(outcome))
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


MEASURES: dict[str, Callable[[Job], list[str]]] = {
    measure.__name__: measure
    for measure in (heal, heal_one_way, beyond, restart, down, jitter, stalled, close, soak, urgent)
}
