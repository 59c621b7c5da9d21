"""PRB blocks as the link tells of them: what the twin asks, and what the gNB answers.

A twin asks on flow ``control``, as desired value of the state ``prb-block``, or on both; answers come on
``control-result``.

What the twin itself tells of a block, in column ``story`` of the state ``prb-block``, are its stages
(`twinlink.story`); without that, those are known that the answers tell.

| state    | since                                                                                              |
|----------|----------------------------------------------------------------------------------------------------|
| asked    | the twin's message, on the flow or of the state                                                    |
| installed| the exporter's answer: the RAN has it                                                              |
| on air   | the first record that was observed after that; E3 itself does not tell when a block is on air      |
| cleared  | the exporter's answer: it ended, was replaced, or was withdrawn                                    |
| rejected | the exporter's answer                                                                              |
| no answer| its validity has passed, and this side has not heard more                                          |
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from twinlink.block_state import desired_of, stories_of
from twinlink.control import UNREAD, PrbBlock, PrbBlockResult, unread_id
from twinlink.errors import MalformedPayload
from twinlink.prbs import format_prbs
from twinlink.signed_payload import body_of
from twinlink.story import Name, Stage, Story

MAX_BLOCKS = 64  # that are shown
STEP_MS = 50  # of a waterfall
PATIENCE_MS = 1000  # for the answer that ends a block


@dataclass(slots=True)
class Block:
    """One block; steps are those of the rows of waterfalls, times are Unix time in ns on the clock of their node."""

    prbs: tuple[int, ...]
    by: str
    asked_ns: int
    validity_ms: int
    asked_step: int
    renewed_step: int
    unread_id: str
    story: Story
    state: str = "asked"
    reason: str = ""
    installed_ns: int | None = None
    ran_ns: int | None = None
    on_air_ns: int | None = None
    ended_ns: int | None = None
    installed_step: int | None = None
    on_air_step: int | None = None
    ended_step: int | None = None

    def end(self, state: str, now_ns: int | None, step: int) -> None:
        """It stands no more."""
        if self.ended_step is None:
            self.state, self.ended_ns, self.ended_step = state, now_ns, step


class Blocks:
    """Blocks by their ids, the newest last.  A signature is not checked: the exporter does that."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[str, Block] = OrderedDict()

    def asked(self, payload: bytes | memoryview, by: str, step: int, unread_id: str = "") -> None:
        """A message of flow ``control``; ``unread_id``: of the answer, if the exporter does not read it."""
        try:
            self._asked(PrbBlock.decode(body_of(payload)), by, step, unread_id)
        except MalformedPayload:
            return  # a policy, or what the exporter refuses

    def _asked(self, asked: PrbBlock, by: str, step: int, unread_id: str) -> None:
        if not asked.prbs:
            return  # it ends the block that stands, which the answer says
        before = self._blocks.get(asked.id)
        if before is not None and before.prbs == asked.prbs and before.ended_step is None:  # it is renewed
            before.renewed_step, before.validity_ms, before.unread_id = step, asked.validity_ms, unread_id
            return
        of = Story(asked.id, asked.prbs, by)
        self._blocks[asked.id] = Block(
            asked.prbs, by, asked.issued_ns, asked.validity_ms, step, step, unread_id, of, reason=asked.reason
        )
        self._blocks.move_to_end(asked.id)
        while len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)

    def answered(self, payload: bytes | memoryview, step: int) -> None:
        """A message of flow ``control-result``."""
        try:
            result = PrbBlockResult.decode(body_of(payload))
        except MalformedPayload:
            return
        block = self._blocks.get(result.id)
        if block is None and result.id.startswith(UNREAD):
            unread = [one for one in self._blocks.values() if one.unread_id == result.id and one.state == "asked"]
            block = unread[-1] if unread else None
        if block is None:
            return  # asked before this view, or of another twin
        block.story.answered(result)
        if result.status != "installed":
            block.end(result.status, result.time_ns, step)
        elif block.ended_step is None and block.installed_step is None:
            block.state, block.installed_ns, block.installed_step = "installed", result.time_ns, step
            block.ran_ns = result.e3.ran_ns if result.e3 is not None else None
        else:
            return  # renewed
        block.reason = result.reason or block.reason

    def told(self, payload: bytes | memoryview, step: int) -> None:
        """A message of the state ``prb-block``: what is desired, and the stories of decisions."""
        for record, block in desired_of(payload):
            stamp = record.stamp
            self._asked(block, stamp.author, step, unread_id(stamp.session, stamp.version))
        for story in stories_of(payload):
            known = self._blocks.get(story.id)
            if known is not None and known.prbs == story.prbs:
                known.story = story

    def observed(self, observed_ns: int, step: int, looked_on_step: int = 0) -> None:
        """A record has come, which the gNB observed at this time on the exporter's clock.

        Records were looked at since ``looked_on_step``: when a block from before came on air is not known.
        """
        for block in self._blocks.values():
            if block.state == "installed" and observed_ns > (block.installed_ns or 0):
                block.state, block.on_air_step = "on air", step
                if (block.installed_step or 0) >= looked_on_step:
                    block.on_air_ns = observed_ns

    def look(self, step: int) -> None:
        """End what was neither renewed nor ended in its validity, as far as this side has heard."""
        for block in self._blocks.values():
            if block.ended_step is None and (step - block.renewed_step) * STEP_MS > block.validity_ms + PATIENCE_MS:
                block.end("no answer", None, step)

    def described(self) -> list[dict[str, Any]]:
        """As JSON, the newest first; times as text, as JavaScript's numbers are too small for them."""
        return [_described(identifier, block) for identifier, block in reversed(self._blocks.items())]


def _described(identifier: str, block: Block) -> dict[str, Any]:
    return {
        "id": identifier,
        "by": block.by,
        "prbs": format_prbs(block.prbs),
        "ranges": ranges(block.prbs),
        "state": block.state,
        "reason": block.reason,
        **{
            f"{name}_ns": _text(getattr(block, f"{name}_ns"))
            for name in ("asked", "installed", "ran", "on_air", "ended")
        },
        "stages": [_stage(block.story, name, stage) for name, stage in block.story.known()],
        "steps": [block.asked_step, block.installed_step, block.on_air_step, block.ended_step],
    }


def _stage(of: Story, name: Name, stage: Stage | None) -> dict[str, Any]:
    """A stage with its time since the block was seen, or else sent, or installed."""
    first = next((first for first in ("seen", "sent", "installed") if first in of.stages), None)
    took = of.since(name, first) if first is not None else None
    return {
        "name": name,
        "known": stage is not None,
        "clock": stage and stage.clock,
        "note": stage.note if stage else "",
        "time_ns": _text(stage.time_ns if stage else None),
        "after_ns": took and took[0],
        "error_ns": took and took[1],
    }


def _text(time_ns: int | None) -> str | None:
    return None if time_ns is None else str(time_ns)


def ranges(prbs: Iterable[int]) -> list[list[int]]:
    """PRBs, ascending, as pairs of the first and the last."""
    runs: list[list[int]] = []
    for prb in prbs:
        if runs and prb == runs[-1][1] + 1:
            runs[-1][1] = prb
        else:
            runs.append([prb, prb])
    return runs
