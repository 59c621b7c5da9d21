"""What an identity costs: links with and without one in turn, in one run; prints a table.

::

    python -m benchmarks.identities --transports zeromq,zenoh,websocket --rounds 15
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import twinlink
from twinlink.identity import Identity, trust
from twinlink.process.ports import free_ports
from twinlink.transports import transport_name

ROUND_TRIPS = {100: 200, 10 * 1024: 200, 1024 * 1024: 20}  # octets -> number in a block
MESSAGES = {100: 10_000, 10 * 1024: 4_000, 1024 * 1024: 200}
PORTS = 2
READY_S = 10.0
FLUSH_S = 60.0
SIDES = (False, True)  # without and with an identity

Measure = Callable[[twinlink.Sender, int], float]


def main() -> None:
    """Measure each transport and print its rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transports", default="zeromq,zenoh,websocket")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    print("| transport | octets | RTT p50, us: without / with | ratio | goodput, MB/s: without / with | ratio |")
    print("|---|---|---|---|---|---|")
    for transport in given.transports.split(","):
        with _links(transport) as links:
            for octets in ROUND_TRIPS:
                round_trips = [_block(_round_trip_us, links, octets, number) for number in range(given.rounds)]
                goodputs = [_block(_goodput_mb_s, links, octets, number) for number in range(given.rounds)]
                print(f"| {transport} | {octets} | {_cells(round_trips)} | {_cells(goodputs)} |", flush=True)


@contextmanager
def _links(transport: str) -> Iterator[dict[bool, twinlink.Link]]:
    """A link without and one with an identity to another process."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        gnb = Identity.create(Path(folder, "gnb"), "gnb-1", "gnb")
        twin = Identity.create(Path(folder, "twin"), "twin-1", "twin")
        trust.trust(gnb.folder, twin.line, "twin")
        trust.trust(twin.folder, gnb.line, "gnb")
        endpoints = {side: f"tcp/127.0.0.1:{free_ports(PORTS)}" for side in SIDES}
        spawned = multiprocessing.get_context("spawn")
        end = spawned.Event()
        process = spawned.Process(target=_listen, args=(transport, endpoints, twin.folder, end), daemon=True)
        process.start()
        opened.callback(process.join)
        opened.callback(end.set)
        links = {}
        for side, endpoint in endpoints.items():
            identity = gnb.folder if side else None
            link = twinlink.open(transport_name(transport), connect=endpoint, identity=identity)
            links[side] = opened.enter_context(link)
            link.wait_ready(READY_S)
        yield links


def _listen(transport: str, endpoints: dict[bool, str], folder: Path, end: Event) -> None:
    with ExitStack() as opened:
        for side, endpoint in endpoints.items():
            link = twinlink.open(transport_name(transport), listen=endpoint, identity=folder if side else None)
            opened.enter_context(link).receiver("bench", handler=lambda _: None)
        end.wait()


def _block(measure: Measure, links: dict[bool, twinlink.Link], octets: int, number: int) -> dict[bool, float]:
    """What one round gives for each side; they take turns in being the first."""
    order = SIDES if number % 2 else tuple(reversed(SIDES))
    return {side: measure(links[side].sender("bench"), octets) for side in order}


def _round_trip_us(sender: twinlink.Sender, octets: int) -> float:
    payload, taken = bytes(octets), []
    for _ in range(ROUND_TRIPS[octets]):
        began = time.perf_counter()
        sender.send(payload)
        sender.flush(FLUSH_S)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def _goodput_mb_s(sender: twinlink.Sender, octets: int) -> float:
    payload, count, began = bytes(octets), MESSAGES[octets], time.perf_counter()
    for _ in range(count):
        while True:
            try:
                sender.send(payload)
                break
            except twinlink.SendTimeout:  # the flow is full
                continue
    sender.flush(FLUSH_S)
    return count * octets / (time.perf_counter() - began) / 1e6


def _cells(blocks: list[dict[bool, float]]) -> str:
    """Medians of both sides, and the median of their ratios with its quartiles."""
    ratios = [block[True] / block[False] for block in blocks]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    without, with_one = (statistics.median(block[side] for block in blocks) for side in SIDES)
    return f"{_short(without)} / {_short(with_one)} | {middle:.2f} ({low:.2f} to {high:.2f})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
