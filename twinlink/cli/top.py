"""Show who is on a link and its flows, or what a program sends and receives, refreshed: rate, loss, age by flow.

tcp/HOST:PORT is the endpoint of a link: it is joined, and what can be seen from there is shown, as `twinlink list`
does; nothing special need run at the other side.  While it looks it is a peer like others: it counts for `wait_ready`,
and acknowledges what it receives.

http://HOST:PORT is the --http of a program (twinlink-exporter, twinlink-replay, twinlink pong, or one of yours,
docs/monitoring.md), which knows both directions and the round trips.  The age of a flow is known there where the
program watches it with `link.sync`, as the replay does.

HOST alone means the latter if something listens at port 9464 there, else the link at port 7447.  Rates, loss and delays
are those of the time between two refreshes.
"""

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

from twinlink.errors import PeerTimeout
from twinlink.process.listener_probe import probe
from twinlink.transports import PORT

from ..appkit import convert, linking
from ..appkit.console import DONE, Output, Stop, log, rendered
from ..appkit.formatting import decimal
from ..appkit.options import Parser
from ..process.text import on_one_line, printable
from . import known_flows, looking
from .display import Display, Suspension, is_terminal
from .looking import table_of
from .observer import Observer
from .scrape import CONNECT_S, Scrape, is_closed, scrape

if TYPE_CHECKING:
    from rich.table import Table

_NAME = "twinlink top"
EXAMPLES = """
twinlink top 10.0.0.5       # the program there at 9464, or the link at 7447
twinlink top tcp/10.0.0.5:7447 --transport zenoh
twinlink top http://10.0.0.5:9464 --interval 5
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


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument(
        "address",
        nargs="?",
        type=_address,
        default=convert.HttpAddress("127.0.0.1", convert.HTTP_PORT),
        metavar="HOST",
        help="HOST or HOST:PORT, of a link or of a program's --http; tcp/HOST:PORT or http://HOST:PORT says which; "
        "default 127.0.0.1",
    )
    parser.add_argument(
        "--interval", type=convert.above_0, default=1.0, metavar="S", help="time between two refreshes in s"
    )
    parser.add_argument("--once", action="store_true", help="print one table, after one interval, and end")
    linking.add_timeout_option(parser, "wait for a peer of the link so many seconds")
    parser.add_argument("--json", action="store_true", help="JSON Lines on stdout, the last one a summary")
    linking.add_joining_options(parser)


def _address(text: str) -> convert.HttpAddress | str:
    """Where a program has its --http, or the endpoint of a link."""
    if text.startswith("tcp/"):
        return convert.connect(text)
    host = text.removeprefix("http://").rstrip("/")
    found = convert.http_address(text if "/" in host else host)
    if text.startswith("http://"):
        return _Metrics(*found)
    return f"tcp/{found}" if found.port == PORT else found


class _Metrics(convert.HttpAddress):
    """The address of a program's --http, as its scheme says."""


def run(given: argparse.Namespace) -> int:
    """Refresh until Ctrl-C; 1 if nothing answers, or no longer."""
    address: convert.HttpAddress | str = given.address
    if isinstance(address, str):
        return _look(given, address)
    endpoint = None if isinstance(address, _Metrics) else _link_meant(given, address)
    return _look(given, endpoint) if endpoint else _watch(given, address)


def _link_meant(given: argparse.Namespace, address: convert.HttpAddress) -> str | None:
    """The endpoint of the link that is meant by an address without a scheme; None: it is that of metrics."""
    if is_closed(address):
        if address.port != convert.HTTP_PORT:
            return None  # nothing is there: `scrape` says so
        endpoint = f"tcp/{convert.HttpAddress(address.host, PORT)}"
        log(_NAME, f"nothing listens at {address}, where --http usually is, so this joins the link at {endpoint}")
        return endpoint
    if given.transport != "zeromq" or probe(address.host, address.port, CONNECT_S, asks=True).protocol:
        log(_NAME, f"this joins the link at tcp/{address}; for the metrics of --http write http://{address}")
        return f"tcp/{address}"
    return None


def _look(given: argparse.Namespace, endpoint: str) -> int:
    """Join the link at an endpoint, and show what is seen from there."""
    output, samples = Output(given.json), 0
    given.listen, given.connect = None, endpoint
    display = Display[str](str, max_items=1) if _has_screen(given) else None
    try:
        with Stop() as stop, Suspension() as suspension:
            while not stop.requested and not (given.once and samples):
                with looking.open_link(given, "top") as link:
                    observer = Observer(link)
                    linking.wait_for_peer(link, stop, given, _NAME, None)
                    observer.sample()
                    while not _rest(stop, suspension, given.interval):
                        samples += 1
                        _show_link(output, link.endpoint, observer, display)
                        if given.once:
                            break
                    known_flows.remember(observer.flows)
                if suspension.requested:
                    suspension.stop()
    finally:
        if display is not None:
            display.close()
        output.emit({"endpoint": endpoint, "samples": samples})
    return DONE


def _rest(stop: Stop, suspension: Suspension, seconds: float) -> bool:
    """Sleep; returns True at once when the end or a stop is requested."""
    end = time.monotonic() + seconds
    while not suspension.requested and (left := end - time.monotonic()) > 0:
        if stop.wait(min(left, linking.LOOK_S)):
            return True
    return suspension.requested


def _show_link(output: Output, endpoint: str, observer: Observer, display: Display[str] | None) -> None:
    record = observer.sample()
    peers = record["peers"]
    up = sum(peer["state"] == "up" for peer in peers)
    title = f"{endpoint}, {record['transport']}, {up} peer{'' if up == 1 else 's'} up"
    text = f"{title}\n\n{looking.tables(record)}\n\n{looking.seen_from_here(False, record)}"
    if display is None:
        output.emit(record, f"{text}\n")
    elif display.failed is not None:
        raise display.failed
    else:
        display.put(f"{_CLEAR.decode()}{looking.fitted(text)}\n")


def _has_screen(given: argparse.Namespace) -> bool:
    """Whether each table takes the place of the last one."""
    return not given.json and not given.once and is_terminal() and os.environ.get("TERM") != "dumb"


def _watch(given: argparse.Namespace, address: convert.HttpAddress) -> int:
    """Show the metrics of a program."""
    output = Output(given.json)
    screen = _has_screen(given)
    samples, before = 0, None
    try:
        with Stop() as stop:
            due = time.monotonic()
            while not stop.requested:
                now = scrape(address)
                if before is not None or not given.once:
                    _show(output, address, measured(before, now), screen)
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
        output.emit({"address": str(address), "samples": samples})
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
    table = table_of("flow", "", "messages", "msg/s", "MB/s", "lost", "loss", "age ms", "RTT ms", words=2)
    for row in flows:
        loss = row["loss_ratio"]
        table.add_row(
            on_one_line(row["flow"]), row["direction"], f"{row['messages']:,}", _decimal(row["rate_hz"]),
            _decimal(row["goodput_mb_s"]), f"{row['lost']:,}", _UNKNOWN if loss is None else f"{100 * loss:.3g}%",
            _ms(row["age_ns"]), _ms(row["rtt_ns"]),
        )  # fmt: skip
    return table


def _peer_table(peers: list[dict[str, Any]]) -> "Table":
    table = table_of("peer", "", "RTT ms", "one-way ms", "clock offset ms", "± ms", words=2)
    for row in peers:
        state = "up" if row["up"] else "down"
        figures = (row[name] for name in ("rtt_ns", "one_way_delay_ns", "clock_offset_ns", "clock_bound_ns"))
        table.add_row(on_one_line(row["node"]), state, *map(_ms, figures))
    return table


def _decimal(value: float | None) -> str:
    return _UNKNOWN if value is None else decimal(value) if value else "0"


def _ms(value_ns: int | None) -> str:
    return _UNKNOWN if value_ns is None else decimal(value_ns / 1e6)
