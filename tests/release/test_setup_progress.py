"""The progress of `make setup`: from what apt and pip say, on a terminal and in a log."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

PROGRESS = Path(__file__).parents[2] / "tools" / "progress.sh"
APT = """dlstatus:1:0.0000:Retrieving file 1 of 412
dlstatus:7:50.3034:Retrieving file 7 of 412 (1min 2s remaining)
pmstatus:gnuradio:81.25:Unpacking gnuradio (amd64)
Setting up gnuradio (3.10.5.1-3) ...
"""
PIP = """Collecting numpy<2
  Downloading numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl (18.3 MB)
Collecting rich
  Downloading http://mirror/files/rich-13.4-py3-none-any.whl (875 kB)
  Using cached idna-3.20-py3-none-any.whl (68 kB)
  Downloading tiny-1.0-py3-none-any.whl (789 bytes)
Installing collected packages: idna, numpy, rich
"""


def shown(call: str, told: str, log: Path, terminal: bool = False) -> str:
    """What the function writes to stderr."""
    script = f"set -euo pipefail; log={log}; . {PROGRESS}; log_every_s=0; {call}"
    parent, child = pty.openpty() if terminal else os.pipe()
    with os.fdopen(child, "wb") as stderr:
        subprocess.run(
            ["bash", "-c", script], input=told.encode(), stderr=stderr, check=True, env=os.environ | {"TERM": "xterm"}
        )
        text = os.read(parent, 65536).decode()
    os.close(parent)
    return text


def test_a_log_has_whole_lines_and_what_is_fetched_of_how_much(tmp_path: Path) -> None:
    log = tmp_path / "setup.log"
    assert shown("show_apt 300", APT, log).splitlines() == [
        "setup: fetched 0 of 300 MB (file 1 of 412)",
        "setup: fetched 150 of 300 MB (file 7 of 412, 1min 2s remaining)",
        "setup: unpacking and installing, 81 % (gnuradio)",
    ]
    assert shown("show_pip 170", PIP, log).splitlines() == [
        "setup: fetched 0 of about 170 MB; now numpy (18.3 MB)",
        "setup: fetched 18 of about 170 MB; now rich (875 kB)",
        "setup: fetched 19 of about 170 MB; now tiny (789 bytes)",
        "setup: fetched 19 MB; installing",
    ]
    assert log.read_text() == APT.splitlines(keepends=True)[-1] + PIP


def test_on_a_terminal_it_is_one_line_that_is_cleared_at_the_end(tmp_path: Path) -> None:
    text = shown("show_apt 300", APT, tmp_path / "setup.log", terminal=True)
    assert "\n" not in text
    assert text.count("\r\033[K") == 4
    assert text.endswith("\r\033[K")


@pytest.mark.parametrize(("mb", "text"), [(19, "19 s"), (300, "5 min"), (301, "6 min")])
def test_its_times_are_those_of_a_slow_line(mb: int, text: str, tmp_path: Path) -> None:
    assert shown(f"say $(to_fetch {mb})", "", tmp_path / "log") == f"setup: {mb} MB to fetch ({text} at 1 MB/s)\n"
