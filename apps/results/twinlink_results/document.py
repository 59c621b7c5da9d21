"""The HTML reports: what their templates show, and how a page is made of it.

All are made of the parts in templates/parts.html, so that they look alike.
"""

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import load

GOOD, DOUBTFUL, BAD = "passed", "doubtful", "failed"  # kinds of a badge
TEMPLATES = Path(__file__).parent / "templates"
CSS = (TEMPLATES / "style.css").read_text(encoding="utf-8")
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class Badge(NamedTuple):
    """The result of a run, in a word, and when it was."""

    word: str
    kind: str
    beside: str


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: what it says.
        kind: empty for a figure; ``word``, of a column of words, or ``prose``.
        interval: small, behind the text.
        below: small lines.
        colour: of a key before the text.
        columns: how many it takes; one that is alone in its row is a heading.
    """

    text: str
    kind: str = ""
    interval: str = ""
    below: tuple[str, ...] = ()
    colour: str = ""
    columns: int = 0


class Table(NamedTuple):
    """A table that scrolls by itself where it is wider than the screen; its first ``words`` titles are of words."""

    head: Sequence[str]
    rows: list[list[Cell]]
    words: int = 1


class Picture(NamedTuple):
    """A PNG in the page itself, in base64, with what stands above and below it.

    Attributes:
        wide: its text is too small on a phone, so it scrolls there.
        spectrum: its colours are a scale, which a dark screen does not invert.
    """

    data: str
    title: str
    caption: str
    wide: bool = False
    spectrum: bool = False


def page(template: str, title: str, **shown: Any) -> str:
    """The file, of a template and what it shows; text is escaped.  ``title`` is that of the window, too."""
    return _ENVIRONMENT.get_template(template).render(title=title, css=Markup(CSS), **shown)


def doubts(quick: bool | None, samples: Iterable[dict[str, Any]]) -> list[str]:
    """What a badge adds: that a run had few values, or company (samples of `load.sample`)."""
    found = ["few values (--quick)"] if quick else []
    return found + (["on a busy machine"] if load.warning(samples) else [])


def cell(text: str, *below: str) -> Cell:
    """A figure of a table: an interval behind it is small, as are the lines below it."""
    value, interval = text.split(" ", 1) if " ±" in text or " -" in text else (text, "")
    return Cell(value, interval=interval, below=below)


def word(text: str) -> Cell:
    """A cell of a column of words."""
    return Cell(text, "word")


def table(head: Sequence[str], rows: Iterable[Iterable[str]], words: int = 1) -> Table:
    """A table of text, whose first ``words`` columns hold words."""
    cells = [[word(text) if number < words else Cell(text) for number, text in enumerate(row)] for row in rows]
    return Table(head, cells, words)


def picture(path: Path, title: str, caption: str, wide: bool = False, spectrum: bool = False) -> Picture:
    """The PNG at a path."""
    return Picture(base64.b64encode(path.read_bytes()).decode("ascii"), title, caption, wide, spectrum)
