"""The files of one recording, in their order, and what each holds between two times."""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from mcap.exceptions import McapError

from ..protocol.frames import FLOW_NAME, HEADER_OCTETS, MalformedFrame
from ..protocol.wire import RECEIVED, SENT, flow_of, messages_of
from . import channels
from .manifest import FORMAT, is_manifest
from .mcap_file import PROFILE
from .message_order import Key
from .reader import Damaged, Recorded, RecordingError, RecordingFile, messages_in

Record = tuple[Key, int, int, bytes | None]  # of a message its log time, number and payload; None: a `Gap` below that

# what reading a chunk raises where it is damaged, or was made by another program
_UNREADABLE = (
    Damaged, MalformedFrame, McapError, struct.error, ArithmeticError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip


class SeriesFile:
    """An open file of a recording.  Raises OSError, and RecordingError where it is none.

    Attributes:
        begin_ns, end_ns: first and last log time.
        number, series: which file of which recording; None: not known.
        problems: what is wrong with it as a whole.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self._file = stack.enter_context(closing(RecordingFile(path)))
        found = self._file.manifest()
        self._manifest = found[0] if found is not None and is_manifest(found[0]) else None
        self._places, why = self._file.chunk_places()
        if not self._places or not self._is_recording():
            raise RecordingError(f"{path} is no recording of twinlink, or nothing of it can be read")
        self.begin_ns = min(place.start_ns for place in self._places)
        self.end_ns = max(place.end_ns for place in self._places)
        begin = self._manifest or self._begin()
        if begin.get("format", FORMAT) != FORMAT:
            raise RecordingError(f"{path}: its format is {begin['format']}, which this version does not read")
        number, self.series = begin.get("file"), begin.get("series")
        self.number = number if type(number) is int else None
        self.problems: list[str] = []
        if why is not None or self._manifest is None:
            self.problems.append(f"{path}: {why or 'it has no manifest'}: `twinlink verify` names what is missing")

    def _is_recording(self) -> bool:
        try:
            return self._file.profile_at(self._file.first_record) == PROFILE
        except (Damaged, McapError, struct.error, ValueError):
            return False

    def _begin(self) -> dict[str, Any]:
        """What the first chunk says of the file."""
        try:
            for recorded in messages_in(self._file.chunk_at(self._places[0].offset).data):
                if recorded.channel.topic == channels.RECORDER:
                    fields = json.loads(bytes(recorded.data))
                    return fields if isinstance(fields, dict) else {}
        except (Damaged, McapError, ValueError, RecursionError):
            pass
        return {}

    @property
    def next_file(self) -> str | None:
        """Name of the file in which the recording goes on."""
        name = (self._manifest or {}).get("next_file")
        return name if isinstance(name, str) else None

    def flows(self, stop: Callable[[str, str], bool]) -> Iterator[tuple[str, str]]:
        """Direction and flow of what is there, of a file without manifest up to the first that is true of ``stop``."""
        if self._manifest is not None:
            for one in self._manifest["streams"]:
                if one["recorded"] and FLOW_NAME.fullmatch(one["flow"]):
                    yield one["direction"], one["flow"]
            return
        for found in self.records(0, None):
            if not isinstance(found, str) and found[3] is not None:
                yield found[0][:2]
                if stop(*found[0][:2]):
                    return

    def spans(self) -> Iterator[tuple[Key, int, int]]:
        """Of each stream the first number that belongs to this file, and the first behind it; of what is not known,
        nothing.
        """
        for one in (self._manifest or {"streams": ()})["streams"]:
            first, end = one.get("first"), one["end"]
            if FLOW_NAME.fullmatch(one["flow"]) and type(first) is int and type(end) is int and 0 <= first <= end:
                yield (one["direction"], one["flow"], int(one["epoch"], 16)), first, end

    def records(self, begin_ns: int, end_ns: int | None) -> Iterator[Record | str]:
        """The messages and gaps of the chunks with something between two log times; a text: what is damaged."""
        for place in self._places:
            if place.end_ns < begin_ns or (end_ns is not None and place.start_ns >= end_ns):
                continue
            try:
                found = list(self._chunk(place.offset))
            except _UNREADABLE as error:
                yield f"{self.path}: octet {place.offset}: a chunk is left out: {error}"
                continue
            yield from found

    def _chunk(self, offset: int) -> Iterator[Record]:
        for recorded in messages_in(self._file.chunk_at(offset).data):
            topic = recorded.channel.topic
            if topic == channels.EVENTS:
                fields = json.loads(bytes(recorded.data))
                if fields["type"] == "Gap":
                    key = RECEIVED, str(fields["flow"]), int(fields["epoch"], 16)
                    yield key, recorded.log_ns, int(fields["end"]), None
            elif (flow := flow_of(topic.encode())) is not None:
                yield from _messages(recorded, flow)


def _messages(recorded: Recorded, flow: str) -> Iterator[Record]:
    direction = recorded.channel.metadata["direction"]
    if direction not in (SENT, RECEIVED):
        raise Damaged(f"channel {recorded.channel.topic!r} is not of a recording")
    for wire in messages_of(recorded.data):
        if wire.sequence & 0xFFFFFFFF != recorded.sequence or wire.sent_ns != recorded.sent_ns:
            raise Damaged(f"message {wire.sequence} of flow {flow} has another number or time than its record")
        yield (direction, flow, wire.epoch), recorded.log_ns, wire.sequence, bytes(wire.frame[HEADER_OCTETS:])


def opened(paths: Sequence[Path], stack: ExitStack) -> list[SeriesFile]:
    """The files in their order, closed by the stack.  Raises OSError, and RecordingError: not of one recording."""
    files = [SeriesFile(path, stack) for path in paths]
    files.sort(key=lambda file: (file.number if file.number is not None else -1, file.begin_ns))
    for before, file in pairwise(files):
        if file.series != before.series:
            raise RecordingError(f"{before.path} and {file.path} are of different recordings: replay one at a time")
        if file.number == before.number:
            raise RecordingError(f"{before.path} and {file.path} are the same part of a recording: give one of them")
        if file.number is not None and before.number is not None and file.number > before.number + 1:
            file.problems.append(f"{file.path}: part {before.number + 1} of the recording, before it, is not given")
    return files
