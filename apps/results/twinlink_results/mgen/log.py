"""MGEN's log (``.drc``) of a sender (with ``txlog``) or a listener, in text or binary.

A text line is an instant, the event, and fields as ``name>value``::

    11:24:40.073002 RECV proto>UDP flow>1 seq>0 src>127.0.0.1/15100 dst>127.0.0.1/15001 sent>11:24:40.072909 size>100

5.02b gives the time of day, in UTC unless ``localtime`` was set (see `log_zone`); the date comes from elsewhere, and a
step back by more than half a day is a midnight.  5.1 with ``epochtimestamp`` gives seconds since 1970; other builds put
a date before the time.  Unknown fields are kept, missing fields are None.

The binary log begins with a line of text and a NUL; then come records of type (u8), protocol (u8), length (u16) and
that many octets.  `mgen convert` stops at the first RERR; this module does not.

A log of a killed MGEN ends within a record; unreadable parts are counted.
"""

import datetime
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from twinlink.appkit import mgen_message as message
from twinlink.appkit.mgen_message import Flag, Protocol
from twinlink.process import files

MOST_OCTETS = 2 * 1024 * 1024 * 1024  # of a file, which is read as a whole
DAY_NS = 86_400_000_000_000
_LATE_NS = 60_000_000_000  # a TCP message's SEND is logged after its last fragment was sent
_BINARY = b"mgen version="
_EVENT = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[T_ ])?(?P<time>\d\d:\d\d:\d\d(?:\.\d+)?Z?|\d{9,11}(?:\.\d+)?)"
    r"\s+(?P<kind>[A-Z]+)\b(?P<rest>.*)"
)
_FIELD = re.compile(r"(\w+)>(\S*)")
_KINDS = (
    *("", "RECV", "RERR", "SEND", "LISTEN", "IGNORE", "JOIN", "LEAVE", "START", "STOP", "ON"),
    *("ACCEPT", "DISCONNECT", "CONNECT", "OFF", "SHUTDOWN", "RECONNECT"),
)
_ERRORS = ("none", "version", "checksum", "length", "dstAddr")
_INSTANT = struct.Struct(">II")


class Event(NamedTuple):
    """One line or record of a log.

    Attributes:
        time_ns: Unix time in ns when it happened; a SEND's is the send time in the message.
        kind: RECV, SEND, RERR, and others.
        protocol: None if the event has none.
        flow, sequence, octets: of the message; octets of the whole one at SEND, of the fragment at RECV.
        sent_ns: at RECV, Unix time in ns at which the sender sent it, on its clock.
        source: at RECV and RERR, ``address/port``.
        flags: `message.Flag`, if the log has them.
        error: at RERR, which.
    """

    time_ns: int
    kind: str
    protocol: Protocol | None = None
    flow: int | None = None
    sequence: int | None = None
    octets: int | None = None
    sent_ns: int | None = None
    source: str | None = None
    flags: int = 0
    error: str | None = None


@dataclass
class Log:
    """The content of a log.

    Attributes:
        events: in the order of the file.
        unreadable: lines, or octets at the end of a binary log, that could not be read.
        dated: whether the log has dates.
    """

    events: list[Event] = field(default_factory=list)
    unreadable: int = 0
    dated: bool = True

    def of(self, kind: str) -> list[Event]:
        """The events of a kind."""
        return [event for event in self.events if event.kind == kind]


class Received(NamedTuple):
    """One message that a listener received, with its fragments joined."""

    protocol: Protocol | None
    flow: int
    sequence: int
    octets: int
    fragments: int
    sent_ns: int  # of the first fragment
    received_ns: int  # of the last fragment
    complete: bool


def read(path: Path, date: datetime.date | None = None) -> Log:
    """The log in a file.

    Args:
        path: text or binary.
        date: of the first event, if the log has only times of day; by default the last event is assumed to be at most
            a day older than the file.

    Raises:
        OSError: it cannot be read.
    """
    octets = files.read(path, MOST_OCTETS)
    if octets.startswith(_BINARY):
        return parse_binary(octets)
    if date is not None:
        return parse_text(octets.decode("utf-8-sig", "replace"), date)
    log = parse_text(octets.decode("utf-8-sig", "replace"), datetime.date(1970, 1, 1))
    if log.dated or not log.events:
        return log
    # A log is written within a second of an event, or at the end; half an hour allows for a clock that was set back.
    latest = path.stat().st_mtime_ns + DAY_NS // 48
    days = (latest - log.events[-1].time_ns) // DAY_NS
    return Log([_shift(event, days * DAY_NS) for event in log.events], log.unreadable, False)


def _shift(event: Event, by_ns: int) -> Event:
    sent_ns = None if event.sent_ns is None else event.sent_ns + by_ns
    return event._replace(time_ns=event.time_ns + by_ns, sent_ns=sent_ns)


def parse_text(text: str, date: datetime.date) -> Log:
    """A text log.  ``date``: of its first event, if the log has none."""
    log = Log()
    clock = _Clock(date)
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            event = _parse_line(line.strip(), clock)
        except ValueError:
            event = None
        if event is None:
            log.unreadable += 1
        else:
            log.events.append(event)
    log.dated = not clock.lacked_date
    return log


class _Clock:
    """Converts the times of a log to Unix time."""

    def __init__(self, date: datetime.date) -> None:
        self.lacked_date = False
        self._day_ns = (date - datetime.date(1970, 1, 1)).days * DAY_NS
        self._last_ns: int | None = None

    def event(self, date: str | None, time: str) -> int:
        """Unix time in ns of an event with this date and time; events are read in the order of the log."""
        instant_ns, is_whole = self._read(date, time)
        if not is_whole:
            self.lacked_date = True
            instant_ns += self._day_ns
            if self._last_ns is not None and instant_ns < self._last_ns - DAY_NS // 2:
                self._day_ns += DAY_NS
                instant_ns += DAY_NS
            elif self._last_ns is not None and instant_ns > self._last_ns + DAY_NS - _LATE_NS:
                return instant_ns - DAY_NS  # from before midnight, logged after it
        self._last_ns = instant_ns
        return instant_ns

    def near(self, text: str, event_ns: int) -> int:
        """Unix time in ns of a time in an event's fields; without a date, at most half a day from the event."""
        match = _EVENT.match(text + " X")
        if match is None:
            raise ValueError(text)
        instant_ns, is_whole = self._read(match["date"], match["time"])
        return instant_ns if is_whole else event_ns + (instant_ns - event_ns + DAY_NS // 2) % DAY_NS - DAY_NS // 2

    def _read(self, date: str | None, time: str) -> tuple[int, bool]:
        whole, _, fraction = time.removesuffix("Z").partition(".")
        fraction_ns = int(fraction[:9].ljust(9, "0")) if fraction else 0
        if ":" not in whole:
            return int(whole) * 1_000_000_000 + fraction_ns, True
        hours, minutes, seconds = map(int, whole.split(":"))
        if hours > 23 or minutes > 59 or seconds > 60:
            raise ValueError(time)
        instant_ns = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction_ns
        if date is None:
            return instant_ns, False
        days = (datetime.date.fromisoformat(date) - datetime.date(1970, 1, 1)).days
        return days * DAY_NS + instant_ns, True


def _parse_line(line: str, clock: _Clock) -> Event | None:
    match = _EVENT.match(line)
    if match is None or match["kind"] not in (*_KINDS, "REPORT"):
        return None
    kind = match["kind"]
    found: dict[str, str] = {}
    flags = 0
    for name, value in _FIELD.findall(match["rest"]):
        if name == "flags":  # may occur more than once
            flags |= int(value, 16)
        else:
            found.setdefault(name, value)
    if kind in ("RECV", "SEND") and not {"flow", "seq", "size"} <= found.keys():
        return None  # truncated
    if kind == "RECV" and "sent" not in found:
        return None
    flow, sequence, octets = (_whole(found[name]) if name in found else None for name in ("flow", "seq", "size"))
    time_ns = clock.event(match["date"], match["time"])
    return Event(
        time_ns,
        kind,
        Protocol.__members__.get(found.get("proto", "")),
        flow,
        sequence,
        octets,
        clock.near(found["sent"], time_ns) if "sent" in found else None,
        found.get("src"),
        flags,
        found.get("type") if kind == "RERR" else None,
    )


def _whole(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 32:  # all three have 32 bits in a message
        raise ValueError(text)
    return value


def parse_binary(octets: bytes) -> Log:
    """A binary log, from its first line on."""
    log = Log()
    offset = octets.find(b"\0") + 1
    if not octets.startswith(_BINARY) or not offset:
        return Log(unreadable=len(octets))
    while offset < len(octets):
        kind, protocol, length = struct.unpack(">BBH", octets[offset : offset + 4].ljust(4, b"\0"))
        body = octets[offset + 4 : offset + 4 + length]
        if not 0 < kind < len(_KINDS) or len(body) < length or len(octets) - offset < 4:
            log.unreadable = len(octets) - offset
            break
        offset += 4 + length
        try:
            log.events.append(_parse_record(_KINDS[kind], Protocol(protocol) if protocol in (1, 2) else None, body))
        except (ValueError, struct.error, IndexError):
            log.unreadable += 4 + length
    return log


def _parse_record(kind: str, protocol: Protocol | None, body: bytes) -> Event:
    if kind == "SEND":
        total = int.from_bytes(body[:4], "big") if protocol is Protocol.TCP else None
        packet = message.parse_logged(body[4:] if total is not None else body)
        octets = packet.size if total is None else total
        return Event(packet.sent_ns, kind, protocol, packet.flow, packet.sequence, octets)
    seconds, microseconds = _INSTANT.unpack_from(body)
    time_ns = (seconds * 1_000_000 + microseconds) * 1000
    if kind not in ("RECV", "RERR"):
        return Event(time_ns, kind, protocol)
    source, end = message.read_address(body, 8)
    where = f"{source.host}/{source.port}" if source else None
    if kind == "RERR":
        (code,) = struct.unpack_from(">i", body, end)
        return Event(time_ns, kind, protocol, source=where, error=_ERRORS[code] if 0 <= code < 5 else str(code))
    packet = message.parse_logged(body[end:])
    return Event(
        time_ns,
        kind,
        protocol,
        packet.flow,
        packet.sequence,
        packet.size,
        packet.sent_ns,
        where,
        packet.flags & ~Flag.LAST_BUFFER,
    )


def join(events: Iterable[Event]) -> Iterator[Received]:
    """The messages that a listener received, in the order of their last fragment; incomplete ones at the end."""
    begun: dict[tuple[str | None, int, int], list[Event]] = {}
    for event in events:
        if event.kind != "RECV" or event.flow is None or event.sequence is None:
            continue
        key = (event.source, event.flow, event.sequence)
        fragments = begun.setdefault(key, [])
        fragments.append(event)
        if not event.flags & Flag.CONTINUES:
            # The end of a message without its beginning is the rest of one that was sent in part, then again.
            yield _joined(begun.pop(key), not event.flags & Flag.END_OF_MSG or len(fragments) > 1)
    for fragments in begun.values():
        yield _joined(fragments, False)


def _joined(fragments: list[Event], complete: bool) -> Received:
    first, last = fragments[0], fragments[-1]
    assert first.flow is not None
    assert first.sequence is not None
    return Received(
        first.protocol,
        first.flow,
        first.sequence,
        sum(event.octets or 0 for event in fragments),
        len(fragments),
        first.sent_ns or 0,
        last.time_ns,
        complete,
    )
