"""Number of gNBs that a host carries: through one Zenoh router, and as a star on one listener.

    python -m benchmarks.many_nodes
    python -m benchmarks.many_nodes --gnbs 25,50,75,100 --mbits 1.7 --shape router

For 1, 4 and 16 gNBs and increasing rates it prints the delivered rate, the age of records on arrival, and the processor
time of each process, until the processors are saturated.  With ``--mbits`` each gNB sends at that rate, however many
there are.  All twins are links of one process, and 50 gNBs share one, so the figures are the cost of links, not of
processes.  The gNBs are the load: they take processor time that the host of a twin does not spend elsewhere.  On one
host with one clock an age is exact.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import twinlink
from twinlink.appkit import convert
from twinlink.protocol.rtt import percentiles
from twinlink.testing import free_endpoint

OCTETS = 5088  # a record of 106 PRBs: 1272 subcarriers of 4 octets
SHAPES = ("router", "star")
COUNTS = (1, 4, 16)
RATES = (100, 1000, 4000, 8000, 16000, 32000)  # records/s of all gNBs together, until FULL
FULL = 0.95  # of the processors
READY_S = 30.0
SHARE = 50  # gNBs of a process: a hundred in one wait for each other at the interpreter's lock, and send too late
BATCH_S = 0.002  # least sleep of the sending loop
SETTLE_S = 10.0  # for the last acks
CALM_S = 0.3  # without a message, then no more come

ROUTER = """
import json, sys, zenoh
config = zenoh.Config()
for key, value in {"mode": "router", "listen/endpoints": [sys.argv[1]], "scouting/multicast/enabled": False}.items():
    config.insert_json5(key, json.dumps(value))
with zenoh.open(config):
    print("ready", flush=True)
    sys.stdin.read()
"""


def open_links(stack: ExitStack, side: str, shape: str, endpoint: str, numbers: range) -> list[twinlink.Link]:
    """The links of a process: those of the nodes with these numbers."""
    if shape == "star" and side == "twin":
        return [stack.enter_context(twinlink.open("zenoh", listen=endpoint, node="twin"))]
    options = [{} if shape == "star" else {"mode": "client", "namespace": f"cell-{k}"} for k in numbers]
    return [
        stack.enter_context(twinlink.open("zenoh", connect=endpoint, node=f"{side}-{k}", **more))  # type: ignore[arg-type]
        for k, more in zip(numbers, options, strict=True)
    ]


def send(senders: Sequence[twinlink.Sender], rate: float, seconds: float) -> dict[str, Any]:
    """Send at this rate (records/s), in turn on all links."""
    payload, began, sent, total = bytes(OCTETS), time.monotonic(), 0, int(rate * seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - began) * rate) + 1)
        for number in range(sent, due):
            senders[number % len(senders)].send(payload)
        sent = max(sent, due)
        time.sleep(max(BATCH_S, began + sent / rate - time.monotonic()))
    return {"sent": sent, "seconds": time.monotonic() - began}


def missing(senders: Sequence[twinlink.Sender]) -> int:
    """How many messages are known to be lost, or have no ack after `SETTLE_S`."""
    until = time.monotonic() + SETTLE_S
    for sender in senders:
        with suppress(twinlink.AckTimeout):
            sender.flush(max(0.0, until - time.monotonic()))
    return sum(sender.stats()["lost"] + sender.stats()["outstanding"] for sender in senders)


def gnb_main(links: Sequence[twinlink.Link]) -> None:
    """Answers a line with rate and seconds when that is sent, and an empty one with how many of it are missing."""
    senders, before = [link.sender("spectrum", overflow="drop-oldest") for link in links], 0
    ready(links)
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(send(senders, *map(float, line.split()))), flush=True)
        else:
            now = missing(senders)
            print(json.dumps({"lost": now - before}), flush=True)
            before = now


def twin_main(links: Sequence[twinlink.Link]) -> None:
    """Answers each line with what it has received since the one before."""
    ages: list[int] = []
    lock = threading.Lock()

    def note(message: twinlink.Message) -> None:
        with lock:
            ages.append(message.received_ns - message.sent_ns)

    for link in links:
        link.receiver("spectrum", handler=note)
    ready(links)
    for _ in sys.stdin:
        before = -1
        while before < len(ages):  # what is acknowledged may still be on its way to the handler
            before = len(ages)
            time.sleep(CALM_S)
        with lock:
            answer = {"received": len(ages), "age_ns": percentiles(ages) if ages else None}
            ages.clear()
        print(json.dumps(answer), flush=True)


def ready(links: Sequence[twinlink.Link]) -> None:
    """Say so when every link has its peer."""
    for link in links:
        link.wait_ready(READY_S)
    print("ready", flush=True)


def side_main(side: str, shape: str, endpoint: str, first: int, end: int) -> None:
    """A process of one side, which answers each line of stdin with JSON."""
    with ExitStack() as stack:
        {"gnb": gnb_main, "twin": twin_main}[side](open_links(stack, side, shape, endpoint, range(first, end)))


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


def answers(processes: Sequence[Process], lines: Iterable[str] = repeat("")) -> list[dict[str, Any]]:
    """What each says to its line, all at the same time."""
    for process, line in zip(processes, lines, strict=False):
        process.ask(line)
    return [json.loads(process.answer()) for process in processes]


def cpu_s(processes: Sequence[Process]) -> float:
    """Processor time of all of them so far."""
    return sum(process.cpu_s() for process in processes)


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
    endpoint = free_endpoint(1)
    parts: dict[str, list[Process]] = {"gNBs": [], "router": [], "twins": []}
    try:
        if shape == "router":
            parts["router"].append(Process("-c", ROUTER, endpoint))
            parts["router"][0].answer()
        twin = Process("-m", "benchmarks.many_nodes", "twin", shape, endpoint, "0", str(count))
        parts["twins"].append(twin)
        firsts = range(0, count, SHARE)
        shares = [min(SHARE, count - first) for first in firsts]
        for first, share in zip(firsts, shares, strict=True):
            numbers = str(first), str(first + share)
            parts["gNBs"].append(Process("-m", "benchmarks.many_nodes", "gnb", shape, endpoint, *numbers))
        for process in (*parts["twins"], *parts["gNBs"]):
            process.answer()
        for rate in rates:
            before = {name: cpu_s(processes) for name, processes in parts.items()}
            sent = answers(parts["gNBs"], [f"{rate * share / count} {seconds}" for share in shares])
            took = max(one["seconds"] for one in sent)
            cores = {name: (cpu_s(processes) - before[name]) / took for name, processes in parts.items()}
            lost = sum(one["lost"] for one in answers(parts["gNBs"]))
            (found,) = answers([twin])
            yield Carried(
                shape, count, rate, took, sum(one["sent"] for one in sent), lost, found["received"],
                found["age_ns"] or {}, cores,
            )  # fmt: skip
    finally:
        for process in [one for processes in parts.values() for one in processes]:
            process.end()


HEADER = (
    "| shape | gNBs | asked for, 1/s | sent, 1/s | received, 1/s | not received | known lost "
    "| age p50, ms | age p99, ms | gNBs, % of a core | router | twins |\n|---|" + "--:|" * 11
)


def counts(text: str) -> tuple[int, ...]:
    """The numbers of gNBs that an option gives.  Raises ValueError."""
    found = tuple(int(one) for one in text.split(","))
    if min(found) < 1:
        raise ValueError(text)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=convert.seconds, default=5.0, help="of each rate; default 5")
    parser.add_argument("--gnbs", type=counts, default=COUNTS, metavar="N,N", help="numbers of gNBs; default 1,4,16")
    parser.add_argument("--mbits", type=float, help="each gNB sends so many Mbit/s; default: rates of all together")
    parser.add_argument("--shape", choices=SHAPES, help="only this one")
    given = parser.parse_args()
    print(HEADER)
    for shape in (given.shape,) if given.shape else SHAPES:
        for count in given.gnbs:
            rates = RATES if given.mbits is None else (rate_of(count, given.mbits),)
            for one in carried(shape, count, rates, given.seconds):
                print(one, flush=True)
                if one.saturated:
                    break


def rate_of(count: int, mbits: float) -> float:
    """Records/s of so many gNBs that send so many Mbit/s each."""
    return count * mbits * 1e6 / 8 / OCTETS


if __name__ == "__main__":
    if sys.argv[1:2] in (["gnb"], ["twin"]):
        side_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
