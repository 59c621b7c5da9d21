"""Joins MGEN's logs with the bridge's records, to split each message's delay.

A message is identified by MGEN's flow, sequence and send time (of day: a text log has no more), so senders may restart
at sequence 0, and a log may hold several runs.  Logs may be in other time zones (`log_zone`).

MGEN's delay is that between the SEND at the sender and the RECV of the last fragment at the listener.  The link's
delay, T2 - T1, is a part of it; the rest is before the link (MGEN's socket, Nagle's algorithm, the bridge's
reassembly) and behind it (the bridge, the listener's socket, MGEN's logging).  All but the RTT assume that both hosts'
clocks are equal: ``offset_bound_ns`` is the bound of their offset.
"""

from collections import Counter
from collections.abc import Container, Iterable
from typing import NamedTuple

from . import log_zone
from .log import DAY_NS, Log, Received, join
from .log_zone import Stamp
from .records import Row


class MessageTrace(NamedTuple):
    """One message from sender to listener; a value is None if the logs or records lack it."""

    flow: int
    sequence: int
    octets: int
    mgen_delay_ns: int | None
    before_link_ns: int | None  # from MGEN's SEND to the link's send (T1)
    link_delay_ns: int | None  # T2 - T1
    behind_link_ns: int | None  # from T2 to MGEN's RECV
    rtt_ns: int | None  # of the link, with the peer's residence time
    link_sequence: int | None


class Joined(NamedTuple):
    """All messages and their fate.

    Attributes:
        traces: one for each message that was sent, in the order of sending.
        sent: messages in the sender's log; without one, in the records of the end "in"; without those, received ones.
        received: of these, received whole by the listener.
        duplicates: further arrivals of these.
        incomplete: messages of which only some fragments arrived.
        strangers: received messages without a known sender.
        errors: its RERR events.
        unreadable: lines of text, or octets of a binary log, that could not be read.
        unrecorded: of those sent, messages without a record; 0 without records.
        sender_zone_ns, listener_zone_ns: the zones that the log was in, in ns ahead of the records (UTC), or of the
            sender's log without records; empty if there is nothing to compare with.
        unmatched: pairs of logs and records that both have messages, but none in common in any time zone: they are of
            other runs, or everything was lost between them.
        offset_ns, offset_bound_ns: the receiving host's clock minus the sending one's, from the acknowledged message
            with the least round-trip time, and its bound; None without an acknowledgement.
    """

    traces: list[MessageTrace]
    sent: int
    received: int
    duplicates: int
    incomplete: int
    strangers: int
    errors: int
    unreadable: int
    unrecorded: int
    sender_zone_ns: tuple[int, ...]
    listener_zone_ns: tuple[int, ...]
    unmatched: tuple[str, ...]
    offset_ns: int | None
    offset_bound_ns: int | None


_Key = tuple[int, int, int]


def join_logs(sender: Log | None, listener: Log | None, rows: Iterable[Row] = ()) -> Joined:
    """Join a sender's log, a listener's log, and the bridge's records of one or both ends, as far as they exist."""
    rows = list(rows)
    recorded = [Stamp(row.mgen_flow, row.mgen_sequence, row.mgen_sent_ns) for row in rows]
    sender, sender_zone_ns, alone = _aligned(sender, recorded)
    unmatched = ["the sender's log and the records"] if alone else []
    known = recorded or (list(log_zone.stamps(sender)) if sender else [])
    listener, listener_zone_ns, alone = _aligned(listener, known)
    if alone and recorded:
        unmatched.append("the listener's log and the records")
    taken: dict[_Key, Received] = {}
    duplicates = incomplete = 0
    for message in join(listener.events if listener else ()):
        key = _key(message.flow, message.sequence, message.sent_ns)
        if not message.complete:
            incomplete += 1
        elif key in taken:
            duplicates += 1
        else:
            taken[key] = message
    into, out = _by_key(rows, taken)
    sessions = {row.epoch for key, row in into.items() if key in taken}
    if sessions:  # records of both directions: keep those of the sessions that this listener received
        into, out = ({k: row for k, row in end.items() if row.epoch in sessions} for end in (into, out))
    octets = {key: message.octets for key, message in taken.items()}
    octets |= {key: row.octets for key, row in (out | into).items()}
    if sender is not None:
        sent = {
            _key(event.flow or 0, event.sequence or 0, event.time_ns): event.octets or 0 for event in sender.of("SEND")
        }
        octets |= sent
        keys = list(sent)
    else:
        keys = list(into or out or taken)
    received = len(taken.keys() & set(keys))
    if taken and keys and not received and sender is not None:
        unmatched.append("the listener's log and the sender's")
    offset_ns, offset_bound_ns = _offset(into.values())
    return Joined(
        [_trace(key, octets[key], into.get(key) or out.get(key), taken.get(key)) for key in keys],
        len(keys),
        received,
        duplicates,
        incomplete,
        len(taken.keys() - set(keys)),
        len(listener.of("RERR")) if listener else 0,
        sum(log.unreadable for log in (sender, listener) if log),
        sum(key not in into and key not in out for key in keys) if rows else 0,
        sender_zone_ns,
        listener_zone_ns,
        tuple(unmatched),
        offset_ns,
        offset_bound_ns,
    )


def _aligned(log: Log | None, known: list[Stamp]) -> tuple[Log | None, tuple[int, ...], bool]:
    """The log in the zone of the known messages, its zones, and whether nothing matches although both have messages."""
    if log is None or not known:
        return log, (), False
    log, zones_ns = log_zone.aligned(log, known)
    return log, zones_ns, not zones_ns and any(log_zone.stamps(log))


def _by_key(rows: Iterable[Row], taken: Container[_Key]) -> tuple[dict[_Key, Row], dict[_Key, Row]]:
    """The records of either end, one for each message.

    Both directions may have a flow 1, and send in the same microsecond: then the record is that of the session from
    which the listener received more.
    """
    keyed = [(_key(row.mgen_flow, row.mgen_sequence, row.mgen_sent_ns), row) for row in rows]
    matches = Counter(row.epoch for key, row in keyed if key in taken)
    into: dict[_Key, Row] = {}
    out: dict[_Key, Row] = {}
    for key, row in keyed:
        end = into if row.end == "in" else out
        if matches[row.epoch] > matches[end.setdefault(key, row).epoch]:
            end[key] = row
    return into, out


def _key(flow: int, sequence: int, sent_ns: int) -> _Key:
    return flow, sequence, sent_ns % DAY_NS // 1000


def _trace(key: _Key, octets: int, row: Row | None, received: Received | None) -> MessageTrace:
    mgen_delay_ns = received.received_ns - received.sent_ns if received else None
    before_ns = link_ns = behind_ns = None
    if row and row.sent_ns is not None:
        before_ns = row.sent_ns - row.mgen_sent_ns
        if row.peer_received_ns is not None:
            link_ns = row.peer_received_ns - row.sent_ns
            if mgen_delay_ns is not None:
                behind_ns = mgen_delay_ns - before_ns - link_ns
    return MessageTrace(
        key[0],
        key[1],
        octets,
        mgen_delay_ns,
        before_ns,
        link_ns,
        behind_ns,
        row.rtt_ns if row else None,
        row.sequence if row else None,
    )


def _offset(rows: Iterable[Row]) -> tuple[int | None, int | None]:
    best: tuple[int, int] | None = None
    for row in rows:
        if row.sent_ns is None or row.peer_received_ns is None or row.peer_sent_ns is None or row.received_ns is None:
            continue
        there_ns = row.peer_received_ns - row.sent_ns
        back_ns = row.received_ns - row.peer_sent_ns
        if best is None or there_ns + back_ns < best[0]:
            best = there_ns + back_ns, (there_ns - back_ns) // 2
    return (None, None) if best is None else (best[1], best[0] // 2)
