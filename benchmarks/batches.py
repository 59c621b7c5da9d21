"""Records sent and received in batches: a part of L6."""

import statistics

from twinlink_measure.worker_handle import Interrupted

from twinlink.process.ports import free_ports

from .bench import DIRECT, TRANSPORTS, Bench, Measurement
from .contest import FAILURES
from .sender import SenderProcess
from .verdict import Part, over_rounds

OCTETS = 100
RECORDS = 1_000_000
FLOODS = 3  # the median of a round counts


class BatchFloods(Measurement):
    """Rows of 100 B from `Sender.send_many` to `Receiver.receive_many`."""

    goals = ("L6",)
    seconds = 60.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[float]] = {name: [] for name in (*TRANSPORTS, DIRECT)}

    def run(self, bench: Bench) -> None:
        """Measure three floods of each in turn per round, in new processes."""
        for number in range(bench.rounds):
            bench.step(f"batches of 100 B, round {number + 1} of {bench.rounds}", number / bench.rounds)
            taken: dict[str, list[float]] = {name: [] for name in self._rounds}
            for _ in range(bench.scaled(FLOODS, 1)):
                for name, rates in taken.items():
                    if bench.stopped():
                        raise Interrupted
                    try:
                        rates.append(records_per_s(name, bench.scaled(RECORDS, 5000)))
                    except FAILURES as error:
                        bench.missing("L6", f"{name}: {error}")
            for name, rates in taken.items():
                if rates:
                    self._rounds[name].append(statistics.median(rates) / 1e6)

    def parts(self, bench: Bench) -> list[Part | None]:
        """The rates."""
        return [
            over_rounds("L6", f"{name}, batches", rates, least=5, unit=" M/s") for name, rates in self._rounds.items()
        ]


def records_per_s(transport: str, count: int) -> float:
    """From the first record to arrive to the last; every one arrived, in order, and was acknowledged.

    A flood before it makes the path known to the link: until then it keeps little in flight.
    """
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    receiver = SenderProcess("takes-batches", transport, endpoint)
    sender = None
    try:
        receiver.answer()
        sender = SenderProcess("batches", transport, endpoint)
        sender.answer()
        for _ in ("warm-up", "flood"):
            receiver.tell(f"receive {count}")
            sender.tell(f"send {count} {OCTETS}")
            took_ns = receiver.answer()["took_ns"]
            sender.answer()  # when all is acknowledged
        return float(count / took_ns * 1e9)
    finally:
        receiver.end()
        if sender is not None:
            sender.end()
