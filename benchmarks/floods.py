"""Messages sent as fast as the calls return: L5, and parts of L6 and G10."""

from collections.abc import Callable

import numpy as np
from twinlink_measure.cell_run import RoundResult
from twinlink_measure.namespaces import Namespaces
from twinlink_measure.setting import Loopback
from twinlink_measure.worker_handle import Interrupted

from twinlink.process.ports import free_ports

from .bench import DIRECT, NEEDS_ROOT, TRANSPORTS, Bench, Measurement, is_root
from .contest import FAILURES, Contestant, plain
from .round_trips import MB
from .sender import SenderProcess
from .verdict import Part, ratio

WITHOUT_REPAIR = [Contestant(f"{name}-detect", name, {"reliability": "detect"}) for name in TRANSPORTS]
COUNT = 20_000  # messages of a flood
BY_REFERENCE = "raw-zeromq copy=False"


def arrivals_per_s(taken: RoundResult) -> float:
    """Received rate, from the first message to the last; 0 unless every one arrived."""
    if len(np.unique(taken.received["sequence"])) < len(taken.sent) or len(taken.sent) < 2:
        return 0.0
    times = taken.received["received_ns"]
    return float((len(times) - 1) / (int(times.max()) - int(times.min())) * 1e9)


class SmallFloods(Measurement):
    """100 B on every transport, on the bare library, and without repair."""

    goals = ("L6", "G10")
    seconds = 100.0

    def __init__(self) -> None:
        self._rounds: list[dict[str, list[RoundResult]]] = []

    def run(self, bench: Bench) -> None:
        """Measure three floods of each contestant per round."""
        contestants = plain(*TRANSPORTS)
        if "L6" in bench.wanted:
            contestants += plain("raw-zeromq", "raw-zenoh")
        if "G10" in bench.wanted:
            contestants += WITHOUT_REPAIR
        count = bench.scaled(COUNT, 1000)
        for each in bench.rounds_of("floods of 100 B", contestants, Loopback()):
            taken: dict[str, list[RoundResult]] = {}
            for _ in range(bench.scaled(3, 1)):
                for name in each.shuffled([one.name for one in contestants]):
                    block = each.take(name, 100, count, closed=False)
                    if block is None:
                        continue
                    if not arrivals_per_s(block):
                        each.fail(name, "not every message arrived")
                        continue
                    taken.setdefault(name, []).append(block)
            bench.missing_for(self.goals, each.lost)
            self._rounds.append(taken)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Ratios of the rates."""
        found: list[Part | None] = []
        for name in TRANSPORTS:
            raw = f"raw-{name}"
            for goal, other, least in (("L6", raw, 0.90), ("G10", f"{name}-detect", 0.97)):
                pairs = self._pairs(name, other, lambda blocks: float(np.median([arrivals_per_s(b) for b in blocks])))
                found.append(
                    ratio(goal, f"{name} / {other} messages/s", pairs, least=least, scale=1e-3, unit=" thousand/s")
                )
        return found

    def _pairs(self, one: str, other: str, figure: Callable[[list[RoundResult]], float]) -> list[tuple[float, float]]:
        return [(figure(each[one]), figure(each[other])) for each in self._rounds if one in each and other in each]


class Goodput(Measurement):
    """1 MB messages relative to the bare library or TCP, on loopback and over a cable of 1 Gb/s."""

    goals = ("L5",)
    seconds = 80.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[dict[str, float]]] = {"loopback": [], "1 Gb/s": []}

    def run(self, bench: Bench) -> None:
        """Measure octets per second of each contestant, in rounds."""
        count = bench.scaled(600, 20)
        self._measure(bench, "loopback", Loopback(), ("zeromq", DIRECT, "raw-tcp"), count)
        if not is_root():
            bench.missing("L5", f"at 1 Gb/s: {NEEDS_ROOT}")
            return
        try:
            with Namespaces("1gbit") as setting:
                self._measure(bench, "1 Gb/s", setting, (*TRANSPORTS, DIRECT, "raw-tcp"), bench.scaled(80, 20))
        except FAILURES as error:
            bench.missing("L5", f"at 1 Gb/s: {error}")

    def _measure(
        self, bench: Bench, where: str, setting: Loopback | Namespaces, subjects: tuple[str, ...], count: int
    ) -> None:
        for each in bench.rounds_of(f"1 MB, {where}", plain(*subjects), setting, min(bench.rounds, 6)):
            taken: dict[str, list[float]] = {}
            for _ in range(bench.scaled(2, 1)):
                for name in each.shuffled(subjects):
                    block = each.take(name, MB, count, closed=False)
                    if block is not None:
                        taken.setdefault(name, []).append(arrivals_per_s(block) * MB)
                if isinstance(setting, Loopback):
                    try:
                        taken.setdefault(BY_REFERENCE, []).append(by_reference_per_s(count) * MB)
                    except OSError as error:
                        bench.missing("L5", f"{BY_REFERENCE}: {error}")
            bench.missing_for(self.goals, each.lost)
            self._rounds[where].append({name: float(np.median(values)) for name, values in taken.items()})
            if bench.stopped():
                raise Interrupted

    def parts(self, bench: Bench) -> list[Part | None]:
        """Ratios in the same round."""
        compared = [("loopback", "zeromq", BY_REFERENCE, 0.9), ("loopback", DIRECT, "raw-tcp", 0.7)]
        compared += [("1 Gb/s", name, "raw-tcp", 0.99) for name in (*TRANSPORTS, DIRECT)]
        return [
            ratio(
                "L5",
                f"{name} / {other}, {where}",
                [(each[name], each[other]) for each in self._rounds[where] if name in each and other in each],
                least=least,
                scale=8e-9,
                unit=" Gb/s",
            )
            for where, name, other, least in compared
        ]


def by_reference_per_s(count: int) -> float:
    """1 MB messages of bare pyzmq that arrive in a second, none of them copied by it."""
    endpoint = f"tcp://127.0.0.1:{free_ports(1)}"
    sender, receiver = (SenderProcess(role, "zeromq", endpoint) for role in ("by-reference", "takes-by-reference"))
    try:
        sender.answer()
        receiver.tell(f"receive {count}")
        sender.tell(f"send {count} {MB}")
        return float((count - 1) / receiver.answer()["took_ns"] * 1e9)
    finally:
        receiver.end()
        sender.end()
