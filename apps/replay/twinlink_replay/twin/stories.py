"""The stories of a twin's decisions (`twinlink.story`): joins what the twin does with what its exporter tells, by id.

An exporter tells by results on flow ``control-result``, and in the columns ``installed`` and ``on-air`` of the state
``prb-block``, whichever comes first.  A story that ends is logged in one line (event ``decision``).  What is known of
the newest ones stands in column ``story`` of that state, for all that look at the link.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from twinlink.appkit.journal import Journal
from twinlink.block_state import INSTALLED, ON_AIR
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.protocol.rtt import percentiles
from twinlink.stats import ClockOffset
from twinlink.story import MAX_NS, Clock, Name, Story, Tried, encode

KEPT = 16  # stories: results of those before are no news
MAX_TOOK = 4096
OPEN = "open"  # beside the ends: what has not ended, as far as this twin knows
PATIENCE_NS = 1_000_000_000  # for the answer that ends a block whose validity has ended


class Stories:
    """Not thread-safe: its caller holds a lock.

    Args:
        journal: receives a line for each decision.
        tell: takes a value of column ``story`` for an exporter.
        clock: the offset of the clock of a session, if it is known.
        twin: name of this node.

    Attributes:
        ended: number of stories that were said, by their end or `OPEN`.
        taken_back: number of blocks that the twin has taken back.
        took_ns: times from seen to on air, of the newest `MAX_TOOK`.
    """

    def __init__(
        self,
        journal: Journal,
        tell: Callable[[bytes, str], object],
        clock: Callable[[int], ClockOffset | None],
        twin: str,
    ) -> None:
        self.ended: dict[str, int] = {}
        self.taken_back = 0
        self.took_ns: deque[int] = deque(maxlen=MAX_TOOK)
        self._journal, self._tell, self._clock, self._twin = journal, tell, clock, twin
        self._stories: OrderedDict[str, Story] = OrderedDict()
        self._last_heard_ns: dict[str, int] = {}  # monotonic time at which a block ends unless it is renewed
        self._epoch = 0
        self._on_air: deque[str] = deque(maxlen=KEPT)  # whose time is in `took_ns`

    def begin(
        self, block: PrbBlock, exporter: str, epoch: int, seen_ns: int | None, tried: Tried | None = None
    ) -> Story:
        """A list that blocks PRBs is decided on; ``seen_ns`` as in `Story`."""
        before = self._stories.get(block.id)
        if before is not None and not before.ended:
            self.note(before, "replaced", None, "twin", "by another part of the list")
        story = Story(block.id, block.prbs, self._twin, exporter)
        self._epoch = epoch or self._epoch
        if seen_ns is not None:
            story.note("seen", seen_ns, "exporter", block.reason)
        if tried is None:
            story.note("tried", None, "twin", "no model was asked")
        else:
            story.note("tried", tried.tried_ns, "twin", ": ".join(filter(None, tried[1:])))
        self._stories[block.id] = story
        self._stories.move_to_end(block.id)
        while len(self._stories) > KEPT:
            # Refusals may be many while a block stands, whose end is still to be heard.
            oldest = next((id for id, one in self._stories.items() if one.ended), next(iter(self._stories)))
            self._say(self._stories.pop(oldest))
        return story

    def note(self, story: Story, name: Name, time_ns: int | None, clock: Clock, note: str = "") -> None:
        """A stage was reached."""
        if story.note(name, time_ns, clock, note):
            self._changed(story)

    @property
    def seen_to_on_air_ns(self) -> dict[str, int] | None:
        """The spread of `took_ns`; None without any."""
        return percentiles(list(self.took_ns)) if self.took_ns else None

    def sent(self, story: Story, time_ns: int, mono_ns: int, validity_ms: int) -> None:
        """It was sent, for the first time or again."""
        self._last_heard_ns[story.id] = mono_ns + validity_ms * 1_000_000 + PATIENCE_NS
        self.note(story, "sent", time_ns, "twin")

    def refused(self, story: Story) -> None:
        """The twin's model refused it: it does not leave."""
        self._last_heard_ns[story.id] = 0
        tried = story.stages["tried"]
        self.note(story, "refused", tried.time_ns, "twin")

    def of(self, id: str) -> Story | None:
        """The story of a decision, unless it is too old."""
        return self._stories.get(id)

    @property
    def newest(self) -> Story | None:
        """The story of the last block that was sent."""
        return next((one for one in reversed(self._stories.values()) if "sent" in one.stages), None)

    def answered(self, result: PrbBlockResult, of_newest: bool = False) -> None:
        """A result came from the exporter; ``of_newest``: it does not name the decision, which is the newest."""
        story = self.newest if of_newest else self._stories.get(result.id)
        if story is not None and story.answered(result):
            self._changed(story)

    def reported(self, column: str, fields: Any) -> None:
        """The exporter reports this value in a column of the state."""
        name: Name | None = "installed" if column == INSTALLED else "on air" if column == ON_AIR else None
        if name is None or not isinstance(fields, dict) or not isinstance(fields.get("id"), str):
            return
        story = self._stories.get(fields["id"])
        time_ns = fields.get("sent_ns" if name == "installed" else "acknowledged_ns")
        is_time = type(time_ns) is int and 0 <= time_ns <= MAX_NS  # JSON has no bounds
        if story is not None and is_time and "sent" in story.stages:
            self.note(story, name, time_ns, "exporter")

    def look(self, now_ns: int, mono_ns: int) -> None:
        """End what has not been heard of."""
        for id, until_ns in list(self._last_heard_ns.items()):
            if mono_ns > until_ns:
                self.note(self._stories[id], "no answer", now_ns, "twin")

    def finish(self) -> None:
        """Say what is known of those that have not ended."""
        for story in self._stories.values():
            self._say(story)

    def _say(self, story: Story) -> None:
        """Log it, once: when it has ended, or no more of it will be known."""
        if self._last_heard_ns.pop(story.id, None) is None:
            return
        end = next(reversed(story.stages)) if story.ended else OPEN
        self.ended[end] = self.ended.get(end, 0) + 1
        self._journal.event("decision", f"decision {story.line()}", **story.as_dict())

    def _changed(self, story: Story) -> None:
        story.offset = (self._clock(self._epoch) if self._epoch else None) or story.offset
        if story.id not in self._on_air and (took := story.since("on air")) is not None:
            self._on_air.append(story.id)
            self.took_ns.append(took[0])
        if story.ended:
            self._say(story)
        self._tell(encode(list(self._stories.values())), story.exporter)
