"""Writes tests/vectors/traces/: ``python -m tests.traces.make``."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.traces.rules import bodies, errors, flow_control, fragments, peers, reliability
from tests.traces.script import Trace

TRACES = Path(__file__).parents[1] / "vectors" / "traces"
MODULES = (bodies, peers, reliability, flow_control, fragments)


def all_traces() -> dict[str, Trace]:
    """By name of the file, without its suffix."""
    makers: dict[str, Callable[[], Trace]] = {
        name: made
        for module in MODULES
        for name, made in vars(module).items()
        if getattr(made, "__module__", "") == module.__name__ and made.__annotations__ == {"return": Trace}
    }
    traces = {name.replace("_", "-"): maker() for name, maker in makers.items()}
    return traces | {f"drops-{reason}": trace for reason, trace in errors.FRAMES_OF_NO_USE.items()}


def files() -> dict[str, str]:
    """The text of each file, by name."""
    return {f"{name}.json": json.dumps(trace.as_json(), indent=1) + "\n" for name, trace in all_traces().items()}


if __name__ == "__main__":
    TRACES.mkdir(parents=True, exist_ok=True)
    for old in TRACES.glob("*.json"):
        old.unlink()
    for name, text in files().items():
        (TRACES / name).write_text(text)
