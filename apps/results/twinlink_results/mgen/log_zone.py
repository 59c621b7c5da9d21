"""The time zone of a log that names none, from messages whose send time is known otherwise.

MGEN prints UTC, or with `localtime` the time of its host's zone, and says nothing of it.  A message's send time is in
its header, so every log and record has the same one, to the microsecond, in its own zone.  All zones of today differ
from UTC by a multiple of a quarter of an hour.  A log may have two of them, as summer time begins or ends within it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .log import DAY_NS, Event, Log

QUARTER_NS = 900 * 10**9


class Stamp(NamedTuple):
    """A message as logs and records identify it: MGEN's flow, sequence and send time."""

    flow: int
    sequence: int
    sent_ns: int


def stamps(log: Log) -> Iterator[Stamp]:
    """Those of a log's messages, once for each event."""
    return (stamp for event in log.events if (stamp := _stamp(event)) is not None)


def aligned(log: Log, known: Iterable[Stamp]) -> tuple[Log, tuple[int, ...]]:
    """The log in the zone of ``known``, and the zones that it was in: ns ahead of that one, -12 h to below 12 h.

    The zones are in the order of the log; there is none if no message is known, and the log is as it was.
    """
    times: dict[Stamp, set[int]] = {}  # by what is alike in all zones
    for stamp in known:
        times.setdefault(_in_quarter(stamp), set()).add(stamp.sent_ns % DAY_NS // 1000)
    ahead = [_ahead_ns(_stamp(event), times) for event in log.events]
    votes = Counter(each for candidates in ahead for each in candidates)
    if not votes:
        return log, ()
    # A restarted sender may have sent a message of the same number in the same microsecond of another quarter.
    zones = [max(candidates, key=votes.__getitem__) if candidates else None for candidates in ahead]
    found = tuple(dict.fromkeys(zone for zone in zones if zone is not None))
    events, zone_ns = [], found[0]
    for event, own_ns in zip(log.events, zones, strict=True):
        zone_ns = zone_ns if own_ns is None else own_ns
        events.append(_shifted(event, zone_ns, found))
    return Log(events, log.unreadable, log.dated), found


def offset(zone_ns: int) -> str:
    """Such as -05:00.  A time of day does not tell -10:00 and less from +12:00 and more, so both are named."""
    minutes = zone_ns // (60 * 10**9)
    both = (minutes, minutes + 24 * 60) if minutes <= -10 * 60 else (minutes,)
    return " or ".join(f"{'-' if each < 0 else '+'}{abs(each) // 60:02}:{abs(each) % 60:02}" for each in both)


def _stamp(event: Event) -> Stamp | None:
    sent_ns = event.time_ns if event.kind == "SEND" else event.sent_ns
    if event.kind not in ("SEND", "RECV") or event.flow is None or event.sequence is None or sent_ns is None:
        return None
    return Stamp(event.flow, event.sequence, sent_ns)


def _in_quarter(stamp: Stamp) -> Stamp:
    return stamp._replace(sent_ns=stamp.sent_ns % QUARTER_NS // 1000)


def _ahead_ns(stamp: Stamp | None, times: dict[Stamp, set[int]]) -> frozenset[int]:
    """How far this time of day may be ahead of the known one; empty if the message is not known."""
    if stamp is None:
        return frozenset()
    time_us, day_us = stamp.sent_ns % DAY_NS // 1000, DAY_NS // 1000
    known = times.get(_in_quarter(stamp), ())
    return frozenset(((time_us - each + day_us // 2) % day_us - day_us // 2) * 1000 for each in known)


def _shifted(event: Event, zone_ns: int, zones: tuple[int, ...]) -> Event:
    """In the other zone.  As summer time begins or ends, a message may be sent in one and received in the next."""
    if event.sent_ns is None:
        return event._replace(time_ns=event.time_ns - zone_ns)
    sent_ns = event.sent_ns - zone_ns
    time_ns = min((event.time_ns - each for each in zones), key=lambda time_ns: abs(time_ns - sent_ns))
    return event._replace(time_ns=time_ns, sent_ns=sent_ns)
