"""What the messages of the state ``prb-block`` say to a reader without a link: of a recording, or a tap.

The state has a key for each exporter, its node's name (docs/decisions.md).  Signatures are not verified here.
"""

from typing import NamedTuple

from .control import PrbBlock
from .errors import MalformedPayload
from .signed_payload import body_of
from .state.record import DESIRED, Record, decode
from .story import COLUMN, Story
from .story import decode as decode_stories

STATE, INSTALLED, ON_AIR = "prb-block", "installed", "on-air"
FLOW = f"state.{STATE}"


class Desired(NamedTuple):
    """A PRB block that a twin desires; ``record`` says which, and for which exporter."""

    record: Record
    block: PrbBlock


def desired_of(message: bytes | memoryview) -> list[Desired]:
    """The blocks that a message of flow `FLOW` desires; none where it cannot be read."""
    found = []
    for record in _records(message, DESIRED):
        try:
            found.append(Desired(record, PrbBlock.decode(body_of(record.payload or b""))))
        except MalformedPayload:  # a sensing policy, or what the exporter refuses
            continue
    return found


def stories_of(message: bytes | memoryview) -> list[Story]:
    """The stories that a message of flow `FLOW` tells; those that cannot be read are left out."""
    found = []
    for record in _records(message, COLUMN):
        try:
            found += decode_stories(record.payload or b"")
        except MalformedPayload:
            continue
    return found


def _records(message: bytes | memoryview, column: str) -> list[Record]:
    try:
        return [one for one in decode(message) if one.slot.column == column and one.payload is not None]
    except MalformedPayload:  # the replica counts it
        return []
