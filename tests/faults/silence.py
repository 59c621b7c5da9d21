"""Detection time of a lost peer, and rate of false alarms."""

import time

from . import faults
from .faults import Fault
from .measuring import SETTLE_S, SMALL, Job, during, event_times, figures, pause_s, round_trips, times_of, verdict_of
from .schedule import Flow
from .trial import OTHER, Outcome, Trial

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
                during(trial, fault, job.seconds)
                time.sleep(SETTLE_S)
            outcome = trial.finish()
        for side in sides:
            taken = []
            for moment in outcome.moments:
                downs = [at for at in event_times(outcome, side, "PeerDown") if moment.began_ns < at < moment.ended_ns]
                taken += [(downs[0] - moment.began_ns) / 1e9] if downs else []
            lines.append(f"{name}, PeerDown at {side}: {figures(taken)} of {len(outcome.moments)}")
        lines.append(verdict_of(outcome))
    with Trial(job.folder / "loss", job.transport, flows, reliability=job.reliability) as trial:
        time.sleep(SETTLE_S)
        before_ns = time.monotonic_ns()
        for _ in range(job.count * 2):
            during(trial, faults.Drop(50), 2.0)
            time.sleep(0.5)
        after_ns = time.monotonic_ns()
        outcome = trial.finish()
    alarms = [at for side in ("dt", "rw") for at in event_times(outcome, side, "PeerDown") if before_ns < at < after_ns]
    lines.append(f"{job.count * 2} bursts of 2 s with 5 % loss: {len(alarms)} times PeerDown")
    return [*lines, verdict_of(outcome)]


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
                during(trial, faults.Drop(50), BURST_S)
                time.sleep(job.seconds)
            ended_ns = time.monotonic_ns()
            path.end(trial)
            outcome = trial.finish()
        if not outcome.broken:
            lines.append(f"{what}, {job.count} bursts of {BURST_S:g} s with 5 % loss at {job.rate_hz:g} msg/s each way")
            lines += false_alarms(outcome, began_ns, ended_ns)
        lines.append(verdict_of(outcome))
        with Trial(job.folder / f"{number}-kill", job.transport, job.flows(), reliability=job.reliability) as trial:
            path.begin(trial)
            for _ in range(KILLS):
                time.sleep(SETTLE_S * 2)  # until it is up again
                during(trial, faults.Kill("rw"), 3.0)
            time.sleep(SETTLE_S * 2)
            path.end(trial)
            outcome = trial.finish()
        taken = []
        for moment in outcome.moments:
            downs = [at for at in event_times(outcome, "dt", "PeerDown") if moment.began_ns < at < moment.ended_ns]
            taken += [(downs[0] - moment.began_ns) / 1e9] if downs else []
        lines += [f"{what}, killed, PeerDown at dt: {figures(taken)} of {KILLS}", verdict_of(outcome)]
    return lines


def false_alarms(outcome: Outcome, began_ns: int, ended_ns: int) -> list[str]:
    """False PeerDown events with possible explanations, and near misses."""
    sent = {flow.sender: times_of(outcome, flow, "sends") for flow in SMALL}
    got = {OTHER[flow.sender]: times_of(outcome, flow, "deliveries") for flow in SMALL}
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
