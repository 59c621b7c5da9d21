"""The progress of the demo."""

import pytest
from twinlink_demo.progress import Progress


def test_a_block_that_is_renewed_is_no_news_whatever_came_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    block = {"event": "control", "time_ns": 2, "prbs": [3, 4]}
    with Progress(1) as progress:
        for event in (block, {"event": "interferer_off", "time_ns": 3, "prbs": [3, 4]}, block):
            progress.event("emulator", event)
        progress.event("emulator", block | {"prbs": []})
        progress.event("emulator", block)
    told = capsys.readouterr().err
    assert told.count("gNB keeps UEs out of PRBs 3-4") == 2
    assert told.count("gNB no longer blocks PRBs") == 1
