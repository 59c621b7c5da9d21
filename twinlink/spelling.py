"""The word that was probably meant, for messages about a wrong one."""

from collections.abc import Iterable

_SIMILAR = 0.65  # of `difflib.SequenceMatcher.ratio`: at 0.6, --timeout would be taken for --out


def near(text: str, known: Iterable[str]) -> str:
    """The nearest known word as the end of a message, such as "; did you mean zenoh?"; empty if none is similar.

    Dashes at the beginning and case do not count.  A word that is like a part of a known one between dashes is near it.
    """
    import difflib  # loaded where something is wrong

    words = {word.lstrip("-").casefold(): word for word in known}
    bare = text.lstrip("-").casefold()

    def like(candidates: Iterable[str]) -> list[str]:
        return difflib.get_close_matches(bare, candidates, n=1, cutoff=_SIMILAR)

    found = like(words) or [word for word in words if like(word.split("-"))][:1]
    return f"; did you mean {words[found[0]]}?" if found else ""
