"""The comparison page is made of a sweep's records."""

import json
from pathlib import Path

from twinlink_results import results

from benchmarks import comparison
from tests.measure import synthetic_run


def test_the_page_has_a_row_for_each_system_and_says_what_is_too_long(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zenoh", "raw-s7"), payloads=(100, 102400), directions=("rw-dt",), rounds=3)
    run = json.loads((tmp_path / "run.json").read_text())
    (long,) = (cell for cell in run["cells"] if (cell["subject"], cell["octets"]) == ("raw-s7", 102400))
    long |= {
        "status": "skipped",
        "reason": "its greatest payload is 65,496 octets: a data block has 64 KiB",
        "rounds": [],
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    for file in (tmp_path / "records").glob(f"{long['id']}*"):
        file.unlink()
    found, _ = results.compute(tmp_path, results.load(tmp_path))
    head, _, *rows = comparison.table(found)
    assert head == "| system | round trips | 100 B | 100 KB | goodput (MB/s) | CPU (ms) |"
    zenoh, s7 = rows
    times = [cell["statistics"]["rtt_ns"]["p50"] for cell in found["cells"] if cell["subject"] == "zenoh"]
    assert zenoh.startswith("| twinlink over Zenoh | - | " + " | ".join(f"{each / 1e6:.3f}" for each in times))
    assert "| too long |" in s7
    text = comparison.page(found)
    assert "## What to choose when" in text
    comparison.draw(tmp_path / comparison.FIGURE, found)
    assert (tmp_path / comparison.FIGURE).stat().st_size > 1000
