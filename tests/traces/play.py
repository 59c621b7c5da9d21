"""Plays every trace against twinlink's own core, the short ones first, up to the first that does not hold.

``python -m tests.traces.play``; exit code 1 where one does not.
"""

import json
import sys
from typing import Any

from tests.traces.make import TRACES
from tests.traces.node import Node
from tests.traces.player import failures


def main() -> int:
    traces: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in TRACES.glob("*.json")}
    for name, trace in sorted(traces.items(), key=lambda one: int(one[1]["steps"][-1]["ms"])):
        if found := failures(trace, Node(trace["settings"])):
            print(f"{name}: {found[0]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
