"""Reading recordings with the package mcap alone, and what the tests of a recording share."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mcap.reader import make_reader

import twinlink
from twinlink.testing import patience

WIRE = struct.Struct("!IIQQQ")  # the header of docs/protocol.md


class Row(NamedTuple):
    """A message of a file, as docs/recordings.md has it."""

    flow: str
    direction: str
    epoch: int
    sequence: int
    sent_ns: int
    log_ns: int
    payload: bytes


def rows(path: Path, direction: str, flow: str | None = None) -> list[Row]:
    """The messages of a file in its order, by mcap's own reader with every CRC checked."""
    found = []
    with path.open("rb") as file:
        for _, channel, message in make_reader(file, validate_crcs=True).iter_messages(log_time_order=False):
            if channel.message_encoding != "twinlink" or channel.metadata["direction"] != direction:
                continue
            word, length, epoch, sequence, sent_ns = WIRE.unpack_from(message.data)
            if word & 0xFF not in (1, 5) or flow not in (None, channel.metadata["flow"]):
                continue
            assert len(message.data) == WIRE.size + length
            assert message.sequence == sequence % 2**32
            assert message.publish_time == sent_ns
            payload = message.data[WIRE.size :]
            found.append(Row(channel.metadata["flow"], direction, epoch, sequence, sent_ns, message.log_time, payload))
    return found


def json_records(path: Path, topic: str) -> list[dict[str, Any]]:
    """What a channel of JSON holds."""
    import json

    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        return [json.loads(message.data) for _, _, message in reader.iter_messages(topics=[topic])]


@contextmanager
def pair(transport: Any, endpoint: str, **options: Any) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """A listener called twin and a connector called gnb that have met."""
    with (
        twinlink.open(transport, listen=endpoint, node="twin", **options) as twin,
        twinlink.open(transport, connect=endpoint, node="gnb", **options) as gnb,
    ):
        gnb.wait_ready(patience())
        twin.wait_ready(patience())
        yield twin, gnb


def only(streams: list[dict[str, Any]], direction: str, flow: str) -> dict[str, Any]:
    """The one stream of a flow."""
    (found,) = [one for one in streams if one["direction"] == direction and one["flow"] == flow]
    return found


def numbers(ranges: list[list[int]]) -> set[int]:
    """The numbers in ranges."""
    return {number for first, end in ranges for number in range(first, end)}
