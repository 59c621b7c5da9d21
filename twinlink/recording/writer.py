"""Writes a recording of messages that no link of this process carried, such as those of another program's file."""

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ..errors import PayloadTooLarge
from ..process.text import to_json
from ..protocol.frames import MAX_PAYLOAD, Kind, frame
from ..protocol.rangeset import RangeSet
from ..protocol.wire import RECEIVED, messages_of
from ..runtime.capture import described
from . import channels
from .account import Account
from .manifest import Heading
from .mcap_file import CHUNK_OCTETS, ChannelDescription, McapFile
from .options import versions

SOURCE = "source"  # why a message is left out: what was imported lacks it


class RecordingWriter:
    """A recording whose manifest says under ``imported`` where its messages come from.

    All of them count as received.  The file is there when it is whole: after an error in the ``with``, it is not.

    Args:
        path: of the recording.
        imported: for the manifest: what was read.
        series: 16 hexadecimal digits, which name the recording and the side that records.
        nodes: names of the senders, by epoch.
        overwrite: whether a file that exists is replaced.

    Raises OSError, FileExistsError included.
    """

    def __init__(
        self,
        path: Path,
        imported: Mapping[str, Any],
        series: str,
        nodes: Mapping[int, str],
        overwrite: bool = False,
    ) -> None:
        if not overwrite and path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._path = path
        self._account = Account(int(series, 16))
        self._account.nodes |= nodes
        self._channels: dict[str, ChannelDescription] = {}
        self._begun_ns = time.time_ns()
        configuration = {"node": "import", "recorder": {"flows": ["*"]}}
        self._heading = Heading(series, 0, "import", int(series, 16), configuration, versions())
        self._imported = dict(imported)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._file = McapFile(part, f"twinlink {self._heading.versions['twinlink']}, imported", overwrite=True)
        self._last_ns: int | None = None  # log time

    def add(self, flow: str, epoch: int, sequence: int, sent_ns: int, log_ns: int, payload: bytes) -> bool:
        """Add a message; False: there is one of this number already.  Raises OSError, and PayloadTooLarge."""
        if len(payload) > MAX_PAYLOAD:
            raise PayloadTooLarge(
                f"message {sequence} of flow {flow} would have {len(payload):,} octets; {MAX_PAYLOAD:,} is the limit"
            )
        description = self._channels.get(flow)
        if description is None:
            description = self._channels[flow] = channels.of_frames(RECEIVED, f"traffic/{flow}")
        self._begin(log_ns)
        for wire in messages_of(frame(Kind.DATA, epoch, sequence, sent_ns, payload)):
            if not self._account.message(RECEIVED, flow, wire):
                return False
            self._file.add(flow, description, sequence, log_ns, sent_ns, wire.frame)
        if self._file.pending_octets >= CHUNK_OCTETS:
            self._end_chunk()
        return True

    def leave_out(self, flow: str, epoch: int, ranges: RangeSet) -> None:
        """What was imported lacks these messages, which its sender has sent."""
        stream = self._account.stream(RECEIVED, flow, epoch)
        if stream is not None and ranges:
            last_ns = self._begin(self._last_ns)
            stream.leave_out(SOURCE, ranges)
            self._add_json(described((RECEIVED, flow, epoch, ranges), SOURCE), last_ns)

    def _begin(self, log_ns: int | None) -> int:
        """Say in the first chunk what the file is of, at the time of the first message; returns that of the last."""
        if self._last_ns is None:
            self._last_ns = self._begun_ns if log_ns is None else log_ns
            self._add_json(self._heading.begin(self._account.nodes, ()), self._last_ns)
        self._last_ns = max(self._last_ns, log_ns or 0)
        return self._last_ns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
                self._file.path.replace(self._path)
        finally:
            self._file.abandon()

    def _finish(self) -> None:
        self._begin(self._last_ns)
        self._end_chunk()
        manifest = self._heading.manifest(
            self._account, self._file.chunks, self._begun_ns, time.time_ns(), imported=self._imported, stats={}
        )
        self._file.finish(to_json(manifest).encode())

    def _end_chunk(self) -> None:
        self._file.end_chunk()
        self._account.commit()

    def _add_json(self, fields: Mapping[str, Any], now_ns: int) -> None:
        description = channels.of_json(channels.RECORDER)
        self._file.add(channels.RECORDER, description, 0, now_ns, now_ns, to_json(fields).encode())
