"""The stories of a twin's decisions: which are kept, and what an exporter may say of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from twinlink_replay.twin.stories import KEPT, Stories

from twinlink.appkit.journal import Journal
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.story import Tried, decode

REFUSED = Tried(10, "refused", "worse")


class Run:
    def __init__(self, log: Path) -> None:
        self.log, self.journal = log, Journal("test", log)
        self.told: list[bytes] = []
        self.stories = Stories(self.journal, lambda value, node: self.told.append(value), lambda epoch: None, "twin-1")

    def stands(self, id: str) -> None:
        """A block is sent and installed."""
        story = self.stories.begin(PrbBlock(id, (1, 2), 0, 2000), "gnb-1", 7, 5, None)
        self.stories.sent(story, 20, 20, 2000)
        self.stories.answered(PrbBlockResult(id, "installed", (1, 2), 30, ""))

    def refuses(self, count: int) -> None:
        for number in range(count):
            block = PrbBlock(f"refused-{number}", (number,), 0, 2000)
            self.stories.refused(self.stories.begin(block, "gnb-1", 0, 5, REFUSED))

    def said(self) -> list[str]:
        self.journal.__exit__(None, None, None)
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [one["id"] for one in found if one["event"] == "decision"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "log.jsonl")
    with made.journal:
        yield made


def test_many_refusals_do_not_push_out_the_block_that_stands(run: Run) -> None:
    run.stands("b-1")
    run.refuses(3 * KEPT)
    standing = run.stories.newest
    assert standing is not None
    assert standing.id == "b-1"
    run.stories.note(standing, "taken back", 40, "twin", "harm")
    run.stories.answered(PrbBlockResult("b-1", "cleared", (), 50, "the twin asked for it"))
    assert run.stories.ended == {"refused": 3 * KEPT, "cleared": 1}
    assert run.said()[-1] == "b-1"


@pytest.mark.parametrize("time_ns", [-1, 2**63, 10**400])
def test_a_time_that_cannot_be_counts_as_none(run: Run, time_ns: int) -> None:
    run.stands("b-1")
    run.stories.reported("on-air", {"id": "b-1", "acknowledged_ns": time_ns})
    story = run.stories.newest
    assert story is not None
    assert "on air" not in story.stages
    run.stories.finish()
    assert run.said() == ["b-1"]
    assert decode(run.told[-1])[0].id == "b-1"
