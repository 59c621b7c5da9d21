"""Proves that a recording is complete, or names what is missing; makes a file whole that was cut or is damaged."""

import errno
import json
import os
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel

from ..process.text import to_json
from ..protocol.frames import MalformedFrame
from ..protocol.rangeset import RangeSet
from ..protocol.wire import RECEIVED, SENT, messages_of
from . import channels
from .account import Account, listed
from .manifest import FORMAT, checked, is_manifest, without_end
from .mcap_file import MAGIC, PROFILE, ChannelDescription, McapFile
from .reader import HEAD, ChunkRecord, Damaged, Recorded, RecordingError, RecordingFile, messages_in


@dataclass(slots=True)
class Report:
    """What a recording is found to be.

    Attributes:
        path: of the file.
        sound: it has its manifest, and every octet is as it was written.
        complete: it is sound, and holds every message that was sent, as far as its manifest can know.
        problems: what is damaged or cut, with octets and messages.
        streams: of each session on a flow, as in the manifest; ``end`` is None where it is not known, as the file was
            cut.
        messages, chunks: of the sound chunks.
        cut_at: octet from which on the file cannot be read; ``last_ns``: log time of the last message before that.
        repaired: the file was made by `repair`; lacks_end: of one that was cut.
        series, file, next_file: which file of which recording it is, and the name of the next.
        others_left_out: frames without messages, and events, that are not in the file.
    """

    path: str
    sound: bool = False
    complete: bool = False
    problems: list[str] = field(default_factory=list)
    streams: list[dict[str, Any]] = field(default_factory=list)
    messages: int = 0
    chunks: int = 0
    cut_at: int | None = None
    last_ns: int | None = None
    repaired: bool = False
    lacks_end: bool = False
    series: str | None = None
    file: int | None = None
    next_file: str | None = None
    others_left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return asdict(self)

    def missing(self) -> Iterator[tuple[dict[str, Any], str, RangeSet]]:
        """Stream, why it is missing, and which messages; of a cut file also what may have followed: no range."""
        for stream in self.streams:
            for side, ranges in [*stream["missing"].items(), *stream["left_out"].items()]:
                yield stream, side, RangeSet(map(tuple, ranges))
            if stream["end"] is None:
                yield stream, "cut", RangeSet()


class _Content:
    """What the sound chunks of a file hold."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.account: Account | None = None
        self.begin: dict[str, Any] = {}
        self.has_header = False

    def chunk(self, chunk: ChunkRecord) -> list[tuple[ChannelDescription, Recorded]]:
        """Take in a chunk, and return its messages.  Raises Damaged."""
        found = []
        try:
            for recorded in messages_in(chunk.data):
                found.append((_description(recorded.channel), recorded))
                self._take(recorded)
                self.report.last_ns = max(self.report.last_ns or 0, recorded.log_ns)
        except (MalformedFrame, struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Damaged(f"what it holds is not of a recording: {error!r}") from None
        if self.account is not None:
            self.account.commit()
        self.report.messages += len(found)
        self.report.chunks += 1
        return found

    def _take(self, recorded: Recorded) -> None:
        topic = recorded.channel.topic
        if topic == channels.RECORDER:
            self._take_recorder(json.loads(bytes(recorded.data)))
        elif self.account is None:
            self.account = Account(0)  # the first chunk is damaged
        if self.account is None or topic in (channels.RECORDER, channels.CLOCK):
            return
        if topic == channels.EVENTS:
            self.account.event(json.loads(bytes(recorded.data)))
            return
        direction, flow = recorded.channel.metadata["direction"], recorded.channel.metadata["flow"]
        wires = list(messages_of(recorded.data))
        for wire in wires:
            if wire.sequence & 0xFFFFFFFF != recorded.sequence or wire.sent_ns != recorded.sent_ns:
                raise Damaged(f"message {wire.sequence} of flow {flow} has another number or time than its record")
            self.account.message(direction, flow, wire)
        if not wires:
            self.account.control(direction, topic.encode(), recorded.data)

    def _take_recorder(self, fields: dict[str, Any]) -> None:
        if fields["type"] == "begin":
            if fields["format"] != FORMAT:
                raise RecordingError(
                    f"{self.report.path}: its format is {fields['format']}, which this version does not read"
                )
            self.begin = fields
            self.account = Account(int(fields["epoch"], 16), fields["configuration"]["recorder"]["flows"])
            self.account.begin(fields["streams"])
            self.account.nodes = {int(epoch, 16): node for epoch, node in fields["nodes"].items()}
        elif fields["type"] == "left_out" and self.account is not None:
            stream = self.account.stream(fields["direction"], fields["flow"], int(fields["epoch"], 16))
            if stream is not None:
                stream.leave_out(fields["reason"], checked(fields["ranges"]))

    def recorded(self, stream: dict[str, Any]) -> RangeSet:
        """What is there of a stream of the manifest."""
        key = stream["direction"], stream["flow"], int(stream["epoch"], 16)
        found = self.account.streams.get(key) if self.account else None
        return found.written if found is not None else RangeSet()


def _description(channel: Channel) -> ChannelDescription:
    if channel.topic in (channels.EVENTS, channels.RECORDER, channels.CLOCK):
        return channels.of_json(channel.topic)
    if channel.metadata.get("direction") not in (SENT, RECEIVED):
        raise Damaged(f"channel {channel.topic!r} is not of a recording")
    return channels.of_frames(channel.metadata["direction"], channel.topic)


def verify(path: Path) -> Report:
    """What is in a recording, and what is missing from it.  Raises OSError, and RecordingError where it is none."""
    report = Report(str(path))
    with closing(RecordingFile(path)) as file:
        for _ in read(file, report):
            pass
    return report


def repair(path: Path, out: Path, overwrite: bool = False) -> Report:
    """Write a whole file from what is sound of a cut or damaged one, which stays as it is; returns what that lacks.

    ``out`` is there when it is whole.  Raises OSError, FileExistsError included, and RecordingError where there is
    nothing to repair.
    """
    report = Report(str(path))
    if not overwrite and out.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(out))
    with closing(RecordingFile(path)) as file:
        made = McapFile(out.with_name(f"{out.name}.{os.getpid()}.part"), "twinlink, repaired", overwrite=False)
        try:
            manifest: dict[str, Any] = {}
            for item in read(file, report):
                if isinstance(item, dict):
                    manifest = item
                    continue
                for description, recorded in item:
                    key = description.topic, *description.metadata.values()
                    made.add(key, description, recorded.sequence, recorded.log_ns, recorded.sent_ns, recorded.data)
                made.end_chunk()
            if report.sound:
                raise RecordingError(f"{path} is sound: there is nothing to repair")
            repaired = {"problems": report.problems, "cut_at": report.cut_at, "last_ns": report.last_ns}
            changed = {"ended": "repaired", "repaired": repaired, "streams": report.streams, "chunks": made.chunks}
            made.finish(to_json(manifest | changed).encode())
            made.path.replace(out)
        except BaseException:
            made.abandon()
            raise
    return report


Chunk = list[tuple[ChannelDescription, Recorded]]


def read(file: RecordingFile, report: Report) -> Iterator[Chunk | dict[str, Any]]:
    """The messages of each sound chunk, then the manifest as far as it is there; fills the report."""
    content = _Content(report)
    found = file.manifest()
    at = file.first_record
    manifest: dict[str, Any] | None = None
    if found is not None and is_manifest(found[0]):
        manifest, manifest_at = found
        if manifest["format"] != FORMAT:
            raise RecordingError(f"{file.path}: its format is {manifest['format']}, which this version does not read")
        yield from _indexed(file, manifest, manifest_at, content)
    else:
        for item in _scanned(file, at, content):
            if isinstance(item, dict):
                manifest = item
            else:
                yield item
        if not (report.chunks or content.has_header):
            raise RecordingError(f"{file.path} is no recording of twinlink, or nothing of it can be read")
    _conclude(manifest, content)
    yield manifest or without_end(content.begin)


def _indexed(file: RecordingFile, manifest: dict[str, Any], manifest_at: int, content: _Content) -> Iterator[Chunk]:
    """The chunks that the manifest names."""
    report, damaged = content.report, False
    for number, entry in enumerate(manifest["chunks"]):
        first, octets = entry["offset"], entry["octets"]
        where = f"chunk {number}, octets {first} to {first + octets - 1}"
        try:
            if first + octets > manifest_at:
                raise Damaged("it is not within the file")
            if file.hash_of(first, octets) != entry["sha256"]:
                raise Damaged("its SHA-256 is another")
            yield content.chunk(file.chunk_at(first))
        except Damaged as error:
            damaged = True
            report.problems.append(f"{where}: {error}")
    if not damaged and (problem := file.tail_problem(manifest_at)):
        report.problems.append(problem)


def _scanned(file: RecordingFile, at: int, content: _Content) -> Iterator[Chunk | dict[str, Any]]:
    """The chunks of a file whose end is missing or damaged, and its manifest if that is there."""
    report = content.report
    while at < file.size:
        record = file.kind_at(at)
        if record is None or record[0] not in (Opcode.HEADER, Opcode.CHUNK, Opcode.MESSAGE_INDEX, Opcode.METADATA):
            break
        opcode, following = record
        try:
            if opcode == Opcode.CHUNK:
                chunk = file.chunk_at(at)
                following = at + chunk.octets
                yield content.chunk(chunk)
            elif opcode == Opcode.HEADER:
                content.has_header = file.profile_at(at) == PROFILE
            elif opcode == Opcode.METADATA:
                manifest = file.manifest_at(at)
                if is_manifest(manifest):
                    report.problems.append(f"behind octet {following}: the summary is damaged or missing")
                    yield manifest
                    return
        except (Damaged, McapError, ValueError, RecursionError) as error:
            report.problems.append(f"octets {at} to {following - 1}: {error}")
        at = following
    report.cut_at, report.lacks_end = at, True
    what = (
        "the file was cut" if at + HEAD.size + len(MAGIC) >= file.size or file.kind_at(at) is None else "it is damaged"
    )
    report.problems.append(f"octet {at} of {file.size}: {what}; there is no manifest")


def _conclude(manifest: dict[str, Any] | None, content: _Content) -> None:
    """What the streams lack."""
    report = content.report
    if manifest is None:
        report.streams = content.account.described() if content.account is not None else []
        for stream in report.streams:
            stream["end"] = None  # what else was sent is not known
        report.series, report.file = content.begin.get("series"), content.begin.get("file")
        return
    repaired = manifest.get("repaired")
    report.repaired = isinstance(repaired, dict)
    report.lacks_end = isinstance(repaired, dict) and repaired.get("cut_at") is not None
    report.series, report.file = manifest.get("series"), manifest.get("file")
    report.next_file, report.others_left_out = manifest.get("next_file"), manifest["others_left_out"]
    report.streams = [dict(stream) for stream in manifest["streams"]]
    for stream in report.streams:
        there, written = content.recorded(stream), RangeSet(checked(stream["recorded"]))
        lacking = RangeSet(written)
        for first, end in there:
            lacking.take(first, end)
        for first, end in written:
            there.take(first, end)
        if there:
            report.problems.append(f"flow {stream['flow']}: the manifest does not name {there}, which are in the file")
        if lacking:
            damaged = RangeSet([*checked(stream["missing"].get("damaged", [])), *lacking])
            stream["missing"] = stream["missing"] | {"damaged": listed(damaged)}
            for first, end in lacking:
                written.take(first, end)
            stream["recorded"], stream["messages"] = listed(written), written.count()
            if not report.problems:
                report.problems.append(f"flow {stream['flow']}: {lacking} are not in the file, as its manifest says")
    report.sound = not report.problems
    report.complete = not (report.problems or any(report.missing()) or report.others_left_out or report.lacks_end)
