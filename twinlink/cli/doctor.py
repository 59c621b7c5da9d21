"""Check this machine: a row for each check, with what was found and what to do."""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from twinlink.transports import PORT

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, rendered
from ..appkit.options import Parser
from . import checks, clock_checks, identity_checks

EXAMPLES = """
twinlink doctor  # what is here, and what to do
twinlink doctor --role twin --connect tcp/10.0.0.5:7447
twinlink doctor --role gnb --ask-e3 auto --ntp ntp.example.org --json
"""
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--role",
        choices=("any", "gnb", "twin"),
        default="any",
        help="role of this machine: E3 is required at the gNB, GNU Radio at the twin, neither otherwise",
    )
    parser.add_argument(
        "--listen",
        type=convert.listen,
        metavar="HOST[:PORT]",
        help=f"check that these ports are free, by default {PORT} and the next; without it, those of {linking.LISTEN}, "
        "as a warning only",
    )
    parser.add_argument(
        "--connect",
        type=convert.connect,
        metavar="HOST[:PORT],...",
        help=f"check that a listener accepts connections there; default port {PORT}",
    )
    parser.add_argument(
        "--ntp",
        type=convert.ntp_server,
        metavar="HOST[:PORT]",
        help="check the clock against this NTP server; default port 123",
    )
    parser.add_argument(
        "--ask-e3",
        choices=("auto", "zmq", "posix"),
        help="ask the E3 agent in /tmp/dapps over this link what it speaks: registers a dApp and releases it; auto "
        "finds the link (not for JSON or protobuf agents of libe3 up to 0.0.7)",
    )
    parser.add_argument(
        "--identity", metavar="DIR", help="check this identity; with --connect, also a handshake over ZeroMQ"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Run every check; 1 if a required one fails."""
    output = Output(given.json)
    rows = []
    for row in _rows(given):
        rows.append(row)
        if not given.json:
            output.line(_text(row))  # now: some checks take seconds
    number = Counter(row.status for row in rows)
    output.emit(
        {"ok": not number["fail"], "failed": number["fail"], "warned": number["warn"], "rows": list(map(asdict, rows))},
        f"{number['ok']} ok, {number['warn']} warn, {number['fail']} failed",
    )
    return NOT_MET if number["fail"] else DONE


def _rows(given: argparse.Namespace) -> Iterator[checks.Row]:
    yield from checks.python()
    yield from checks.gnuradio(required=given.role == "twin")
    yield from checks.companion()
    for transport in ("zeromq", "zenoh", "websocket", "tcp"):
        yield from checks.transport(transport)
    yield from checks.ports(given.listen or linking.LISTEN, given=given.listen is not None)
    for endpoint in filter(None, (given.connect or "").split(",")):
        yield from checks.peer(endpoint)
    if given.identity:
        yield from identity_checks.identity(given.identity, given.connect)
    yield from checks.e3(required=given.role == "gnb")
    if given.ask_e3:
        yield from checks.e3_agent(given.ask_e3)
    yield from checks.mgen()
    yield from checks.socket_buffers()
    yield from clock_checks.clock()
    if given.ntp:
        yield from clock_checks.ntp(given.ntp)
    yield from checks.descriptors()
    yield from checks.container()
    yield from checks.shared_memory()


def _text(row: checks.Row) -> str:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=4, style=_STYLES[row.status])
    table.add_column(width=12)
    table.add_column(overflow="fold")  # a path that is longer than the line stays whole
    table.add_row(row.status, row.check, row.seen)
    if row.next:
        table.add_row("", "", f"-> {row.next}")
    return rendered(table)
