"""Number of gNBs that a host carries: through one Zenoh router, and as a star on one listener.

    python -m benchmarks.many_nodes

For 1, 4 and 16 gNBs and increasing rates it prints the delivered rate, the age of records on arrival, and the processor
time of each process, until the processors are saturated.  All gNBs are links of one process and all twins links of
another, so the figures are the cost of links, not of processes.  On one host with one clock an age is exact.

- ``router``: a twin for each gNB, each pair in a namespace of its own, all clients of one router.
- ``star``: one listening twin, to which every gNB connects.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import twinlink
from twinlink.appkit import convert
from twinlink.protocol.rtt import percentiles
from twinlink.testing import free_endpoint

OCTETS = 5088  # a record of 106 PRBs: 1272 subcarriers of 4 octets
COUNTS = (1, 4, 16)
RATES = (100, 1000, 4000, 8000, 16000, 32000)  # records/s of all gNBs together, until FULL
FULL = 0.95  # of the processors
READY_S = 30.0
BATCH_S = 0.002  # least sleep of the sending loop

ROUTER = """
import json, sys, zenoh
config = zenoh.Config()
for key, value in {"mode": "router", "listen/endpoints": [sys.argv[1]], "scouting/multicast/enabled": False}.items():
    config.insert_json5(key, json.dumps(value))
with zenoh.open(config):
    print("ready", flush=True)
    sys.stdin.read()
"""


def open_links(stack: ExitStack, side: str, shape: str, endpoint: str, count: int) -> list[twinlink.Link]:
    """This side's links."""
    if shape == "star" and side == "twin":
        return [stack.enter_context(twinlink.open("zenoh", listen=endpoint, node="twin"))]
    options = [{} if shape == "star" else {"mode": "client", "namespace": f"cell-{k}"} for k in range(count)]
    return [
        stack.enter_context(twinlink.open("zenoh", connect=endpoint, node=f"{side}-{k}", **more))  # type: ignore[arg-type]
        for k, more in enumerate(options)
    ]


def send(links: list[twinlink.Link], rate: float, seconds: float) -> dict[str, Any]:
    """Send at this rate (records/s), in turn on all links."""
    senders = [link.sender("spectrum", overflow="drop-oldest") for link in links]
    payload, began, sent, total = bytes(OCTETS), time.monotonic(), 0, int(rate * seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - began) * rate) + 1)
        for number in range(sent, due):
            senders[number % len(senders)].send(payload)
        sent = max(sent, due)
        time.sleep(max(BATCH_S, began + sent / rate - time.monotonic()))
    took = time.monotonic() - began
    time.sleep(1.0)
    return {"sent": sent, "seconds": took, "lost": sum(sender.stats()["lost"] for sender in senders)}


def side_main(side: str, shape: str, endpoint: str, count: int) -> None:
    """A process of one side: answers each line of stdin, a rate and seconds, with its results as JSON."""
    ages: list[int] = []
    lock = threading.Lock()

    def note(message: twinlink.Message) -> None:
        with lock:
            ages.append(message.received_ns - message.sent_ns)

    with ExitStack() as stack:
        links = open_links(stack, side, shape, endpoint, count)
        for link in links:
            if side == "twin":
                link.receiver("spectrum", handler=note)
        for link in links:
            link.wait_ready(READY_S)
        print("ready", flush=True)
        for line in sys.stdin:
            rate, seconds = map(float, line.split())
            before = time.process_time()
            if side == "gnb":
                answer = send(links, rate, seconds)
            else:
                time.sleep(seconds + 1.0)
                with lock:
                    answer = {"received": len(ages), "age_ns": percentiles(ages) if ages else None}
                    ages.clear()
            print(json.dumps({**answer, "cpu_s": time.process_time() - before}), flush=True)


class Process:
    """A process that reports when it is ready, and answers lines."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def answer(self) -> str:
        """The next line that it prints.  Raises RuntimeError if it has ended."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{' '.join(map(str, self._process.args[1:4]))} ended; see its error above")  # type: ignore[index]
        return line.strip()

    def cpu_s(self) -> float:
        """Processor time so far, of user and system."""
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as stat:  # noqa: PTH123
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End it and wait for that."""
        self._process.terminate()
        self._process.communicate()


@dataclass(frozen=True)
class Carried:
    """What was carried at a rate; ``age_ns`` has percentiles, ``cores`` the processor time of each process."""

    shape: str
    count: int
    rate: float
    seconds: float  # that sending took
    sent: int
    lost: int  # and known to be
    received: int
    age_ns: Mapping[str, float]
    cores: Mapping[str, float]

    @property
    def saturated(self) -> bool:
        """Whether the processors are, or sending is too slow."""
        return sum(self.cores.values()) > FULL * (os.cpu_count() or 1) or self.sent / self.seconds < self.rate / 1.1

    def __str__(self) -> str:
        age = self.age_ns or {"p50": float("nan"), "p99": float("nan")}
        cells = (
            self.shape, self.count, f"{self.rate:g}", f"{self.sent / self.seconds:.0f}",
            f"{self.received / self.seconds:.0f}", self.sent - self.received, self.lost, f"{age['p50'] / 1e6:.2f}",
            f"{age['p99'] / 1e6:.2f}", *(f"{100 * share:.0f}" for share in self.cores.values()),
        )  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"


def carried(shape: str, count: int, rates: Sequence[float], seconds: float) -> Iterator[Carried]:
    """Measure each rate.  Raises RuntimeError if a process ends."""
    endpoint, processes = free_endpoint(1), []
    try:
        router = Process("-c", ROUTER, endpoint) if shape == "router" else None
        if router:
            processes.append(router)
            router.answer()
        sides = [Process("-m", "benchmarks.many_nodes", side, shape, endpoint, str(count)) for side in ("twin", "gnb")]
        processes += sides
        for side in sides:
            side.answer()
        for rate in rates:
            router_before = router.cpu_s() if router else 0.0
            for side in sides:
                side.ask(f"{rate} {seconds}")
            twin, gnb = (json.loads(side.answer()) for side in sides)
            cores = {
                "gNBs": gnb["cpu_s"] / seconds,
                "router": (router.cpu_s() - router_before) / seconds if router else 0.0,
                "twins": twin["cpu_s"] / seconds,
            }
            yield Carried(
                shape, count, rate, gnb["seconds"], gnb["sent"], gnb["lost"], twin["received"], twin["age_ns"] or {},
                cores,
            )  # fmt: skip
    finally:
        for process in processes:
            process.end()


HEADER = (
    "| shape | gNBs | asked for, 1/s | sent, 1/s | received, 1/s | not received | known lost "
    "| age p50, ms | age p99, ms | gNBs, % of a core | router | twins |\n|---|" + "--:|" * 11
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=convert.seconds, default=5.0, help="of each rate; default 5")
    given = parser.parse_args()
    print(HEADER)
    for shape in ("router", "star"):
        for count in COUNTS:
            for one in carried(shape, count, RATES, given.seconds):
                print(one, flush=True)
                if one.saturated:
                    break


if __name__ == "__main__":
    if sys.argv[1:2] in (["gnb"], ["twin"]):
        side_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
