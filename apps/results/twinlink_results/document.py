"""An HTML report in one file: its style and its parts, for wide and narrow screens, light and dark, and for paper.

All reports are made of these, so that they look alike.  Arguments are text unless they are called HTML.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from . import load

GOOD, DOUBTFUL, BAD = "passed", "doubtful", "failed"  # kinds of a badge

# Figures have a white background.  On a dark screen drawings are inverted, and their hues turned back, so that white
# becomes --paper; colours beside a name are treated alike, as they must be those of the figure.  A spectrogram keeps
# its scale of colours.  What is wider than the screen has a shadow at the side to which it goes on, which scrolls away
# with the content that covers it.
CSS = """
:root { color-scheme: light; --paper: #fff; --ink: #1b1e23; --soft: #5b6470; --line: #dde1e6; --raised: #f6f7f9;
        --shade: rgb(0 0 0 / .28); --good: #2b8a3e; --bad: #c92a2a; --doubt: #a65300; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --paper: #141414; --ink: #e4e6e9; --soft: #a2aab5; --line: #383c42; --raised: #1f2124;
          --shade: rgb(255 255 255 / .3); }
  img, .key { filter: invert(.92) hue-rotate(180deg); } img.spectrum { filter: brightness(.85); }
  figure { --line: #cbced2; } .spectrum { --line: #383c42; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
h3 { margin: 1.2rem 0 .3rem; font-size: 1.05rem; }
.verdict { display: inline-block; padding: .1rem .8rem; border-radius: 1rem; color: #fff; font-weight: 600; }
.passed { background: var(--good); } .failed { background: var(--bad); } .doubtful { background: var(--doubt); }
.beside { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.scroll { overflow-x: auto; background: no-repeat var(--paper);
  background-image: linear-gradient(to right, var(--paper) 40%, transparent),
    linear-gradient(to left, var(--paper) 40%, transparent), linear-gradient(to right, var(--shade), transparent),
    linear-gradient(to left, var(--shade), transparent);
  background-size: 2.5rem 100%, 2.5rem 100%, 1rem 100%, 1rem 100%; background-position: left, right, left, right;
  background-attachment: local, local, scroll, scroll; }
.scroll::-webkit-scrollbar { height: .5rem; } .scroll::-webkit-scrollbar-track { background: var(--line); }
.scroll::-webkit-scrollbar-thumb { background: var(--soft); border-radius: .25rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .4rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
         font-size: .9rem; white-space: nowrap; }
th { vertical-align: bottom; font-weight: 600; white-space: normal; }
td.prose { white-space: normal; min-width: 10rem; }
th:first-child, td:first-child, td.word, th.word { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
tr.direction td { font-weight: 600; text-align: left; padding-top: .7rem; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); padding-right: 1rem; white-space: nowrap; }
td small { color: var(--soft); } td small.below { display: block; }
dl { display: grid; grid-template-columns: 10rem 1fr; gap: .35rem 1rem; margin: 1rem 0; }
dt { font-weight: 600; } dd { margin: 0; }
figure { margin: .2rem 0 1.4rem; break-inside: avoid; }
img { display: block; width: 100%; height: auto; border: 1px solid var(--line); border-radius: .4rem; }
figcaption, .soft { color: var(--soft); font-size: .9rem; }
details { border-bottom: 1px solid var(--line); padding: .35rem 0; } summary { cursor: pointer; }
pre { overflow-x: auto; background: var(--raised); padding: .6rem; }
@media screen and (max-width: 40rem) {
  dl { display: block; } dt { margin-top: .6rem; }
  th, td { padding: .3rem .25rem; font-size: .82rem; } td small { display: block; }
  .facts td:first-child { white-space: normal; width: 35%; }
  .wide img { min-width: 36rem; } .wide figcaption::before { content: "⟷ Scroll sideways to see all of it. "; }
}
@media print {
  .scroll { overflow: visible; background: none; } h2, h3 { break-after: avoid; } tr { break-inside: avoid; }
  .beside { display: block; } .beside > div { break-inside: avoid; }
  img { width: auto; max-width: 100%; max-height: 20cm; }
}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The file.

    Args:
        title: of the window.
        parts: HTML; empty ones are left out.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body>\n{chr(10).join(filter(None, parts))}\n</body></html>\n"
    )


def badge(word: str, kind: str, beside: str) -> str:
    """The result of a run, in a word, and when it was."""
    return f'<p><span class="verdict {kind}">{escape(word)}</span> <span class="soft">{escape(beside)}</span></p>'


def doubts(quick: bool | None, samples: Iterable[dict[str, Any]]) -> list[str]:
    """What a badge adds: that a run had few values, or company (samples of `load.sample`)."""
    found = ["few values (--quick)"] if quick else []
    return found + (["on a busy machine"] if load.warning(samples) else [])


def sentences(told: Iterable[tuple[str, str]]) -> str:
    """What a run has found, in sentences: titles, each with its text."""
    items = "".join(f"<dt>{escape(title)}</dt><dd>{escape(text)}</dd>" for title, text in told)
    return f"<dl>{items}</dl>" if items else ""


def items(texts: Iterable[str]) -> str:
    """A list."""
    found = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{found}</ul>" if found else ""


def notes(texts: Iterable[str]) -> str:
    """Remarks below a table."""
    return "".join(f"<p class='soft'>{escape(text)}</p>" for text in texts)


def cell(text: str, *below: str) -> str:
    """A figure of a table: an interval behind it is small, as are the lines below it."""
    value, interval = text.split(" ", 1) if " ±" in text or " -" in text else (text, "")
    small = f" <small>{escape(interval)}</small>" if interval else ""
    lines = "".join(f"<small class=below>{escape(line)}</small>" for line in below if line)
    return f"<td>{escape(value)}{small}{lines}</td>"


def rows_table(head: Sequence[str], rows: Iterable[str], words: int = 1) -> str:
    """A table that scrolls by itself where it is wider than the screen.

    Args:
        head: titles of the columns.
        rows: HTML of each row, from its <tr> on.
        words: number of first columns that hold words, not figures.
    """
    titles = "".join(
        f"<th{' class=word' if number < words else ''}>{escape(title)}</th>" for number, title in enumerate(head)
    )
    lines = "\n".join(rows)
    return f'<div class="scroll"><table><tr>{titles}</tr>\n{lines}</table></div>'


def table(head: Sequence[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    """As `rows_table`, of rows of text."""
    return rows_table(head, (_row(row, words) for row in rows), words)


def _row(texts: Iterable[str], words: int) -> str:
    cells = (word(text) if number < words else f"<td>{escape(text)}</td>" for number, text in enumerate(texts))
    return f"<tr>{''.join(cells)}</tr>"


def word(text: str) -> str:
    """A cell of a column of words."""
    return f"<td class=word>{escape(text)}</td>"


def prose(text: str) -> str:
    """A cell of sentences."""
    return f"<td class=prose>{escape(text)}</td>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    lines = "".join(f"<tr><td>{escape(str(name))}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table class='facts'>{lines}</table>"


def folded(title: str, note: str, content: str) -> str:
    """A collapsed section; ``content`` is HTML."""
    soft = f" <span class='soft'>{escape(note)}</span>" if note else ""
    return f"<details><summary>{escape(title)}{soft}</summary>{content}</details>\n"


def key(colour: str) -> str:
    """The colour that something has in the figures."""
    return f'<span class="key" style="color:{colour}">■</span>'


def figure(path: Path, title: str, caption: str, wide: bool = False, spectrum: bool = False) -> str:
    """A picture, in the page itself.

    Args:
        path: of a PNG.
        title, caption: above and below it.
        wide: its text is too small on a phone, so it scrolls there.
        spectrum: its colours are a scale, which a dark screen does not invert.
    """
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    kind = ' class="spectrum"' if spectrum else ""
    image = f'<img{kind} alt="{escape(title)}" src="data:image/png;base64,{data}">'
    if wide:
        image = f'<div class="scroll">{image}</div>'
    return (
        f"<div><h3>{escape(title)}</h3>\n<figure{' class=wide' if wide else ''}>{image}"
        f"<figcaption>{escape(caption)}</figcaption></figure></div>\n"
    )
