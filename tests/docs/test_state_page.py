"""The two programs of docs/state.md work together as the page says."""

import re
import sys
from pathlib import Path

from tests.docs.test_pages import FENCE, run_together
from twinlink.testing import free_endpoint

PAGE = Path(__file__).parents[2] / "docs" / "state.md"


def test_the_programs_of_the_page_agree(tmp_path: Path) -> None:
    gnb, twin = (code for kind, code in FENCE.findall(PAGE.read_text(encoding="utf-8")) if kind == "python")
    endpoint = free_endpoint()
    programs = [re.sub(r"tcp/127.0.0.1:7447", endpoint, code) for code in (gnb, twin)]
    ended = run_together(*([sys.executable, "-c", code] for code in programs), cwd=tmp_path)
    assert ended == [
        (0, ["install cell-1 {'prbs': [40, 41]}", "clear cell-1 expired"]),
        (0, ["installed {'prbs': [40, 41]} by gnb-1", "expired"]),
    ]
