"""The `twinlink` command: one module per sub-command, loaded when the sub-command is called.

A sub-command is a module with ``add_options(parser)`` and ``run(given) -> exit code``; its ``EXAMPLES`` end its help.
Those of the library stand in `COMMANDS`; an installed application adds its own by an entry point of the group
``twinlink.commands``::

    demo = "twinlink_demo.demo_command [demo]"    # in brackets the extra that installs what the module needs

The first line of the module's docstring is its summary in ``twinlink --help``; importing the module must be cheap.
"""

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

from twinlink.errors import TwinlinkError
from twinlink.spelling import near

from ..appkit import console, options
from ..process.text import on_one_line

COMMANDS = {
    "ping": "measure the round-trip time to a peer that runs pong",
    "pong": "answer ping",
    "pub": "send lines, files or generated messages on a flow",
    "sub": "receive the messages of a flow, or of all",
    "list": "list who is on a link, and its flows",
    "top": "show a link's flows and peers, or what a program sends and receives, refreshed",
    "state": "show, watch and set desired and reported values",
    "record": "record what a link sends and receives, and what is missing from that",
    "verify": "prove that a recording is complete, or name what is missing",
    "replay": "send the messages of a recording into a link, with its pace and gaps",
    "bench": "measure throughput and round-trip time to a peer that runs pong",
    "key": "make the keys of this node, and say which peers it trusts",
    "completion": "print a script with which bash or zsh complete commands and options",
    "doctor": "check this machine: what is installed, what is wrong, what to do",
}
_EXAMPLES = """\
  twinlink doctor              # is everything here?
  twinlink demo                # the whole path on this machine, in a minute
  twinlink pong                # on one host, and on the other:
  twinlink ping 10.0.0.5       # round-trip time and loss"""
_ELSEWHERE = {
    "publish": "pub",
    "send": "pub",
    "subscribe": "sub",
    "receive": "sub",
    "recv": "sub",
    "echo": "sub",  # the words of ros2, of Zenoh's and other tools
    "topic": "list",
    "info": "list",
    "ls": "list",
    "scout": "list",
    "param": "state",
    "hz": "top",
    "monitor": "top",
    "bw": "bench",
    "iperf3": "bench",
    "version": "--version",
}
_APP_COMMANDS = "twinlink.commands"  # entry points: name of a command -> its module
_TABLES = {"replay": "replay-file"}  # of commands in the file: [replay] is that of the program twinlink-replay
_PROGRAMS = "twinlink.programs"  # entry points: table of a program in the file -> the function that makes its parser


class _Command(Protocol):
    """What the module of a sub-command provides."""

    __doc__: str | None

    @staticmethod
    def add_options(parser: options.Parser) -> None:
        """Declare the options."""

    @staticmethod
    def run(given: argparse.Namespace) -> int:
        """Run the command; returns the exit code."""


def main(argv: list[str] | None = None) -> int:
    """Run a command line; returns the exit code: 0 done, 1 peer missing or loss, 2 failed, 3 bad arguments."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    named = bool(arguments) and not arguments[0].startswith("-")
    name = f"twinlink {on_one_line(arguments[0])}" if named else "twinlink"
    return console.guarded(name, lambda: _run(arguments) if named else _show_help(arguments))


def _show_help(arguments: list[str]) -> int:
    top = _top_parser()
    names = top.add_subparsers(metavar="COMMAND", dest="command", title="commands")
    for name, summary in {**COMMANDS, **dict(_app_summaries())}.items():
        names.add_parser(name, help=summary.replace("%", "%%"), add_help=False)
    if arguments:
        if arguments[0] not in {"-h", "--help", "--version"} and {*COMMANDS, *_app_commands()} & {*arguments}:
            top.error(f"{arguments[0]} stands before the command: options follow it, as in `twinlink ping --json`")
        top.parse_args(arguments[:1])  # --help and --version end here
    top.print_help(sys.stderr)
    return console.BAD_ARGUMENTS


def _top_parser() -> options.Parser:
    top = options.Parser(
        prog="twinlink",
        mixed=False,
        description="Keeps an O-RAN network and its digital twin in sync. `twinlink COMMAND --help` shows the options.",
        epilog=f"Exit codes: 0 done, 1 peer missing or loss, 2 failed, 3 bad arguments.\n\nexamples:\n\n{_EXAMPLES}",
    )
    top.add_argument("--version", action=options.Version)
    return top


def _app_summaries() -> Iterator[tuple[str, str]]:
    for name, point in _app_commands().items():
        try:
            summary = (point.load().__doc__ or "").partition("\n")[0]
        except ImportError as error:
            yield name, f"cannot be loaded: {error}"
        else:
            yield name, summary[:1].lower() + summary[1:].rstrip(".")


def _run(arguments: list[str]) -> int:
    name, point = arguments[0], None
    if name not in COMMANDS:
        points = _app_commands()
        if name not in points:
            _top_parser().error(f"no command is called {name!r}{_meant(name, [*points, *COMMANDS])}")
        point = points[name]
    try:
        command = cast(_Command, point.load()) if point else _load(name)
        given = options.parse(_parser(name, command), _TABLES.get(name, name), arguments[1:], all_keys)
        logging.basicConfig(format=f"twinlink {name}: %(message)s")  # of the library's warnings
        return command.run(given)
    except ModuleNotFoundError as error:
        raise TwinlinkError(console.missing_module(error, _extra(point) if point else "twinlink")) from error


def _meant(name: str, known: list[str]) -> str:
    """What was meant by a name that no command has, as the end of a sentence; empty where that is not known."""
    if name in {point.name for point in entry_points(group=_PROGRAMS)}:
        return f"; that is a program of its own: twinlink-{name}"
    return f"; did you mean {_ELSEWHERE[name]}?" if name in _ELSEWHERE else near(name, known)


def _app_commands() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_APP_COMMANDS)}


def _extra(point: EntryPoint) -> str:
    distribution = point.dist.name if point.dist else "twinlink"
    return f"{distribution}[{','.join(point.extras)}]" if point.extras else distribution


def _load(name: str) -> _Command:
    return cast(_Command, import_module(f"{__name__}.{name}"))


def _parser(name: str, command: _Command) -> options.Parser:
    examples = getattr(command, "EXAMPLES", "")
    parser = options.Parser(prog=f"twinlink {name}", description=command.__doc__, examples=examples)
    command.add_options(parser)
    return parser


def command_parsers() -> dict[str, options.Parser]:
    """The parsers of the commands that can be loaded here, by name."""
    found = {}
    for name in COMMANDS:
        with contextlib.suppress(ImportError):
            found[name] = _parser(name, _load(name))
    for name, point in _app_commands().items():
        with contextlib.suppress(ImportError):
            found.setdefault(name, _parser(name, point.load()))
    return found


def program_parsers() -> dict[str, options.Parser]:
    """The parsers of the programs that can be loaded here, by their tables in the file."""
    found = {}
    for program in entry_points(group=_PROGRAMS):
        with contextlib.suppress(ImportError):
            found[program.name] = program.load()()
    return found


def all_keys() -> Mapping[str, frozenset[str]]:
    """The keys of each table of the file: the options of every command and program that can be loaded here."""
    commands = {_TABLES.get(name, name): parser for name, parser in command_parsers().items()}
    return {name: options.keys(parser) for name, parser in {**commands, **program_parsers()}.items()}
