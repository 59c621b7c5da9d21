"""What holds for every HTML report."""

import re

from twinlink_results import document


def check(page: str) -> None:
    """It is one file in the style of all reports, and shows everything at once: on paper, in a full-page picture."""
    assert f"<style>{document.CSS}</style>" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert not re.search(r"(?:src|href)=[\"'](?!data:)|url\(|@import|loading=", page)
    # What may be wider than a phone scrolls by itself, with a shadow where it goes on.
    assert set(re.findall(r'<(?:div class="scroll"><)?table[^>]*>', page)) <= {
        '<div class="scroll"><table>', "<table class='facts'>"
    }  # fmt: skip
    assert page.count('class="verdict ') == 1
