"""Show, watch and set the values of a state: what is desired, and what is reported, by key.

actions:

  show NAME [KEY ...]     print the values that stand
  watch NAME [KEY ...]    print each change, until Ctrl-C
  set NAME KEY VALUE      set the desired value of a key, or with --column a
                          reported one; VALUE - is read from stdin
  remove NAME KEY         remove it

While it runs it is a peer like others.  What a program that connects sets reaches the others through the listener.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from twinlink import AckTimeout, Change, ConfigurationError, Link, MalformedPayload, State, TwinlinkError, Value
from twinlink.mirror import MIRROR_FLOW
from twinlink.state import MAX_PAYLOAD, check_name
from twinlink.state.record import check_column, check_key

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log, rendered
from ..appkit.formatting import decimal
from ..appkit.options import Parser
from ..process.text import on_one_line, printable
from . import looking
from .payload_line import payload_line

_NAME = "twinlink state"
EXAMPLES = """
twinlink state show prb-block --connect tcp/10.0.0.5:7447
twinlink state watch prb-block --connect 10.0.0.5
twinlink state set prb-block cell-1 '{"prbs": [40, 41]}' --connect 10.0.0.5
twinlink state set mode cell-1 sensing --expires 2 --hold  # until Ctrl-C
twinlink state remove prb-block cell-1 --connect 10.0.0.5
"""
_QUIET_S = 0.3  # without a change: what the peers know is here
_SETTLE_S = 1.0  # at most, where a value changes all the time
_SHOWN = 240  # characters of a value
_RENEWALS = 3  # of a value that is held, while it would stand


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=tuple(_RUN), metavar="ACTION", help=f"one of {', '.join(_RUN)}, as above")
    parser.add_argument("name", metavar="NAME", help="name of the state, as in link.state(NAME)")
    parser.add_argument("words", nargs="*", metavar="KEY", help="what the action takes: KEY, or KEY VALUE, as above")
    linking.add_link_options(parser, listens=False)
    linking.add_mirror_option(parser)
    parser.add_argument(
        "--column", default="desired", metavar="NAME", help="set, remove: which value of the key; not watch or show"
    )
    parser.add_argument(
        "--expires",
        type=convert.above_0,
        metavar="S",
        help="set: the value ends unless it is set again within S seconds",
    )
    parser.add_argument("--hold", action="store_true", help="set: set it again, in time, until Ctrl-C")
    parser.add_argument("-c", "--count", type=convert.count, metavar="N", help="watch: end after N changes")
    linking.add_timeout_option(parser, "wait for a peer so many seconds")
    parser.add_argument("--json", action="store_true", help="JSON Lines on stdout, the last one a summary")


def run(given: argparse.Namespace) -> int:
    """Run the action; 1 if no peer is there, nothing is there to show, or not every peer took what was set."""
    payload = _check(given)
    with Stop() as stop, looking.open_link(given, "state") as link:
        state = link.state(given.name)
        watch = linking.Watch(_NAME, link)
        linking.wait_for_peer(link, stop, given, _NAME, None)
        _settle(state, stop)
        watch.tell()
        if MIRROR_FLOW in link.stats()["received"]:
            log(_NAME, "a mirror is there, which shows flows and has no states: connect to the link that it observes")
            return NOT_MET
        if given.action in {"set", "remove"}:
            return _write(given, link, state, payload, stop)
        return _RUN[given.action](given, link, state, stop)


def _check(given: argparse.Namespace) -> bytes | None:
    """Refuse what cannot be done, before a link is opened; returns the value to set."""
    words, action = given.words or [], given.action
    check_name(given.name)
    if action == "set" and len(words) != 2:
        raise ConfigurationError(f"set takes a key and a value, as in `twinlink state set {given.name} cell-1 VALUE`")
    if action == "remove" and len(words) != 1:
        raise ConfigurationError(f"remove takes a key, as in `twinlink state remove {given.name} cell-1`")
    if action != "set" and (given.hold or given.expires is not None):
        raise ConfigurationError(f"--expires and --hold are for set, not for {action}: leave them out")
    if given.hold and given.expires is None:
        raise ConfigurationError("--hold sets a value again before it ends: say when with --expires S")
    if action in {"set", "remove"}:
        try:
            check_column(given.column)
            check_key(words[0])
        except MalformedPayload as error:
            raise ConfigurationError(str(error)) from None
    if action != "set":
        return None
    if words[1] != "-":
        return str(words[1]).encode()
    if sys.stdin is None:
        raise TwinlinkError("standard input is closed: give the value itself")
    return sys.stdin.buffer.read(MAX_PAYLOAD + 1)


def _settle(state: State, stop: Stop) -> None:
    """Return when the peers have said what they know; a value that is set then is newer than all of that."""
    ends_s = time.monotonic() + _SETTLE_S
    while not stop.requested and time.monotonic() < ends_s and state.receive(_QUIET_S) is not None:
        pass


def _write(given: argparse.Namespace, link: Link, state: State, payload: bytes | None, stop: Stop) -> int:
    key, column = given.words[0], given.column
    known = state.get(key)
    if payload is None and (known is None or column not in known.columns):
        log(_NAME, f"{on_one_line(key)} has no value {column} to remove: `twinlink state show {given.name}` lists them")

    def write() -> int:
        if column == "desired":
            return state.desire(key, payload, expires_s=given.expires)
        return state.report(key, payload, column=column, expires_s=given.expires)

    version, problem = write(), None
    try:
        state.flush(given.timeout)
    except AckTimeout as error:
        problem = str(error)
    while given.hold and not (stop.requested or problem or link.closed):
        stop.wait(given.expires / _RENEWALS)
        if not stop.requested:
            version = write()
    if problem:
        log(_NAME, problem)
    stands = state.get(key)
    value = stands.columns.get(column) if stands is not None else None
    if value is not None and value.version > version:
        log(_NAME, f"{on_one_line(value.set_by)} has set another value meanwhile, which stands")
    have = list(value.acknowledged) if value is not None else link.peers()
    done = "removed" if payload is None else "set"
    text = f"{done} {on_one_line(key)} {column}" + (f", known to {', '.join(map(on_one_line, have))}" if have else "")
    record = {"action": given.action, "state": given.name, "key": key, "column": column, "version": version}
    Output(given.json).emit({**record, "acknowledged": have}, text)
    return NOT_MET if problem else DONE


def _show(given: argparse.Namespace, link: Link, state: State, stop: Stop) -> int:
    output, rows = Output(given.json), list(_rows(state, set(given.words or ())))
    for row in rows if given.json else ():
        output.emit({"type": "value", **row})
    table = looking.table_of("key", "column", "set by", "age s", "ends in s", "answers", "value", words=3)
    table.columns[-1].justify, table.columns[-1].no_wrap, table.columns[-1].overflow = "left", False, "fold"
    for row in rows:
        remaining, answers = row["remaining_s"], row["answers"]
        table.add_row(
            on_one_line(row["key"]), row["column"], on_one_line(row["set_by"]), decimal(row["age_ns"] / 1e9),
            looking.UNKNOWN if remaining is None else decimal(remaining),
            looking.UNKNOWN if not answers else "it" if answers == row["desired_version"] else "older",
            _shown(row["value"]),
        )  # fmt: skip
    of = " of these keys" if given.words else ""
    up = ", ".join(map(on_one_line, link.peers())) or "no peer"
    nothing = f"no value{of}: {up} is up; does a program there call link.state({given.name!r})?"
    output.emit(
        {"state": given.name, "peers": link.peers(), "values": len(rows)},
        printable(rendered(table)) if rows else nothing,
    )
    return DONE if rows else NOT_MET


def _rows(state: State, keys: set[str]) -> Iterator[dict[str, Any]]:
    for item in state.items():
        for column, value in item.items() if not keys or item.key in keys else ():
            desired = item.desired.version if item.desired is not None else 0
            yield {"key": item.key, "column": column, "desired_version": desired, **_fields(value)}


def _fields(value: Value) -> dict[str, Any]:
    return {
        "set_by": value.set_by,
        "version": value.version,
        "set_at_ns": value.set_at_ns,
        "age_ns": time.time_ns() - value.set_at_ns,
        "answers": value.answers,
        "remaining_s": value.remaining_s,
        "octets": len(value.payload),
        "value": payload_line(value.payload),
        "acknowledged": list(value.acknowledged),
    }


def _watch(given: argparse.Namespace, link: Link, state: State, stop: Stop) -> int:
    output, keys, changes = Output(given.json), set(given.words or ()), 0
    for row in _rows(state, keys):
        output.emit({"type": "value", **row}, f"stands {_line(row)}")
    shown: dict[tuple[str, str], tuple[str, bytes]] = {}  # renewals are not shown
    while not (stop.requested or link.closed or changes == given.count):
        change = state.receive(linking.LOOK_S)
        if change is None or (keys and change.key not in keys):
            continue
        slot, what = (change.key, change.column), (change.set_by, change.value.payload if change.value else b"")
        if given.json or change.value is None or shown.get(slot) != what:
            changes += 1
            output.emit(_record(change), f"{change.what:7} {_line(_record(change))}")
        shown[slot] = what
    output.emit({"state": given.name, "changes": changes})
    return DONE


def _record(change: Change) -> dict[str, Any]:
    fields = _fields(change.value) if change.value is not None else {"value": None, "remaining_s": None}
    where = {"type": "change", "what": change.what, "key": change.key, "column": change.column}
    return {**where, **fields, "version": change.version, "set_by": change.set_by, "at_ns": time.time_ns()}


def _line(row: dict[str, Any]) -> str:
    ends = f" (ends in {decimal(row['remaining_s'])} s)" if row["remaining_s"] is not None else ""
    value = f": {_shown(row['value'])}" if row["value"] is not None else ""
    return f"{on_one_line(row['key'])} {row['column']}, by {on_one_line(row['set_by'])}{ends}{value}"


def _shown(value: str) -> str:
    """A value on one line; of a long one the beginning."""
    text = on_one_line(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters; --json has all)"


_RUN: dict[str, Callable[..., int]] = {"show": _show, "watch": _watch, "set": _write, "remove": _write}
