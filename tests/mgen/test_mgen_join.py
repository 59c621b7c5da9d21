"""Logs in other time zones, and logs of other runs, joined with each other and with the bridge's records."""

import csv
import datetime
import os
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from twinlink_results.mgen import log_zone
from twinlink_results.mgen.log import Log, parse_text
from twinlink_results.mgen.log_join import join_logs
from twinlink_results.mgen.records import Row

from tests.cli.running import Start
from tests.mgen.conftest import Mgen, free_ports
from twinlink.testing.base import wait_until

START = datetime.datetime(2026, 11, 21, 23, 58, tzinfo=datetime.UTC)
COUNT = 40
EVERY = datetime.timedelta(seconds=6)
TRANSIT = datetime.timedelta(milliseconds=3)
HOUR_NS = 3600 * 10**9


def instants(first: datetime.datetime = START) -> list[datetime.datetime]:
    return [first + number * EVERY + datetime.timedelta(microseconds=number * 137) for number in range(COUNT)]


def time_of_day(at: datetime.datetime, zone: str) -> str:
    return f"{at.astimezone(ZoneInfo(zone)):%H:%M:%S.%f}"


def sender_text(zone: str, first: datetime.datetime = START) -> str:
    return "\n".join(
        f"{time_of_day(at, zone)} SEND proto>UDP flow>1 seq>{number} srcPort>1 dst>h/2 size>100"
        for number, at in enumerate(instants(first))
    )


def listener_text(zone: str, first: datetime.datetime = START) -> str:
    return "\n".join(
        f"{time_of_day(at + TRANSIT, zone)} RECV proto>UDP flow>1 seq>{number} src>h/1 dst>h/2 "
        f"sent>{time_of_day(at, zone)} size>100"
        for number, at in enumerate(instants(first))
    )


def log(text: str, first: datetime.datetime = START) -> Log:
    return parse_text(text, first.date())


def record(first: datetime.datetime = START) -> list[Row]:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    sent_ns = [(at - epoch) // datetime.timedelta(microseconds=1) * 1000 for at in instants(first)]
    return [
        Row(
            *("in", f"{1:016x}", number, "udp", 1, number, ns, 100, 1),
            sent_ns=ns + 10**6,
            peer_received_ns=ns + 2 * 10**6,
        )
        for number, ns in enumerate(sent_ns)
    ]


ZONES = [
    ("UTC", "+00:00"),
    ("America/New_York", "-05:00"),
    ("America/St_Johns", "-03:30"),
    ("Asia/Kathmandu", "+05:45"),
    ("Australia/Eucla", "+08:45"),
    ("Asia/Tokyo", "+09:00"),
    ("Pacific/Chatham", "-10:15 or +13:45"),
    ("Pacific/Kiritimati", "-10:00 or +14:00"),
    ("Etc/GMT+12", "-12:00 or +12:00"),
]


@pytest.mark.parametrize(("zone", "offset"), ZONES)
def test_logs_in_local_time_are_joined_with_the_records(zone: str, offset: str) -> None:
    found = join_logs(log(sender_text(zone)), log(listener_text("Asia/Kolkata")), record())
    assert (found.sent, found.received, found.strangers, found.unrecorded) == (COUNT, COUNT, 0, 0)
    assert {trace.mgen_delay_ns for trace in found.traces} == {3_000_000}
    assert {trace.link_delay_ns for trace in found.traces} == {1_000_000}
    assert {trace.behind_link_ns for trace in found.traces} == {1_000_000}
    assert [log_zone.offset(ns) for ns in found.sender_zone_ns] == [offset]
    assert [log_zone.offset(ns) for ns in found.listener_zone_ns] == ["+05:30"]


def test_two_logs_in_different_zones_without_records() -> None:
    found = join_logs(log(sender_text("America/New_York")), log(listener_text("Asia/Kathmandu")))
    assert (found.sent, found.received, found.strangers) == (COUNT, COUNT, 0)
    assert {trace.mgen_delay_ns for trace in found.traces} == {3_000_000}
    assert (found.sender_zone_ns, found.listener_zone_ns) == ((), (10.75 * HOUR_NS,))


@pytest.mark.parametrize("begins", [(2026, 3, 8, 7), (2026, 11, 1, 6)])
def test_summer_time_begins_or_ends_within_the_log(begins: tuple[int, int, int, int]) -> None:
    """Also while a message is under way: the one that is sent 1 ms before."""
    first = datetime.datetime(*begins, tzinfo=datetime.UTC) - 20 * EVERY - datetime.timedelta(milliseconds=3.74)
    sender, listener = (log(text("America/New_York", first), first) for text in (sender_text, listener_text))
    found = join_logs(sender, listener, record(first))
    assert (found.received, found.unrecorded) == (COUNT, 0)
    assert {trace.mgen_delay_ns for trace in found.traces} == {3_000_000}
    assert sorted(found.listener_zone_ns) == [-5 * HOUR_NS, -4 * HOUR_NS]


def test_a_log_that_also_has_other_runs() -> None:
    """A restarted sender counts from 0 again; messages that were recorded nowhere do not decide the zone."""
    earlier = START - datetime.timedelta(hours=3, seconds=1)
    both = f"{listener_text('America/New_York', earlier)}\n{listener_text('America/New_York')}"
    found = join_logs(log(sender_text("UTC")), log(both, earlier), record())
    assert (found.received, found.strangers, found.listener_zone_ns) == (COUNT, COUNT, (-5 * HOUR_NS,))


def test_what_has_nothing_in_common_is_named() -> None:
    other = START + datetime.timedelta(minutes=7, milliseconds=1)
    sender, listener = log(sender_text("UTC")), log(listener_text("UTC"))
    of_other = log(listener_text("UTC", other))
    for tx, rx, rows, unmatched in (
        (sender, listener, record(other), ["the sender's log and the records", "the listener's log and the records"]),
        (None, listener, record(other), ["the listener's log and the records"]),
        (sender, None, record(other), ["the sender's log and the records"]),
        (sender, of_other, [], ["the listener's log and the sender's"]),
        (sender, of_other, record(), ["the listener's log and the records", "the listener's log and the sender's"]),
        (sender, listener, record(), []),
        (sender, Log(), [], []),
    ):
        assert join_logs(tx, rx, rows).unmatched == tuple(unmatched)


def test_of_logs_and_records_with_other_messages_too_a_lost_run_is_named() -> None:
    """As in a sweep whose listener and bridge have the messages of all cells, and those of this one are lost."""
    other = START + datetime.timedelta(minutes=7, milliseconds=1)
    found = join_logs(log(sender_text("UTC")), log(listener_text("UTC", other)), record(other))
    assert (found.sent, found.received, found.strangers, found.unrecorded) == (COUNT, 0, COUNT, COUNT)
    assert found.unmatched == ("the sender's log and the records", "the listener's log and the sender's")


def test_a_listener_that_received_nothing_is_a_loss() -> None:
    found = join_logs(log(sender_text("Asia/Tokyo")), Log(), record())
    assert (found.sent, found.received, found.unrecorded) == (COUNT, 0, 0)


def write_records(path: Path, rows: list[Row]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([Row._fields, *rows])
    return str(path)


def test_the_command_says_which_log_has_local_times_and_what_does_not_match(start: Start, tmp_path: Path) -> None:
    tx, rx, silent = (tmp_path / name for name in ("tx.drc", "rx.drc", "no-txlog.drc"))
    tx.write_text(sender_text("America/New_York"))
    rx.write_text(listener_text("Asia/Kathmandu"))
    silent.write_text("23:58:00.000000 START Mgen Version 5.02b\n")
    own, cut, none, other = (
        write_records(tmp_path / name, rows)
        for name, rows in (
            ("own.csv", record()),
            ("cut.csv", record()[:30]),
            ("none.csv", []),
            ("other.csv", record(START + datetime.timedelta(seconds=1))),
        )
    )
    logs = ("--tx", str(tx), "--rx", str(rx))
    runs = {
        0: (start("mgen", "join", *logs, "--records", own), start("mgen", "join", *logs, "--records", cut)),
        1: (
            start("mgen", "join", *logs, "--records", other),
            start("mgen", "join", "--tx", str(tx), "--records", other),
        ),
        2: (
            start("mgen", "join", *logs, "--records", none),
            start("mgen", "join", "--tx", str(silent), "--rx", str(rx)),
        ),
    }
    for code, each in runs.items():
        assert [run.code() for run in each] == [code] * len(each)
    whole, part = ("\n".join(run.out) for run in runs[0])
    assert "on the link            40" in whole
    assert "the sender's log has local times (UTC-05:00), which were converted" in whole
    assert "the listener's log has local times (UTC+05:45), which were converted" in whole
    assert "10 of 40 have no record" not in whole
    assert "10 of 40 have no record" in part
    for run in runs[1]:
        assert any(line.startswith("nothing matches in the sender's log and the records") for line in run.out)
    for run, says in zip(runs[2], ("no message is recorded there", "has no SEND"), strict=True):
        assert says in run.err


def test_real_logs_of_hosts_in_two_zones(
    mgens: list[Mgen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    (port,) = free_ports(1)
    for name, zone, event in (
        ("rx", "America/St_Johns", ("event", f"LISTEN UDP {port}")),
        ("tx", "Asia/Kathmandu", ("txlog", "event", f"ON 1 UDP DST 127.0.0.1/{port} PERIODIC [200 100] COUNT 20")),
    ):
        monkeypatch.setitem(os.environ, "TZ", zone)
        mgens.append(Mgen(tmp_path / f"{name}.drc", "localtime", *event))
        if name == "rx":
            wait_until(lambda: mgens[0].log().of("LISTEN"))
    mgens[0].wait_for(20)
    mgens[1].wait()
    join = start("mgen", "join", "--tx", str(mgens[1].path), "--rx", str(mgens[0].path))
    assert join.code() == 0
    assert join.out[0].startswith("20 of 20 received")
