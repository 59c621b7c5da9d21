"""Records a link: a thread that writes what the tap has queued, a chunk a second, and a manifest at each end of a file.

Neither a slow disk nor a full one holds up the link: what is not recorded is counted, and named in the manifest.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors
from ..process.signals import DeferSignals
from ..process.text import to_json
from ..protocol.frames import HELLO_TOPIC, Kind, MalformedFrame
from ..runtime.driver import KIND_AT, SessionDriver
from . import channels
from .account import MAX_RANGES, MAX_STREAMS, RECEIVED, SENT, Account, event_fields, flow_of, messages_of
from .capture import (
    MESSAGE_WORDS,
    Capture,
    EventItem,
    FrameItem,
    Item,
    LeftOutItem,
    described,
    flows_of,
    octets_of,
)
from .clock import ClockOffsets
from .mcap_file import CHUNK_OCTETS, ChannelDescription, McapFile
from .options import RecorderOptions, versions

FORMAT = 1  # of the recording; another one is not read
CHUNK_S = 1.0
COUNT_S = 0.5  # between two counts for `Recorder.stats`
LOOK_S = 0.05  # how often the queue is looked at
SLICE, SLICE_PAUSE_S = 64, 0.0001  # messages, some 0.2 ms; then the threads of the link get the interpreter
MAX_CHANNELS = 2 * MAX_STREAMS
_ACKS = frozenset((int(Kind.ACK),))

logger = logging.getLogger("twinlink")


class Recorder:
    """Made by ``link.record(FILE)``; records until it is closed, or the link is.

    Attributes:
        files: that were begun, in order.
        problem: why something is not, or was not, written, for a person; None: nothing was wrong.
        failed: the last file has no manifest.
    """

    def __init__(
        self,
        driver: SessionDriver,
        errors: InternalErrors,
        path: Path,
        options: RecorderOptions,
        configuration: dict[str, Any],
        stats: Callable[[], Any],
    ) -> None:
        """Raises OSError, FileExistsError included; ``configuration`` is of the link, as the manifest has it."""
        self.files: list[Path] = []
        self.problem: str | None = None
        self.failed = False
        self._driver, self._path, self._options, self._stats = driver, path, options, stats
        self._configuration = configuration | {"recorder": asdict(options)}
        self._versions = versions()
        self._capture = Capture(options.queue_octets)
        self._account = Account(driver.session.epoch, options.flows)
        self._account.nodes[driver.session.epoch] = configuration["node"]
        self._before = self._counted = self._count_file()  # of the files before this one, and of all
        self._count_due_s, self._since_pause = 0.0, 0
        self._clock = ClockOffsets()
        self._channels: dict[tuple[str, bytes], tuple[str, ChannelDescription] | None] = {}
        self._number = self._others_left_out = self._others_in_chunk = 0
        self._series = os.urandom(8).hex()
        self._file = self._new_file(path, options.overwrite)
        self._file_begun_ns, self._file_begun_s = time.time_ns(), time.monotonic()
        self._chunk_due_s = 0.0  # at once: from then on the file says what it is of
        self._closing, self._close_lock, self._wake = False, threading.Lock(), threading.Event()
        name = f"twinlink-{configuration['node']}-record"
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._closing)
        for flow, epoch, following, missing in driver.add_tap(self._capture):
            if following >= 0 and self._account.wants(flow):
                direction = SENT if epoch == driver.session.epoch else RECEIVED
                stream = self._account.stream(direction, flow, epoch, following)
                for first, end in missing if stream is not None else ():
                    stream.carried.add(first, end)  # type: ignore[union-attr]
        known = driver.session.known_peers()[:MAX_STREAMS]
        self._account.nodes |= {peer.epoch: peer.node for peer in known}
        self._begin_file(self._account.described())
        self._thread.start()

    def close(self) -> None:
        """Write what is queued and the manifest.  A second call does nothing.  What fails is logged: `problem`."""
        with DeferSignals(), self._close_lock:
            if not self._closing:
                self._driver.remove_tap(self._capture)
                self._capture.tell_left_out()
                self._closing = True
                self._wake.set()
        self._thread.join()

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the link closed."""
        return self._closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stats(self) -> dict[str, int]:
        """Of all files: messages and octets recorded, messages left out by the recorder, and missing otherwise.

        As it stood a second ago or less; after `close`, at the end.
        """
        return {"files": len(self.files), **self._counted}

    # On the thread that writes

    def _run(self) -> None:
        while True:
            closing = self._closing
            self._drain()
            if closing or time.monotonic() >= self._chunk_due_s:
                self._end_chunk()
            if closing:
                self._counted = self._count()
                self.failed = True
                self.failed = not self._finish(None)
                return
            self._wake.wait(LOOK_S)

    def _count(self) -> dict[str, int]:
        counts = self._count_file()
        self._count_due_s = time.monotonic() + COUNT_S
        return {name: counts[name] + self._before[name] for name in counts}

    def _count_file(self) -> dict[str, int]:
        streams = self._account.streams.values()
        return {
            "messages": sum(stream.written.count() for stream in streams),
            "octets": sum(stream.octets for stream in streams),
            "left_out": sum(ranges.count() for stream in streams for ranges in stream.left_out.values()),
            "missing": sum(stream.missing().count() for stream in streams),
        }

    def _drain(self) -> None:
        """Take in what is queued."""
        capture, items = self._capture, self._capture.items
        while items:
            item = items.popleft()
            capture.taken_octets += octets_of(item)
            self._take(item)
            self._pause()
            if self._file.pending_octets >= CHUNK_OCTETS or time.monotonic() >= self._chunk_due_s:
                self._end_chunk()

    def _pause(self) -> None:
        """Let the threads of the link have the interpreter, after each slice of work."""
        self._since_pause += 1
        if self._since_pause >= SLICE:
            self._since_pause = 0
            time.sleep(SLICE_PAUSE_S)

    def _take(self, item: Item) -> None:
        if isinstance(item, FrameItem):
            self._take_frame(item)
        elif isinstance(item, EventItem):
            fields = event_fields(item.event)
            self._account.event(fields)
            self._add_json(channels.EVENTS, fields, item.event.time_ns)
        else:
            self._take_left_out(item)

    def _take_frame(self, item: FrameItem) -> None:
        direction, topic, frame, now_ns = item
        known = self._channel(direction, topic)
        if known is None:
            return
        flow, description = known
        if bytes(frame[:4]) not in MESSAGE_WORDS:
            self._take_control(item, description)
            return
        account, add, key = self._account, self._file.add, (direction, topic)
        try:
            for wire in messages_of(frame):
                if direction == RECEIVED and wire.epoch == account.epoch:
                    return  # reflected: not a peer's
                if account.message(direction, flow, wire):
                    add(key, description, wire.sequence, now_ns or wire.sent_ns, wire.sent_ns, wire.frame)
                self._pause()
        except MalformedFrame:
            return  # the session counts it

    def _take_control(self, item: FrameItem, description: ChannelDescription) -> None:
        direction, topic, frame, now_ns = item
        if self._account.control(direction, topic, frame):
            if direction == RECEIVED and frame[KIND_AT] in _ACKS:
                self._clock.add(frame, now_ns)
            sent_ns = int.from_bytes(frame[24:32])
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
                stream.leave_out("queue", ranges)
                self._add_json(channels.RECORDER, described(flow, "queue"), item.now_ns)
        self._others_left_out += item.others
        self.problem = "the disk, or this thread, is slower than the link: messages were left out"

    def _add_json(self, topic: str, fields: dict[str, Any], now_ns: int) -> None:
        self._file.add(topic, channels.of_json(topic), 0, now_ns, now_ns, to_json(fields).encode())
        self._others_in_chunk += 1

    # Chunks and files

    def _end_chunk(self) -> None:
        self._chunk_due_s = time.monotonic() + CHUNK_S
        now_ns, file = time.time_ns(), self._file
        if self._chunk_due_s - CHUNK_S >= self._count_due_s:
            self._counted = self._count()
        for estimate in self._clock.take(self._account.nodes):
            self._add_json(channels.CLOCK, estimate, now_ns)
        try:
            if file.pending_octets and file.free_octets - file.pending_octets < self._options.min_free_octets:
                raise OSError(errno.ENOSPC, "less is free than is to stay free", str(file.path))
            file.end_chunk()
        except OSError as error:
            self._discard_chunk(error, now_ns)
            return
        self._account.commit()
        self._others_in_chunk = 0
        if self._rotation_is_due():
            self._rotate()

    def _discard_chunk(self, error: OSError, now_ns: int) -> None:
        """The open chunk is left out: name what was in it in the next one."""
        if self.problem is None or str(error.strerror) not in self.problem:
            self.problem = f"{self._file.path}: {error.strerror}: messages are left out of the recording"
            logger.warning("%s until there is room", self.problem)
        dropped = [
            (stream.direction, stream.flow, stream.epoch, stream.pending)
            for stream in self._account.streams.values()
            if stream.pending
        ]
        self._others_left_out += self._others_in_chunk
        self._account.discard("disk")
        self._file.drop_chunk()
        self._others_in_chunk = 0
        if not self._file.chunks:
            self._begin_file(self._begun_streams)
        for flow in dropped:
            self._add_json(channels.RECORDER, described(flow, "disk"), now_ns)

    def _rotation_is_due(self) -> bool:
        options, file = self._options, self._file
        return (
            file.size >= options.rotate_octets
            or (options.rotate_s is not None and time.monotonic() - self._file_begun_s >= options.rotate_s)
            or file.channel_count >= MAX_CHANNELS
            or self._account.range_count > MAX_RANGES
        )

    def _rotate(self) -> None:
        """Begin the next file, then end this one; where either fails, this one goes on."""
        try:
            following = self._new_file(self._next_path(), overwrite=False)
        except OSError as error:
            self._note_failure("the next file of the recording cannot be begun", error)
            return
        if not self._finish(following.path):
            following.abandon()
            self.files.remove(following.path)
            return
        beginning, nodes, counts = self._account.beginning(), self._account.nodes, self._count_file()
        counts["missing"] -= sum(end - first for one in beginning for first, end in one["carried"])
        self._before = {name: self._before[name] + counts[name] for name in counts}
        self._account = Account(self._account.epoch, self._options.flows)
        self._account.begin(beginning)
        self._account.nodes = nodes
        self._file, self._number = following, self._number + 1
        self._channels.clear()
        self._others_left_out = 0
        self._file_begun_ns, self._file_begun_s = time.time_ns(), time.monotonic()
        self._begin_file(beginning)

    def _next_path(self) -> Path:
        number = self._number + 1
        while (path := self._path.with_name(f"{self._path.stem}.{number:04d}{self._path.suffix}")).exists():
            number += 1  # of another recording: that stays
        return path

    def _new_file(self, path: Path, overwrite: bool) -> McapFile:
        file = McapFile(path, f"twinlink {self._versions['twinlink']}", overwrite)
        self.files.append(path)
        return file

    def _begin_file(self, streams: list[dict[str, Any]]) -> None:
        """Put into the first chunk where the streams stand."""
        self._begun_streams = streams
        keys = "direction", "flow", "epoch", "first", "carried"
        begin = {
            "type": "begin",
            "format": FORMAT,
            "series": self._series,
            "file": self._number,
            "node": self._configuration["node"],
            "epoch": f"{self._account.epoch:016x}",
            "configuration": self._configuration,
            "versions": self._versions,
            "nodes": {f"{epoch:016x}": node for epoch, node in self._account.nodes.items()},
            "streams": [{key: one[key] for key in keys} for one in streams],
        }
        self._add_json(channels.RECORDER, begin, self._file_begun_ns)

    def _finish(self, following: Path | None) -> bool:
        """Write the manifest and close the file; False: it cannot be written, and the file is open."""
        manifest = {
            "format": FORMAT,
            "series": self._series,
            "file": self._number,
            "next_file": following.name if following is not None else None,
            "ended": "closed" if following is None else "rotated",
            "node": self._configuration["node"],
            "epoch": f"{self._account.epoch:016x}",
            "begun_ns": self._file_begun_ns,
            "ended_ns": time.time_ns(),
            "configuration": self._configuration,
            "versions": self._versions,
            "streams": self._account.described(continues=following is not None),
            "others_left_out": self._others_left_out,
            "unaccounted": self._account.unaccounted,
            "chunks": self._file.chunks,
            "stats": self._stats(),
        }
        try:
            self._file.finish(to_json(manifest, default=str).encode())
        except OSError as error:
            self._note_failure("the manifest cannot be written (`twinlink verify --repair` makes one)", error)
            if following is None:
                self._file.close()
            return False
        return True

    def _note_failure(self, what: str, error: OSError) -> None:
        problem = f"{self._file.path}: {what}: {error.strerror}"
        if problem != self.problem:
            logger.warning("%s", problem)
        self.problem = problem
