"""The messages of recordings: what an export is made of."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from twinlink.protocol.frames import FLOW_NAME, HEADER_OCTETS, RETRANSMIT_WORD
from twinlink.protocol.rangeset import RangeSet
from twinlink.protocol.wire import RECEIVED, flow_of, messages_of
from twinlink.recording import RecordingError, Report
from twinlink.recording.channels import CLOCK, EVENTS, RECORDER
from twinlink.recording.reader import Recorded, RecordingFile
from twinlink.recording.verify import Chunk, read
from twinlink.runtime.capture import MAX_STREAMS

MAX_NS = 2**63 - 1
Stream = tuple[str, str, int]  # direction, flow, epoch


class Clock(NamedTuple):
    """The clock of a peer minus that of the side that recorded, and how far that may be off."""

    offset_ns: int
    bound_ns: int


class Message(NamedTuple):
    """A message of a recording.

    Attributes:
        direction: ``sent`` or ``received`` by the side that recorded.
        node: of its sender; the epoch as 16 hexadecimal digits where the name is not known.
        log_ns: when it was received, by the clock of the side that recorded; of what that sent, the time of that.
        retransmitted: it came on request.
        clock: of its sender, as estimated when it came; None: this was not measured.
    """

    direction: str
    flow: str
    epoch: int
    node: str
    sequence: int
    sent_ns: int
    log_ns: int
    retransmitted: bool
    payload: bytes | memoryview
    clock: Clock | None

    @property
    def stream(self) -> Stream:
        """The messages of the same sender on the same flow."""
        return self.direction, self.flow, self.epoch

    @property
    def received_ns(self) -> int | None:
        """When it was received; None of what the side that recorded has sent."""
        return self.log_ns if self.direction == RECEIVED else None


class Missing(NamedTuple):
    """Messages of a stream that a file lacks, and why, as `twinlink verify` names it."""

    file: int
    stream: Stream
    reason: str
    ranges: RangeSet


class Lost(NamedTuple):
    """Messages that are recorded where they were sent, and that peers did not acknowledge."""

    stream: Stream
    first: int
    end: int
    reason: str


class Source:
    """The files of one recording, in order.  It reads them once to know what they hold, and once for `messages`.

    Attributes:
        reports: of each file, in order.
        missing: from the files.
        lost: to peers of the side that recorded.
        recorded: what the files hold, by stream.
    """

    def __init__(self, paths: Sequence[Path], look: Callable[[Message], None] | None = None) -> None:
        """``look`` is given each message once, before the names of nodes are known.

        Raises OSError, and RecordingError where a file is no recording, or the files are not of one.
        """
        self.reports: list[Report] = []
        self._odd = False  # there are messages of flows that are none
        self._nodes: dict[int, str] = {}
        for path in paths:
            report = Report(str(path))
            for chunk in _chunks(path, report):
                if look is not None:
                    for message in self._messages(chunk, {}):
                        look(message)
            names = report.series, report.next_file
            if type(report.file) not in (int, NoneType) or not all(isinstance(name, str | None) for name in names):
                raise RecordingError(f"{path}: its manifest does not say which file of which recording it is")
            self.reports.append(report)
        self.reports.sort(key=lambda report: report.file or 0)
        self._check_series()
        self.missing: list[Missing] = []
        self.lost: list[Lost] = []
        self.recorded: dict[Stream, RangeSet] = {}
        for number, report in enumerate(self.reports):
            try:
                self._take_streams(number, report)
            except (KeyError, TypeError, ValueError) as error:
                raise RecordingError(f"{report.path}: its manifest does not describe the streams: {error!r}") from None

    def _check_series(self) -> None:
        first = self.reports[0]
        numbers = [report.file for report in self.reports]
        for report in self.reports[1:]:
            if report.series is None or report.series != first.series:
                raise RecordingError(
                    f"{report.path} and {first.path} are of different recordings: export them one by one"
                )
        if len(set(numbers)) < len(numbers):
            raise RecordingError(f"the same file of the recording is given twice: {first.path} and others")

    def _take_streams(self, number: int, report: Report) -> None:
        for one in report.streams:
            if not FLOW_NAME.fullmatch(one["flow"]):
                self._odd = True
                continue
            epoch = int(one["epoch"], 16)
            stream = one["direction"], one["flow"], epoch
            if isinstance(one["node"], str):
                self._nodes[epoch] = one["node"]
            recorded = self.recorded.setdefault(stream, RangeSet())
            for first, end in one["recorded"]:
                recorded.add(first, end)
            for loss in one.get("lost", ()):
                first, end = int(loss["first"]), int(loss["end"])
                self.lost.append(Lost(stream, first, end, str(loss["reason"])))
        for one, reason, ranges in report.missing():
            if FLOW_NAME.fullmatch(one["flow"]):
                stream = one["direction"], one["flow"], int(one["epoch"], 16)
                self.missing.append(Missing(number, stream, reason, ranges))

    @property
    def problems(self) -> list[str]:
        """What is damaged or cut, or of no flow, and so is not exported."""
        found = [f"{report.path}: {problem}" for report in self.reports for problem in report.problems]
        return [*found, "messages are of flows that no link can have, and are left out"] if self._odd else found

    @property
    def notes(self) -> list[str]:
        """Files in which the recording goes on, and that are not given."""
        given = {report.file for report in self.reports}
        return [
            f"{report.path}: the recording goes on in {report.next_file!r}, which is not given"
            for report in self.reports
            if report.next_file is not None and (report.file or 0) + 1 not in given
        ]

    def node(self, epoch: int) -> str:
        """The name of a session's node; the epoch where that is not known."""
        return self._nodes.get(epoch, f"{epoch:016x}")

    def files(self) -> Iterator[Iterator[Message]]:
        """The messages of each file, in the order in which they passed."""
        clocks: dict[int, Clock] = {}
        for report in self.reports:
            again = Report(report.path)
            yield (
                message
                for chunk in _chunks(Path(report.path), again)
                for message in self._messages(chunk, clocks)
            )  # fmt: skip

    def messages(self) -> Iterator[Message]:
        """The messages of all files, in the order in which they passed."""
        for file in self.files():
            yield from file

    def _messages(self, chunk: Chunk, clocks: dict[int, Clock]) -> Iterator[Message]:
        """The messages of a chunk.  ``clocks`` is brought up to date first: what a chunk says is of its own time."""
        for description, recorded in chunk:
            if description.topic == CLOCK:
                _take_clock(recorded, clocks)
        for description, recorded in chunk:
            if description.topic in (EVENTS, RECORDER, CLOCK) or description.metadata["kind"] != "traffic":
                continue
            if (flow := flow_of(description.topic.encode())) is None:
                continue  # of the link itself, or a name that may lead out of a folder or an archive
            direction = description.metadata["direction"]
            for wire in messages_of(recorded.data):
                yield Message(
                    direction,
                    flow,
                    wire.epoch,
                    self.node(wire.epoch),
                    wire.sequence,
                    wire.sent_ns,
                    recorded.log_ns,
                    wire.word == RETRANSMIT_WORD,
                    memoryview(wire.frame)[HEADER_OCTETS:],
                    clocks.get(wire.epoch),
                )


def wants(flow: str, patterns: Sequence[str]) -> bool:
    """Whether a flow is one of these names or patterns."""
    return any(fnmatchcase(flow, pattern) for pattern in patterns)


def _chunks(path: Path, report: Report) -> Iterator[Chunk]:
    with closing(RecordingFile(path)) as file:
        for item in read(file, report):
            if not isinstance(item, dict):
                yield item


def _take_clock(recorded: Recorded, clocks: dict[int, Clock]) -> None:
    try:
        fields: dict[str, Any] = json.loads(bytes(recorded.data))
        epoch, offset_ns, bound_ns = int(fields["epoch"], 16), fields["offset_ns"], fields["bound_ns"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return
    if type(offset_ns) is not int or type(bound_ns) is not int or max(abs(offset_ns), abs(bound_ns)) > MAX_NS:
        return
    if epoch in clocks or len(clocks) < MAX_STREAMS:
        clocks[epoch] = Clock(offset_ns, bound_ns)
