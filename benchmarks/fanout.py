"""One sender, many receivers: G12."""

import statistics
from concurrent.futures import ThreadPoolExecutor

from twinlink_measure.channels import PORTS
from twinlink_measure.setting import DIGITAL_TWIN
from twinlink_measure.worker_handle import Interrupted, LocalWorker

from twinlink.process.ports import free_ports

from .bench import TRANSPORTS, Bench, Measurement
from .contest import FAILURES, OPEN_S
from .sender import SenderProcess
from .verdict import Part, ratio

MANY = 16
OCTETS = 10 * 1024


class Fan:
    """A sender and its receivers, each a process."""

    def __init__(self, transport: str, count: int) -> None:
        port = free_ports(PORTS)
        self._sender = SenderProcess("fan-out", transport, f"tcp/127.0.0.1:{port}", str(count))
        self._receivers = [LocalWorker(DIGITAL_TWIN) for _ in range(count)]
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda pair: self._open(transport, port, *pair), enumerate(self._receivers)))
            there = self._sender.answer()["peers"]
            if there != count:
                raise OSError(f"{transport}: {there} of {count} receivers found the sender")
        except BaseException:
            self.end()
            raise

    @staticmethod
    def _open(transport: str, port: int, number: int, receiver: LocalWorker) -> None:
        receiver.ask(
            "open", OPEN_S, subject=transport, listening=False, host="127.0.0.1", port=port, node=f"receiver-{number}"
        )
        receiver.ask("reflect", octets=OCTETS, count=0)

    def send(self, count: int) -> tuple[list[int], list[int]]:
        """Duration of the call, and time until the last receiver has the message, in ns."""
        self._sender.tell(f"send {count} {OCTETS}")
        said = self._sender.answer()
        return said["calls_ns"], said["delays_ns"]

    def end(self) -> None:
        """End all processes."""
        self._sender.end()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(LocalWorker.end, self._receivers))


class FanOut(Measurement):
    """Sends to 16 receivers and to one, in turn."""

    goals = ("G12",)
    seconds = 60.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[dict[str, tuple[float, float]]]] = {name: [] for name in TRANSPORTS}

    def run(self, bench: Bench) -> None:
        """Measure blocks to many and to one, in turn."""
        rounds, many = min(bench.rounds, 3), bench.scaled(MANY, 4)
        for number in range(rounds):
            for transport in TRANSPORTS:
                bench.step(f"fan-out over {transport}, round {number + 1} of {rounds}", number / rounds)
                if bench.stopped():
                    raise Interrupted
                try:
                    self._rounds[transport].append(self._round(transport, many, bench))
                except FAILURES as error:
                    bench.missing("G12", f"{transport}: {error}")

    @staticmethod
    def _round(transport: str, many: int, bench: Bench) -> dict[str, tuple[float, float]]:
        fans = {}
        try:
            for name, count in (("many", many), ("one", 1)):
                fans[name] = Fan(transport, count)
                fans[name].send(50)
            seen: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name in fans}
            for _ in range(bench.scaled(6, 1)):
                for name, fan in fans.items():
                    for known, new in zip(seen[name], fan.send(bench.scaled(100, 20)), strict=True):
                        known.extend(new)
            return {
                name: (statistics.median(calls), statistics.median(delays)) for name, (calls, delays) in seen.items()
            }
        finally:
            for fan in fans.values():
                fan.end()

    def parts(self, bench: Bench) -> list[Part | None]:
        """Figures of both transports."""
        found = []
        for transport, rounds in self._rounds.items():
            for index, what, most in ((1, "last receiver p50", 4.0), (0, "sender call p50", 1.2)):
                pairs = [(each["many"][index], each["one"][index]) for each in rounds]
                name = f"{transport}, {bench.scaled(MANY, 4)} receivers / 1, {what}"
                found.append(ratio("G12", name, pairs, most=most, scale=1e-3, unit=" us"))
        return found
