"""Commands of applications: found by their entry points, while the library imports no application."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.cli.running import Start

ROOT = Path(__file__).parents[2]
APPS = {path.name for path in (ROOT / "apps").glob("*/twinlink_*")}
POINTS = {point.name: point for point in entry_points(group="twinlink.commands")}


def _named_modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever the import stands, and every string that is a dotted name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^[a-z]\w*(?:\.\w+)*$", node.value)  # as for `import_module`


def test_no_file_of_the_library_imports_an_application() -> None:
    files = sorted((ROOT / "twinlink").rglob("*.py"))
    assert len(files) > 100
    assert len(APPS) == 10
    found = {(path.name, module) for path in files for module in _named_modules(path) if module.split(".")[0] in APPS}
    assert found == set()


def test_nothing_imports_the_instrument_nor_the_results_an_application() -> None:
    for app, barred in (("*", {"twinlink_measure"}), ("results", APPS - {"twinlink_results"})):
        files = [path for path in (ROOT / "apps").glob(f"{app}/**/*.py") if "twinlink_measure" not in path.parts]
        assert len(files) > 10
        found = {(path.name, name) for path in files for name in _named_modules(path) if name.split(".")[0] in barred}
        assert found == set()


def test_an_import_inside_a_function_is_found(tmp_path: Path) -> None:
    source = "def run():\n    from twinlink_demo import demo\n    import_module('twinlink_replay.twin')\n"
    (tmp_path / "module.py").write_text(source)
    assert {"twinlink_demo", "twinlink_replay.twin"} <= set(_named_modules(tmp_path / "module.py"))


def test_help_lists_them_with_their_summaries() -> None:
    run = call("--help")
    assert run.code() == 0
    assert {"demo", "sweep", "report", "experiment", "clock", "mgen"} <= POINTS.keys()
    for name in POINTS:
        place = next(place for place, line in enumerate(run.out) if line.split()[:1] == [name])
        assert len(" ".join(run.out[place : place + 2]).split()) > 3  # a long name has a line of its own


@pytest.mark.parametrize(("command", "extra"), [("demo", "demo"), ("report", "measure"), ("sweep", "measure")])
def test_a_missing_extra_is_named(start: Start, tmp_path: Path, command: str, extra: str) -> None:
    (tmp_path / "jsonschema.py").write_text("raise ModuleNotFoundError('absent', name='jsonschema')")
    arguments = (str(tmp_path),) if command == "report" else ("--out", str(tmp_path / "out"))
    run = start(command, *arguments, env={"PYTHONPATH": str(tmp_path)})
    assert run.code() == 2
    expected = f"jsonschema is not installed; `pip install 'twinlink[{extra}]'` installs it"
    assert run.err.splitlines()[-1] == f"twinlink {command}: {expected}"


def test_one_that_cannot_be_loaded_does_not_break_the_others(start: Start, tmp_path: Path) -> None:
    """An installed package whose entry point names a module that is not there."""
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[twinlink.commands]\nodd = absent_module.command [gear]\n")
    environment = {"PYTHONPATH": str(tmp_path)}
    run = start("--help", env=environment)
    assert run.code() == 0
    assert any(line.split()[:4] == ["odd", "cannot", "be", "loaded:"] for line in run.out)
    assert start("pub", "--help", env=environment).code() == 0
    run = start("odd", env=environment)
    assert run.code() == 2
    assert run.err == "twinlink odd: absent_module is not installed; `pip install 'broken[gear]'` installs it"
