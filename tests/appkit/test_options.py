import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Start
from twinlink.appkit import convert, linking, options
from twinlink.cli import all_keys, command_parsers

Parse = Callable[..., Any]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Parse:
    """Options of a command like ping, given by file, environment and command line."""

    def _parse(*argv: str, file: str | None = None, **environment: str) -> Any:
        parser = options.Parser(prog="twinlink ping")
        linking.add_options(parser, listens=False, flow="ping")
        parser.add_argument("--count", type=int)
        parser.add_argument("--mode", choices=("slow", "fast"), default="slow")
        parser.add_argument("--protect-prbs", type=convert.prbs, metavar="0-3,50")
        for name, value in environment.items():
            monkeypatch.setenv(f"TWINLINK_{name}", value)
        if file is not None:
            (tmp_path / "twinlink.toml").write_text(file)
            argv = (*argv, "--config", str(tmp_path / "twinlink.toml"))
        return options.parse(parser, "ping", argv, lambda: {"ping": frozenset(), "pub": frozenset({"size", "count"})})

    return _parse


def test_a_switch_that_turns_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, control in (("true", False), ("false", True), (None, True)):
        parser = options.Parser(prog="twinlink-replay")
        parser.add_argument("--no-control", dest="control", action="store_false")
        if text is None:
            monkeypatch.delenv("TWINLINK_NO_CONTROL")
        else:
            monkeypatch.setenv("TWINLINK_NO_CONTROL", text)
        assert options.parse(parser, "replay", ()).control is control


def test_precedence(parse: Parse) -> None:
    file = "count = 1\nflow = 'top'\n[ping]\nflow = 'own'\nmode = 'fast'\n"
    given = parse("--count", "3", file=file, COUNT="2", MODE="slow")
    assert (given.count, given.mode, given.flow, given.transport) == (3, "slow", "own", "zeromq")
    given = parse(file=file)
    assert (given.count, given.mode) == (2, "slow")  # the environment is still there
    assert given.node is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("100", 100),
        ("100B", 100),
        ("10K", 10240),
        ("64KB", 65536),
        ("64 kb", 65536),
        ("1MiB", 2**20),
        ("2g", 2**31),
    ],
)
def test_a_size_may_have_a_unit(text: str, number: int) -> None:
    assert convert.octets(text) == number
    assert convert.link_option(f"retention={text}") == ("retention", number)
    assert convert.link_option(f"unread_octets={text}") == ("unread_octets", number)


@pytest.mark.parametrize("text", ["", "KB", "-1", "1.5K", "64KBit", "1T", "1 K B", "٣", "9" * 5000])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a number of octets such as 100, 64KB or 1MB"):
        convert.octets(text)


def test_only_options_in_octets_have_units() -> None:
    assert convert.link_option("namespace=5G") == ("namespace", "5G")
    assert convert.link_option("receive_hwm=64K") == ("receive_hwm", "64K")  # a number of messages: refused later


def test_a_size_from_file_or_environment_may_have_a_unit(parse: Parse) -> None:
    assert parse(file="option = ['window=64MB']").option == [("window", 64 * 2**20)]
    assert parse(OPTION="retention=2M").option == [("retention", 2**21)]


def test_an_option_may_be_called_as_a_command(tmp_path: Path) -> None:
    path = tmp_path / "twinlink.toml"
    path.write_text("record = 'x.mcap'\n")
    keys = {"exporter": frozenset({"record"}), "record": frozenset({"out"})}
    for table, option, found in (("record", "out", None), ("exporter", "record", "x.mcap")):
        parser = options.Parser(prog=table)
        parser.add_argument(f"--{option}")
        given = options.parse(parser, table, ["--config", str(path)], lambda: keys)
        assert vars(given)[option] == found


def test_file_alone(parse: Parse) -> None:
    given = parse(
        file="size = '10K'\n[ping]\ncount = 7\njson = true\noption = ['receive_hwm=5', 'a=x']\n[pub]\nsize=1\n"
    )
    assert (given.count, given.json, given.option) == (7, True, [("receive_hwm", 5), ("a", "x")])


def test_a_list_stands_for_what_has_commas(parse: Parse) -> None:
    given = parse(file="protect-prbs = ['0-2', 50]\nconnect = ['tcp/a:1', 'tcp/b:1']\n")
    assert (given.protect_prbs, given.connect) == ({0, 1, 2, 50}, "tcp/a:1,tcp/b:1")
    assert parse(file="protect-prbs = []").protect_prbs == frozenset()


def test_one_file_serves_every_command_and_program() -> None:
    """Each program says which keys it has, and the reader of the file needs no list of them."""
    known = all_keys()
    assert {"ping", "exporter", "replay", "ran-emulator"} <= known.keys()
    assert "protect-prbs" in known["exporter"] & known["replay"]
    assert "recording" in known["ran-emulator"]


def test_the_library_imports_no_program() -> None:
    code = "import sys, twinlink.cli; print([name for name in sys.modules if name.startswith('twinlink_')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_environment_alone(parse: Parse) -> None:
    given = parse(JSON="yes", OPTION="shared_memory=true,lease_ms=10", SERVICE_HOST="10.0.0.1")
    assert (given.json, given.option) == (True, [("shared_memory", True), ("lease_ms", 10)])
    assert parse(JSON="0").json is False


def test_one_side_of_the_link(parse: Parse) -> None:
    """Of listen and connect, the one that was given closer to the user counts; the default gives way to both."""
    given = parse()
    assert (given.listen, given.connect) == (None, linking.CONNECT)
    given = parse(file="connect = 'tcp/file:1'\n[ping]\nlisten = 'tcp/own:1'")
    assert (given.listen, given.connect) == ("tcp/own:1", None)
    given = parse(file="connect = 'tcp/file:1'", LISTEN="tcp/env:1")
    assert (given.listen, given.connect) == ("tcp/env:1", None)
    given = parse("--connect", "tcp/line:1", LISTEN="tcp/env:1")
    assert (given.listen, given.connect) == (None, "tcp/line:1")


@pytest.mark.parametrize(
    ("file", "environment", "named"),
    [
        ("colour = 1", {}, "'colour'"),
        ("[ping]\nsize = 1", {}, "[ping] has no option 'size'"),
        ("[pingg]\ncount = 1", {}, "[pingg]"),
        ("config = 'x'", {}, "'config'"),
        ("count = 'many'", {}, "count"),
        ("count = true", {}, "count"),
        ("json = 'yes'", {}, "json"),
        ("mode = 'medium'", {}, "medium"),
        ("option = 'a=1'", {}, "option"),
        ("count = [1, 2]", {}, "count"),
        ("node = ['a', 'b']", {}, "node"),
        ("protect-prbs = ['0-3', true]", {}, "True is neither"),
        ("protect-prbs = ['3-0']", {}, "3-0"),
        ("count = ", {}, "not TOML"),
        ("listen = 'tcp/a:1'\nconnect = 'tcp/b:1'", {}, "--connect and --listen"),
        (None, {"COUNT": "many"}, "TWINLINK_COUNT"),
        (None, {"JSON": "perhaps"}, "TWINLINK_JSON"),
        (None, {"MODE": "medium"}, "TWINLINK_MODE"),
        (None, {"LISTEN": "tcp/a:1", "CONNECT": "tcp/b:1"}, "the environment gives --connect and --listen"),
        (None, {"CONFIG": "/nowhere/twinlink.toml"}, "/nowhere/twinlink.toml"),
        ("count = " + "[" * 10_000, {}, "twinlink.toml cannot be read: its values are nested too deeply"),
        ("[ping]\ncount = {a" + ".a" * 900 + " = 1}", {}, "[ping], count: a table is neither a string nor a number"),
        ("option = [{a" + ".a" * 900 + " = 1}]", {}, "option: a table is neither a string nor a number"),
        ("#" * 2**20 + "\n", {}, "twinlink.toml cannot be read: it has more than 1,048,576 octets"),
    ],
)
def test_mistakes_are_named(
    parse: Parse, capsys: pytest.CaptureFixture[str], file: str | None, environment: dict[str, str], named: str
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(file=file, **environment)
    assert end.value.code == 3
    shown = capsys.readouterr().err
    assert named in shown
    assert file is None or "twinlink.toml" in shown


def test_the_command_takes_them(start: Start, tmp_path: Path, endpoint: str) -> None:
    config = tmp_path / "twinlink.toml"
    config.write_text(f"transport = 'zenoh'\nprint = 'none'\n[ping]\nconnect = '{endpoint}'\n")
    run = start("ping", "--timeout", "0.2", env={"TWINLINK_CONFIG": str(config)})
    assert run.code() == 1
    assert endpoint in run.err
    assert "zenoh" in run.err

    config.write_text("[ping]\nprint = 'none'\n")
    run = start("ping", "--config", str(config))
    assert run.code() == 3
    assert str(config) in run.err
    assert "'print'" in run.err


@pytest.mark.parametrize(
    "line",
    [
        "sub 127.0.0.1 spectrum control --count 3",
        "ping 127.0.0.1 --count 3",
        "top 127.0.0.1 --once --interval 2",
        "pub file-1 file-2 --timeout 3",
        "key trust file-1 --as twin-1",
        "completion bash twinlink-replay --config twinlink.toml",
        "report run-1 run-2 --json",
    ],
)
def test_options_stand_before_between_and_after_arguments(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twinlink.toml").touch()
    name, *words = line.split()
    arguments = words[: next(at for at, word in enumerate(words) if word.startswith("--"))]
    flags = words[len(arguments) :]
    results = [
        options.parse(command_parsers()[name], name, [*arguments[:at], *flags, *arguments[at:]])
        for at in range(len(arguments) + 1)
    ]
    assert all(given == results[-1] for given in results), results
