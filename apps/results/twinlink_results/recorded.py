"""The records of a run, from recordings of its links (docs/recordings.md).

A sender's recording tells what it sent and when the acks came; a receiver's what arrived.  Where one recording has both
ends of a flow, as that of a mirror may, both are taken from it.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twinlink.appkit import records
from twinlink.appkit.records import Table
from twinlink.block_state import FLOW as BLOCK_STATE
from twinlink.kpm import FLOW as KPM
from twinlink.protocol.frames import (
    HEADER,
    HEADER_OCTETS,
    REJECTED,
    Kind,
    MalformedFrame,
    parse_ack,
    parse_ack_range,
)
from twinlink.recording.reader import Recorded, RecordingFile
from twinlink.recording.verify import Report, read

from .recorded_decisions import RecordedDecisions
from .recorded_fidelity import FLOWS, RecordedFidelity

SENT, RECEIVED = "sent", "received"
_LOST = "path", "open"  # sides of a manifest: what was sent and did not come
_ACK, _ACK_RANGE = int(Kind.ACK), int(Kind.ACK_RANGE)

Rows = list[tuple[int | bool, ...]]
Ack = tuple[int, int, int, int]  # T1 (0: not told), T2, T3, T4


@dataclass(slots=True)
class Stream:
    """The messages of one session on one flow.

    Attributes:
        node: name of the sender; None: not known.
        sent: number, octets and T1 of each, by the sender's recording.
        acks: by number; of several peers the first.
        received: number, octets, T1 and T2, by the receiver's.
        lost: ranges that were sent and did not arrive, as the receiver's manifest says.
    """

    flow: str
    epoch: int
    node: str | None = None
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    acks: dict[int, Ack] = field(default_factory=dict)
    received: list[tuple[int, int, int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)

    def complete(self) -> None:
        """Take what one side's recording lacks from what the other's shows.

        What has arrived was sent, and what was acknowledged has arrived.
        """
        for sequence, octets, sent_ns, _ in self.received:
            self.sent.setdefault(sequence, (octets, sent_ns))
        before_ns = 0
        lost = {number for first, end in self.lost for number in range(first, end)} - self.sent.keys()
        for sequence in sorted(lost | self.sent.keys()) if lost else ():
            _, before_ns = self.sent.setdefault(sequence, (0, before_ns))
        if not self.received:
            acked = sorted((ack[1], number) for number, ack in self.acks.items() if number in self.sent)
            self.received = [(number, *self.sent[number], received_ns) for received_ns, number in acked]

    def sent_rows(self, number: int) -> Rows:
        """Rows of `records.SENT`, in order; ``number`` is that of the round."""
        rows: Rows = []
        for sequence, (octets, sent_ns) in sorted(self.sent.items()):
            if (ack := self.acks.get(sequence)) is None:
                rows.append((number, sequence, octets, sent_ns, sent_ns, False, 0, 0, 0, 0))
            else:
                t1_ns, t2_ns, t3_ns, t4_ns = ack
                t1_ns = t1_ns or sent_ns
                rows.append((number, sequence, octets, t1_ns, t1_ns, True, t2_ns, t3_ns, t4_ns, t4_ns - t1_ns))
        return rows

    def received_rows(self, number: int) -> Rows:
        """Rows of `records.RECEIVED`, in order of arrival."""
        return [(number, *row) for row in self.received]


class Recordings:
    """What some recordings of one run hold.

    Attributes:
        streams: of all sessions.
        manifests: of each file; of one that was cut what is known.
        reports: of each file, as `twinlink verify` makes them.
        fidelity: of the twin's picture, where it recorded its side.
        decisions: of the twins.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises OSError, and RecordingError where a file is no recording."""
        self.streams: dict[tuple[str, int], Stream] = {}
        self.manifests: list[dict[str, Any]] = []
        self.reports: list[Report] = []
        self.fidelity = RecordedFidelity()
        self.decisions = RecordedDecisions()
        for path in paths:
            report = Report(str(path))
            with closing(RecordingFile(path)) as file:
                for item in read(file, report):
                    if isinstance(item, dict):
                        self.manifests.append(item)
                        continue
                    for _, recorded in item:
                        self._take(recorded)
            self.reports.append(report)
            for stream, side, ranges in report.missing():
                if stream["direction"] == RECEIVED and side in _LOST:
                    self._stream(stream["flow"], int(stream["epoch"], 16)).lost += ranges
            for stream in report.streams:
                known = self.streams.get((stream["flow"], int(stream["epoch"], 16)))
                if known is not None and isinstance(stream["node"], str):
                    known.node = stream["node"]
        self.fidelity.end()
        for one in self.streams.values():
            one.complete()

    def _take(self, recorded: Recorded) -> None:
        metadata = recorded.channel.metadata
        kind, flow = metadata.get("kind"), metadata.get("flow", "")
        if not flow or len(recorded.data) < HEADER_OCTETS:
            return
        word, _, epoch, sequence, sent_ns = HEADER.unpack_from(recorded.data)
        if kind == "traffic" and word & 0xFF in (Kind.DATA, Kind.RETRANSMIT):
            octets, stream = len(recorded.data) - HEADER_OCTETS, self._stream(flow, epoch)
            if flow == BLOCK_STATE:
                self.decisions.take(bytes(recorded.data[HEADER_OCTETS:]))
            if metadata["direction"] == SENT:
                stream.sent[sequence] = octets, sent_ns
                if flow == KPM:
                    self.fidelity.take_sent(bytes(recorded.data[HEADER_OCTETS:]))
            else:
                stream.received.append((sequence, octets, sent_ns, recorded.log_ns))
                if flow in FLOWS:
                    payload = bytes(recorded.data[HEADER_OCTETS:])
                    self.fidelity.take(flow, epoch, sequence, sent_ns, recorded.log_ns, payload)
        elif kind == "ack" and metadata["direction"] == RECEIVED:
            self._take_ack(flow, recorded, sent_ns)

    def _take_ack(self, flow: str, recorded: Recorded, t3_ns: int) -> None:
        kind = recorded.data[3]
        try:
            if kind == _ACK_RANGE:
                epoch, _, numbers, t2_ns = parse_ack_range(recorded.data)
                found = [(number, 0, t2_ns) for number in numbers]
            elif kind == _ACK:
                epoch, _, acks = parse_ack(recorded.data)
                found = [(number, t1_ns, t2_ns) for number, t1_ns, t2_ns in acks if t2_ns != REJECTED]
            else:
                return
        except MalformedFrame:  # the session has counted it
            return
        stream = self._stream(flow, epoch)
        for number, t1_ns, t2_ns in found:
            stream.acks.setdefault(number, (t1_ns, t2_ns, t3_ns, recorded.log_ns))

    def _stream(self, flow: str, epoch: int) -> Stream:
        return self.streams.setdefault((flow, epoch), Stream(flow, epoch))


def table(streams: Iterable[Stream], side: str) -> Table:
    """The table of one side; the first stream is round 0."""
    rows: Rows = []
    for number, stream in enumerate(streams):
        rows += stream.sent_rows(number) if side == SENT else stream.received_rows(number)
    return np.array(rows, records.TABLES[side])
