"""``python -m twinlink_demo.report DIR`` makes summary, figures and page of a demo again from its raw files."""

import sys
from pathlib import Path
from typing import Any

from twinlink.cli import console

from . import demo, evidence, figures, outcome, page
from .folder import Folder, write_json


def write(path: Path) -> dict[str, Any]:
    """Derive everything; returns the summary.  Raises ConfigurationError where there was no run, OSError."""
    facts, ue = demo.load(path)
    folder = Folder(path)
    found = {name: evidence.load(folder.transport(name), ue) for name in facts["transports"]}
    summary = outcome.summarise(facts, found)
    write_json(folder.summary, summary)
    drawn = figures.draw(folder, found, summary)
    folder.report.write_text(page.html(summary, folder, drawn), encoding="utf-8")
    return summary


def main(argv: list[str] | None = None) -> int:
    """Returns 0, 2 failed, 3 bad arguments or no demo there."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m twinlink_demo.report DIR", file=sys.stderr)
        return console.BAD_ARGUMENTS

    def body() -> int:
        print(outcome.text(write(Path(arguments[0]))))
        return console.DONE

    return console.guarded("twinlink demo report", body)


if __name__ == "__main__":
    sys.exit(main())
