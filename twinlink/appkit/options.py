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
import functools
import os
import shutil
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


class Group:
    """A group of a parser's options.

    Args:
        parser: that the options are of.
        group: that argparse shows, or holds to one of its members.
        exclusive: takes the names of its options in the namespace, where only one of them may be given.
    """

    def __init__(self, parser: "Parser", group: Any, exclusive: set[str] | None = None) -> None:
        self._parser, self._group, self._exclusive = parser, group, exclusive

    def add_argument(self, *names: str, **declared: Any) -> argparse.Action:
        """As argparse."""
        action = self._parser.declare(self._group.add_argument, names, declared)
        if self._exclusive is not None:
            self._exclusive.add(action.dest)
        return action

    def exclusive(self) -> "Group":
        """A group of options of which only one may be given."""
        return self._parser.exclusive(self._group)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with exit code 3 for errors, without abbreviations, with arguments and options in any order.

    Args:
        examples: command lines with a comment, one a line and up to 78 columns wide, for the end of the help.
        mixed: whether options may follow arguments; not of a parser with sub-commands.

    Attributes:
        actions: what was declared, in order.
        appended: the names in the namespace of options that may be given several times.
        exclusive_groups: those of options of which only one may be given.
    """

    def __init__(self, *args: Any, examples: str = "", mixed: bool = True, **kwargs: Any) -> None:
        self.actions: list[argparse.Action] = []
        self.appended: set[str] = set()
        self.exclusive_groups: list[set[str]] = []
        self._mixed = mixed
        kwargs["allow_abbrev"] = False  # an option added later must not change what a script means
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if examples:
            kwargs["epilog"] = f"examples:\n\n{textwrap.indent(examples.strip(), '  ')}"
        super().__init__(*args, **kwargs)

    def add_argument(self, *names: Any, **declared: Any) -> argparse.Action:
        """As argparse; the error for none of the choices suggests the nearest one."""
        return self.declare(super().add_argument, names, declared)

    def declare(
        self, add: Callable[..., argparse.Action], names: Sequence[str], declared: dict[str, Any]
    ) -> argparse.Action:
        """Declare an argument or option by argparse's ``add``, of this parser or a group of it."""
        if (choices := declared.get("choices")) is not None:
            declared["type"] = _one_of(choices, declared.get("type", str))
        action = add(*names, **declared)
        self.actions.append(action)
        if declared.get("action") == "append":
            self.appended.add(action.dest)
        return action

    def group(self, title: str) -> Group:
        """A group of options with a title in the help."""
        return Group(self, self.add_argument_group(title))

    def exclusive(self, within: Any = None) -> Group:
        """A group of options of which only one may be given; ``within`` a group of argparse's."""
        dests: set[str] = set()
        self.exclusive_groups.append(dests)
        return Group(self, (within or self).add_mutually_exclusive_group(), dests)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; the error for an unknown argument suggests the nearest known one."""
        args = sys.argv[1:] if args is None else list(args)
        names = [text for action in self.actions for text in action.option_strings if text.startswith("--")]
        for text in args[: args.index("--") if "--" in args else None]:
            name = text.partition("=")[0]
            if text.startswith("--") and name not in names:  # before what follows it is taken for an argument
                self.error(f"unknown argument {text}{self._address_advice(name) or near(name, names)}")
        given, rest = (self.parse_known_intermixed_args if self._mixed else self.parse_known_args)(args, namespace)
        if rest:
            self.error(f"unknown argument {' '.join(rest)}{self._address_advice(rest[0])}")
        return given

    def _address_advice(self, text: str) -> str:
        """For an argument that looks like a port or an address, where an option takes one; else empty."""
        taking = [action for action in self.actions if str(action.metavar).startswith("HOST[:PORT]")]
        if taking and (text in {"-p", "-P", "--port"} or text.isdecimal()):
            return "; the port follows its host, as in 10.0.0.5:7447"
        if taking and all(action.option_strings for action in taking) and address.is_meant(text):
            return f"; an address follows its option, as in --connect {text}"
        return ""

    def format_help(self) -> str:
        """As argparse; each paragraph of description and epilog is filled but those that are indented, as examples."""
        texts = self.description, self.epilog
        try:
            self.description, self.epilog = (text and _filled(text) for text in texts)
            return super().format_help()
        finally:
            self.description, self.epilog = texts

    def print_help(self, file: Any = None) -> None:
        """Write the help to stdout as a result; to another file as a message, which is to stderr."""
        if file is None:
            _write_result(self.format_help())
        else:
            tell(self.format_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End with this code, and the message on stderr."""
        if message:
            tell(message)
        sys.exit(status)

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 3; with the choices, where an argument is missing that has some."""
        if message.startswith(_MISSING):
            missing = message.removeprefix(_MISSING).split(", ")
            for action in self.actions:
                if action.option_strings or action.choices is None or action.metavar not in missing:
                    continue
                if "|" not in str(action.metavar):
                    message += f"; {action.metavar} is one of {', '.join(map(str, action.choices))}"
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {message}\nTry: {self.prog} --help\n")


Container = argparse.ArgumentParser | Group  # where options are declared


class Version(argparse.Action):
    """Writes the version to stdout as a result, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, **declared: Any) -> None:
        help_text = "show program's version number and exit"
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help_text, **declared)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Do it."""
        _write_result(f"twinlink {__version__}\n")
        parser.exit()


def _write_result(text: str) -> None:
    """Write what was asked for to stdout, or, where that is closed, to stderr."""
    if sys.stdout is None:
        tell(text)
    else:
        Output(as_json=False).write(printable(text).encode())


def _filled(text: str) -> str:
    width = max(shutil.get_terminal_size().columns - 2, 11)  # as argparse fills the help of options
    parts = text.strip("\n").split("\n\n")
    filled = (part if part.startswith("  ") else textwrap.fill(" ".join(part.split()), width) for part in parts)
    return "\n\n".join(filled)


def _one_of(choices: Iterable[object], convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """As ``convert``, for one of these values."""

    @functools.wraps(convert)
    def chosen(text: str) -> Any:
        value = convert(text)
        if value not in choices:
            raise argparse.ArgumentTypeError(none_of(value, choices))
        return value

    return chosen


def none_of(value: object, choices: Iterable[object]) -> str:
    """The message for a value that is none of the choices."""
    words = list(map(str, choices))
    return f"{value!r} is none of {', '.join(words)}{near(str(value), words)}"


class _Option:
    """One long option: its key, its variable, and the conversion of values from the environment and the file."""

    def __init__(self, action: argparse.Action, appends: bool) -> None:
        self.action = action
        self._appends = appends
        self.key = next(text for text in action.option_strings if text.startswith("--")).removeprefix("--")
        self.variable = "TWINLINK_" + self.key.upper().replace("-", "_")

    def from_text(self, text: str) -> Any:
        """The value of a variable.  Raises ValueError."""
        if self.action.nargs == 0:
            if text.lower() not in _BOOLEANS:
                raise ValueError(f"{text!r} is neither true nor false")
            return self._flag(_BOOLEANS[text.lower()])
        if self._appends:
            return [self._convert(part) for part in text.split(",") if part]
        return self._convert(text)

    def from_toml(self, value: object) -> Any:
        """The value of a key in the file.  Raises ValueError."""
        if self.action.nargs == 0:
            if not isinstance(value, bool):
                raise ValueError(f"{_shown(value)} is neither true nor false")
            return self._flag(value)
        if self._appends:
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
        return value


def _text(value: object) -> str:
    """The text that the command line would have.  Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is neither a string nor a number")
    return str(value)


def _shown(value: object) -> str:
    """A value from the file as an error message has it; tables and lists may be long, and nested deeply."""
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)


def keys(parser: Parser) -> frozenset[str]:
    """The keys of a command or program in the file."""
    return frozenset(_options(parser))


def add_general(parser: Parser) -> None:
    """Declare the options that every command and program has."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with options")
    parser.add_argument("--version", action=Version)


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
    stored = [action for action in parser.actions if action.default is not argparse.SUPPRESS]
    defaults = {action.dest: action.default for action in stored}
    for option in options.values():
        default = option.action.default
        shown = "" if default is None or isinstance(default, bool) else f"; default {default}"
        option.action.help = f"{option.action.help} [{option.variable}{shown}]".replace("%", "%%")
    for action in stored:
        action.default = None  # so that what is something else was given
    values = vars(parser.parse_args(argv))
    given = {dest: value for dest, value in values.items() if value is not None and value != []}

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

    merged: dict[str, Any] = {}
    layers = [
        ("the command line", given),
        ("the environment", environment),
        *file,
        ("the defaults", {dest: value for dest, value in defaults.items() if value is not None}),
    ]
    for source, layer in layers:
        for group in parser.exclusive_groups:
            if len(group & layer.keys()) > 1:
                names = " and ".join(f"--{dest.replace('_', '-')}" for dest in sorted(group & layer.keys()))
                parser.error(f"{source} gives {names}; only one of them can be used")
        settled = {dest for group in parser.exclusive_groups if group & merged.keys() for dest in group} | merged.keys()
        merged.update((dest, value) for dest, value in layer.items() if dest not in settled)
    return argparse.Namespace(**dict.fromkeys(defaults) | merged)


def _options(parser: Parser) -> dict[str, _Option]:
    long = (action for action in parser.actions if any(text[:2] == "--" for text in action.option_strings))
    found = (_Option(action, action.dest in parser.appended) for action in long)
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
    own = content.get(table)
    own = own if isinstance(own, dict) else {}  # an option may be called as a command, such as --record
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
