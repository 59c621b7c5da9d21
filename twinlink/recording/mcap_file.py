"""An MCAP file that is written a whole chunk at a time: what is in the file stays, whatever ends the process.

Records that are written seldom are those of the package `mcap`; messages, chunks and their indexes are packed here, as
the package takes ten times as long for them.  Each chunk has the schemas and channels that it uses, so that it can be
read without any other.
"""

import hashlib
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import (
    Channel,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    McapRecord,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)

MAGIC = b"\x89MCAP0\r\n"
PROFILE = "twinlink"
MANIFEST = "twinlink.manifest"
TURN_OCTETS, TURN_PAUSE_S = 128 * 1024, 0.00001  # of work, 0.2 ms; then others may go on
CHUNK_OCTETS = 1024 * 1024  # a chunk ends above this, or after a second
_BUFFER_OCTETS = CHUNK_OCTETS + 128 * 1024  # of the open chunk; it grows for long messages, and is then given back
_LATEST_NS = 2**64 - 1

MESSAGE = struct.Struct("<BQHIQQ")  # opcode, length, channel, sequence, log time, publish time
CHUNK = struct.Struct("<BQQQQIIQ")  # opcode, length, start, end, size, CRC, "", length of the records
INDEX = struct.Struct("<BQHI")  # opcode, length, channel, octets of what follows
_FOOTER_START = struct.Struct("<BQQQ")

Octets = bytes | memoryview


@dataclass(slots=True)
class ChannelEntry:
    """A channel of the file, and its messages in the open chunk: log time and offset in turns."""

    id: int
    schema: Schema
    channel: Channel
    count: int = 0
    index: list[int] = field(default_factory=list)

    @property
    def records(self) -> bytes:
        """The schema and the channel, as a chunk has them."""
        return encoded(self.schema, self.channel)


def encoded(*records: McapRecord) -> bytes:
    """The octets of records."""
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    return bytes(builder.end())  # type: ignore[no-untyped-call]


class McapFile:
    """One file.  It is not buffered.

    Attributes:
        size: octets of the file.
        chunks: of each chunk that was written: ``offset``, ``octets`` with its indexes, ``messages`` and ``sha256``.
        pending_octets: of the open chunk.
    """

    def __init__(self, path: Path, library: str, overwrite: bool) -> None:
        """Raises OSError, also where the file exists, unless ``overwrite`` is given."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if overwrite else os.O_EXCL)
        self.path = path
        self.chunks: list[dict[str, Any]] = []
        self.size = self.pending_octets = 0
        self._channels: dict[Any, ChannelEntry] = {}
        self._schemas: dict[str, Schema] = {}
        self._in_chunk: dict[Any, ChannelEntry] = {}
        # One copy of each message: many parts would cost checksums and writing that many turns of the interpreter.
        self._buffer = memoryview(bytearray(_BUFFER_OCTETS))
        self._start_ns, self._end_ns = _LATEST_NS, 0
        self._first_ns: int | None = None
        self._last_ns = 0
        self._crc = 0
        self._chunk_indexes: list[ChunkIndex] = []
        self._fd = os.open(path, flags, 0o644)
        try:
            self._append([MAGIC + encoded(Header(PROFILE, library))])
        except OSError:
            self.abandon()
            raise

    @property
    def free_octets(self) -> int:
        """Of its disk, for this user."""
        status = os.fstatvfs(self._fd)
        return status.f_bavail * status.f_frsize

    def add(
        self,
        key: Any,
        described: "ChannelDescription",
        sequence: int,
        log_ns: int,
        sent_ns: int,
        data: Octets,
    ) -> None:
        """Add a message to the open chunk.  ``key`` stands for a channel, which is as ``described``."""
        entry = self._in_chunk.get(key)
        if entry is None:
            entry = self._begin_channel(key, described)
        self._start_ns = min(self._start_ns, log_ns)
        self._end_ns = max(self._end_ns, log_ns)
        entry.index.append(log_ns)
        entry.index.append(self.pending_octets)
        at, length = self.pending_octets, len(data)
        body = at + MESSAGE.size
        self._reserve(body + length)
        head = Opcode.MESSAGE, 22 + length, entry.id, sequence & 0xFFFFFFFF, log_ns, sent_ns
        MESSAGE.pack_into(self._buffer, at, *head)
        self._buffer[body : body + length] = data
        self.pending_octets = body + length

    def _reserve(self, end: int) -> None:
        if end > len(self._buffer):
            before, self._buffer = self._buffer, memoryview(bytearray(end))
            self._buffer[: len(before)] = before

    def _begin_channel(self, key: Any, described: "ChannelDescription") -> ChannelEntry:
        entry = self._channels.get(key)
        if entry is None:
            schema = self._schemas.get(described.schema)
            if schema is None:
                schema = self._schemas[described.schema] = Schema(
                    id=len(self._schemas) + 1,
                    name=described.schema,
                    encoding=described.schema_encoding,
                    data=described.schema_data,
                )
            number = len(self._channels) + 1
            channel = Channel(
                id=number,
                topic=described.topic,
                message_encoding=described.encoding,
                metadata=described.metadata,
                schema_id=schema.id,
            )
            entry = self._channels[key] = ChannelEntry(number, schema, channel)
        self._in_chunk[key] = entry
        records, at = entry.records, self.pending_octets
        end = at + len(records)
        self._reserve(end)
        self._buffer[at:end] = records
        self.pending_octets = end
        return entry

    @property
    def channel_count(self) -> int:
        """How many channels it has; 65,535 is the most that MCAP can have."""
        return len(self._channels)

    def end_chunk(self) -> None:
        """Write the open chunk, if it holds something.  Raises OSError: then the file is as it was, the chunk open."""
        size, offset = self.pending_octets, self.size
        if not size:
            return
        records = self._buffer[:size]
        length = CHUNK.size - 9 + size
        crc = 0
        for turn in _turns([records]):
            crc = zlib.crc32(turn, crc)
        head = CHUNK.pack(Opcode.CHUNK, length, self._start_ns, self._end_ns, size, crc, 0, size)
        indexes, at = list[bytes](), offset + CHUNK.size + size
        offsets = {}
        for entry in self._in_chunk.values():
            offsets[entry.id] = at
            numbers = len(entry.index)
            indexes.append(
                INDEX.pack(Opcode.MESSAGE_INDEX, 6 + 8 * numbers, entry.id, 8 * numbers)
                + struct.pack(f"<{numbers}Q", *entry.index)
            )
            at += len(indexes[-1])
        whole: list[Octets] = [head, records, b"".join(indexes)]
        digest = hashlib.sha256()
        self._append(whole, digest)
        messages = sum(len(entry.index) // 2 for entry in self._in_chunk.values())
        self.chunks.append(
            {"offset": offset, "octets": at - offset, "messages": messages, "sha256": digest.hexdigest()}
        )
        self._chunk_indexes.append(
            ChunkIndex(
                chunk_length=CHUNK.size + size,
                chunk_start_offset=offset,
                compression="",
                compressed_size=size,
                message_end_time=self._end_ns,
                message_index_length=at - offset - CHUNK.size - size,
                message_index_offsets=offsets,
                message_start_time=self._start_ns,
                uncompressed_size=size,
            )
        )
        self._first_ns = self._start_ns if self._first_ns is None else min(self._first_ns, self._start_ns)
        self._last_ns = max(self._last_ns, self._end_ns)
        for entry in self._in_chunk.values():
            entry.count += len(entry.index) // 2
        self._clear()

    def drop_chunk(self) -> None:
        """Forget the open chunk."""
        self._clear()

    def _clear(self) -> None:
        for entry in self._in_chunk.values():
            entry.index = []
        self._in_chunk, self.pending_octets = {}, 0
        if len(self._buffer) > 2 * _BUFFER_OCTETS:
            self._buffer = memoryview(bytearray(_BUFFER_OCTETS))
        self._start_ns, self._end_ns = _LATEST_NS, 0

    def finish(self, manifest: bytes) -> None:
        """Write the manifest and the summary, and close.  Raises OSError: then the file ends with its last chunk."""
        metadata = Metadata(MANIFEST, {"json": manifest.decode(), "sha256": hashlib.sha256(manifest).hexdigest()})
        record = encoded(metadata)
        index = MetadataIndex(offset=self.size, length=len(record), name=MANIFEST)
        end = encoded(DataEnd(zlib.crc32(record, self._crc)))
        self._append([record, end, self._summary(self.size + len(record) + len(end), index)])
        self.close()

    def _summary(self, start: int, metadata_index: MetadataIndex) -> bytes:
        channels = list(self._channels.values())
        counts = {entry.id: entry.count for entry in channels}
        statistics = Statistics(
            attachment_count=0,
            channel_count=len(channels),
            channel_message_counts=counts,
            chunk_count=len(self.chunks),
            message_count=sum(counts.values()),
            message_end_time=self._last_ns,
            message_start_time=self._first_ns or 0,
            metadata_count=1,
            schema_count=len(self._schemas),
        )
        groups: list[tuple[Opcode, Sequence[McapRecord]]] = [
            (Opcode.SCHEMA, list(self._schemas.values())),
            (Opcode.CHANNEL, [entry.channel for entry in channels]),
            (Opcode.STATISTICS, [statistics]),
            (Opcode.CHUNK_INDEX, self._chunk_indexes),
            (Opcode.METADATA_INDEX, [metadata_index]),
        ]
        summary, offsets = b"", []
        for opcode, records in groups:
            if records:
                octets = encoded(*records)
                offsets.append(
                    SummaryOffset(group_opcode=opcode, group_start=start + len(summary), group_length=len(octets))
                )
                summary += octets
        offsets_start = start + len(summary)
        summary += encoded(*offsets)
        crc = zlib.crc32(_FOOTER_START.pack(Opcode.FOOTER, 20, start, offsets_start), zlib.crc32(summary))
        footer = Footer(summary_start=start, summary_offset_start=offsets_start, summary_crc=crc)
        return summary + encoded(footer) + MAGIC

    def _append(self, pieces: Iterable[Octets], digest: Any = None) -> None:
        """Write all of it at the end of the file, or nothing; ``digest`` is updated with it."""
        written, crc = 0, self._crc
        try:
            for turn in _turns(pieces):
                left = turn
                while left:
                    count = os.write(self._fd, left)
                    written, left = written + count, left[count:]
                crc = zlib.crc32(turn, crc)
                if digest is not None:
                    digest.update(turn)
        except OSError:
            if written:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            raise
        self.size, self._crc = self.size + written, crc

    def close(self) -> None:
        """Close the file as it is; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def abandon(self) -> None:
        """Close and remove a file that holds nothing yet."""
        self.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """What a channel is called, and how its messages are encoded."""

    topic: str
    encoding: str
    schema: str
    metadata: dict[str, str]
    schema_encoding: str = ""
    schema_data: bytes = b""


def _turns(pieces: Iterable[Octets]) -> Iterator[memoryview]:
    """The octets, little at a time.  In between the processor is for others.

    A thread that wakes on the same processor waits for this one until it sleeps: Linux (EEVDF) does not preempt it for
    milliseconds, whatever the nice values.
    """
    for piece in pieces:
        for at in range(0, len(piece), TURN_OCTETS):
            yield memoryview(piece)[at : at + TURN_OCTETS]
            if len(piece) - at > TURN_OCTETS:
                time.sleep(TURN_PAUSE_S)
