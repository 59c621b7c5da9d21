"""Options of a command from the command line, the environment and a file.

The command line takes precedence over the environment, the environment over the file, the file over the default.  A
long option ``--some-name`` has the variable ``TWINLINK_SOME_NAME`` and the key ``some-name`` in the TOML file that
``--config`` (or ``TWINLINK_CONFIG``) names.  A key at the top of the file holds for every command and program that has
the option; a key in the table of one command or program takes precedence over the top::

    transport = "zenoh"
    [ping]
    count = 100
    [exporter]
    protect-prbs = ["0-12", 50]

One file serves all: a command ignores the tables and keys of the others, but rejects a key that none of them knows.
Other variables that start with ``TWINLINK_`` are ignored: Kubernetes sets some for a Service of that name.
"""

import argparse
import os
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from twinlink import __version__
from twinlink.process import address, files
from twinlink.process.text import decode, printable
from twinlink.spelling import near

from .console import BAD_ARGUMENTS, Output, tell

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_MISSING = "the following arguments are required: "  # how argparse begins this message
_NOT_IN_FILE = {"help", "config"}
_FILE_OCTETS = 1024 * 1024  # of a configuration file at most


class _HelpFormatter(argparse.HelpFormatter):
    """Keeps the paragraphs of a text; fills each but those that are indented, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(part if part.startswith("  ") else filled(part, width, indent) for part in parts)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with exit code 3 for errors, without abbreviations, with arguments and options in any order.

    Args:
        examples: command lines with a comment, one a line and up to 78 columns wide, for the end of the help.
    """

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False  # an option added later must not change what a script means
        kwargs.setdefault("formatter_class", _HelpFormatter)
        if examples:
            kwargs["epilog"] = f"examples:\n\n{textwrap.indent(examples.strip(), '  ')}"
        super().__init__(*args, **kwargs)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; the error for an unknown argument suggests the nearest known one."""
        args = sys.argv[1:] if args is None else list(args)
        names = [text for action in self._actions for text in action.option_strings if text.startswith("--")]
        for text in args[: args.index("--") if "--" in args else None]:
            name = text.partition("=")[0]
            if text.startswith("--") and name not in names:  # before what follows it is taken for an argument
                self.error(f"unknown argument {text}{self._address_advice(name) or near(name, names)}")
        # Python 3.11 refuses to mix what has sub-commands: of the top parser, which has only the options before them.
        mixed = all(action.nargs != argparse.PARSER for action in self._actions)
        given, rest = (self.parse_known_intermixed_args if mixed else self.parse_known_args)(args, namespace)
        if rest:
            self.error(f"unknown argument {' '.join(rest)}{self._address_advice(rest[0])}")
        return given

    def _address_advice(self, text: str) -> str:
        """For an argument that looks like a port or an address, where an option takes one; else empty."""
        taking = [action for action in self._actions if str(action.metavar).startswith("HOST[:PORT]")]
        if taking and (text in {"-p", "-P", "--port"} or text.isdecimal()):
            return "; the port follows its host, as in 10.0.0.5:7447"
        if taking and all(action.option_strings for action in taking) and address.is_meant(text):
            return f"; an address follows its option, as in --connect {text}"
        return ""

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Not of the default that `parse` sets: Python 3.11 converts that of a positional argument."""
        return arg_string if arg_string is argparse.SUPPRESS else super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of the choices; not the default that `parse` sets."""
        if action.choices is not None and value is not argparse.SUPPRESS and value not in action.choices:
            raise argparse.ArgumentError(action, none_of(value, action.choices))

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 3; with the choices, where an argument is missing that has some."""
        if message.startswith(_MISSING):
            missing = message.removeprefix(_MISSING).split(", ")
            for action in self._get_positional_actions():
                if action.choices is not None and action.metavar in missing and "|" not in str(action.metavar):
                    message += f"; {action.metavar} is one of {', '.join(map(str, action.choices))}"
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {message}\nTry: {self.prog} --help\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help and version to stdout as results, other messages to stderr."""
        if file is not None and file is sys.stdout:
            Output(as_json=False).write(printable(message).encode())
        else:
            tell(message)


def none_of(value: object, choices: Iterable[object]) -> str:
    """The message for a value that is none of the choices."""
    words = list(map(str, choices))
    return f"{value!r} is none of {', '.join(words)}{near(str(value), words)}"


class _Option:
    """One long option: its key, its variable, and the conversion of values from the environment and the file."""

    def __init__(self, action: argparse.Action) -> None:
        self.action = action
        self.key = next(text for text in action.option_strings if text.startswith("--")).removeprefix("--")
        self.variable = "TWINLINK_" + self.key.upper().replace("-", "_")

    def from_text(self, text: str) -> Any:
        """The value of a variable.  Raises ValueError."""
        if self.action.nargs == 0:
            if text.lower() not in _BOOLEANS:
                raise ValueError(f"{text!r} is neither true nor false")
            return self._flag(_BOOLEANS[text.lower()])
        if isinstance(self.action, argparse._AppendAction):
            return [self._convert(part) for part in text.split(",") if part]
        return self._convert(text)

    def from_toml(self, value: object) -> Any:
        """The value of a key in the file.  Raises ValueError."""
        if self.action.nargs == 0:
            if not isinstance(value, bool):
                raise ValueError(f"{_shown(value)} is neither true nor false")
            return self._flag(value)
        if isinstance(self.action, argparse._AppendAction):
            if not isinstance(value, list):
                raise ValueError("a list is expected")
            return [self._convert(_text(part)) for part in value]
        if isinstance(value, list) and self._takes_commas:
            return self._convert(",".join(map(_text, value)))
        return self._convert(_text(value))

    @property
    def _takes_commas(self) -> bool:
        """Whether its help shows several values separated by commas; the file may then give a list."""
        return "," in str(self.action.metavar)

    def _flag(self, given: bool) -> bool:
        """The value to store: ``--no-something`` stores false."""
        return given is bool(self.action.const)

    def _convert(self, text: str) -> Any:
        convert: Callable[[str], Any] = self.action.type if callable(self.action.type) else str
        try:
            value = convert(text)
        except argparse.ArgumentTypeError as error:
            raise ValueError(str(error)) from error
        except ValueError as error:
            raise ValueError(f"{text!r} cannot be used") from error
        if self.action.choices is not None and value not in self.action.choices:
            raise ValueError(none_of(text, self.action.choices))
        return value


def _text(value: object) -> str:
    """The text that the command line would have.  Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is neither a string nor a number")
    return str(value)


def _shown(value: object) -> str:
    """A value from the file as an error message has it; tables and lists may be long, and nested deeply."""
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)


def keys(parser: argparse.ArgumentParser) -> frozenset[str]:
    """The keys of a command or program in the file."""
    return frozenset(_options(parser))


def add_general(parser: argparse.ArgumentParser) -> None:
    """Declare the options that every command and program has."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with options")
    parser.add_argument("--version", action="version", version=f"twinlink {__version__}")


def parse(
    parser: Parser, table: str, argv: Sequence[str], all_keys: Callable[[], Mapping[str, frozenset[str]]] | None = None
) -> argparse.Namespace:
    """The options of one command from all four sources; exits with code 3 if one is invalid.

    Args:
        parser: with every option of the command.  None may be ``required``: the parser sees the command line only.
            Of a mutually exclusive group, the member from the source with the highest precedence is used.
        table: the command's table in the file.
        argv: the arguments after the command's name.
        all_keys: returns the keys of every table that the file may have; called only if there is a file.
    """
    add_general(parser)
    options = _options(parser)
    defaults = {action.dest: action.default for action in parser._actions if action.default is not argparse.SUPPRESS}
    for option in options.values():
        default = option.action.default
        shown = "" if default is None or isinstance(default, bool) else f"; default {default}"
        option.action.help = f"{option.action.help} [{option.variable}{shown}]".replace("%", "%%")
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # the namespace then has only what was given
    given = vars(parser.parse_args(argv))

    environment = {
        option.action.dest: _value(parser, option.variable, option.from_text, os.environ[option.variable])
        for option in options.values()
        if option.variable in os.environ
    }
    path = given.get("config", environment.get("config"))
    file: list[tuple[str, dict[str, Any]]] = []
    if path is not None:
        known = {**(all_keys() if all_keys else {}), table: keys(parser)}
        file = _from_file(parser, path, table, options, known)

    groups = [{action.dest for action in group._group_actions} for group in parser._mutually_exclusive_groups]
    merged: dict[str, Any] = {}
    layers = [
        ("the command line", given),
        ("the environment", environment),
        *file,
        ("the defaults", {dest: value for dest, value in defaults.items() if value is not None}),
    ]
    for source, layer in layers:
        for group in groups:
            if len(group & layer.keys()) > 1:
                names = " and ".join(f"--{dest.replace('_', '-')}" for dest in sorted(group & layer.keys()))
                parser.error(f"{source} gives {names}; only one of them can be used")
        settled = {dest for group in groups if group & merged.keys() for dest in group} | merged.keys()
        merged.update((dest, value) for dest, value in layer.items() if dest not in settled)
    return argparse.Namespace(**dict.fromkeys(defaults) | merged)


def _options(parser: argparse.ArgumentParser) -> dict[str, _Option]:
    found = (_Option(action) for action in parser._actions if any(text[:2] == "--" for text in action.option_strings))
    return {option.key: option for option in found if option.key not in ("help", "version")}


def _value(parser: Parser, place: str, convert: Callable[[Any], Any], raw: object) -> Any:
    try:
        return convert(raw)
    except ValueError as error:
        parser.error(f"{place}: {error}")


def _from_file(
    parser: Parser, path: Path, table: str, options: dict[str, _Option], known: Mapping[str, frozenset[str]]
) -> list[tuple[str, dict[str, Any]]]:
    try:
        content = tomllib.loads(decode(files.read(path, _FILE_OCTETS)))
    except OSError as error:
        parser.error(f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        parser.error(f"{path} is not TOML: {error}")
    except RecursionError:
        parser.error(f"{path} cannot be read: its values are nested too deeply")
    anywhere = frozenset().union(*known.values()) - _NOT_IN_FILE
    for name, value in content.items():
        if not isinstance(value, dict):
            if name not in anywhere:
                parser.error(f"{path}: no command or program has an option {name!r}{near(name, anywhere)}")
        elif name not in known:
            parser.error(f"{path}: [{name}] is no command or program{near(name, known)}")
        elif unknown := sorted(value.keys() - known[name] | value.keys() & _NOT_IN_FILE):
            parser.error(f"{path}: [{name}] has no option {unknown[0]!r}{near(unknown[0], known[name])}")
    own = content.get(table, {})
    top = {name: value for name, value in content.items() if not isinstance(value, dict)}
    places = ((f"{path}: [{table}]", own), (str(path), top))
    return [
        (
            place,
            {
                options[key].action.dest: _value(parser, f"{place}, {key}", options[key].from_toml, value)
                for key, value in values.items()
                if key in options
            },
        )
        for place, values in places
    ]
