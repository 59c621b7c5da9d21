"""A process's log of every message sent and delivered, and of every event, in order.

A ledger is a file of 48-octet rows in the machine's byte order::

    kind u8 | flow u8 | texts u16 | size u32 | epoch u64 | first u64 | end u64 | digest u64 | at_ns u64

``texts`` says how many rows of text follow that belong to this one.  ``at_ns`` is CLOCK_MONOTONIC, which all processes
of a host share, also across namespaces.  A row is one ``write`` to a file opened for appending: if the process is
killed, earlier rows stay, and at most the last one is truncated.  BEGIN precedes the sending of a message and SENT
follows it, so that a reader knows which one was in doubt when the process died.  Rows may be buffered if no process is
killed.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUFFER_OCTETS = 1024 * 1024
ROW = Struct("=BBHIQQQQQ")
DTYPE = np.dtype(
    [
        ("kind", "u1"), ("flow", "u1"), ("texts", "u2"), ("size", "u4"),
        ("epoch", "u8"), ("first", "u8"), ("end", "u8"), ("digest", "u8"), ("at_ns", "u8"),
    ]
)  # fmt: skip
assert DTYPE.itemsize == ROW.size == 48

Numbers = NDArray[Any]


class Row(IntEnum):
    """What a row says."""

    OPEN = 1  # epoch; text: node, role, transport, reliability, retention
    FLOW = 2  # flow; text: its name, and what this process does on it: sends, receives
    BEGIN = 3  # flow, size, digest: about to be sent
    SENT = 4  # flow, first = sequence, digest
    REFUSED = 5  # flow, size, digest; text: the error: was not sent
    GOT = 6  # flow, epoch of the sender, first = sequence, end = sent_ns of the header, digest
    ACKED = 7  # flow, epoch of the peer, first, end
    EVENT = 8  # text: class and fields
    UNSETTLED = 9  # flow, first, end: named by flush as missing
    NOTE = 10  # text: what the process was told to do, or did
    CLOSED = 11  # text: counters; the process ended as it should
    TEXT = 255  # continues the row before


def digest(payload: bytes | memoryview) -> int:
    """64 bits of a payload."""
    return int.from_bytes(blake2b(payload, digest_size=8).digest(), sys.byteorder)


class Writer:
    """Appends to a ledger.  Every method may be called from any thread."""

    def __init__(self, path: Path, buffered: bool = False) -> None:
        """``buffered``: a write costs less than a message does, and a process that is killed loses many."""
        self._file = path.open("ab", buffering=BUFFER_OCTETS if buffered else 0)
        self._write = self._file.write
        self._flows: dict[str, int] = {}

    def open(self, epoch: int, **said: Any) -> None:
        self._put(Row.OPEN, epoch=epoch, text=said)

    def flow(self, name: str, what: str) -> None:
        """Name a flow before the first row about it."""
        number = self._flows.setdefault(name, len(self._flows))
        self._put(Row.FLOW, number, text={"name": name, "what": what})

    def begin(self, flow: str, size: int, hashed: int) -> None:
        self._write(ROW.pack(Row.BEGIN, self._flows[flow], 0, size, 0, 0, 0, hashed, time.monotonic_ns()))

    def sent(self, flow: str, sequence: int, size: int, hashed: int) -> None:
        now = time.monotonic_ns()
        self._write(ROW.pack(Row.SENT, self._flows[flow], 0, size, 0, sequence, 0, hashed, now))

    def refused(self, flow: str, size: int, hashed: int, error: BaseException) -> None:
        self._put(Row.REFUSED, self._flows[flow], size=size, hashed=hashed, text={"error": repr(error)})

    def got(self, flow: str, epoch: int, sequence: int, sent_ns: int, size: int, hashed: int) -> None:
        now = time.monotonic_ns()
        self._write(ROW.pack(Row.GOT, self._flows[flow], 0, size, epoch, sequence, sent_ns, hashed, now))

    def acked(self, flow: str, epoch: int, first: int, end: int) -> None:
        self._put(Row.ACKED, self._flows[flow], epoch=epoch, first=first, end=end)

    def unsettled(self, flow: str, ranges: Iterable[tuple[int, int]]) -> None:
        for first, end in ranges:
            self._put(Row.UNSETTLED, self._flows[flow], first=first, end=end)

    def event(self, event: Any) -> None:
        self._put(Row.EVENT, text={"event": type(event).__name__, **asdict(event)})

    def note(self, **said: Any) -> None:
        self._put(Row.NOTE, text=said)

    def closed(self, **said: Any) -> None:
        self._put(Row.CLOSED, text=said)
        self._file.flush()

    def _put(
        self,
        kind: Row,
        flow: int = 0,
        *,
        size: int = 0,
        epoch: int = 0,
        first: int = 0,
        end: int = 0,
        hashed: int = 0,
        text: dict[str, Any] | None = None,
    ) -> None:
        octets = b"" if text is None else json.dumps(text, default=str).encode()
        parts = [octets[at : at + ROW.size - 1].ljust(ROW.size - 1) for at in range(0, len(octets), ROW.size - 1)]
        row = ROW.pack(kind, flow, len(parts), size, epoch, first, end, hashed, time.monotonic_ns())
        self._write(row + b"".join(bytes((Row.TEXT,)) + part for part in parts))


@dataclass
class Sends:
    """Messages of one flow, in the order of sending; ``pending`` was begun by a process that ended before SENT."""

    sequence: Numbers
    digest: Numbers
    begun_ns: Numbers
    sent_ns: Numbers
    pending: list[tuple[int, int]] = field(default_factory=list)  # digest, begun_ns
    octets: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class Deliveries:
    """Messages of one flow and sender session, in the order in which the application had them."""

    sequence: Numbers
    digest: Numbers
    at_ns: Numbers


@dataclass
class Report:
    """An event, or a note of the process, and when it was written."""

    at_ns: int
    name: str
    fields: dict[str, Any]


@dataclass
class Session:
    """One process's ledger.

    Attributes:
        opened_ns: when it began to open its link.
        retention: octets that its link keeps of each flow; 0 when the ledger does not say.
        wall_offset_ns: what its time of day was ahead of the monotonic time when it opened its link.
        acked: flow, peer epoch -> ranges.
        unsettled: flow -> ranges that flush named.
        ended: whether the process closed its link and said so; otherwise it was killed.
    """

    node: str
    role: str
    epoch: int
    opened_ns: int
    reliability: str = "repair"
    retention: int = 0
    wall_offset_ns: int = 0
    sends: dict[str, Sends] = field(default_factory=dict)
    deliveries: dict[tuple[str, int], Deliveries] = field(default_factory=dict)
    receives: set[str] = field(default_factory=set)
    acked: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    unsettled: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    refused: int = 0
    events: list[Report] = field(default_factory=list)
    notes: list[Report] = field(default_factory=list)
    last_ns: int = 0
    ended: bool = False
    iterates: bool = False  # its application asks for messages; what is queued for it meanwhile was delivered earlier
    counters: dict[str, Any] = field(default_factory=dict)

    def found_ns(self, report: Report) -> int:
        """The monotonic time at which the link had an event; handlers that take long have it told of later."""
        if "time_ns" not in report.fields:
            return report.at_ns
        return min(report.at_ns, int(report.fields["time_ns"]) - self.wall_offset_ns)


def read(path: Path) -> Session | None:
    """Read a ledger; a torn last row is passed over.  None when the process died before its link was open."""
    octets = path.read_bytes()
    rows = np.frombuffer(octets[: len(octets) // ROW.size * ROW.size], DTYPE)
    plain = rows[rows["kind"] != Row.TEXT]
    if not len(plain) or plain[0]["kind"] != Row.OPEN:
        return None
    texts = _texts(rows, octets)
    opened = texts[0][1]
    session = Session(
        opened["node"], opened["role"], int(plain[0]["epoch"]), opened.get("opening_ns", int(plain[0]["at_ns"])),
        opened.get("reliability", "repair"), int(opened.get("retention", 0)),
        int(opened["wall_ns"]) - int(plain[0]["at_ns"]) if "wall_ns" in opened else 0,
        last_ns=int(plain[-1]["at_ns"]),
        iterates=bool(opened.get("iterates")),
    )  # fmt: skip
    names: dict[int, str] = {}
    for row, said in texts[1:]:
        kind = row["kind"]
        if kind == Row.FLOW:
            names[int(row["flow"])] = said["name"]
            if said["what"] == "receives":
                session.receives.add(said["name"])
        elif kind == Row.EVENT:
            session.events.append(Report(int(row["at_ns"]), said.pop("event"), said))
        elif kind == Row.NOTE:
            session.notes.append(Report(int(row["at_ns"]), str(said.get("what", "")), said))
        elif kind == Row.CLOSED:
            session.ended, session.counters = True, said
    session.refused = int(np.count_nonzero(plain["kind"] == Row.REFUSED))
    for number, name in names.items():
        _read_flow(session, name, plain[plain["flow"] == number])
    return session


def _texts(rows: Numbers, octets: bytes) -> list[tuple[Any, dict[str, Any]]]:
    """The rows that have a text, with it."""
    found = []
    for index in np.flatnonzero((rows["texts"] > 0) & (rows["kind"] != Row.TEXT)):
        count = int(rows[index]["texts"])
        start = (int(index) + 1) * ROW.size
        parts = [octets[at + 1 : at + ROW.size] for at in range(start, start + count * ROW.size, ROW.size)]
        try:
            found.append((rows[index], json.loads(b"".join(parts))))
        except ValueError:
            break  # the process was killed within this row
    return found


def _read_flow(session: Session, flow: str, rows: Numbers) -> None:
    begun = rows[(rows["kind"] == Row.BEGIN) | (rows["kind"] == Row.SENT) | (rows["kind"] == Row.REFUSED)]
    if len(begun):
        sent = np.flatnonzero(begun["kind"] == Row.SENT)
        last = begun[-1]
        pending = [(int(last["digest"]), int(last["at_ns"]))] if last["kind"] == Row.BEGIN else []
        session.sends[flow] = Sends(
            begun["first"][sent].astype(np.int64), begun["digest"][sent],
            begun["at_ns"][np.maximum(sent - 1, 0)].astype(np.int64), begun["at_ns"][sent].astype(np.int64), pending,
            begun["size"][sent].astype(np.int64),
        )  # fmt: skip
    got = rows[rows["kind"] == Row.GOT]
    for epoch in np.unique(got["epoch"]):
        of_epoch = got[got["epoch"] == epoch]
        session.deliveries[flow, int(epoch)] = Deliveries(
            of_epoch["first"].astype(np.int64), of_epoch["digest"], of_epoch["at_ns"].astype(np.int64)
        )
    acked = defaultdict(list)
    for row in rows[rows["kind"] == Row.ACKED]:
        acked[flow, int(row["epoch"])].append((int(row["first"]), int(row["end"])))
    session.acked.update(acked)
    unsettled = rows[rows["kind"] == Row.UNSETTLED]
    if len(unsettled):
        session.unsettled[flow] = [(int(row["first"]), int(row["end"])) for row in unsettled]
