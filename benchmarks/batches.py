"""Records sent and received in batches, against as many calls of the bare library: G8."""

import statistics

from twinlink_measure.setting import Loopback
from twinlink_measure.worker_handle import Interrupted

from twinlink.process.ports import free_ports

from .bench import TRANSPORTS, Bench, Measurement
from .contest import FAILURES, plain
from .floods import arrivals_per_s
from .sender import SenderProcess
from .verdict import Part, ratio

OCTETS = 100
SINGLE = 20_000  # messages of a flood by calls, as in G7
BATCHED = 200_000


class BatchFloods(Measurement):
    """Rows of 100 B from `Sender.send_many` to `Receiver.receive_many`, and calls of the bare library."""

    goals = ("G8",)
    seconds = 60.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in TRANSPORTS}

    def run(self, bench: Bench) -> None:
        """Measure three floods of each in turn per round."""
        raw = [f"raw-{name}" for name in TRANSPORTS]
        for each in bench.rounds_of("batches of 100 B", plain(*raw), Loopback()):
            for transport, other in zip(TRANSPORTS, raw, strict=True):
                batched, single = [], []
                for _ in range(bench.scaled(3, 1)):
                    if bench.stopped():
                        raise Interrupted
                    block = each.take(other, OCTETS, bench.scaled(SINGLE, 1000), closed=False)
                    if block is not None and (rate := arrivals_per_s(block)):
                        single.append(rate)
                    try:
                        batched.append(records_per_s(transport, bench.scaled(BATCHED, 5000)))
                    except FAILURES as error:
                        bench.missing("G8", f"{transport}: {error}")
                if batched and single:
                    self._rounds[transport].append((statistics.median(batched), statistics.median(single)))
            bench.missing_for(self.goals, each.lost)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Ratios, with the rates."""
        return [
            ratio(
                "G8", f"{name} batches / raw-{name} records/s", pairs, least=5, scale=1e-3, unit=" thousand/s"
            )
            for name, pairs in self._rounds.items()
        ]  # fmt: skip


def records_per_s(transport: str, count: int) -> float:
    """From the first record to arrive to the last; every one arrived, in order, and was acknowledged."""
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    receiver = SenderProcess("takes-batches", transport, endpoint)
    sender = None
    try:
        receiver.answer()
        sender = SenderProcess("batches", transport, endpoint)
        sender.answer()
        receiver.tell(f"receive {count}")
        sender.tell(f"send {count} {OCTETS}")
        took_ns = receiver.answer()["took_ns"]
        sender.answer()  # when all is acknowledged
        return float(count / took_ns * 1e9)
    finally:
        receiver.end()
        if sender is not None:
            sender.end()
