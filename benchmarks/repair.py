"""Round trips of a flow with repair and of one without, on one link: a part of G10.

Round trips of two pairs of processes differ by more than this goal allows, because of their placement and of polling or
sleeping.  So both flows share processes, sockets and threads, and consecutive blocks are compared.
"""

import random
import statistics

from twinlink_measure.worker_handle import Interrupted

import twinlink
from twinlink.process.ports import free_ports
from twinlink.transport_options import TransportName
from twinlink.transports import transport_name

from .bench import TRANSPORTS, Bench, Measurement
from .contest import FAILURES, WARM_UP
from .sender import READY_S, SenderProcess
from .verdict import Part, over_rounds

RELIABILITIES = ("repair", "detect")  # each is also the name of a flow
OCTETS = 100
BLOCKS = 20  # of each flow in a round
COUNT = 200  # messages of a block


class RepairCost(Measurement):
    """A sender process that is connected to this one."""

    goals = ("G10",)
    seconds = 20.0

    def __init__(self) -> None:
        self._rounds: dict[str, list[float]] = {name: [] for name in TRANSPORTS}

    def run(self, bench: Bench) -> None:
        """Measure with new processes and a new link in each round."""
        for number in range(bench.rounds):
            for transport in TRANSPORTS:
                bench.step(f"round trips with and without repair, round {number + 1}", number / bench.rounds)
                try:
                    self._rounds[transport].append(self._round(transport_name(transport), number, bench))
                except FAILURES as error:
                    bench.missing("G10", f"{transport}: {error}")

    @staticmethod
    def _round(transport: TransportName, seed: int, bench: Bench) -> float:
        """The median of the ratios of consecutive blocks."""
        endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
        order = random.Random(seed)
        ratios: list[float] = []
        with twinlink.open(transport, listen=endpoint, node="receiver") as link:
            for name in RELIABILITIES:
                link.receiver(name, handler=lambda message: None)
            sender = SenderProcess("two-flows", transport, endpoint)
            try:
                link.wait_ready(READY_S)
                for _ in range(bench.scaled(BLOCKS, 2)):
                    p50_ns: dict[str, float] = {}
                    for name in order.sample(RELIABILITIES, len(RELIABILITIES)):
                        if bench.stopped():
                            raise Interrupted
                        sender.tell(f"send {name} {bench.scaled(COUNT, 20) + WARM_UP} {OCTETS}")
                        p50_ns[name] = statistics.median(sender.answer()["rtt_ns"][WARM_UP:])
                    ratios.append(p50_ns["repair"] / p50_ns["detect"])
            finally:
                sender.end()
        return statistics.median(ratios)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Figures of both transports."""
        return [
            over_rounds("G10", f"{name} repair / detect 100 B p50", ratios, most=1.02)
            for name, ratios in self._rounds.items()
        ]
