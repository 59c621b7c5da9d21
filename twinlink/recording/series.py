"""The files of a recording: a chunk a second, and a manifest at each end of a file.

A full disk does not hold up the link: what cannot be written is counted, and named in the manifest.
"""

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..process.text import to_json
from ..protocol.frames import HELLO_TOPIC, Kind, MalformedFrame, whole
from ..protocol.wire import RECEIVED, SENT, flow_of, messages_of
from ..runtime.capture import MAX_STREAMS, MESSAGE_WORDS, EventItem, FrameItem, Item, LeftOutItem, described, flows_of
from ..runtime.driver import KIND_AT
from ..runtime.tap import Position
from . import channels
from .account import MAX_RANGES, Account, event_fields
from .clock import ClockOffsets
from .manifest import Heading
from .mcap_file import CHUNK_OCTETS, ChannelDescription, McapFile
from .options import RecorderOptions, versions

CHUNK_S = 1.0
QUEUE, MIRROR = "queue", "mirror"  # reasons why messages are left out before they come here
COUNT_S = 0.5  # between two counts for `Recorder.stats`
MAX_CHANNELS = 2 * MAX_STREAMS
MAX_TRIGGERS = 256  # of the chunks that the disk has refused; beyond it the oldest are left out
_ACKS = frozenset((int(Kind.ACK),))

logger = logging.getLogger("twinlink")


class Series:
    """The files of one recording, and where its flows stand.  For the thread that writes.

    What it takes while no file is open moves on where the next one begins.

    Attributes:
        files: that were begun, in order.
        problem: why something is not, or was not, written, for a person; None: nothing was wrong.
        failed: a file has no manifest.
        counted: for `Recorder.stats`.
    """

    def __init__(
        self,
        path: Path,
        options: RecorderOptions,
        configuration: dict[str, Any],
        epoch: int,
        stats: Callable[[], Any],
        pause: Callable[[], None],
    ) -> None:
        """Raises OSError, FileExistsError included.

        Args:
            path, options: of the recording.
            configuration: of the link, as the manifest has it.
            epoch: of the side that records.
            stats: returns what the manifest has of the link at its end.
            pause: called after each message.
        """
        self.files: list[Path] = []
        self.problem: str | None = None
        self.failed = False
        self._path, self._options, self._stats, self._pause = path, options, stats, pause
        self._configuration = configuration | {"recorder": asdict(options)}
        self._versions = versions()
        self._account = Account(epoch, options.flows)
        self._account.nodes[epoch] = configuration["node"]
        self._before = self.counted = self._count_file()  # of the files before this one, and of all
        self._count_due_s = 0.0
        self._clock = ClockOffsets()
        self._channels: dict[tuple[str, bytes], tuple[str, ChannelDescription] | None] = {}
        self._number = self._others_left_out = self._others_in_chunk = 0
        self._series = os.urandom(8).hex()
        self._file: McapFile | None = None
        self._reason = QUEUE
        self._begun_streams: list[dict[str, Any]] = []
        self._triggers = deque[tuple[dict[str, Any], int]](maxlen=MAX_TRIGGERS)  # of the open chunk, and log times
        self._chunk_due_s = 0.0  # at once: from then on the file says what it is of
        if options.before_s is None:
            self._file = self._new_file(path, options.overwrite)
        elif not (options.overwrite and path.exists()):
            McapFile(path, "", overwrite=False).abandon()  # it can be written

    def begin_at(self, positions: Iterable[Position], nodes: dict[int, str]) -> None:
        """Where the flows stand as the recording begins, and names of sessions."""
        account = self._account
        for flow, epoch, following, missing in positions:
            if following >= 0 and account.wants(flow):
                stream = account.stream(SENT if epoch == account.epoch else RECEIVED, flow, epoch, following)
                for first, end in missing if stream is not None else ():
                    stream.carried.add(first, end)  # type: ignore[union-attr]
        account.nodes |= nodes
        if self._file is not None:
            self._begin_file(account.described())

    def observe(self, node: str, epoch: int) -> None:
        """What is taken from now on passed this node, in this session: the recording is made at its mirror."""
        account = self._account
        if epoch == account.epoch:
            return
        self._reason = MIRROR
        account.epoch, account.nodes[epoch] = epoch, node
        self._configuration["observed"] = {"node": node, "epoch": f"{epoch:016x}"}
        if self._file is not None and not self._file.chunks:
            self._file.drop_chunk()
            self._begin_file(self._begun_streams)

    @property
    def is_open(self) -> bool:
        """Whether a file takes what comes."""
        return self._file is not None

    def take(self, item: Item) -> None:
        """Take in an item of the queue."""
        if isinstance(item, FrameItem):
            self._take_frame(item)
        elif isinstance(item, EventItem):
            fields = event_fields(item.event)
            self._account.event(fields)
            self._add_json(channels.EVENTS, fields, item.event.time_ns)
        else:
            self._take_left_out(item)
        self._pause()

    def _take_frame(self, item: FrameItem) -> None:
        direction, topic, frame, now_ns = item
        known = self._channel(direction, topic)
        if known is None:
            return
        flow, description = known
        if bytes(frame[:4]) not in MESSAGE_WORDS:
            self._take_control(item, description)
            return
        account, file, key = self._account, self._file, (direction, topic)
        try:
            for wire in messages_of(frame):
                if direction == RECEIVED and wire.epoch == account.epoch:
                    return  # reflected: not a peer's
                if account.message(direction, flow, wire) and file is not None:
                    file.add(key, description, wire.sequence, now_ns or wire.sent_ns, wire.sent_ns, wire.frame)
                self._pause()
        except MalformedFrame:
            return  # the session counts it

    def _take_control(self, item: FrameItem, description: ChannelDescription) -> None:
        direction, topic, now_ns, frame = item.direction, item.topic, item.now_ns, whole(item.frame)
        if self._account.control(direction, topic, frame):
            if direction == RECEIVED and frame[KIND_AT] in _ACKS:
                self._clock.add(frame, now_ns)
            sent_ns = int.from_bytes(frame[24:32])
            if self._file is not None:
                self._file.add((direction, topic), description, 0, now_ns, sent_ns, frame)
                self._others_in_chunk += 1

    def _channel(self, direction: str, topic: bytes) -> tuple[str, ChannelDescription] | None:
        """The flow and channel of a topic; None: it is not recorded."""
        key = direction, topic
        if key not in self._channels:
            flow = "" if topic == HELLO_TOPIC else flow_of(topic)
            if len(self._channels) >= MAX_CHANNELS:
                return None
            wanted = flow is not None and (not flow or self._account.wants(flow))
            self._channels[key] = (flow or "", channels.of_frames(direction, topic.decode())) if wanted else None
        return self._channels[key]

    def _take_left_out(self, item: LeftOutItem) -> None:
        for flow in flows_of(item.ranges):
            direction, name, epoch, ranges = flow
            if self._account.wants(name) and (stream := self._account.stream(direction, name, epoch)) is not None:
                stream.leave_out(self._reason, ranges)
                self._add_json(channels.RECORDER, described(flow, self._reason), item.now_ns)
        self._others_left_out += item.others
        if self._file is not None:
            self.problem = (
                "the disk, or this thread, is slower than the link: messages were left out"
                if self._reason == QUEUE
                else "the mirror has not shown all messages: it is slower than its link"
            )

    def _add_json(self, topic: str, fields: dict[str, Any], now_ns: int) -> None:
        if self._file is not None:
            self._file.add(topic, channels.of_json(topic), 0, now_ns, now_ns, to_json(fields).encode())
            self._others_in_chunk += 1

    def trigger(self, reason: str, time_ns: int, before_s: float | None = None) -> None:
        """Record that something was to be recorded; ``before_s``: how far back what was kept goes."""
        kept = {} if before_s is None else {"before_s": before_s}
        fields = {"type": "trigger", "reason": reason, "time_ns": time_ns, **kept}
        self._triggers.append((fields, time_ns))
        self._add_json(channels.RECORDER, fields, time_ns)

    # Chunks

    def look(self) -> None:
        """End the chunk, and the file, if that is due; to be called often."""
        file = self._file
        if file is not None and (file.pending_octets >= CHUNK_OCTETS or time.monotonic() >= self._chunk_due_s):
            self._end_chunk(file)
            if self._rotation_is_due(file):
                self._rotate(file)

    def _end_chunk(self, file: McapFile) -> None:
        now_s, now_ns = time.monotonic(), time.time_ns()
        self._chunk_due_s = now_s + CHUNK_S
        if now_s >= self._count_due_s:
            self._count_due_s = now_s + COUNT_S
            self.counted = self._count()
        for estimate in self._clock.take(self._account.nodes):
            self._add_json(channels.CLOCK, estimate, now_ns)
        try:
            if file.pending_octets and file.free_octets - file.pending_octets < self._options.min_free_octets:
                least = self._options.min_free_octets
                raise OSError(errno.ENOSPC, f"the disk has less than {least:,} B free (min_free)", str(file.path))
            file.end_chunk()
        except OSError as error:
            self._discard_chunk(file, error, now_ns)
            return
        self._account.commit()
        self._others_in_chunk = 0
        self._triggers.clear()

    def _discard_chunk(self, file: McapFile, error: OSError, now_ns: int) -> None:
        """The open chunk is left out: name what was in it in the next one."""
        if self.problem is None or str(error.strerror) not in self.problem:
            self.problem = f"{file.path}: {error.strerror}: messages are left out of the recording"
            logger.warning("%s until there is room", self.problem)
        dropped = [
            (stream.direction, stream.flow, stream.epoch, stream.pending)
            for stream in self._account.streams.values()
            if stream.pending
        ]
        left_out = self._others_in_chunk
        self._account.discard("disk")
        file.drop_chunk()
        self._others_in_chunk = 0
        if not file.chunks:
            self._begin_file(self._begun_streams)
        for fields, time_ns in self._triggers:  # they say why the file is there
            self._add_json(channels.RECORDER, fields, time_ns)
        self._others_left_out += left_out - self._others_in_chunk
        for flow in dropped:
            self._add_json(channels.RECORDER, described(flow, "disk"), now_ns)

    def _count(self) -> dict[str, int]:
        counts = self._count_file()
        return {name: counts[name] + self._before[name] for name in counts}

    def _count_file(self) -> dict[str, int]:
        streams = self._account.streams.values()
        return {
            "messages": sum(stream.written.count() for stream in streams),
            "octets": sum(stream.octets for stream in streams),
            "left_out": sum(ranges.count() for stream in streams for ranges in stream.left_out.values()),
            "missing": sum(stream.missing().count() for stream in streams),
        }

    # Files

    def begin(self) -> bool:
        """Open the next file, for what is taken from now on; False: it cannot be opened."""
        path = self._next_path() if self.files else self._path
        try:
            file = self._new_file(path, self._options.overwrite and not self.files)
        except OSError as error:
            self._note_failure(path, "the recording cannot be begun", error)
            return False
        self._number = len(self.files) - 1
        self._open(file, self.forget())
        return True

    def end(self) -> None:
        """End the open file; what is taken from then on belongs to none."""
        file = self._file
        if file is None:
            return
        self._end_chunk(file)
        self.counted = self._count()
        failed, self.failed = self.failed, True
        self.failed = not self._finish(file, None) or failed
        self._before, self._file = self.counted, None
        self.forget()

    def forget(self) -> list[dict[str, Any]]:
        """Begin a new account, for what comes from now on; returns where the streams stand."""
        beginning, nodes = self._account.beginning(), self._account.nodes
        self._account = Account(self._account.epoch, self._options.flows)
        self._account.begin(beginning)
        self._account.nodes = nodes
        return beginning

    def _rotation_is_due(self, file: McapFile) -> bool:
        options = self._options
        return (
            file.size >= options.rotate_octets
            or (options.rotate_s is not None and time.monotonic() - self._file_begun_s >= options.rotate_s)
            or file.channel_count >= MAX_CHANNELS
            or self._account.range_count > MAX_RANGES
        )

    def _rotate(self, file: McapFile) -> None:
        """Begin the next file, then end this one; where either fails, this one goes on."""
        try:
            following = self._new_file(self._next_path(), overwrite=False)
        except OSError as error:
            self._note_failure(file.path, "the next file of the recording cannot be begun", error)
            return
        if not self._finish(file, following.path):
            following.abandon()
            self.files.remove(following.path)
            return
        counts, beginning = self._count_file(), self.forget()
        counts["missing"] -= sum(end - first for one in beginning for first, end in one["carried"])
        self._before = {name: self._before[name] + counts[name] for name in counts}
        self._number += 1
        self._open(following, beginning)

    def _next_path(self) -> Path:
        number = self._number + 1
        while (path := self._path.with_name(f"{self._path.stem}.{number:04d}{self._path.suffix}")).exists():
            number += 1  # of another recording: that stays
        return path

    def _new_file(self, path: Path, overwrite: bool) -> McapFile:
        file = McapFile(path, f"twinlink {self._versions['twinlink']}", overwrite)
        self.files.append(path)
        return file

    def _open(self, file: McapFile, streams: list[dict[str, Any]]) -> None:
        """From now on this is the file."""
        self._file = file
        self._channels.clear()
        self._clock = ClockOffsets()
        self._others_left_out = self._others_in_chunk = 0
        self._triggers.clear()
        self._begin_file(streams)

    def _begin_file(self, streams: list[dict[str, Any]]) -> None:
        """Put into the first chunk where the streams stand."""
        self._file_begun_ns, self._file_begun_s = time.time_ns(), time.monotonic()
        self._begun_streams = streams
        begin = self._heading().begin(self._account.nodes, streams)
        self._add_json(channels.RECORDER, begin, self._file_begun_ns)

    def _finish(self, file: McapFile, following: Path | None) -> bool:
        """Write the manifest and close the file; False: it cannot be written."""
        manifest = self._heading().manifest(
            self._account,
            file.chunks,
            self._file_begun_ns,
            time.time_ns(),
            following.name if following is not None else None,
            self._others_left_out,
            stats=self._stats(),
        )
        try:
            file.finish(to_json(manifest, default=str).encode())
        except OSError as error:
            self._note_failure(
                file.path, "the manifest cannot be written (`twinlink verify --repair` makes one)", error
            )
            if following is None:
                file.close()
            return False
        return True

    def _heading(self) -> Heading:
        epoch = self._account.epoch
        node = self._account.nodes[epoch]
        return Heading(self._series, self._number, node, epoch, self._configuration, self._versions)

    def _note_failure(self, path: Path, what: str, error: OSError) -> None:
        problem = f"{path}: {what}: {error.strerror}"
        if problem != self.problem:
            logger.warning("%s", problem)
        self.problem = problem
