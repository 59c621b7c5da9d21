"""The layers of the library: no import runs upward, none goes in a circle, and the protocol does no I/O."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import twinlink

ROOT = Path(twinlink.__file__).parents[1]
# From the bottom up.  A layer may use itself and what is below it.
LAYERS = (
    (
        "errors",
        "events",
        "message",
        "run",
        "batch",
        "npy",
        "stats",
        "histogram",
        "sync",
        "prbs",
        "text_payload",
        "spelling",
        "transport_options",
    ),
    ("protocol",),
    ("process",),
    ("identity",),
    ("transports",),
    ("options",),
    ("spectrum", "slots", "sensing", "control", "signed_payload", "digest", "kpm", "fidelity", "story"),
    ("runtime",),
    ("mirror",),
    ("state",),
    ("block_state",),
    ("recording",),
    ("attachments",),
    ("link",),
    ("aio",),
    ("opening",),
    ("__init__", "metrics"),
    ("appkit",),
    ("cli", "__main__"),
    ("testing",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
IO = {"asyncio", "select", "selectors", "signal", "socket", "threading", "time", "zenoh", "zmq"}
# What others may name of the protocol: the session, and the words of the wire.
SURFACE = {"session", "frames", "wire", "limits", "authentication", "rangeset", "rtt"}
# What may follow a session or a flow, and be asked in turn: values.
VALUES = {"options", "sending", "receiving"}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_module(path): path for path in sorted((ROOT / "twinlink").rglob("*.py"))}


def _imports(module: str) -> Iterator[str]:
    """Every module that a file names in an import, wherever that stands: in functions and for type checkers, too."""
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base


IMPORTS = {module: {used for used in _imports(module) if used != module} for module in FILES}


def _rank(module: str) -> int:
    return RANK[module.split(".")[1] if "." in module else "__init__"]


def test_every_module_has_a_layer() -> None:
    assert {module.split(".")[1] for module in FILES if "." in module} | {"__init__"} <= RANK.keys()
    assert set(RANK) <= {path.stem for path in (ROOT / "twinlink").iterdir()} | {"metrics"}


def test_no_import_runs_upward() -> None:
    upward = [
        f"{module} imports {used}"
        for module, all_used in IMPORTS.items()
        for used in all_used & FILES.keys()
        if _rank(used) > _rank(module)
    ]
    assert upward == []


def test_no_import_goes_in_a_circle() -> None:
    try:
        TopologicalSorter({module: used & FILES.keys() for module, used in IMPORTS.items()}).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_the_protocol_does_no_io_and_has_no_clock() -> None:
    values = {f"twinlink.{name}" for name in ("errors", "events", "message", "prbs")}
    checked = {module for module in FILES if module.startswith("twinlink.protocol")} | values
    assert len(checked) > 20
    for module in checked:
        assert not IMPORTS[module] & IO, f"{module} imports {IMPORTS[module] & IO}"


def _outside_the_protocol() -> Iterator[tuple[str, Path]]:
    for module, path in FILES.items():
        if not module.startswith(("twinlink.protocol", "twinlink.transports", "twinlink.testing")):
            yield module, path


def test_nothing_outside_the_protocol_names_more_of_it_than_its_surface() -> None:
    named = {
        f"{module} imports {used}"
        for module, _ in _outside_the_protocol()
        for used in IMPORTS[module]
        if used.startswith("twinlink.protocol.") and used.split(".")[2] not in SURFACE
    }
    assert named == set()


def test_nothing_outside_the_protocol_reaches_through_a_session_or_a_flow() -> None:
    """Nor is anything set there but what its docstring offers to the driver."""
    reaching = [
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module, path in _outside_the_protocol()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr not in VALUES
        and ast.unparse(node.value.value).split(".")[-1] in {"session", "_session", "_flow", "receive_flow"}
    ]
    assert reaching == []
