"""The `twinlink` command: one module per sub-command, loaded when it is called for.

A sub-command is a module with ``add_options(parser)`` and ``run(given) -> exit code``; it stands in `COMMANDS`.
"""

import argparse
import contextlib
import logging
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol, cast

from twinlink import __version__

from ..appkit import console, options

COMMANDS = {
    "demo": "the whole path on this machine, from a gNB's E3 interface to GNU Radio and back; one minute",
    "ping": "measure the round-trip time to a peer that runs pong",
    "pong": "answer ping",
    "pub": "send lines, files or generated messages on a flow",
    "sub": "receive the messages of a flow",
    "sweep": "measure delay, RTT, throughput and jitter over payloads, directions and transports",
    "report": "make the table, figures and report of a sweep or demo again from its raw records, or compare two",
    "clock": "show the peer's clock against this one, and NTP's view of both, live",
    "mgen": "carry MGEN's UDP datagrams and TCP messages over a link",
    "doctor": "check this machine: what is there, what is wrong, what to do",
}
PROGRAMS = "twinlink.programs"  # entry points: the table of a program in the file -> what makes its parser


class Command(Protocol):
    """What the module of a sub-command provides."""

    __doc__: str | None

    @staticmethod
    def add_options(parser: options.Parser) -> None:
        """Declare the options; cheap, imports nothing heavy."""

    @staticmethod
    def run(given: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code: 0 done, 1 peer missing or loss, 2 failed, 3 bad arguments."""
    arguments = sys.argv[1:] if argv is None else argv
    name = f"twinlink {arguments[0]}" if arguments and arguments[0] in COMMANDS else "twinlink"
    return console.guarded(name, lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    top = options.Parser(
        prog="twinlink",
        description="Keeps an O-RAN network and its digital twin in sync. `twinlink COMMAND --help` shows the options.",
        epilog="Exit codes: 0 done, 1 peer missing or loss, 2 failed, 3 bad arguments.",
    )
    top.add_argument("--version", action="version", version=f"twinlink {__version__}")
    names = top.add_subparsers(metavar="COMMAND", dest="command", title="commands")
    for name, summary in COMMANDS.items():
        names.add_parser(name, help=summary, add_help=False)
    if not arguments:
        top.print_help(sys.stderr)
        return console.BAD_ARGUMENTS
    name = arguments[0]
    if name.startswith("-"):
        top.parse_args([name])  # --help and --version end here
    if name not in COMMANDS:
        top.error(f"no command is called {name!r}{options.near(name, COMMANDS)}")
    command = _load(name)
    given = options.parse(_parser(name, command), name, arguments[1:], all_keys)
    logging.basicConfig(format=f"twinlink {name}: %(message)s")  # what the library has to say
    return command.run(given)


def _load(name: str) -> Command:
    return cast(Command, import_module(f"{__name__}.{name}"))


def _parser(name: str, command: Command) -> options.Parser:
    parser = options.Parser(prog=f"twinlink {name}", description=command.__doc__)
    command.add_options(parser)
    return parser


def all_keys() -> Mapping[str, frozenset[str]]:
    """What may stand in a file, by table: the options of every command and program that can be loaded here."""
    found = {}
    for name in COMMANDS:
        with contextlib.suppress(ImportError):
            found[name] = options.keys(_parser(name, _load(name)))
    for point in entry_points(group=PROGRAMS):
        with contextlib.suppress(ImportError):
            found[point.name] = options.keys(point.load()())
    return found
