"""Every thread of twinlink starts as a GuardedThread, and every GNU Radio block as a GuardedBlock."""

import ast
from collections.abc import Iterator
from pathlib import Path

import twinlink

ROOT = Path(twinlink.__file__).parents[1]
# In `twinlink/testing`, an exception of a thread fails the test.
FILES = [
    path
    for path in (*(ROOT / "twinlink").rglob("*.py"), *(ROOT / "apps").rglob("*.py"))
    if ROOT / "twinlink/testing" not in path.parents
]
STARTS = {"Thread", "Timer", "start_new_thread", "ThreadPoolExecutor", "ProcessPoolExecutor"}
MAY_START = {
    "twinlink/process/guarded_thread.py": {"Thread"},
    "twinlink/transports/base.py": {"start_new_thread"},  # of `check_threads`, which only counts them
}
CALLED_BY_GNURADIO = {"start", "stop", "_handle"}  # beside work, which `GuardedBlock` has


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def test_every_thread_is_guarded() -> None:
    started = {}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        names = STARTS & set(_names(ast.parse(text))) if any(name in text for name in STARTS) else set()
        if names:
            started[path.relative_to(ROOT).as_posix()] = names
    assert started == MAY_START


def test_every_gnuradio_block_is_guarded() -> None:
    blocks = []
    for path in (ROOT / "apps").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "gr." in text else ():
            bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            if not any(base.startswith("gr.") for base in bases):
                continue
            assert isinstance(node, ast.ClassDef)
            blocks.append(node.name)
            assert bases[0] == "GuardedBlock", node.name
            called = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
            for name in CALLED_BY_GNURADIO & called.keys():
                guards = [ast.unparse(guard) for guard in called[name].decorator_list]
                assert guards == ["guarded"], f"{node.name}.{name}"
            assert "set_msg_handler" not in _names(node) or "_handle" in called, node.name
    assert {"Source", "PduSource", "PduSink", "StreamSink", "Analyser", "Retransmit", "Observer"} <= set(blocks)
