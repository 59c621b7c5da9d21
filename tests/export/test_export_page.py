"""The examples of docs/export.md, as they are written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cli.running import Start
from tests.export import scene

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_run(start: Start, tmp_path: Path) -> None:
    """But for the second file of a recording: this one has no other."""
    scene.record(tmp_path / "run.mcap")
    (lines,) = blocks("sh")
    commands = [shlex.split(line, comments=True) for line in lines.splitlines()]
    assert {command[1] for command in commands} == {"export", "import"}
    for command in commands:
        if command[2] == "trace.e3rt":
            (tmp_path / "run.e3rt").rename(tmp_path / "trace.e3rt")
        run = start(*[one for one in command[1:] if one != "run.0001.mcap"], cwd=tmp_path)
        assert run.code() == 0, (command, run.err)
    for code in blocks("python"):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout
