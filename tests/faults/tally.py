"""What came of many runs: counts, and the worst of all figures with the run that it comes from."""

import time
from collections import Counter
from dataclasses import dataclass, field

from .schedule import Schedule
from .trial import Outcome


@dataclass
class Tally:
    """Grows by `add`; prints itself."""

    began: float = field(default_factory=time.monotonic)
    runs: Counter[str] = field(default_factory=Counter)  # by transport
    seeds: set[int] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    sent: int = 0
    delivered: int = 0
    reported: int = 0
    doubt: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)

    def add(self, schedule: Schedule, transport: str, outcome: Outcome) -> None:
        """A run that was judged."""
        verdict, run = outcome.verdict, f"seed {schedule.seed}, {transport}"
        self.runs[transport] += 1
        self.seeds.add(schedule.seed)
        if not outcome.clean:
            self.failed.append(run)
        self.sent += verdict.sent
        self.delivered += verdict.delivered
        self.reported += verdict.reported
        self.doubt += verdict.died_with_sender + verdict.died_with_receiver
        self.faults.update(type(fault).__name__ for fault in schedule.faults)
        figures = {"send": outcome.slowest_send_s, "close": max(outcome.close_s.values(), default=0.0)}
        for name, seconds in figures.items():
            self.worst[name] = max(self.worst.get(name, (0.0, run)), (seconds, run))

    def __str__(self) -> str:
        took_min = (time.monotonic() - self.began) / 60
        runs = ", ".join(f"{count} {transport}" for transport, count in sorted(self.runs.items()))
        kinds = ", ".join(f"{count} {name}" for name, count in self.faults.most_common())
        worst = ", ".join(f"{name} {seconds:.3f} s ({run})" for name, (seconds, run) in self.worst.items())
        return "\n".join(
            [
                f"{self.runs.total()} runs ({runs or 'none'}) of {len(self.seeds)} schedules in {took_min:.1f} min: "
                f"{len(self.failed)} failed{': ' if self.failed else ''}{'; '.join(self.failed)}",
                f"{self.sent} messages sent ({self.sent / max(took_min, 1e-9):.0f} a minute), {self.delivered} "
                f"delivered, {self.reported} reported as gaps, {self.doubt} in doubt",
                f"{self.faults.total()} faults: {kinds or 'none'}",
                f"slowest: {worst or 'none'}",
            ]
        )
