"""Messages in order, and recordings whose manifests lie."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twinlink_export.in_order import in_order
from twinlink_export.parquet_export import export
from twinlink_export.request import Request
from twinlink_export.source import Message

from tests.export import scene
from twinlink.protocol.rangeset import RangeSet
from twinlink.recording import RecordingError, Report
from twinlink.recording.mcap_file import McapFile
from twinlink.recording.reader import RecordingFile
from twinlink.recording.verify import read

STREAM = "received", "x", 1


def message(sequence: int) -> Message:
    return Message(*STREAM, "gnb", sequence, 0, 0, False, memoryview(bytes(100)), None)


def ordered(numbers: list[int], recorded: list[tuple[int, int]], most_octets: int = 10_000) -> list[int]:
    put = in_order(map(message, numbers), {STREAM: RangeSet(recorded)}, most_octets)
    return [one.sequence for one in put]


def test_late_messages_are_put_in_their_place() -> None:
    assert ordered([0, 2, 3, 1, 7, 6], [(0, 4), (6, 8)]) == [0, 1, 2, 3, 6, 7]
    assert ordered([5, 4, 3], [(3, 6)]) == [3, 4, 5]


def test_what_comes_too_late_is_not_waited_for() -> None:
    """Three messages may wait; the fourth goes on without number 0, which comes as it comes."""
    assert ordered([1, 2, 3, 4, 5, 0, 6], [(0, 7)], most_octets=350) == [1, 2, 3, 4, 5, 0, 6]


def test_what_was_to_come_and_does_not_is_not_waited_for_at_the_end() -> None:
    assert ordered([1, 3, 2], [(0, 9)]) == [1, 2, 3]


def with_manifest(recording: Path, out: Path, changes: dict[str, Any], of_stream: dict[str, Any]) -> Path:
    """The same file with another manifest, whose hash is right."""
    made = McapFile(out, "test", overwrite=False)
    manifest: dict[str, Any] = {}
    with closing(RecordingFile(recording)) as file:
        for item in read(file, Report("")):
            if isinstance(item, dict):
                manifest = item
                continue
            for description, one in item:
                key = description.topic, *description.metadata.values()
                made.add(key, description, one.sequence, one.log_ns, one.sent_ns, one.data)
            made.end_chunk()
    manifest["streams"][0] |= of_stream
    made.finish(json.dumps(manifest | {"chunks": made.chunks} | changes).encode())
    return out


@pytest.mark.parametrize(
    ("changes", "of_stream"),
    [
        ({"file": {}}, {}),
        ({"file": True}, {}),
        ({"series": []}, {}),
        ({"next_file": 3}, {}),
        ({}, {"lost": [{}]}),
        ({}, {"lost": 7}),
        ({}, {"lost": [{"first": "x", "end": 2, "reason": ""}]}),
    ],
)
def test_a_manifest_that_lies_is_refused(changes: dict[str, Any], of_stream: dict[str, Any], tmp_path: Path) -> None:
    recording = scene.write(tmp_path / "x.mcap", [(0, b"x")], flow="x")
    made = with_manifest(recording, tmp_path / "y.mcap", changes, of_stream)
    with pytest.raises(RecordingError, match=r"y\.mcap: its manifest does not"):
        export(Request([made], tmp_path / "y.parquet"))
    whole = with_manifest(recording, tmp_path / "z.mcap", {}, {})
    assert export(Request([whole], tmp_path / "z.parquet")).written == {tmp_path / "z.parquet": 1}
