"""Reads a recording record by record: no length of the file is believed before it is checked against what is there."""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, ChunkIndex, Footer, Header, Metadata, MetadataIndex

from ..errors import TwinlinkError
from .mcap_file import CHUNK, INDEX, MAGIC, MANIFEST, MESSAGE

MAX_RECORD_OCTETS = 64 * 1024 * 1024  # a chunk of this library has 17 MiB at most
MAX_MANIFEST_OCTETS = 64 * 1024 * 1024
MAX_CHANNEL_OCTETS = 64 * 1024
HEAD = struct.Struct("<BQ")
FOOTER_OCTETS = HEAD.size + 20 + len(MAGIC)


class RecordingError(TwinlinkError, ValueError):
    """The file is no recording of this library, or of a version that this one does not know."""


class Damaged(Exception):
    """A record is not as it was written; ``args[0]`` says how."""


class Recorded(NamedTuple):
    """A message of the file."""

    channel: Channel
    sequence: int
    log_ns: int
    sent_ns: int
    data: memoryview


@dataclass(slots=True)
class ChunkRecord:
    """A chunk with its message indexes, as they stand in the file."""

    offset: int
    octets: int
    data: memoryview


class ChunkPlace(NamedTuple):
    """Where a chunk begins, and the first and last log time in it."""

    offset: int
    start_ns: int
    end_ns: int


class RecordingFile:
    """An open recording.  Raises OSError, and RecordingError where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("rb")
        self.size = self._file.seek(0, 2)
        if self._octets(0, len(MAGIC)) != MAGIC:
            self.close()
            raise RecordingError(f"{path} is no MCAP file: it does not begin as one")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _octets(self, offset: int, count: int) -> bytes:
        """What is there of so many octets."""
        if not 0 <= offset <= self.size:
            return b""
        self._file.seek(offset)
        return self._file.read(max(0, min(count, self.size - offset)))

    def _record(self, offset: int, limit: int = MAX_RECORD_OCTETS) -> tuple[int, bytes]:
        """The opcode and content of the record there.  Raises Damaged."""
        head = self._octets(offset, HEAD.size)
        if len(head) < HEAD.size:
            raise Damaged("it ends within the head of a record")
        opcode, length = HEAD.unpack(head)
        if length > self.size - offset - HEAD.size:
            raise Damaged(f"a record of {length} octets does not end within the file")
        if length > limit:
            raise Damaged(f"a record of {length} octets is longer than any of a recording")
        return opcode, self._octets(offset + HEAD.size, length)

    @property
    def first_record(self) -> int:
        """Where the first record begins."""
        return len(MAGIC)

    def manifest(self) -> tuple[dict[str, Any], int] | None:
        """The manifest and where its record begins; None: there is none, or it is damaged."""
        try:
            for opcode, content in self._summary():
                if opcode == Opcode.METADATA_INDEX:
                    index = MetadataIndex.read(_stream(content))
                    if index.name == MANIFEST:
                        return self.manifest_at(index.offset), index.offset
        except (Damaged, McapError, struct.error, ValueError, RecursionError):
            pass
        return None

    def _summary(self) -> Iterator[tuple[int, bytes]]:
        """Opcode and content of each record of the summary; none where there is no footer.  Raises Damaged."""
        content = self._octets(self.size - FOOTER_OCTETS, FOOTER_OCTETS)
        if len(content) < FOOTER_OCTETS or HEAD.unpack_from(content) != (Opcode.FOOTER, 20):
            return
        if content[-len(MAGIC) :] != MAGIC:
            return
        at = Footer.read(_stream(content[HEAD.size :])).summary_start
        while at < self.size - FOOTER_OCTETS:
            opcode, record = self._record(at)
            yield opcode, record
            at += HEAD.size + len(record)

    def chunk_places(self) -> tuple[list[ChunkPlace], str | None]:
        """Where the chunks are: by the index, else by the head of each; and why there is no index, if so."""
        try:
            if summary := list(self._summary()):
                records = [ChunkIndex.read(_stream(one)) for opcode, one in summary if opcode == Opcode.CHUNK_INDEX]
                of = [(one.chunk_start_offset, one.message_start_time, one.message_end_time) for one in records]
                return [ChunkPlace(*one) for one in of], None
        except (Damaged, McapError, struct.error, ValueError, RecursionError):
            pass
        places, at = list[ChunkPlace](), self.first_record
        while at < self.size and (record := self.kind_at(at)) is not None:
            opcode, following = record
            if opcode == Opcode.CHUNK and following - at >= CHUNK.size:
                _, _, start_ns, end_ns, *_ = CHUNK.unpack(self._octets(at, CHUNK.size))
                places.append(ChunkPlace(at, start_ns, end_ns))
            at = following
        return places, f"octet {at} of {self.size}: the file was cut or is damaged there; it has no index"

    def manifest_at(self, offset: int) -> dict[str, Any]:
        """The manifest whose record begins there.  Raises Damaged, or ValueError where it is no JSON."""
        opcode, content = self._record(offset, MAX_MANIFEST_OCTETS)
        if opcode != Opcode.METADATA:
            raise Damaged("it is no metadata")
        stored = Metadata.read(_stream(content)).metadata
        text = stored.get("json", "").encode()
        if hashlib.sha256(text).hexdigest() != stored.get("sha256"):
            raise Damaged("its SHA-256 is another")
        manifest = json.loads(text)
        if not isinstance(manifest, dict):
            raise Damaged("it is no object")
        return manifest

    def tail_problem(self, manifest_at: int) -> str | None:
        """What is wrong with what is not in a chunk: the beginning, the manifest, the summary; None: nothing."""
        try:
            opcode, content = self._record(manifest_at, MAX_MANIFEST_OCTETS)
            end_at = manifest_at + HEAD.size + len(content)
            opcode, content = self._record(end_at)
            if opcode != Opcode.DATA_END or len(content) != 4:
                return f"octet {end_at}: the end of the data is damaged"
            (crc,) = struct.unpack("<I", content)
            if crc != self._crc(0, end_at):
                crc_end = end_at + HEAD.size + len(content)
                return f"octets 0 to {crc_end - 1}: the CRC of the data is another"
            summary_at = end_at + HEAD.size + 4
            opcode, content = self._record(self.size - FOOTER_OCTETS)
            if opcode != Opcode.FOOTER or len(content) != 20 or content[:8] != struct.pack("<Q", summary_at):
                return f"octet {self.size - FOOTER_OCTETS}: the footer is damaged"
            if struct.unpack("<I", content[16:])[0] != self._crc(summary_at, self.size - len(MAGIC) - 4):
                return f"octets {summary_at} to {self.size - 1}: the CRC of the summary is another"
        except Damaged as error:
            return f"behind octet {manifest_at}: {error}"
        return None

    def _crc(self, first: int, end: int) -> int:
        crc = 0
        for at in range(first, end, 1024 * 1024):
            crc = zlib.crc32(self._octets(at, min(1024 * 1024, end - at)), crc)
        return crc

    def profile_at(self, offset: int) -> str:
        """The profile of the header there.  Raises Damaged."""
        _, content = self._record(offset)
        profile: str = Header.read(_stream(content)).profile
        return profile

    def chunk_at(self, offset: int) -> ChunkRecord:
        """The chunk that begins there, with its indexes.  Raises Damaged."""
        opcode, content = self._record(offset)
        if opcode != Opcode.CHUNK:
            raise Damaged("no chunk begins there")
        if len(content) < CHUNK.size - HEAD.size:
            raise Damaged("the chunk is too short")
        _, _, _, _, size, crc, compression, length = CHUNK.unpack(HEAD.pack(opcode, len(content)) + content[:40])
        if compression or size != length or length != len(content) - 40:
            raise Damaged("the chunk is compressed, or its lengths do not agree")
        data = memoryview(content)[40:]
        if zlib.crc32(data) != crc:
            raise Damaged("the CRC of the chunk is another")
        end = offset + HEAD.size + len(content)
        while self._octets(end, 1) == bytes((Opcode.MESSAGE_INDEX,)):
            _, index = self._record(end)
            if len(index) < INDEX.size - HEAD.size:
                raise Damaged("an index of the chunk is too short")
            end += HEAD.size + len(index)
        return ChunkRecord(offset, end - offset, data)

    def hash_of(self, offset: int, octets: int) -> str:
        """The SHA-256 of these octets."""
        digest = hashlib.sha256()
        for at in range(offset, offset + octets, 1024 * 1024):
            digest.update(self._octets(at, min(1024 * 1024, offset + octets - at)))
        return digest.hexdigest()

    def kind_at(self, offset: int) -> tuple[int, int] | None:
        """The opcode of the record there, and where the next one begins; None: no whole record is there."""
        head = self._octets(offset, HEAD.size)
        if len(head) < HEAD.size:
            return None
        opcode, length = HEAD.unpack(head)
        end = offset + HEAD.size + length
        return None if end > self.size else (opcode, end)


def messages_in(data: memoryview) -> Iterator[Recorded]:
    """The messages of a chunk.  Raises Damaged."""
    found: dict[int, Channel] = {}
    at, end = 0, len(data)
    while at < end:
        if end - at < HEAD.size:
            raise Damaged("the chunk ends within a record")
        opcode, length = HEAD.unpack_from(data, at)
        following = at + HEAD.size + length
        if following > end:
            raise Damaged("a record does not end within its chunk")
        if opcode == Opcode.MESSAGE:
            if length < MESSAGE.size - HEAD.size:
                raise Damaged("a message is too short")
            _, _, number, sequence, log_ns, sent_ns = MESSAGE.unpack_from(data, at)
            if number not in found:
                raise Damaged("a message is of no channel")
            yield Recorded(found[number], sequence, log_ns, sent_ns, data[at + MESSAGE.size : following])
        elif opcode == Opcode.CHANNEL and length <= MAX_CHANNEL_OCTETS:
            try:
                channel = Channel.read(_stream(data[at + HEAD.size : following]))
            except (struct.error, ValueError, McapError) as error:
                raise Damaged(f"a channel cannot be read: {error}") from None
            found[channel.id] = channel
        at = following


def _stream(content: bytes | memoryview) -> ReadDataStream:
    return ReadDataStream(BytesIO(content))
