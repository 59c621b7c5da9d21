"""Carry MGEN's traffic over a link, or break down the delay of its messages.

in: listens on the given UDP and TCP ports, as an MGEN receiver does, and sends each message over the link, a TCP
message with all its fragments as one.  out: forwards the messages from the link to MGEN receivers, unchanged.  both:
does both over one link, on each of two hosts; --out-udp and --out-tcp then name the receivers.  join: joins MGEN's logs
and the bridge's records, and reports MGEN's delay and the link's part of it.  draw: draws them, from the folder of a
sweep of mgen-scripts/run.

By default, in connects to tcp/127.0.0.1:7447 and out listens at that port.
"""

import argparse
import importlib.util
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from twinlink_results.mgen import log as mgen_log
from twinlink_results.mgen import log_join, log_zone, records

import twinlink
from twinlink.appkit import convert, linking, outputs
from twinlink.appkit.console import DONE, NOT_MET, Output, Stop, log, rendered, writing
from twinlink.appkit.mgen_message import Address
from twinlink.appkit.options import Parser
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ip_address import check_host

from .mgen.egress import Egress
from .mgen.ingress import Ingress

_NAME = "twinlink mgen"
EXAMPLES = """
twinlink mgen out --udp 6003  # on one host, and on the other:
twinlink mgen in --udp 5001 --connect tcp/10.0.0.5:7447 --records rw.csv
twinlink mgen join --tx tx.drc --rx rx.drc --records rw.csv
"""
_LISTEN_HOST = "0.0.0.0"
_OUT_HOST = "127.0.0.1"
_PLACE = re.compile(r"(?:(?P<host>\[[^\[\]]+\]|[^\[\]:]+):)?(?P<port>[0-9]{1,5})")
_NO_PEER_S = 5.0  # without a peer, before the log says so
_WAYS = ("in", "out", "both", "join", "draw")
_OTHER = {"in": "out", "out": "in", "both": "both"}  # what runs on the other host
_SEND_TIMEOUT_S = 0.5  # so that Ctrl-C is noticed while the link takes nothing


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("way", choices=_WAYS, metavar="|".join(_WAYS), help="what to do")
    linking.add_options(parser, listens=None, flow="mgen")
    parser.add_argument("--udp", metavar="[HOST:]PORT", help="in, both: listen here; out: MGEN listens there")
    parser.add_argument("--tcp", metavar="[HOST:]PORT", help="the same for TCP")
    parser.add_argument("--out-udp", metavar="[HOST:]PORT", help="both: MGEN listens there")
    parser.add_argument("--out-tcp", metavar="[HOST:]PORT", help="the same for TCP")
    parser.add_argument(
        "--idle", type=convert.seconds, metavar="S", help="end S seconds after the last message in either direction"
    )
    parser.add_argument(
        "--records",
        action="append",
        type=Path,
        metavar="FILE",
        help="write a record of each message there (.csv or .csv.gz); join: read it, may be repeated",
    )
    outputs.add_option(parser)
    parser.add_argument("--tx", type=Path, metavar="FILE", help="join: the log of the sending mgen (with txlog)")
    parser.add_argument("--rx", type=Path, metavar="FILE", help="join: the log of the receiving mgen")
    parser.add_argument("--sweep", type=Path, metavar="DIR", help="draw: the folder of the sweep; the figures go there")


def run(given: argparse.Namespace) -> int:
    """Carry until Ctrl-C and print the summary; or join and print, or draw."""
    return _draw(given) if given.way == "draw" else _join(given) if given.way == "join" else _carry(given)


def _carry(given: argparse.Namespace) -> int:
    takes = _addresses(given, "udp", "tcp", _LISTEN_HOST) if given.way != "out" else {}
    gives = {}
    if given.way == "out":
        gives = _addresses(given, "udp", "tcp", _OUT_HOST)
    elif given.way == "both":
        gives = _addresses(given, "out_udp", "out_tcp", _OUT_HOST)
    _reject_unused(given)
    if given.listen is None and given.connect is None:
        if given.way == "both":
            raise twinlink.ConfigurationError("both: give the side of the link: --listen or --connect")
        given.listen, given.connect = (linking.LISTEN, None) if given.way == "out" else (None, linking.CONNECT)
    given.option = [("send_timeout", _SEND_TIMEOUT_S), *(given.option or [])]
    outputs.refuse_existing("--records", given.records or [], given.overwrite)

    output = Output(given.json)
    say = partial(log, _NAME)
    recorder = records.Recorder(given.records[0]) if given.records else None
    try:
        with Stop() as stop, linking.open_link(given) as link:
            watch = linking.Watch(_NAME, link)
            ends: dict[str, Ingress | Egress] = {}
            try:
                if takes:
                    ends["in"] = Ingress(link, **takes, flow=given.flow, recorder=recorder, say=say)
                if gives:
                    ends["out"] = Egress(link, **gives, flow=given.flow, recorder=recorder, say=say)
                say(f"{linking.endpoint(given)}, {_describe(given, takes, gives)}; Ctrl-C ends it")
                lookout = _Lookout(link, watch, given, say)
                _run(list(ends.values()), stop, given.idle, lookout.look)
                stats = {way: end.stats() for way, end in ends.items()}
            finally:
                for end in ends.values():
                    end.close()
        watch.tell()
    finally:
        if recorder:
            recorder.close()
    if "out" in stats:
        stats["out"]["missing"] = watch.missing
    output.emit(
        {"transport": given.transport, "flow": given.flow, **stats},
        "\n".join(_sentence(way, counts) for way, counts in stats.items()),
    )
    return DONE if all(_is_whole(way, counts) for way, counts in stats.items()) else NOT_MET


class _Lookout:
    """Logs the events of the link; logs once if no peer comes up, because then nothing is taken from MGEN."""

    def __init__(
        self, link: twinlink.Link, watch: linking.Watch, given: argparse.Namespace, say: Callable[[str], None]
    ) -> None:
        self._link = link
        self._watch = watch
        self._given = given
        self._say = say
        self._due = time.monotonic() + _NO_PEER_S
        self._over = False

    def look(self) -> None:
        """Log what happened since the last call."""
        self._watch.tell()
        if self._over:
            return
        if self._link.peers():
            self._over = True
        elif time.monotonic() > self._due:
            self._over = True
            given = self._given
            problem = linking.connection_problem(given.connect) if given.connect else None
            where = f"at {given.connect} yet" if given.connect else f"has come to {given.listen} yet"
            self._say(
                f"no peer {where}{f' (TCP says: {problem})' if problem else ''}; MGEN's messages wait until then. "
                f"Does `twinlink mgen {_OTHER[given.way]} --transport {given.transport}` run on the other host?"
            )


def _run(ends: list[Ingress | Egress], stop: Stop, idle_s: float | None, tell: Callable[[], None]) -> None:
    """Run the last end on this thread, another on its own; both end when one fails or when both are idle."""

    def is_over() -> bool:
        if idle_s is not None and (last_ns := max(end.last_mono_ns for end in ends)):
            return stop.requested or failed or time.monotonic_ns() - last_ns > idle_s * 1e9
        return stop.requested or failed

    def tell_and_is_over() -> bool:
        tell()
        return is_over()

    failed = False
    problems: list[BaseException] = []

    def run_beside(end: Ingress | Egress) -> None:
        nonlocal failed
        try:
            end.run(is_over)
        except BaseException as error:
            problems.append(error)
            failed = True

    threads = [GuardedThread(partial(run_beside, end), "mgen-in", daemon=False) for end in ends[:-1]]
    for thread in threads:
        thread.start()
    try:
        ends[-1].run(tell_and_is_over)
    except BaseException:
        failed = True
        raise
    finally:
        for thread in threads:
            thread.join()
    if problems:
        raise problems[0]


def _addresses(given: argparse.Namespace, udp: str, tcp: str, host: str) -> dict[str, Address]:
    found = {
        name: _address(getattr(given, key), host, key)
        for name, key in (("udp", udp), ("tcp", tcp))
        if getattr(given, key) is not None
    }
    if not found:
        options = f"--{udp} or --{tcp}, or both".replace("_", "-")
        raise twinlink.ConfigurationError(f"{given.way}: say which ports to use: {options}")
    return found


def _address(text: str, host: str, key: str) -> Address:
    option = f"--{key.replace('_', '-')} {text}"
    found = _PLACE.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise twinlink.ConfigurationError(
            f"{option}: PORT or HOST:PORT is expected, a port from 1 to 65535, IPv6 in brackets"
        )
    try:
        check_host(found["host"] or host)
    except ValueError as error:
        raise twinlink.ConfigurationError(f"{option}: {error}") from None
    return Address((found["host"] or host).strip("[]"), int(found["port"]))


def _reject_unused(given: argparse.Namespace) -> None:
    """Raises ConfigurationError for an option that has no effect in this direction."""
    unused = ["tx", "rx", "sweep"] if given.way == "both" else ["tx", "rx", "sweep", "out_udp", "out_tcp"]
    for key in unused:
        if getattr(given, key) is not None:
            option = f"--{key.replace('_', '-')}"
            raise twinlink.ConfigurationError(f"{option} has no effect with `twinlink mgen {given.way}`: leave it out")
    if given.records and len(given.records) > 1:
        raise twinlink.ConfigurationError(f"{given.way} writes one file of --records, not {len(given.records)}")


def _describe(given: argparse.Namespace, takes: dict[str, Address], gives: dict[str, Address]) -> str:
    parts = []
    for what, places in (("takes from MGEN at", takes), ("gives to MGEN at", gives)):
        if places:
            parts.append(f"{what} " + ", ".join(f"{p.upper()} {a}" for p, a in places.items()))
    return f"flow {given.flow}: {'; '.join(parts)}"


_LOSSES = {
    "in": {
        "lost": "lost on the link",
        "dropped": "datagrams dropped by the kernel",
        "incomplete": "incomplete",
        "too_long": "too long for the link",
        "given_up": "not taken by the link",
    },
    "out": {
        "missing": "lost on the link",
        "held": "not taken by the TCP listener",
        "refused": "datagrams refused by the listener's host",
        "failed": "datagrams that could not be sent",
        "unwanted": "without a destination",
    },
}


def _is_whole(way: str, counts: dict[str, Any]) -> bool:
    return bool(counts["udp"] + counts["tcp"]) and not any(counts[key] for key in _LOSSES[way])


def _sentence(way: str, counts: dict[str, Any]) -> str:
    came = f"{counts['udp']} datagrams and {counts['tcp']} TCP messages, {counts['octets']} B"
    if not counts["udp"] + counts["tcp"]:
        text = f"{way}: nothing came {'from MGEN' if way == 'in' else 'over the link'}"
    elif way == "in":
        text = f"in: {came} from MGEN; {counts['sent']} sent over the link, {counts['acknowledged']} acknowledged"
    else:
        text = f"out: {came} over the link; {counts['forwarded']} forwarded to MGEN"
    found = [f"{counts[key]} {what}" for key, what in _LOSSES[way].items() if counts[key]]
    if counts.get("resent"):
        found.append(f"{counts['resent']} sent again after a connection broke")
    if counts["malformed"]:
        found.append(f"{counts['malformed']} malformed")
    if not found and counts["octets"]:
        found = ["nothing lost"]
    return "; ".join([text, *([", ".join(found)] if found else [])])


def _join(given: argparse.Namespace) -> int:
    if not given.rx and not given.records:
        raise twinlink.ConfigurationError("join: give --rx, --records, or both (and --tx if there is such a log)")
    sender, listener = _log(given.tx), _log(given.rx)
    if sender and not sender.of("SEND"):
        raise twinlink.TwinlinkError(f"{given.tx} has no SEND: start the sending mgen with txlog")
    try:
        rows = [row for path in given.records or [] for row in records.read(path)]
    except ValueError as error:
        raise twinlink.TwinlinkError(str(error)) from error
    if given.records and not rows:
        files = ", ".join(map(str, given.records))
        raise twinlink.TwinlinkError(f"{files}: no message is recorded there; give the records of this run")
    found = log_join.join_logs(sender, listener, rows)
    output = Output(given.json)
    if given.json:
        for trace in found.traces:
            output.emit({"type": "message", **trace._asdict()})
    figures = {name: _percentiles(values) if (values := _known(found, name)) else None for name in _FIGURES}
    counts = {key: value for key, value in found._asdict().items() if key != "traces"}
    output.emit(counts | figures, "\n".join(_report(found, figures, bool(given.records))))
    whole = found.sent and found.received == found.sent and not found.errors and not found.incomplete
    if found.unmatched:
        return NOT_MET
    return DONE if whole or (not given.rx and found.sent) else NOT_MET


def _percentiles(values: list[int]) -> dict[str, int]:
    """Number, minimum, percentiles by nearest rank, and maximum, of at least one value.

    They are the instrument's own: it does not compute with the library that it measures.
    """
    ordered = sorted(values)
    n = len(ordered)
    points = {f"p{percent}": ordered[-(-percent * n // 100) - 1] for percent in (50, 95, 99)}
    return {"n": n, "min": ordered[0], **points, "max": ordered[-1]}


def _draw(given: argparse.Namespace) -> int:
    if given.sweep is None:
        raise twinlink.ConfigurationError("draw: give --sweep, the folder of a sweep of mgen-scripts/run")
    if importlib.util.find_spec("matplotlib") is None:
        raise twinlink.TwinlinkError("draw needs matplotlib, not installed here: pip install 'twinlink[measure]'")
    from . import mgen_figures

    with writing(given.sweep):
        drawn = [str(path) for path in mgen_figures.draw(given.sweep, mgen_figures.read(given.sweep))]
    Output(given.json).emit({"figures": drawn}, "\n".join(drawn))
    return DONE


def _known(found: log_join.Joined, name: str) -> list[int]:
    return [value for trace in found.traces if (value := getattr(trace, name)) is not None]


def _log(path: Path | None) -> mgen_log.Log | None:
    if path is None:
        return None
    found = mgen_log.read(path)
    if found.unreadable and not found.events:
        raise twinlink.TwinlinkError(f"{path} is no log of MGEN")
    return found


_FIGURES = {
    "mgen_delay_ns": "MGEN, SEND to RECV",
    "before_link_ns": "  before the link",
    "link_delay_ns": "  on the link",
    "behind_link_ns": "  behind the link",
    "rtt_ns": "link RTT",
}
_COLUMNS = ("min", "p50", "p99", "max")


def _report(found: log_join.Joined, figures: dict[str, dict[str, int] | None], recorded: bool) -> list[str]:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("delay in ms", min_width=20)
    table.add_column("n", justify="right", min_width=6, no_wrap=True)
    for key in _COLUMNS:
        table.add_column(key, justify="right", min_width=9, no_wrap=True)
    for name, what in _FIGURES.items():
        if values := figures[name]:
            table.add_row(what, str(values["n"]), *(f"{values[key] / 1e6:.3f}" for key in _COLUMNS))
    lines = [
        f"{found.received} of {found.sent} received, {found.errors} RERR, {found.duplicates} duplicates, "
        f"{found.incomplete} incomplete, {found.unreadable} unreadable"
        + (f"; {found.strangers} more in the listener's log, of other senders or runs" if found.strangers else ""),
        rendered(table),
        *_zones(found, recorded),
    ]
    for pair in found.unmatched:
        lines.append(f"nothing matches in {pair}, in any time zone: they are of other runs, or everything was lost")
    if found.unrecorded:
        lines.append(f"{found.unrecorded} of {found.sent} have no record: the link's part of their delay is not known")
    if found.offset_ns is not None and found.offset_bound_ns is not None:
        lines.append(
            f"the receiving clock is ahead by {found.offset_ns / 1e6:.3f} ms +- {found.offset_bound_ns / 1e6:.3f} ms; "
            "delays (not the RTT) include that"
        )
    return lines


def _zones(found: log_join.Joined, recorded: bool) -> Iterator[str]:
    """The logs that were in another time zone than what they were compared with."""
    ahead = "UTC{}" if recorded else "{} against the sender's log"
    for name, zones_ns in (("sender", found.sender_zone_ns), ("listener", found.listener_zone_ns)):
        if any(zones_ns):
            zones = ", later ".join(ahead.format(log_zone.offset(zone_ns)) for zone_ns in zones_ns)
            yield f"the {name}'s log has local times ({zones}), which were converted"
