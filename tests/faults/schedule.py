"""What happens in a run, drawn from a seed: the flows, the way the nodes receive, and the faults in their order."""

import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import faults
from .faults import Fault

MIB = 1024 * 1024
LOAD_OCTETS_S = 8_000_000  # both directions and all flows together stay below this: the lab tests order, not speed


@dataclass(frozen=True)
class Flow:
    """Traffic on one flow: ``sender`` is "dt", or "rw": every connector; without ``priority`` the library chooses."""

    name: str
    sender: str
    rate_hz: float
    octets: tuple[int, ...]
    priority: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.rate_hz:g}:{','.join(map(str, self.octets))}:{self.priority}"


@dataclass(frozen=True)
class Step:
    """After ``wait_s`` the fault begins, and is ended ``lasts_s`` later."""

    wait_s: float
    fault: Fault
    lasts_s: float = 0.0

    def __str__(self) -> str:
        values = ",".join(str(value) for value in asdict(self.fault).values())
        lasts = f" {self.lasts_s:g}s" if self.lasts_s else ""
        return f"{type(self.fault).__name__}({values}){lasts}"


@dataclass(frozen=True)
class Schedule:
    """One run.

    Attributes:
        background: faults that last for the whole run.
        connectors: nodes that connect; with several, each flow of "rw" has as many senders.
        proxied: whether the connectors reach the listener through the proxy.
        iterating: nodes that receive by iterating, in threads of their own; the others in handlers.
        subscribing_late: nodes that subscribe when their link has been open for a while: what comes before that is
            held, or rejected.
        quiet_s: after the last step, before what is in the background ends.
        calm_s: after the last fault, before the end is called for.
    """

    seed: int
    flows: tuple[Flow, ...]
    steps: tuple[Step, ...]
    background: tuple[Fault, ...] = ()
    connectors: tuple[str, ...] = ("rw",)
    proxied: bool = False
    iterating: frozenset[str] = frozenset()
    subscribing_late: frozenset[str] = frozenset()
    quiet_s: float = 0.0
    calm_s: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long the traffic runs, about."""
        return sum(step.wait_s + step.lasts_s for step in self.steps) + self.quiet_s + self.calm_s

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All of them."""
        return *self.background, *(step.fault for step in self.steps)

    def __str__(self) -> str:
        ambient = [f"all the time {Step(0, fault)}" for fault in self.background]
        several = [f"{len(self.connectors)} connectors"] if len(self.connectors) > 1 else []
        options = [f"{name} {value // MIB} MiB" for name, value in self.options.items()]
        late = [f"{', '.join(sorted(self.subscribing_late))} late"] if self.subscribing_late else []
        return " · ".join(
            [*several, *options, *late, *(["proxy"] if self.proxied else []), *ambient, *map(str, self.steps)]
        )


def draw(seed: int, seconds: float = 12.0, load: float = 1.0, connectors: int = 1) -> Schedule:
    """The schedule of a seed; the same for the same arguments, on every machine and for every transport.

    ``load`` multiplies the rates of the flows, as far as LOAD_OCTETS_S allows; the faults stay as they are.  With
    several ``connectors`` these are other schedules: a fault of one side is that of any node, one of them may be slow,
    and in half of them little is kept, so that a slow one loses messages.
    """
    rng = random.Random(seed)
    names = ("rw", *(f"rw{number}" for number in range(2, connectors + 1)))
    proxied = rng.random() < 0.3
    background: list[Fault] = []
    if rng.random() < 0.15:
        background.append(faults.Drop(rng.choice((1, 5, 20))))
    if rng.random() < 0.1:
        background.append(faults.RateLimit(rng.choice((100, 400))))
    steps: list[Step] = []
    spent_s = 0.0
    while spent_s < seconds:
        fault, lasts_s = _fault(rng, proxied, ("rw", "dt") if connectors == 1 else ("dt", *names))
        if any(type(fault) is type(other) for other in background):
            continue
        wait_s = round(rng.uniform(0.2, 1.5), 2)
        steps.append(Step(wait_s, fault, lasts_s))
        spent_s += wait_s + lasts_s
    iterating = frozenset(side for side in ("dt", *names) if rng.random() < 0.5)
    flows = _flows(rng, load / connectors)
    options = {"retention": 4 * MIB, "window": 16 * MIB} if connectors > 1 and rng.random() < 0.5 else {}
    return Schedule(seed, flows, tuple(steps), tuple(background), names, proxied, iterating, options=options)


def tighten(schedule: Schedule) -> Schedule:
    """The same with windows of 1 MiB, slow handlers and late subscriptions, drawn by its seed.

    A handler that is slow all the time is so until its node is killed, or a step in which it was slow ends.
    """
    rng = random.Random(f"{schedule.seed} tight")
    sides = ("dt", *schedule.connectors)

    def slow() -> Fault:
        return faults.HandlerSlow(rng.choice(sides), rng.choice((0.005, 0.02, 0.05, 0.5)))

    steps = list(schedule.steps)
    for _ in range(rng.randint(0, 2)):
        step = Step(round(rng.uniform(0.2, 1.5), 2), slow(), round(rng.uniform(2.0, 5.0), 2))
        steps.insert(rng.randint(0, len(steps)), step)
    background = (*schedule.background, *([slow()] if rng.random() < 0.6 else []))
    options = {**schedule.options, "window": MIB, "retention": rng.choice((2, 8, 64)) * MIB}
    late = frozenset(side for side in sides if rng.random() < 0.25)
    return replace(schedule, steps=tuple(steps), background=background, options=options, subscribing_late=late)


DELAYS = ("delay 1ms", "delay 10ms", "delay 40ms 10ms", "delay 100ms 100ms")
LOSSES = ("loss 0%", "loss 1%", "loss 5% 25%", "loss gemodel 1% 20%")  # none, at random, correlated, in bursts
SPOILERS = ("reorder 25% 50%", "duplicate 2%", "corrupt 0.5%")
CELLS = [f"{delay} {loss} {spoiler}" for delay in DELAYS for loss in LOSSES for spoiler in SPOILERS]


def netem(seed: int, seconds: float = 12.0, load: float = 1.0) -> Schedule:
    """A cell of the matrix of delays, losses and what else a network does; in every other one the clock jumps too."""
    rng = random.Random(seed)
    matrix = faults.Netem(CELLS[(seed - 1) % len(CELLS)])
    third_s = round(seconds / 3, 2)
    steps = [Step(third_s, faults.ClockStep(jump)) for jump in ((3600.0, -7200.0) if seed % 2 else ())]
    quiet_s = third_s if steps else seconds
    return Schedule(seed, _flows(rng, load), tuple(steps), (matrix,), quiet_s=quiet_s)


def _flows(rng: random.Random, load: float) -> tuple[Flow, ...]:
    made = []
    sides = ["rw", "dt", *rng.choices(("rw", "dt"), k=rng.randint(0, 2))]
    for number, side in enumerate(sides):
        octets = rng.choice(((100,), (100, 1000), (64, 1400, 9000), (100_000,), (30, 1_000_000)))
        ceiling_hz = LOAD_OCTETS_S / len(sides) * len(octets) / sum(octets)
        rate_hz = min(rng.choice((50.0, 200.0, 1000.0, 2000.0)) * load, ceiling_hz)
        made.append(Flow(f"{'traffic' if side == 'rw' else 'control'}-{number}", side, round(rate_hz, 1), octets))
    return tuple(made)


def _fault(rng: random.Random, proxied: bool, sides: tuple[str, ...]) -> tuple[Fault, float]:
    """A fault and how long it lasts; what matters most comes most often."""
    side = rng.choice(sides)
    brief, long = round(rng.uniform(0.1, 1.5), 2), round(rng.uniform(2.0, 5.0), 2)
    lasting = rng.choice((brief, long))
    choices: list[tuple[int, Fault, float]] = [
        (4, faults.Partition(), lasting),
        (3, faults.OneWay(rng.choice(("rw-dt", "dt-rw"))), lasting),
        (3, faults.Kill(side), brief),
        (2, faults.Stop(side), lasting),
        (2, faults.Reset(), brief),
        (2, faults.PmtuHole(), lasting),
        (3, faults.KillSockets(side), 0.0),
        (2, faults.Drop(rng.choice((50, 100, 300))), brief),
        (1, faults.RateLimit(rng.choice((5, 20))), brief),
        (1, faults.Strangers(rng.choice(("idle", "garbage")), rng.choice((20, 200)), 1.0), 0.0),
        (1, faults.HandlerRaises(side, rng.choice((1, 50))), 0.0),
        (1, faults.HandlerBlocks(side, rng.choice((0.2, 1.0, 3.0))), 0.0),
        (1, faults.HandlerSends(side, rng.choice((1, 200))), 0.0),
        (1, faults.Fork(side), 0.0),
        (1, faults.FullDisk(side), 0.0),
    ]
    if len(sides) > 2:
        choices.append((6, faults.HandlerSlow(rng.choice(sides[1:]), rng.choice((0.02, 0.05, 0.5))), long))
    if proxied:
        choices += [
            (3, faults.Slice(rng.choice((1, 7, 100)), rng.choice((0, 200))), brief),
            (3, faults.Stall(), lasting),
            (3, faults.ProxyReset(), 0.0),
        ]
    _, fault, lasts_s = rng.choices(choices, [weight for weight, _, _ in choices])[0]
    return fault, lasts_s
