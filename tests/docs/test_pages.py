"""The pages: their links lead somewhere, their Python can be parsed, and the programs of README work together."""

import ast
import inspect
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import twinlink
from twinlink.cli import program_parsers
from twinlink.testing import patience
from twinlink.transports import transport_class

ROOT = Path(__file__).parents[2]
PAGES = sorted(one for one in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md")) if one.relative_to(ROOT).parts[0][0] != ".")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_the_pages_are_found() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "README.md", ROOT / "docs" / "protocol.md"} <= set(PAGES)


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"`[^`\n]*`", "code", FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings: a second one of the same name gets -1, and so on."""
    found: list[str] = []
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        found.append(slug)
    return {slug + (f"-{found[:at].count(slug)}" if slug in found[:at] else "") for at, slug in enumerate(found)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_on_the_pages_can_be_parsed(page: Path) -> None:
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(code)


README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = ("send_arrays", "receive_arrays", "notebook", "gnb", "twin")
PROGRAMS = dict(zip(NAMES, [code for kind, code in FENCE.findall(README) if kind == "python"], strict=True))
ADDRESS = "tcp/127.0.0.1:7447"


def run_together(*commands: list[str], cwd: Path) -> list[tuple[int, list[str]]]:
    """Exit code and stdout of each of these processes, which run at the same time."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd) for command in commands]
    try:
        said = [process.communicate(timeout=patience())[0].splitlines() for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [(process.returncode, lines) for process, lines in zip(running, said, strict=True)]


def program(name: str, endpoint: str, folder: Path) -> list[str]:
    """README's program at another endpoint than the usual one, with a hundred messages of all that it sends."""
    code = PROGRAMS[name]
    assert (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8") == code
    assert code.count(ADDRESS) == 1
    text = re.sub(r"timeout=\d+", f"timeout={patience()}", code.replace(ADDRESS, endpoint))
    text = re.sub(r"\b(3000|1200)\b", "100", re.sub(r"\b(2999|1199)\b", "99", text)).replace(
        "sleep(0.05)", "sleep(0.01)"
    )
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return [sys.executable, f"{name}.py"]


def test_the_first_programs_of_the_readme_are_watched_by_its_commands(endpoint: str, tmp_path: Path) -> None:
    """The sender waits for the first of them; who comes late sees the arrays from then on."""
    programs = [program(name, endpoint, tmp_path) for name in ("send_arrays", "receive_arrays")]
    (line,) = re.findall(r"^\.venv/bin/twinlink (sub 127\.0\.0\.1 '\*') ", README, re.MULTILINE)
    watch = [sys.executable, "-m", "twinlink", *shlex.split(line.replace("127.0.0.1", endpoint)), "--print", "line"]
    sender, receiver, watcher = run_together(*programs, [*watch, "--idle", "1"], cwd=tmp_path)
    assert sender[0] == receiver[0] == watcher[0] == 0
    assert sender[1][0].endswith("of 100 arrays acknowledged")
    assert receiver[1][-1] == "gnb-1: array 99, complex64, shape (2, 1024), mean 99.0+0.0j"
    assert re.match(r"samples gnb-1 #99 \S+ ms  array complex64 \(2, 1024\): 99\+0j", watcher[1][-1])


def test_the_notebook_of_the_readme_reads_an_array(endpoint: str, tmp_path: Path) -> None:
    code = PROGRAMS["notebook"]
    assert code.count(ADDRESS) == 1
    text = code.replace(ADDRESS, endpoint) + "print(message.array().shape)\n"
    (tmp_path / "notebook.py").write_text(text, encoding="utf-8")
    sender = program("send_arrays", endpoint, tmp_path)
    _, notebook = run_together(sender, [sys.executable, "notebook.py"], cwd=tmp_path)
    assert notebook == (0, ["(2, 1024)"])


def test_the_programs_of_the_readme_work_together(endpoint: str, tmp_path: Path) -> None:
    commands = [program(name, endpoint, tmp_path) for name in ("gnb", "twin")]
    gnb, twin = run_together(*commands, cwd=tmp_path)
    assert gnb == (0, ["100 of 100 records acknowledged"])
    assert [line.split(",")[0] for line in twin[1]] == [f"gnb-1: record {number}" for number in range(100)]
    assert twin[0] == 0


def test_the_replay_of_the_readme_reads_its_sender(endpoint: str, tmp_path: Path) -> None:
    pytest.importorskip("gnuradio", reason="GNU Radio is not installed")
    (line,) = re.findall(r"^\.venv/bin/twinlink-replay (.*)$", README, re.MULTILINE)
    replay = [sys.executable, "-m", "twinlink_replay", *line.replace("127.0.0.1", endpoint).split()]
    gnb, twin = run_together(program("gnb", endpoint, tmp_path), replay, cwd=tmp_path)
    assert gnb == (0, ["100 of 100 records acknowledged"])
    assert twin[0] == 0
    assert (tmp_path / "run1" / "rebuilt.sigmf-data").stat().st_size == 100 * 106 * 12 * 4


def words_in_code(page: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", (ROOT / "docs" / page).read_text()))))


def test_every_key_of_stats_stands_in_the_library_page(endpoint: str) -> None:
    with (
        twinlink.open("memory", listen=endpoint) as twin,
        twinlink.open("memory", connect=endpoint) as gnb,
    ):
        gnb.wait_ready(patience())
        gnb.sender("spectrum").send(b"record")
        gnb.sender("spectrum").flush(patience())
        assert twin.receiver("spectrum").receive(timeout=patience()) is not None
        sent, received = gnb.stats(), twin.stats()["received"]["spectrum"]
        (delays,) = sent["sent"]["spectrum"]["peers"].values()
        keys = {*sent, *sent["sent"]["spectrum"], *received, *delays}
    assert keys - words_in_code("library.md") == set()


def test_every_argument_of_open_stands_in_the_library_page() -> None:
    assert set(inspect.signature(twinlink.open).parameters) - words_in_code("library.md") == set()


@pytest.mark.parametrize(
    ("transport", "page"),
    [("zeromq", "library.md"), ("zenoh", "library.md"), ("mqtt", "mqtt.md"), ("websocket", "websocket.md")],
)
def test_every_option_of_a_transport_stands_on_its_page(transport: str, page: str) -> None:
    options = {field.name for field in fields(transport_class(transport).options_class)}
    assert options - words_in_code(page) == set()


def test_every_limit_of_an_agent_is_on_its_page() -> None:
    source = (ROOT / "apps/exporter/twinlink_exporter/agent_limits.py").read_text(encoding="utf-8")
    names = re.findall(r'Limit\("([a-z-]+)"', source)
    page = (ROOT / "docs" / "e3.md").read_text(encoding="utf-8")
    assert len(names) >= 8
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("page", "programs", "others"),
    [
        ("exporter.md", ("exporter",), ()),
        ("gnuradio.md", ("replay", "exporter"), ("--system-site-packages",)),
        ("ran-emulator.md", ("ran-emulator",), ("--e",)),  # of a dApp of the dapps library
    ],
)
def test_the_options_on_the_page_of_a_program_are_its_own(
    page: str, programs: tuple[str, ...], others: tuple[str, ...]
) -> None:
    parsers = program_parsers()
    known = {option for one in programs for option in parsers[one]._option_string_actions}
    named = set(re.findall(r"`(--[a-z][a-z0-9-]*)", (ROOT / "docs" / page).read_text(encoding="utf-8")))
    assert named - known - {*others} == set()
