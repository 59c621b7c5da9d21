"""The help of every command and program fits a terminal of 80 columns, and its examples can be typed as they are."""

import re
import shlex
from pathlib import Path

import pytest

from twinlink import cli
from twinlink.appkit import options


def parsers() -> dict[str, options.Parser]:
    """The parser of each, by the words that start it."""
    commands = {f"twinlink {name}": parser for name, parser in cli.command_parsers().items()}
    return commands | {f"twinlink-{name}": parser for name, parser in cli.program_parsers().items()}


WORDS = list(parsers())


def help_of(words: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        options.parse(parsers()[words], words.rsplit(maxsplit=1)[-1], ["--help"])
    assert end.value.code == 0
    return capfdbinary.readouterr().out.decode().splitlines()


@pytest.mark.parametrize("words", WORDS)
def test_help_fits_80_columns_and_its_examples_are_right(
    words: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twinlink.toml").touch()  # which an example names
    lines = help_of(words, capfdbinary, monkeypatch)
    assert [line for line in lines if len(line) > 80] == []
    examples = lines[lines.index("examples:") + 2 :]
    assert len(examples) >= 3
    for example in examples:
        command = re.sub(r"^.* \| | > .*$", "", example.partition(" # ")[0].strip())
        assert command == words or command.startswith(f"{words} "), example
        options.parse(parsers()[words], words.rsplit(maxsplit=1)[-1], shlex.split(command.removeprefix(words)))


def test_the_paragraphs_of_a_description_stay_apart(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of("twinlink mgen", capfdbinary, monkeypatch)
    assert "Carry MGEN's traffic over a link, or break down the delay of its messages." in lines
