"""One sender, many receivers: L7."""

import statistics
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from twinlink_measure.channels import PORTS
from twinlink_measure.setting import DIGITAL_TWIN
from twinlink_measure.worker_handle import Interrupted, LocalWorker
from twinlink_results.run import received_table

from twinlink.process.ports import free_ports

from .bench import DIRECT, TRANSPORTS, Bench, Measurement
from .contest import FAILURES, OPEN_S
from .sender import SenderProcess
from .verdict import Part, over_rounds, ratio

MANY = 16
OCTETS = 10 * 1024
RATE_HZ = 100
COUNT = 300  # messages of a block
BARE = "raw-zeromq"
SUBJECTS = (*TRANSPORTS, DIRECT, BARE)


class Fan:
    """A sender and its receivers, each a process."""

    def __init__(self, subject: str, count: int) -> None:
        port = free_ports(PORTS)
        self._sender = SenderProcess("fan-out", subject, f"tcp/127.0.0.1:{port}")
        self._receivers = [LocalWorker(DIGITAL_TWIN) for _ in range(count)]
        try:
            self._sender.answer()
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda pair: self._open(subject, port, *pair), enumerate(self._receivers)))
        except BaseException:
            self.end()
            raise

    @staticmethod
    def _open(subject: str, port: int, number: int, receiver: LocalWorker) -> None:
        receiver.ask(
            "open", OPEN_S, subject=subject, listening=False, host="127.0.0.1", port=port, node=f"receiver-{number}"
        )

    def send(self, count: int) -> tuple[list[int], list[int]]:
        """Durations of the call, and times until the last receiver had a message, in ns.

        Only messages that reached every receiver have such a time.  Raises OSError if fewer than half did.
        """
        for receiver in self._receivers:
            receiver.ask("reflect", octets=OCTETS, count=count)
        self._sender.tell(f"send {count} {OCTETS} {RATE_HZ}")
        said = self._sender.answer()
        arrivals, last_ns = np.zeros(count, int), np.zeros(count, int)
        for receiver in self._receivers:
            heard = receiver.ask("finish", OPEN_S, first=said["first"], expected=count)
            table = received_table(0, heard["received_rows"], said["first"], count)
            np.add.at(arrivals, table["sequence"], 1)
            np.maximum.at(last_ns, table["sequence"], table["received_ns"] - table["sent_ns"])
        delays_ns = last_ns[arrivals == len(self._receivers)].tolist()
        if len(delays_ns) < count / 2:
            raise OSError(f"{count - len(delays_ns)} of {count} messages did not reach every receiver")
        return said["calls_ns"], delays_ns

    def end(self) -> None:
        """End all processes."""
        self._sender.end()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(LocalWorker.end, self._receivers))


class FanOut(Measurement):
    """Sends to 16 receivers, over each transport and bare pyzmq in turn."""

    goals = ("L7",)
    seconds = 110.0

    def __init__(self) -> None:
        self._rounds: list[dict[str, tuple[float, float]]] = []  # medians of call and delay, in ns

    def run(self, bench: Bench) -> None:
        """Measure with new processes in each round."""
        rounds, many = min(bench.rounds, 3), bench.scaled(MANY, 4)
        for number in range(rounds):
            taken: dict[str, tuple[float, float]] = {}
            self._rounds.append(taken)
            for subject in (TRANSPORTS[0], BARE) if bench.quick else SUBJECTS:
                bench.step(f"fan-out over {subject}, round {number + 1} of {rounds}", number / rounds)
                if bench.stopped():
                    raise Interrupted
                try:
                    fan = Fan(subject, many)
                    try:
                        fan.send(bench.scaled(RATE_HZ, 20))  # a second in which they all connect
                        calls_ns, delays_ns = fan.send(bench.scaled(COUNT, 50))
                    finally:
                        fan.end()
                except FAILURES as error:
                    bench.missing("L7", f"{subject}: {error}")
                else:
                    taken[subject] = statistics.median(calls_ns), statistics.median(delays_ns)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Figures of the transports."""
        found: list[Part | None] = []
        many = bench.scaled(MANY, 4)
        for name in (*TRANSPORTS, DIRECT):
            pairs = [(each[name][1], each[BARE][1]) for each in self._rounds if name in each and BARE in each]
            what = f"{name} / {BARE}, last of {many}"
            found.append(ratio("L7", what, pairs, most=1.2, scale=1e-3, unit=" us"))
        for name in SUBJECTS:
            calls = [each[name][0] / 1e3 for each in self._rounds if name in each]
            found.append(over_rounds("L7", f"{name}, call", calls, most=None if name == BARE else 100, unit=" us"))
        return found
