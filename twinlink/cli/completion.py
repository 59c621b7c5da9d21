"""Print a script with which the shell completes commands, options, their choices, and the flows that were seen last.

`eval "$(twinlink completion bash)"` loads it in a running shell; the examples keep it where each new shell finds it.
The flows are those that `twinlink list`, `top` and `sub '*'` have found: the Tab key asks no link.
"""

import argparse
from pathlib import Path
from typing import Any

from twinlink.errors import TwinlinkError
from twinlink.transports import names

from ..appkit import options
from ..appkit.console import DONE, Output
from ..appkit.options import Parser
from . import known_flows

EXAMPLES = """
twinlink completion bash > ~/.local/share/bash-completion/completions/twinlink
twinlink completion zsh > ~/.zfunc/_twinlink  # a folder of fpath
twinlink completion bash twinlink-replay
"""
_TWINLINK = "twinlink"
_FLOWS = "_twinlink_flows"  # the shell's function
_PREAMBLE = {
    "bash": f'{_FLOWS}() {{ compgen -W "$({known_flows.SHELL})" -- "$1"; }}',
    "zsh": f'{_FLOWS}() {{ compadd -- ${{(f)"$({known_flows.SHELL})"}} }}',
}


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh")
    parser.add_argument(
        "program",
        nargs="?",
        choices=(_TWINLINK, "twinlink-exporter", "twinlink-replay", "twinlink-ran-emulator"),
        default=_TWINLINK,
        metavar="PROGRAM",
        help="program to complete: twinlink (default), twinlink-exporter, twinlink-replay or twinlink-ran-emulator",
    )


def run(given: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from twinlink import cli

    if given.program == _TWINLINK:
        parser: argparse.ArgumentParser = _with_commands(cli.command_parsers())
    else:
        found = cli.program_parsers().get(given.program.removeprefix("twinlink-"))
        if found is None:
            raise TwinlinkError(f"{given.program} cannot be loaded here; `{given.program} --help` says why")
        _prepare(found)
        parser = found
    preamble: Any = _PREAMBLE  # its annotation says str
    script = shtab.complete(parser, shell=given.shell, preamble=preamble)
    Output(as_json=False).write(script.encode() + b"\n")
    return DONE


def _with_commands(parsers: dict[str, options.Parser]) -> argparse.ArgumentParser:
    """One parser that has the commands as its sub-commands."""
    top = argparse.ArgumentParser(prog=_TWINLINK)
    top.add_argument("--version", action="store_true", help="show the version and exit")
    commands = top.add_subparsers()
    for name, parser in parsers.items():
        _prepare(parser)
        summary = (parser.description or "").strip().partition("\n")[0]
        commands.add_parser(name, parents=[parser], add_help=False, help=_escaped(summary))
    return top


def _prepare(parser: options.Parser) -> None:
    """Add what `options.parse` adds, and say where files or the transports are expected."""
    import shtab

    options.add_general(parser)
    for action in parser.actions:
        action.help = _escaped(action.help or "")
        if action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in ("flow", "flows"):
            action.complete = dict.fromkeys(_PREAMBLE, _FLOWS)  # type: ignore[attr-defined]
        elif action.dest == "transport":
            action.choices = [name for name in names() if name != "memory"]
        elif action.choices is not None:
            action.choices = list(action.choices)  # shtab takes a mapping for sub-commands


def _escaped(text: str) -> str:
    """For argparse, which expands %(default)s and the like."""
    return text.replace("%", "%%")
