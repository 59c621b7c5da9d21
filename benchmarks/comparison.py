"""Measures every system in one sweep and writes docs/comparison.md with its figure: `make comparison`.

`python -m benchmarks.comparison --from DIR` makes the page of a sweep that is there.  It needs root, as the two sides
are in network namespaces, and the extras measure, industrial and websocket.
"""

import argparse
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from twinlink_results import labels, load, plot_style, results

from twinlink.appkit import formatting

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURE = "comparison.md", "comparison.svg"
DIRECTION = "rw-dt"
SWEEP = (
    *("--systems", "all", "--payloads", "100,1K,10K,100K,1M", "--directions", DIRECTION),
    *("--count", "60", "--rounds", "3", "--warm-up", "10"),
)

EXPLAINED = """\
Times are medians in ms, from the send to the answer. *Goodput* is that of the greatest payload that the system carries
here, in a closed loop: one message at a time, so it is payload by round trip, not the most that the system can carry.
*CPU* is the processor time in ms that sender, receiver and broker or hub take for a message of the smallest payload. A
payload is *too long* beyond the limit of the protocol."""

LIMITS = """\
- Both sides are on one machine: there is no network adapter, and no cable. What a real path adds, it adds to each round
  trip: a system with three of them is three times as far away (column *round trips*).
- The subjects named *raw* keep no state and repair nothing. twinlink numbers, acknowledges and repairs each message.
- Most of these libraries are Python's. The figures of Modbus, S7, HTTP and OPC UA are those of pymodbus, python-snap7,
  http.client with aiohttp, and asyncua; stacks in C are quicker.
- Polled systems are polled without a pause here, which takes a processor. With an interval, add half of it to the delay
  of what the server has to say ([sweep.md](sweep.md#other-systems)).
- Nothing is encrypted, and brokers keep nothing on disk.
- The path loses nothing. Over one that does, UADP loses messages; the others wait for TCP's retransmissions."""

CHOICE = """\
| what matters | choose |
|---|---|
| a twin in step with its network: loss, gaps and age known, either side may restart | twinlink over Zenoh or ZeroMQ |
| many gNBs and twins behind routers | twinlink over Zenoh ([many-nodes.md](many-nodes.md)) |
| a site that runs a broker already | MQTT, QoS 0 with twinlink over it; QoS 2 costs three round trips |
| proxies, browsers | WebSocket |
| a PLC that is there | its own protocol: S7, Modbus or OPC UA, by polls of the period that the twin needs |
| self-describing data of many vendors | OPC UA: a subscription for events, PubSub (UADP) for cyclic values |
| a query now and then | HTTP, with the connection kept alive |"""


def main() -> int:
    """Sweep, unless the folder of one is given, and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", help="a sweep that is there")
    parser.add_argument("--out", type=Path, default=Path("comparison-out"), help="folder of the sweep")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    given = parser.parse_args()
    folder = given.folder
    if folder is None:
        folder = given.out
        code = subprocess.run(
            [sys.executable, "-m", "twinlink", "sweep", *SWEEP, "--out", str(folder)],
            stdout=subprocess.DEVNULL, check=False,
        ).returncode  # fmt: skip
        if code > 1:  # 1: a cell is not finished, which the page shows
            return code
    found, _ = results.compute(folder, results.load(folder))
    draw(given.docs / FIGURE, found)
    results.write(given.docs / PAGE, page(found))
    print(given.docs / PAGE)
    return 0


def page(found: dict[str, Any]) -> str:
    """The text of the page."""
    system = found["system"]["real_world"]
    busy, used = load.warning(found.get("load", [])), found["configuration"]["used"]
    lines = [
        "# Comparison of systems",
        "",
        textwrap.fill(
            f"One run of {formatting.date(found['started_ns'])}: {labels.setting(found)}, {system['cpus']} "
            f"processors ({system['cpu_model']}), Linux {system['kernel']}, Python {system['python']}. "
            f"{used['count']} messages a cell in {used['rounds']} rounds, "
            "each answered before the next leaves, from the Real World to the Digital Twin. K is 1024.",
            120,
        ),
        "",
        *([textwrap.fill(f"**{busy}**", 120), ""] if busy else []),
        "This page and its figure are made by `make comparison` (root). [sweep.md](sweep.md) describes subjects and",
        "options, [metrics.md](metrics.md) the figures, [experiments.md](experiments.md) the published comparisons.",
        "",
        "## Round-trip times",
        *table(found),
        "",
        EXPLAINED,
        "",
        f"![Round-trip time and goodput by payload]({FIGURE})",
        "",
        "## Limits",
        LIMITS,
        "",
        "## What to choose when",
        CHOICE,
    ]
    return "\n".join(lines) + "\n"


def measured(found: dict[str, Any]) -> dict[str, dict[int, dict[str, Any]]]:
    """The cells by subject, in the order of all tables, and octets."""
    cells: dict[str, dict[int, dict[str, Any]]] = {
        name: {} for name in labels.ordered(cell["subject"] for cell in found["cells"])
    }
    for cell in found["cells"]:
        if cell["direction"] == DIRECTION and cell["mode"] == "closed":
            cells[cell["subject"]][cell["octets"]] = cell
    return cells


def table(found: dict[str, Any]) -> Iterator[str]:
    """The lines of the table."""
    cells = measured(found)
    payloads = sorted({cell["octets"] for cell in found["cells"]})
    yield f"| system | round trips | {' | '.join(map(formatting.payload, payloads))} | goodput (MB/s) | CPU (ms) |"
    yield "|---" * (len(payloads) + 4) + "|"
    for name, mine in cells.items():
        trips = sorted(
            {cell["round_trips"] for cell in mine.values() if cell["statistics"] and cell.get("round_trips")}
        )
        between = f"{trips[0]} to {trips[-1]}" if len(trips) > 1 else str(trips[0]) if trips else "-"
        times = [_rtt(mine.get(octets)) for octets in payloads]
        fields = [labels.subject(name).name, between, *times, _goodput(mine), _cpu(mine, payloads[0])]
        yield f"| {' | '.join(fields)} |"


def _rtt(cell: dict[str, Any] | None) -> str:
    figures = cell and cell["statistics"]
    if not figures or not figures["rtt_ns"]:
        return "too long" if cell and "greatest payload" in (cell["reason"] or "") else "-"
    return formatting.ms(figures["rtt_ns"]["p50"])


def _goodput(mine: dict[int, dict[str, Any]]) -> str:
    there = [cell for _, cell in sorted(mine.items()) if cell["statistics"] and cell["statistics"]["goodput_mb_s"]]
    return formatting.decimal(there[-1]["statistics"]["goodput_mb_s"]) if there else "-"


def _cpu(mine: dict[int, dict[str, Any]], octets: int) -> str:
    figures = mine[octets]["statistics"] if octets in mine else None
    if not figures:
        return "-"
    return formatting.ms(sum(value or 0 for value in figures["cpu_ns_per_message"].values()))


def draw(path: Path, found: dict[str, Any]) -> None:
    """RTT and goodput over the payload, both axes logarithmic."""
    with mpl.rc_context(plot_style.STYLE):
        figure, (upper, lower) = plot_style.panels(2, 3.4)
        for name, mine in measured(found).items():
            shown = labels.subject(name)
            cells = [cell for _, cell in sorted(mine.items()) if cell["statistics"] and cell["statistics"]["rtt_ns"]]
            style: dict[str, Any] = {
                "color": shown.colour,
                "marker": shown.marker,
                "ls": shown.line,
                **shown.open_or_full,
                "lw": 1,
            }
            octets = [cell["octets"] for cell in cells]
            upper.plot(
                octets, [cell["statistics"]["rtt_ns"]["mean"] / 1e6 for cell in cells], label=shown.short, **style
            )
            lower.plot(octets, [cell["statistics"]["goodput_mb_s"] for cell in cells], **style)
        everything = [cell for cell in found["cells"] if cell["statistics"]]
        for axis in (upper, lower):
            plot_style.payload_axis(axis, everything)
        plot_style.log_ms(upper, "median RTT (ms)")
        lower.set_yscale("log")
        lower.set_ylabel("goodput, closed loop (MB/s)")
        plot_style.plain(lower.yaxis, lower.get_ylim())
        plot_style.legend(figure, (upper, lower))
        figure.suptitle(
            f"{labels.setting(found)}, {formatting.date(found['started_ns'])}",
            fontsize=8.5, color=plot_style.GREY, x=0.01, ha="left",
        )  # fmt: skip
        figure.savefig(path, metadata={"Creator": None, "Date": None})


if __name__ == "__main__":
    sys.exit(main())
