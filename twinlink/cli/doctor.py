"""Check this machine: a row for each thing that can be wrong, with what was seen and what to do."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from twinlink.transports import Endpoint

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output
from . import checks

_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}
_CHECK_WIDTH = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--role",
        choices=("any", "gnb", "twin"),
        default="any",
        help="what this machine is for: E3 is required at the gNB, GNU Radio at the twin, neither elsewhere",
    )
    parser.add_argument(
        "--listen", metavar="tcp/HOST:PORT", help=f"are these ports free? else {linking.LISTEN}, as advice only"
    )
    parser.add_argument("--connect", metavar="tcp/HOST:PORT", help="does somebody listen there?")
    parser.add_argument(
        "--ntp", type=convert.ntp_server, metavar="HOST[:PORT]", help="ask this NTP server how far the clock is off"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Look at everything; 1 when something required fails."""
    for endpoint in filter(None, (given.listen, *(given.connect or "").split(","))):
        Endpoint.parse(endpoint)  # a typing mistake is no finding
    output = Output(given.json)
    rows = []
    for row in _rows(given):
        rows.append(row)
        if not given.json:
            output.write(_text(row).encode())
    number = Counter(row.status for row in rows)
    output.emit(
        {"ok": not number["fail"], "failed": number["fail"], "warned": number["warn"], "rows": list(map(asdict, rows))},
        f"{number['ok']} ok, {number['warn']} to look at, {number['fail']} failed",
    )
    return NOT_MET if number["fail"] else DONE


def _rows(given: argparse.Namespace) -> Iterator[checks.Row]:
    yield from checks.python()
    yield from checks.gnuradio(required=given.role == "twin")
    for transport in ("zeromq", "zenoh"):
        yield from checks.transport(transport)
    yield from checks.ports(given.listen or linking.LISTEN, given=given.listen is not None)
    for endpoint in filter(None, (given.connect or "").split(",")):
        yield from checks.peer(endpoint)
    yield from checks.e3(required=given.role == "gnb")
    yield from checks.mgen()
    yield from checks.socket_buffers()
    yield from checks.clock()
    if given.ntp:
        yield from checks.ntp(given.ntp)
    yield from checks.descriptors()
    yield from checks.container()
    yield from checks.shared_memory()


def _text(row: checks.Row) -> str:
    status = f"{row.status:4}"
    if sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        status = f"\033[{_COLOURS[row.status]}m{status}\033[0m"
    text = f"{status}  {row.check:{_CHECK_WIDTH}}  {row.seen}\n"
    if row.next:
        text += f"{'':{_CHECK_WIDTH + 8}}-> {row.next}\n"
    return text
