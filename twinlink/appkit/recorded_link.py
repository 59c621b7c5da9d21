"""``--record FILE``: the link of a program, recorded until it is closed (docs/recordings.md)."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import twinlink

from . import linking, outputs
from .options import Container

if TYPE_CHECKING:
    from twinlink.recording import Recorder


def add_option(parser: Container) -> None:
    """Declare ``--record``; the program has ``--overwrite`` as well."""
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="record the link: messages, acks and events (docs/recordings.md)"
    )


def check(given: argparse.Namespace) -> None:
    """Raises ConfigurationError if the file exists, and RecordingMissing; OSError."""
    if given.record is not None:
        import twinlink.recording  # noqa: F401  (what takes long to load, before peers find the link)

        outputs.refuse_existing("--record", [given.record], given.overwrite)


@contextmanager
def open_link(given: argparse.Namespace, tell: Callable[..., object]) -> Iterator[twinlink.Link]:
    """As `linking.open_link`; with ``--record``, ``tell`` is given a text and fields when the recording has ended."""
    recorder: Recorder | None = None

    def record(link: twinlink.Link) -> None:
        nonlocal recorder
        if given.record is not None:
            recorder = link.record(given.record, overwrite=may_replace(given.record, given.overwrite))

    try:
        with linking.open_link(given, record) as link:
            yield link
    finally:
        if recorder is not None:
            recorder.close()
            problem = "" if recorder.problem is None else f"; {recorder.problem}"
            tell(f"{text(recorder)}{problem}", **fields(recorder))


def may_replace(path: Path, overwrite: bool) -> bool:
    """For `Link.record`, of a file that `outputs.refuse_existing` lets pass: one that is empty gives way."""
    return overwrite or path.exists()


def text(recorder: "Recorder") -> str:
    """What was recorded, for a person; the recorder is closed."""
    if not recorder.files:
        return f"nothing has triggered the recording, and {recorder.path} was not begun"
    counts = recorder.stats()
    return (
        f"recorded {counts['messages']:,} messages, {counts['octets']:,} B, in {', '.join(map(str, recorder.files))}; "
        f"{counts['left_out']:,} left out, {counts['missing']:,} did not arrive"
    )


def fields(recorder: "Recorder") -> dict[str, Any]:
    """The same for a program."""
    return {**recorder.stats(), "paths": [str(path) for path in recorder.files], "problem": recorder.problem}
