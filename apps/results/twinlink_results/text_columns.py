"""Columns of text for a terminal of `WIDTH` columns."""

from collections.abc import Iterator

WIDTH = 80


def aligned(head: list[str], rows: list[list[str]], words: int) -> Iterator[str]:
    """Text columns aligned to the left, figures to the right; below each other if they do not fit into `WIDTH`."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for figures in _fitting(widths, words):
        places = (*range(words), *figures)
        for row in (head, *rows):
            fields = (f"{row[place]:{'<' if place < words else '>'}{widths[place]}}" for place in places)
            yield f"  {' '.join(fields)}"


def _fitting(widths: list[int], words: int) -> list[list[int]]:
    """The columns of figures, by tables; each begins with the text columns."""
    text_width = 1 + sum(width + 1 for width in widths[:words])
    tables: list[list[int]] = [[]]
    used = text_width
    for place in range(words, len(widths)):
        if tables[-1] and used + 1 + widths[place] > WIDTH:
            tables.append([])
            used = text_width
        tables[-1].append(place)
        used += 1 + widths[place]
    return tables
