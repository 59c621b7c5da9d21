"""Show what a running program sends and receives, refreshed: rate, goodput, loss, age and round-trip time by flow.

It reads the metrics of a program that was started with --http: twinlink-exporter, twinlink-replay, twinlink pong, or
one of yours (docs/monitoring.md).  Rates, loss and delays are those of the time between two refreshes.  The age of a
flow is known where the program watches it with `link.sync`, as the replay does.
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from twinlink.errors import PeerTimeout
from twinlink.measure.formatting import decimal

from ..appkit import convert
from ..appkit.console import DONE, Output, Stop, rendered
from ..process.text import on_one_line, printable
from .scrape import Scrape, scrape

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = """
twinlink top                # the program on this host at 9464
twinlink top 10.0.0.5:9464 --interval 5
twinlink top --once --json  # for a script
"""
_CLEAR = b"\x1b[H\x1b[J"  # ANSI: to the top left corner, and clear what is below
_UNKNOWN = "-"
# Counters of messages, of their octets, of losses, and of what was not lost: the last two give the loss ratio.
_DIRECTIONS = {
    "sent": ("twinlink_flow_sent_total", "twinlink_flow_sent_bytes_total", "twinlink_flow_lost_total",
             "twinlink_flow_acknowledged_total"),
    "received": ("twinlink_flow_received_total", "twinlink_flow_received_bytes_total", "twinlink_flow_missing_total",
                 "twinlink_flow_received_total"),
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "address",
        nargs="?",
        type=convert.http_address,
        default=convert.HttpAddress("127.0.0.1", convert.HTTP_PORT),
        metavar="HOST[:PORT]",
        help=f"the program's --http; default 127.0.0.1, and port {convert.HTTP_PORT}",
    )
    parser.add_argument(
        "--interval", type=convert.above_0, default=1.0, metavar="S", help="time between two refreshes in s"
    )
    parser.add_argument("--once", action="store_true", help="print one table, after one interval, and end")
    parser.add_argument("--json", action="store_true", help="JSON Lines on stdout, the last one a summary")


def run(given: argparse.Namespace) -> int:
    """Refresh until Ctrl-C; 1 if the program does not answer, or no longer."""
    output = Output(given.json)
    screen = not given.json and not given.once and sys.stdout is not None and sys.stdout.isatty()
    samples, before = 0, None
    try:
        with Stop() as stop:
            due = time.monotonic()
            while not stop.requested:
                now = scrape(given.address)
                if before is not None or not given.once:
                    _show(output, given.address, measured(before, now), screen)
                    samples += 1
                if given.once and samples:
                    break
                before, due = now, max(due + given.interval, time.monotonic())
                stop.wait(due - time.monotonic())
    except PeerTimeout as error:
        if samples:
            raise PeerTimeout(f"the program has ended or is busy: {error}") from None
        raise
    finally:
        output.emit({"address": str(given.address), "samples": samples})
    return DONE


def measured(before: Scrape | None, now: Scrape) -> dict[str, Any]:
    """The record of a refresh, from two scrapes; without the first, what counts since then is None."""
    flows = []
    for direction, (messages, octets, lost, arrived) in _DIRECTIONS.items():
        for flow, _ in now.labels(messages):
            rise = _Rise(before, now, flow)
            lost_now, arrived_now = rise.of(lost) or 0.0, rise.of(arrived) or 0.0
            known = lost_now + arrived_now
            age_s = now.value("twinlink_age_of_information_seconds", flow) if direction == "received" else None
            flows.append(
                {
                    "flow": flow,
                    "direction": direction,
                    "messages": int(now.value(messages, flow) or 0),
                    "rate_hz": rise.per_s(messages),
                    "goodput_mb_s": None if (per_s := rise.per_s(octets)) is None else per_s / 1e6,
                    "lost": int(now.value(lost, flow) or 0),
                    "loss_ratio": lost_now / known if known else None,
                    "age_ns": None if age_s is None else round(age_s * 1e9),
                    "rtt_ns": _mean_ns(before, now, "twinlink_rtt_seconds", flow=flow) if direction == "sent" else None,
                }
            )
    return {
        "type": "sample",
        "node": now.node,
        "transport": now.transport,
        "version": now.version,
        "flows": sorted(flows, key=lambda row: (str(row["flow"]), str(row["direction"]))),
        "peers": [_peer(before, now, peer) for _, peer in now.labels("twinlink_peer_up")],
    }


def _peer(before: Scrape | None, now: Scrape, peer: str) -> dict[str, Any]:
    offset, bound = (now.value(f"twinlink_clock_offset_{name}seconds", peer=peer) for name in ("", "bound_"))
    return {
        "node": peer,
        "up": now.value("twinlink_peer_up", peer=peer) == 1,
        "rtt_ns": _mean_ns(before, now, "twinlink_rtt_seconds", peer=peer),
        "one_way_delay_ns": _mean_ns(before, now, "twinlink_one_way_delay_seconds", peer=peer),
        "clock_offset_ns": None if offset is None else round(offset * 1e9),
        "clock_bound_ns": None if bound is None else round(bound * 1e9),
    }


class _Rise:
    """By how much the counters of a flow have risen between two scrapes; a program that began anew counts from 0."""

    def __init__(self, before: Scrape | None, now: Scrape, flow: str = "", peer: str = "") -> None:
        self._before, self._now, self._place = before, now, (flow, peer)

    def of(self, metric: str) -> float | None:
        """None without a scrape before, or without such a series."""
        now = self._now.value(metric, *self._place)
        if self._before is None or now is None:
            return None
        before = self._before.value(metric, *self._place) or 0.0
        return now - before if now >= before else now

    def per_s(self, metric: str) -> float | None:
        """The rise per second."""
        rise = self.of(metric)
        return None if rise is None or self._before is None else rise / (self._now.at_s - self._before.at_s)


def _mean_ns(before: Scrape | None, now: Scrape, histogram: str, flow: str = "", peer: str = "") -> int | None:
    """The mean of what a histogram took in between two scrapes, over all series of this flow or peer."""
    places = [place for place in now.labels(f"{histogram}_count") if flow in ("", place[0]) and peer in ("", place[1])]
    rises = [_Rise(before, now, *place) for place in places]
    count = sum(rise.of(f"{histogram}_count") or 0.0 for rise in rises)
    total_s = sum(rise.of(f"{histogram}_sum") or 0.0 for rise in rises)
    return round(total_s / count * 1e9) if count else None


def _show(output: Output, address: convert.HttpAddress, record: dict[str, Any], screen: bool) -> None:
    if output.as_json:
        output.emit(record)
        return
    up = sum(peer["up"] for peer in record["peers"])
    link = f", {record['transport']}, {up} peer{'' if up == 1 else 's'} up" if record["node"] else ", without a link"
    title = f"{record['node'] or 'program'} at {address}: twinlink {record['version']}{link}"
    parts = [on_one_line(title), rendered(_flow_table(record["flows"])) if record["flows"] else "no flow yet"]
    if record["peers"]:
        parts.append(rendered(_peer_table(record["peers"])))
    text = printable("\n\n".join(parts)).encode()
    output.write((_CLEAR if screen else b"") + text + b"\n" + (b"" if screen else b"\n"))


def _flow_table(flows: list[dict[str, Any]]) -> "Table":
    table = _table("flow", "", "messages", "msg/s", "MB/s", "lost", "loss", "age ms", "RTT ms", words=2)
    for row in flows:
        loss = row["loss_ratio"]
        table.add_row(
            on_one_line(row["flow"]), row["direction"], f"{row['messages']:,}", _decimal(row["rate_hz"]),
            _decimal(row["goodput_mb_s"]), f"{row['lost']:,}", _UNKNOWN if loss is None else f"{100 * loss:.3g}%",
            _ms(row["age_ns"]), _ms(row["rtt_ns"]),
        )  # fmt: skip
    return table


def _peer_table(peers: list[dict[str, Any]]) -> "Table":
    table = _table("peer", "", "RTT ms", "one-way ms", "clock offset ms", "± ms", words=2)
    for row in peers:
        state = "up" if row["up"] else "down"
        figures = (row[name] for name in ("rtt_ns", "one_way_delay_ns", "clock_offset_ns", "clock_bound_ns"))
        table.add_row(on_one_line(row["node"]), state, *map(_ms, figures))
    return table


def _table(*columns: str, words: int) -> "Table":
    """A table whose first ``words`` columns are text; the others are figures, aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for place, title in enumerate(columns):
        if place < words:
            table.add_column(title, overflow="fold")
        else:
            table.add_column(title, justify="right", no_wrap=True)
    return table


def _decimal(value: float | None) -> str:
    return _UNKNOWN if value is None else decimal(value) if value else "0"


def _ms(value_ns: int | None) -> str:
    return _UNKNOWN if value_ns is None else decimal(value_ns / 1e6)
