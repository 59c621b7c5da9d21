"""Logs that mgen 5.02b wrote (golden/), and lines as other builds write them."""

import datetime
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_results.mgen.log import DAY_NS, Event, join, parse_binary, parse_text, read

from twinlink.appkit.mgen_message import Protocol

GOLDEN = Path(__file__).with_name("golden")
DAY = datetime.date(2026, 11, 21)
MIDNIGHT_NS = 1795219200 * 10**9  # the beginning of that day
RECV = "RECV proto>UDP flow>1 seq>{} src>10.0.0.1/5000 dst>10.0.0.2/5001 sent>{} size>100"


def ns(hours: int, minutes: int, seconds: float) -> int:
    return MIDNIGHT_NS + round(((hours * 60 + minutes) * 60 + seconds) * 10**6) * 1000


def test_a_listeners_text_log() -> None:
    log = read(GOLDEN / "listener.drc", DAY)
    assert (len(log.events), log.unreadable, log.dated) == (25, 0, False)
    assert [event.kind for event in log.events[:5]] == ["START", "LISTEN", "LISTEN", "JOIN", "ACCEPT"]
    assert log.of("RECV")[0] == Event(
        ns(15, 53, 0.083448), "RECV", Protocol.TCP, 7, 0, 65535, ns(15, 53, 0.083150), "127.0.0.1/37021", 1
    )
    assert [event.error for event in log.of("RERR")] == ["version", "length", "version"]
    assert {event.source for event in log.of("RERR")} == {"127.0.0.1/35744"}
    whole = list(join(log.events))
    assert all(message.complete for message in whole)
    assert [(m.protocol, m.flow, m.sequence, m.octets, m.fragments) for m in whole] == [
        (Protocol.TCP, 7, 0, 200_000, 4),
        (Protocol.UDP, 1, 0, 100, 1),
        (Protocol.UDP, 2, 0, 28, 1),
        (Protocol.TCP, 7, 1, 200_000, 4),
        (Protocol.UDP, 1, 1, 100, 1),
        (Protocol.UDP, 2, 1, 28, 1),
        (Protocol.UDP, 1, 0, 100, 1),
    ]
    assert (whole[0].sent_ns, whole[0].received_ns) == (ns(15, 53, 0.083150), ns(15, 53, 0.083794))


def test_a_senders_text_log() -> None:
    log = read(GOLDEN / "sender.drc", DAY)
    sent = [(e.time_ns, e.protocol, e.flow, e.sequence, e.octets) for e in log.of("SEND")]
    assert sent[:3] == [
        (ns(15, 53, 0.083124), Protocol.UDP, 1, 0, 100),
        (ns(15, 53, 0.083150), Protocol.TCP, 7, 0, 200_000),
        (ns(15, 53, 0.083266), Protocol.UDP, 2, 0, 28),
    ]
    assert len(sent) == 6


def test_binary_logs() -> None:
    sender, listener = read(GOLDEN / "sender-binary.drc"), read(GOLDEN / "listener-binary.drc")
    assert (sender.unreadable, listener.unreadable) == (0, 0)
    assert sender.dated
    assert [(e.time_ns, e.protocol, e.flow, e.sequence, e.octets) for e in sender.of("SEND")][:3] == [
        (ns(15, 53, 20.324741), Protocol.UDP, 2, 0, 28),
        (ns(15, 53, 20.324775), Protocol.UDP, 1, 0, 100),
        (ns(15, 53, 20.324788), Protocol.TCP, 7, 0, 200_000),
    ]
    assert [event.error for event in listener.of("RERR")] == ["version", "length", "version", "checksum"]
    whole = [(m.flow, m.sequence, m.octets, m.fragments, m.complete) for m in join(listener.events)]
    assert whole == [
        (2, 0, 28, 1, True),
        (1, 0, 100, 1, True),
        (7, 0, 200_000, 4, True),
        (2, 1, 28, 1, True),
        (1, 1, 100, 1, True),
        (7, 1, 200_000, 4, True),
        (1, 0, 100, 1, True),
    ]
    assert listener.of("RECV")[0].time_ns == ns(15, 53, 20.325758)
    assert listener.events[-1].kind == "STOP"


def test_a_binary_log_that_was_cut_off() -> None:
    octets = (GOLDEN / "listener-binary.drc").read_bytes()
    events = parse_binary(octets).events
    for cut in range(40, len(octets)):
        log = parse_binary(octets[:cut])
        assert log.events == events[: len(log.events)]
        assert log.unreadable or octets[:cut].endswith(octets[cut - 1 : cut])
        assert len(log.events) < len(events)
    assert parse_binary(b"mgen version=5.02b type=").unreadable == 24


def test_midnight_between_two_lines() -> None:
    lines = [
        "23:59:58.000000 START Mgen Version 5.02b",
        "23:59:59.900000 " + RECV.format(0, "23:59:59.899000"),
        "00:00:00.100000 " + RECV.format(1, "23:59:59.999000"),
        "00:00:00.099000 " + RECV.format(2, "00:00:00.098000"),  # lines may be a little out of order
        "23:59:59.950000 " + RECV.format(9, "23:59:59.940000"),
        "13:00:00.000000 " + RECV.format(3, "12:59:59.900000"),
        "00:10:00.000000 " + RECV.format(4, "00:09:59.900000"),  # and the next midnight
    ]
    received = parse_text("\n".join(lines), DAY).of("RECV")
    assert [event.time_ns for event in received] == [
        ns(23, 59, 59.9),
        ns(24, 0, 0.1),
        ns(24, 0, 0.099),
        ns(23, 59, 59.95),
        ns(37, 0, 0),
        ns(48, 10, 0),
    ]
    assert [event.time_ns - (event.sent_ns or 0) for event in received] == [
        1_000_000,
        101_000_000,
        1_000_000,
        10_000_000,
        100_000_000,
        100_000_000,
    ]


def test_a_clock_ahead_makes_a_negative_delay_not_a_day() -> None:
    (event,) = parse_text("00:00:00.000100 " + RECV.format(0, "00:00:00.000200"), DAY).events
    assert event.sent_ns == event.time_ns + 100_000
    (event,) = parse_text("23:59:59.999900 " + RECV.format(0, "00:00:00.000100"), DAY).events
    assert event.sent_ns == event.time_ns + 200_000


@pytest.mark.parametrize(
    "begin",
    [
        "2026-11-21 15:52:33.045362 ",
        "2026-11-21T15:52:33.045362Z ",
        "2026-11-21_15:52:33.045362 ",
        "1795276353.045362 ",
    ],
)
def test_lines_with_a_date(begin: str) -> None:
    sent = begin.strip().replace(" ", "T").replace("045362", "045000")
    log = parse_text(begin + RECV.format(5, sent), datetime.date(1999, 1, 1))
    assert log.dated
    assert log.events[0].time_ns == ns(15, 52, 33.045362)
    assert log.events[0].sent_ns == ns(15, 52, 33.045)


def test_fields_of_other_builds() -> None:
    line = "11:00:00.5 RECV seq>7 flow>3 proto>TCP new>x latency>0.1 size>99 sent>11:00:00.25 flags>0x02 flags>0x10"
    (event,) = parse_text(line, DAY).events
    assert (event.flow, event.sequence, event.octets, event.flags, event.source) == (3, 7, 99, 0x12, None)
    assert (event.time_ns, event.sent_ns) == (ns(11, 0, 0.5), ns(11, 0, 0.25))
    report = (
        "01:17:01.983235 REPORT proto>UDP flow>3 src>127.0.0.1/63684 window>1.97 rate>10.0 kbps loss>0.0 latency ave>1"
    )
    assert parse_text(report, DAY).events[0].kind == "REPORT"


def test_lines_that_cannot_be_read_are_counted() -> None:
    whole = "11:00:00.500000 " + RECV.format(0, "11:00:00.400000")
    text = "\n".join(
        [whole, "", "nonsense", "11:00:01.0 RECV proto>UDP flow>1 se", "99:00:00.0 STOP", "11:00:02.0 PUFF"]
    )
    log = parse_text(text, DAY)
    assert (len(log.events), log.unreadable) == (1, 4)


def test_the_date_comes_from_the_files_time(tmp_path: Path) -> None:
    path = tmp_path / "log.drc"
    path.write_text("23:59:59.900000 START\n00:00:00.100000 STOP\n")
    end_ns = ns(24, 0, 0.1)
    os.utime(path, ns=(end_ns + 500_000, end_ns + 500_000))
    assert [event.time_ns for event in read(path).events] == [ns(23, 59, 59.9), end_ns]
    os.utime(path, ns=(end_ns + DAY_NS // 2, end_ns + DAY_NS // 2))
    assert read(path).events[-1].time_ns == end_ns


def test_fragments_that_never_end() -> None:
    begin = "11:00:00.{}00000 RECV proto>TCP flow>1 seq>{} src>h/1 dst>h/2 sent>11:00:00.000000 size>65535 flags>0x01"
    end = "11:00:00.500000 RECV proto>TCP flow>1 seq>2 src>h/1 dst>h/2 sent>11:00:00.000000 size>100 flags>0x02"
    text = "\n".join([begin.format(1, 0), begin.format(2, 1), begin.format(3, 1), end])
    assert [(m.sequence, m.fragments, m.complete) for m in join(parse_text(text, DAY).events)] == [
        (2, 1, False),
        (0, 1, False),
        (1, 2, False),
    ]


@given(st.binary(max_size=300))
def test_no_octets_break_it(octets: bytes) -> None:
    parse_binary(octets)
    parse_binary(b"mgen version=5.02b type=binary_log\n\0" + octets)
    log = parse_text(octets.decode(errors="replace"), DAY)
    list(join(log.events))


WORDS = """11:00:00.1 23:59:59.9 2026-11-21 1795276353.1 RECV SEND RERR flow>1 seq>2 seq>x size>3 size> sent>12:00:00
sent>soon flags>0x01 flags> proto>UDP src>a/1 > type>version"""


@given(st.lists(st.sampled_from([*WORDS.split(), "\n"]), max_size=60).map(" ".join))
def test_no_line_breaks_it(text: str) -> None:
    log = parse_text(text, DAY)
    for event in log.of("RECV"):
        assert None not in (event.flow, event.sequence, event.octets, event.sent_ns)
    list(join(log.events))


instants = st.integers(0, DAY_NS // 1000 - 1)


@given(st.lists(st.integers(0, 40_000_000_000), min_size=1, max_size=20), instants)
def test_any_log_with_gaps_below_half_a_day_keeps_its_time(gaps_us: list[int], start_us: int) -> None:
    times_us, now_us = [], start_us
    for gap_us in gaps_us:
        times_us.append(now_us)
        now_us += gap_us
    lines = []
    for number, time_us in enumerate(times_us):
        seconds, us = divmod(time_us, 10**6)
        hour, minute, second = seconds // 3600 % 24, seconds // 60 % 60, seconds % 60
        clock = f"{hour:02}:{minute:02}:{second:02}.{us:06}"
        lines.append(f"{clock} {RECV.format(number, clock)}")
    log = parse_text("\n".join(lines), DAY)
    assert [event.time_ns for event in log.events] == [MIDNIGHT_NS + time_us * 1000 for time_us in times_us]
    assert [event.sent_ns for event in log.events] == [event.time_ns for event in log.events]
