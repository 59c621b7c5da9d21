"""The stories of a twin's decisions, from what a recording of either side shows of the state ``prb-block``."""

from typing import Any

from twinlink.block_state import stories_of
from twinlink.story import Story

MAX_STORIES = 100_000  # of a recording; further ones are counted


class RecordedDecisions:
    """Takes the messages of the state, in any order.

    Attributes:
        stories: by the twin's name and the decision's id; of several tellings the one with most stages.
        left_out: how often one was told that there was no room for.
    """

    def __init__(self) -> None:
        self.stories: dict[tuple[str, str], Story] = {}
        self.left_out = 0

    def take(self, payload: bytes) -> None:
        """Take in a message of the state."""
        for story in stories_of(payload):
            self._add(story)

    def _add(self, story: Story) -> None:
        key = story.twin, story.id
        known = self.stories.get(key)
        if known is None and len(self.stories) >= MAX_STORIES:
            self.left_out += 1
        elif known is None or len(known.stages) <= len(story.stages):
            self.stories[key] = story

    def as_list(self) -> list[dict[str, Any]]:
        """All, in the order in which they were first told, for a file."""
        return [story.as_dict() for story in self.stories.values()]
