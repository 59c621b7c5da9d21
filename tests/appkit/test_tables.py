"""Tables on stdout: plain where a program reads them, fitted and coloured on a terminal."""

import os
import re
import subprocess
import sys

import pytest

LONG = "no such file or directory: [bold]a[/] :smile: " * 10
SCRIPT = f"""
from rich.table import Table
from twinlink.appkit.console import Output, rendered

table = Table.grid(padding=(0, 2, 0, 0))
table.add_column(width=4, style="red")
table.add_column()
table.add_row("fail", {LONG!r}.strip())
table.add_row("ok", "short")
Output(as_json=False).emit({{}}, rendered(table))
"""
COMMAND = [sys.executable, "-c", SCRIPT]
MARKDOWN = (
    "# A title\n\n" + "Words of a paragraph. " * 20 + "\n\n| | A | B |\n|---|---:|---:|\n| raw TCP | 0.100 | 12 |\n"
)
PAGE = [
    sys.executable,
    "-c",
    f"from twinlink.appkit.console import Output, markdown; Output(False).emit({{}}, markdown({MARKDOWN!r}))",
]


def on_a_terminal(columns: int, command: list[str] = COMMAND, **environment: str) -> str:
    ours, theirs = os.openpty()
    given = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM")}
    given |= {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    with os.fdopen(theirs, "wb") as terminal:
        subprocess.run(command, stdout=terminal, env=given, check=True)
    with os.fdopen(ours, "rb") as screen:
        return screen.read1().decode().replace("\r\n", "\n")


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"COLUMNS": "20"}, {"TTY_COMPATIBLE": "1"}])
def test_a_pipe_gets_a_plain_line_for_each_row(environment: dict[str, str]) -> None:
    shown = subprocess.run(
        COMMAND, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout
    assert shown == f"fail  {LONG.strip()}\nok    short\n"


def test_a_terminal_gets_lines_of_its_width_and_colours() -> None:
    shown = on_a_terminal(40)
    assert "\033[31mfail" in shown
    lines = re.sub(r"\033\[[0-9;]*m", "", shown).splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("      ") for line in lines[1:-1])


def test_markdown_is_laid_out_on_a_terminal_only() -> None:
    shown = re.sub(r"\033\[[0-9;]*m", "", on_a_terminal(60, PAGE))
    assert max(map(len, shown.splitlines())) <= 60
    assert "|" not in shown
    assert "raw TCP 0.100 12" in " ".join(shown.split())
    piped = subprocess.run(PAGE, capture_output=True, text=True, check=True).stdout
    assert piped == f"{MARKDOWN}\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_they_are_not_wanted(environment: dict[str, str]) -> None:
    assert "\033[31m" not in on_a_terminal(40, COMMAND, **environment)
