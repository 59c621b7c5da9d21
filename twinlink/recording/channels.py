"""The channels of a recording: their topics, schemas and metadata (docs/recordings.md)."""

import json
from functools import cache
from typing import Any

from .mcap_file import ChannelDescription

FRAME_ENCODING, JSON_ENCODING = "twinlink", "json"
FRAME_SCHEMA = "twinlink.frame"
EVENTS, RECORDER, CLOCK = "_events", "_recorder", "_clock"  # topics of JSON; no topic of the wire begins so
_FIELDS: dict[str, dict[str, Any]] = {
    EVENTS: {"type": {"type": "string"}, "time_ns": {"type": "integer"}},
    RECORDER: {"type": {"type": "string"}},
    CLOCK: {
        "epoch": {"type": "string"},
        "node": {"type": ["string", "null"]},
        "offset_ns": {"type": "integer"},
        "bound_ns": {"type": "integer"},
        "rtt_ns": {"type": "integer"},
        "acks": {"type": "integer"},
    },
}


def of_frames(direction: str, topic: str) -> ChannelDescription:
    """The frames that were sent, or received, on a topic of the wire."""
    kind, _, flow = topic.partition("/")
    return ChannelDescription(
        topic=topic,
        encoding=FRAME_ENCODING,
        schema=FRAME_SCHEMA,
        metadata={"direction": direction, "kind": kind, "flow": flow},
    )


@cache
def of_json(topic: str) -> ChannelDescription:
    """What is no frame: `EVENTS`, `RECORDER` or `CLOCK`."""
    schema = {"type": "object", "properties": _FIELDS[topic]}
    return ChannelDescription(
        topic=topic,
        encoding=JSON_ENCODING,
        schema=f"twinlink.{topic[1:]}",
        metadata={},
        schema_encoding="jsonschema",
        schema_data=json.dumps(schema).encode(),
    )
