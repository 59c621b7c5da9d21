"""Every trace of tests/vectors/traces/ holds for twinlink's own core."""

import json
import re
from pathlib import Path

import pytest

from tests.traces.make import TRACES, all_traces, files
from tests.traces.node import Node
from tests.traces.player import failures

PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
CORE = PROTOCOL[PROTOCOL.index("## 2 Frames") : PROTOCOL.index("## 8 Transports")]


def plain(text: str) -> str:
    """Without line breaks, and without the targets of links."""
    return " ".join(re.sub(r"\]\([^)]*\)", "]", re.sub(r"```.*?```", "", text, flags=re.DOTALL)).split())


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.glob("*.json")))
def test_the_node_keeps_the_rule(name: str) -> None:
    trace = json.loads((TRACES / name).read_text())
    assert failures(trace, Node(trace["settings"])) == []


def test_the_files_are_what_the_rules_make() -> None:
    assert {path.name: path.read_text() for path in TRACES.glob("*.json")} == files(), "python -m tests.traces.make"


def test_each_must_of_the_core_has_a_trace() -> None:
    shown = {plain(rule) for trace in all_traces().values() for rule in trace.rules}
    assert [rule for rule in shown if rule not in plain(PROTOCOL)] == []
    sentences = [one for one in re.split(r"(?<=[.:]) (?=[A-Z*`])", plain(CORE)) if "MUST" in one]
    assert len(sentences) > 15
    assert [one for one in sentences if not any(rule in one or one in rule for rule in shown)] == []
