"""The goals, their figures and their verdicts."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Goal:
    """A row of the table.

    Attributes:
        metric: what is measured.
        wanted: the goal in words; each of its parts must meet it.
    """

    metric: str
    wanted: str


GOALS = {
    "L1": Goal(
        "RTT zeromq / bare pyzmq, 100 B to 100 KB", "p50 <= 0.7 where wake-ups are dear, 1.0 where cheap; p99 <= 1.1"
    ),
    "L2": Goal(
        "RTT zenoh / bare zenoh-python of the same tuning, 100 B to 100 KB",
        "p50 <= 0.8 where wake-ups are dear, 1.05 where cheap; p99 <= 1.1",
    ),
    "L3": Goal(
        "RTT p50 direct transport / raw TCP, blocking, 100 B to 100 KB",
        "<= 0.8 where wake-ups are dear, 1.5 where cheap; <= 1.5 without polling",
    ),
    "L4": Goal("1 MB RTT p50 / bare library or raw TCP", "zeromq <= 0.8, zenoh <= 1.0, direct <= 1.1"),
    "L5": Goal(
        "1 MB goodput", "zeromq / bare copy=False >= 0.9, direct / raw TCP >= 0.7; at 1 Gb/s all / raw TCP >= 0.99"
    ),
    "L6": Goal(
        "100 B records/s, received, verified and acknowledged", "batches >= 5 M/s; single calls / bare library >= 0.9"
    ),
    "L7": Goal("10 KB at 100/s to 16 receivers", "last receiver p50 / bare pyzmq <= 1.2; sender's call p50 <= 100 us"),
    "L8": Goal("processor time of a ping-pong of 100 B, each side / bare library", "<= 1.35"),
    "L9": Goal(
        "growth of a message's cost; 100 gNBs of 1.7 Mb/s through one router into one twin",
        "1000 flows / 1, 64 peers / 1, 10^6 kept / 0: <= 1.2; age p99 < 5 ms on four cores, 15 on two; 0 undetected",
    ),
    "L10": Goal(
        "slots of 71 KB at 2000/s, one a message, from the gNB's ring to a flowgraph",
        "0 lost but by the ring; age p99 < 10 ms; exporter < 0.7 core",
    ),
    "G4": Goal("RTT p50 MQTT QoS 0 (paho + mosquitto) / twinlink", ">= 10 at 100 B, >= 25 at 1 MB"),
    "G10": Goal(
        "gap tracking and repair on / off, 100 B", "p50 <= 1.02, rate >= 0.97; 10^4 recovered < 100 ms, 0 lost or twice"
    ),
    "G11": Goal("peak RSS growth while the peer is stopped, 1 MB messages", "<= 64 MiB, every drop counted"),
    "G13": Goal("header octets; octets on the wire for 100 B", "<= 32; reported"),
    "G14": Goal("clock offset error against truth, one host", "p95 <= 2 us; the bound covers the truth >= 99 %"),
    "G15": Goal("one-way IPDV p95 at 50 % load / raw TCP", "<= 1.5"),
    "G16": Goal("CI95 coverage on AR(1), rho 0.9", "93 to 97 %"),
}


@dataclass(frozen=True)
class Part:
    """One figure of a row.

    Attributes:
        goal: name of its row.
        name: its subject, such as ``zeromq 100 B p50``.
        value: the figure; a ratio unless ``unit`` says otherwise.
        least, most: the goal; both None for a figure that is only reported.
        interval: of the value, at ``level`` confidence; or None.
        values: of each round.
        note: terms of a ratio, such as ``45 / 44 us``.
    """

    goal: str
    name: str
    value: float
    least: float | None = None
    most: float | None = None
    interval: tuple[float, float] | None = None
    level: float | None = None
    unit: str = ""
    values: tuple[float, ...] = ()
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        return None if self.least is self.most is None else self._within(self.value)

    @property
    def sure(self) -> bool:
        """Whether the whole interval, or none of it, meets the goal."""
        if self.interval is None:
            return True
        low, high = self.interval
        outside = (self.least is not None and high < self.least) or (self.most is not None and low > self.most)
        return outside or (self._within(low) and self._within(high))

    def _within(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def as_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "met": self.met, "sure": self.sure}

    def __str__(self) -> str:
        text = f"{self.name} {number(self.value)}{self.unit}"
        if self.interval is not None:
            text += f" ({number(self.interval[0])} to {number(self.interval[1])})"
        return text + (f", {self.note}" if self.note else "")


@dataclass(frozen=True)
class Row:
    """The result of a goal: its parts, and why some or all are missing."""

    name: str
    parts: tuple[Part, ...]
    reasons: tuple[str, ...]

    @property
    def goal(self) -> Goal:
        """The goal."""
        return GOALS[self.name]

    @property
    def complete(self) -> bool:
        """Whether everything measurable was measured."""
        return not self.reasons

    @property
    def met(self) -> bool | None:
        """Whether the measured parts meet the goal; None without any."""
        judged = [part.met for part in self.parts if part.met is not None]
        if not judged:
            return None
        return all(judged)

    @property
    def verdict(self) -> str:
        """The verdict for the table."""
        missing = "; ".join(self.reasons) or "nothing was measured"
        if self.met is None:
            return f"not measured: {missing}"
        deciding = [part for part in self.parts if part.met == self.met]
        decides = all if self.met else any  # one certain part that is missed is enough
        text = ("met" if self.met else "missed") + ("" if decides(part.sure for part in deciding) else ", not sure")
        return text + (f"; not measured: {missing}" if self.reasons else "")

    def as_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "goal": self.name,
            "metric": self.goal.metric,
            "wanted": self.goal.wanted,
            "verdict": self.verdict,
            "met": self.met,
            "complete": self.complete,
            "reasons": list(self.reasons),
            "parts": [part.as_json() for part in self.parts],
        }


def ratio(
    goal: str,
    name: str,
    pairs: Sequence[tuple[float, float]],
    *,
    least: float | None = None,
    most: float | None = None,
    scale: float = 1.0,
    unit: str = "",
) -> Part | None:
    """The median of the rounds' ratios; None without a round.  The interval is `median_interval`.

    ``scale`` and ``unit`` are those of the amounts, which are shown as medians if there is a unit.
    """
    pairs = [(a, b) for a, b in pairs if b > 0]
    found = over_rounds(goal, name, [a / b for a, b in pairs], least=least, most=most)
    if found is None or not unit:
        return found
    amounts = " / ".join(number(statistics.median(side) * scale) for side in zip(*pairs, strict=True))
    return replace(found, note=amounts + unit)


def over_rounds(
    goal: str,
    name: str,
    values: Sequence[float],
    *,
    least: float | None = None,
    most: float | None = None,
    unit: str = "",
) -> Part | None:
    """The median of a figure that each round has; None without a round."""
    if not values:
        return None
    middle = statistics.median(values)
    if len(values) == 1:
        return Part(goal, name, middle, least, most, unit=unit, values=tuple(values))
    low, high, level = median_interval(values)
    return Part(goal, name, middle, least, most, (low, high), level, unit, tuple(values))


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The interval of the median between two of the values, and its confidence.

    It assumes only independent values (sign test): the narrowest interval with 95 %, or from the least to the greatest
    value if there are too few (below 6).
    """
    ordered, n = sorted(values), len(values)
    left_out = 0  # at each end
    while left_out + 1 < (n + 1) // 2 and _confidence(left_out + 1, n) >= LEVEL:
        left_out += 1
    return ordered[left_out], ordered[n - 1 - left_out], _confidence(left_out, n)


def _confidence(left_out: int, n: int) -> float:
    return float(1 - 2 * stats.binom.cdf(left_out, n, 0.5)) if n > 1 else 0.0


def number(value: float) -> str:
    """A figure to three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def markdown(rows: Sequence[Row]) -> str:
    """The table, for a file."""
    lines = ["| | metric | goal | measured | verdict |", "|---|---|---|---|---|"]
    for row in rows:
        measured = "<br>".join(map(_marked, row.parts)) or "-"
        lines.append(f"| {row.name} | {row.goal.metric} | {row.goal.wanted} | {measured} | {row.verdict} |")
    return "\n".join(lines) + "\n"


def text(rows: Sequence[Row]) -> str:
    """The table, for a terminal: a paragraph for each goal."""
    paragraphs = []
    for row in rows:
        head = f"{row.name:4}{row.goal.metric}: {row.goal.wanted}"
        body = [f"      {_marked(part)}" for part in row.parts]
        paragraphs.append("\n".join([head, *body, f"    = {row.verdict}"]))
    return "\n".join(paragraphs) + "\n"


def _marked(part: Part) -> str:
    return str(part) + {True: "", False: "  (missed)", None: "  (reported)"}[part.met]
