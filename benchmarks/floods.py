"""Messages sent as fast as the calls return: G5, G7, and parts of G9 and G10."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable

import numpy as np
from twinlink_measure.cell_run import RoundResult
from twinlink_measure.namespaces import ADDRESSES, Namespaces
from twinlink_measure.setting import Loopback
from twinlink_measure.worker_handle import Interrupted

from twinlink.process.ports import free_ports

from .bench import NEEDS_ROOT, TRANSPORTS, Bench, Measurement, is_root
from .contest import FAILURES, Contestant, plain
from .round_trips import MB, per_message
from .verdict import Part, ratio

WITHOUT_REPAIR = [Contestant(f"{name}-detect", name, {"reliability": "detect"}) for name in TRANSPORTS]
COUNT = 20_000  # messages of a flood
GIGABIT_PORT = 5201
IPERF_S = 1


def arrivals_per_s(taken: RoundResult) -> float:
    """Received rate, from the first message to the last; 0 unless every one arrived."""
    if len(np.unique(taken.received["sequence"])) < len(taken.sent) or len(taken.sent) < 2:
        return 0.0
    times = taken.received["received_ns"]
    return float((len(times) - 1) / (int(times.max()) - int(times.min())) * 1e9)


class SmallFloods(Measurement):
    """100 B on every transport, on the bare library, and without repair."""

    goals = ("G7", "G9", "G10")
    seconds = 100.0

    def __init__(self) -> None:
        self._rounds: list[dict[str, list[RoundResult]]] = []

    def run(self, bench: Bench) -> None:
        """Measure three floods of each contestant per round."""
        contestants = plain(*TRANSPORTS)
        if bench.wanted & {"G7", "G9"}:
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
        """Rates and processor time."""
        found: list[Part | None] = []
        for name in TRANSPORTS:
            raw = f"raw-{name}"
            for goal, other, least in (("G7", raw, 0.90), ("G10", f"{name}-detect", 0.97)):
                pairs = self._pairs(name, other, lambda blocks: float(np.median([arrivals_per_s(b) for b in blocks])))
                found.append(
                    ratio(goal, f"{name} / {other} messages/s", pairs, least=least, scale=1e-3, unit=" thousand/s")
                )
            for side in ("sender", "receiver"):
                pairs = self._pairs(name, raw, per_message(f"{side}_cpu_ns"))
                found.append(
                    ratio("G9", f"{name} / {raw} 100 B flood, {side}", pairs, most=1.35, scale=1e-3, unit=" us")
                )
        return found

    def _pairs(self, one: str, other: str, figure: Callable[[list[RoundResult]], float]) -> list[tuple[float, float]]:
        return [(figure(each[one]), figure(each[other])) for each in self._rounds if one in each and other in each]


class Goodput(Measurement):
    """1 MB messages relative to TCP, on loopback and over a cable of 1 Gb/s."""

    goals = ("G5",)
    seconds = 80.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[dict[str, float]]] = {"loopback": [], "1 Gb/s": []}

    def run(self, bench: Bench) -> None:
        """Measure octets per second of each contestant, in rounds."""
        self._measure(bench, "loopback", Loopback(), bench.scaled(600, 20))
        if not is_root():
            bench.missing("G5", f"at 1 Gb/s: {NEEDS_ROOT}")
            return
        try:
            with Namespaces("1gbit") as setting:
                self._measure(bench, "1 Gb/s", setting, bench.scaled(80, 20))
        except FAILURES as error:
            bench.missing("G5", f"at 1 Gb/s: {error}")

    def _measure(self, bench: Bench, where: str, setting: Loopback | Namespaces, count: int) -> None:
        contestants = plain(*TRANSPORTS, "raw-tcp")
        for each in bench.rounds_of(f"1 MB, {where}", contestants, setting, min(bench.rounds, 6)):
            taken: dict[str, list[float]] = {}
            for _ in range(bench.scaled(2, 1)):
                for name in each.shuffled([one.name for one in contestants]):
                    block = each.take(name, MB, count, closed=False)
                    if block is not None:
                        taken.setdefault(name, []).append(arrivals_per_s(block) * MB)
            with contextlib.suppress(*FAILURES, ValueError, KeyError):
                found = iperf3_octets_per_s(setting)
                if found is not None:
                    taken["iperf3"] = [found]
            bench.missing_for(self.goals, each.lost)
            self._rounds[where].append({name: float(np.median(values)) for name, values in taken.items()})
            if bench.stopped():
                raise Interrupted

    def parts(self, bench: Bench) -> list[Part | None]:
        """Ratios to the best of TCP in the same round."""
        found = []
        for where, least in (("loopback", 0.85), ("1 Gb/s", 0.98)):
            rounds = [each for each in self._rounds[where] if "raw-tcp" in each]
            for name in TRANSPORTS:
                pairs = [(each[name], max(each["raw-tcp"], each.get("iperf3", 0.0))) for each in rounds if name in each]
                best = "max(raw-tcp, iperf3)" if any("iperf3" in each for each in rounds) else "raw-tcp"
                found.append(ratio("G5", f"{name} / {best}, {where}", pairs, least=least, scale=8e-9, unit=" Gb/s"))
        return found


def iperf3_octets_per_s(setting: Loopback | Namespaces) -> float | None:
    """Rate of one iperf3 stream; None if it is not installed.  Raises OSError, ValueError, KeyError."""
    if shutil.which("iperf3") is None:
        return None
    if isinstance(setting, Namespaces):
        near, far, host, port = setting.prefix(0), setting.prefix(1), ADDRESSES[1], GIGABIT_PORT
    else:
        near, far, host, port = [], [], "127.0.0.1", free_ports(1)
    server = subprocess.Popen(
        [*far, "iperf3", "--server", "--one-off", "--port", str(port), "--forceflush"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        while "listening" not in (line := server.stdout.readline()):
            if not line:
                raise OSError("iperf3 does not listen")
        client = ["iperf3", "--client", host, "--port", str(port), "--time", str(IPERF_S), "--json"]
        told = subprocess.run([*near, *client], capture_output=True, text=True, timeout=20, check=False).stdout
        return float(json.loads(told)["end"]["sum_received"]["bits_per_second"]) / 8
    except subprocess.TimeoutExpired as error:
        raise OSError("iperf3 does not end") from error
    finally:
        server.kill()
        server.communicate()
