"""The bridge's records, and MGEN's logs joined with them."""

import datetime
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_results.mgen.log import Log, parse_text
from twinlink_results.mgen.log_join import MessageTrace, join_logs
from twinlink_results.mgen.records import Recorder, Row, read

DAY = datetime.date(2026, 11, 21)
MIDNIGHT_NS = 1795219200 * 10**9
BEFORE_MIDNIGHT_NS = MIDNIGHT_NS + 86_399_999_900_000  # 100 us

numbers = st.integers(0, 2**62)
rows = st.lists(
    st.builds(
        Row,
        st.sampled_from(["in", "out"]),
        st.integers(0, 2**64 - 1).map("{:016x}".format),
        numbers,
        st.sampled_from(["udp", "tcp"]),
        *[numbers] * 5,
        *[st.none() | numbers] * 7,
    )
)


@given(rows, st.sampled_from(["records.csv", "records.csv.gz"]))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[Row], name: str) -> None:
    path = tmp_path_factory.mktemp("records") / name
    recorder = Recorder(path)
    for row in rows:
        recorder.add(row)
        recorder.write()
    recorder.close()
    assert read(path) == rows


@pytest.mark.parametrize("name", ["records.csv", "records.csv.gz"])
def test_a_bridge_that_was_killed(tmp_path: Path, name: str) -> None:
    whole = tmp_path / name
    recorder = Recorder(whole)
    expected = [Row("in", f"{7:016x}", number, "udp", 1, number, 1000, 100, 1, 5, 6) for number in range(50)]
    for row in expected:
        recorder.add(row)
    recorder.close()
    octets = whole.read_bytes()
    cut = tmp_path / f"cut-{name}"
    for length in (len(octets) - 1, len(octets) - 9, len(octets) * 2 // 3):
        cut.write_bytes(octets[:length])
        found = read(cut)
        assert found == expected[: len(found)]
        assert len(found) >= 49 or length < len(octets) - 9


@pytest.mark.parametrize("name", ["records.csv", "records.csv.gz"])
def test_a_full_disk_is_said_with_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/full")
    recorder = Recorder(path)
    recorder.add(Row("in", f"{7:016x}", 1, "udp", 1, 1, 1000, 100, 1))
    for write in (recorder.write, recorder.close):
        with pytest.raises(OSError, match="No space left") as full:
            write()
        assert full.value.filename == str(path)


def test_a_file_that_was_appended_to_has_the_rows_of_all_parts(tmp_path: Path) -> None:
    path = tmp_path / "records.csv.gz"
    lines = [",".join(Row._fields), *(f"in,7,{number},udp,1,{number},1000,100,1" + "," * 7 for number in range(3))]
    path.write_bytes(b"".join(gzip.compress(line.encode() + b"\n") for line in lines) + bytes(512))
    assert [row.sequence for row in read(path)] == [0, 1, 2]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv: the first line"):
        read(path)
    path.write_text(",".join(Row._fields) + "\nin,x\n" + ",".join(map(str, range(16))) + "\n")
    with pytest.raises(ValueError, match="line 2: it cannot be read"):
        read(path)
    path.write_text(",".join(Row._fields) + f"\nin,7,1,udp,1,1,{10**400},100,1" + "," * 7 + "\n")
    with pytest.raises(ValueError, match="line 2: it cannot be read: a number is not from 0"):
        read(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "absent.csv")
    path = tmp_path / "other.csv.gz"
    path.write_bytes(gzip.compress(bytes(2**26), 1) * 9)
    with pytest.raises(ValueError, match=r"other\.csv\.gz cannot be read: it unpacks to more than 536,870,912 octets"):
        read(path)


def at(offset_us: int) -> str:
    us = (BEFORE_MIDNIGHT_NS // 1000 + offset_us) % 86_400_000_000
    seconds = us // 10**6
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{us % 10**6:06}"


def logs() -> tuple[Log, Log]:
    """Two messages, each begun before midnight; the second with two fragments, and lost fragments of a third."""
    send = "{} SEND proto>TCP flow>1 seq>{} srcPort>1 dst>h/2 size>{}"
    take = "{} RECV proto>TCP flow>1 seq>{} src>h/1 dst>h/2 sent>{} size>{} {}"
    sender = [send.format(at(0), 0, 100), send.format(at(10), 1, 65635), send.format(at(20), 2, 65635)]
    listener = [
        take.format(at(500), 0, at(0), 100, ""),
        take.format(at(600), 1, at(10), 65535, "flags>0x01"),
        take.format(at(700), 1, at(15), 100, "flags>0x02"),
        take.format(at(800), 2, at(20), 65535, "flags>0x01"),
        take.format(at(900), 7, at(30), 100, ""),
        take.format(at(901), 0, at(0), 100, ""),
        f"{at(902)} RERR type>version src>h/1",
        "torn",
    ]
    return parse_text("\n".join(sender), DAY), parse_text("\n".join(listener), DAY)


def row(sequence: int, mgen_sequence: int, sent_us: int, octets: int, epoch: str = f"{1:016x}") -> Row:
    sent_ns = BEFORE_MIDNIGHT_NS + sent_us * 1000
    return Row(
        *("in", epoch, sequence, "tcp", 1, mgen_sequence, sent_ns, octets, 1 + octets // 65535),
        taken_ns=sent_ns + 90_000,
        sent_ns=sent_ns + 100_000,
        peer_received_ns=sent_ns + 300_000 + 5_000_000,  # the other clock is 5 ms ahead
        peer_sent_ns=sent_ns + 310_000 + 5_000_000,
        received_ns=sent_ns + 500_000,
        rtt_ns=400_000,
    )


def test_delays_of_mgen_and_of_the_link_apart() -> None:
    sender, listener = logs()
    found = join_logs(sender, listener, [row(40, 0, 0, 100), row(41, 1, 10, 65635), row(42, 2, 20, 65635)])
    assert found.traces[:2] == [
        MessageTrace(1, 0, 100, 500_000, 100_000, 5_200_000, -4_800_000, 400_000, 40),
        MessageTrace(1, 1, 65635, 690_000, 100_000, 5_200_000, -4_610_000, 400_000, 41),
    ]
    assert found.traces[2] == MessageTrace(1, 2, 65635, None, 100_000, 5_200_000, None, 400_000, 42)
    assert (found.sent, found.received, found.duplicates, found.incomplete) == (3, 2, 1, 1)
    assert (found.strangers, found.errors, found.unreadable) == (1, 1, 1)
    # There 200 us + 5 ms, back 190 us - 5 ms.
    assert (found.offset_ns, found.offset_bound_ns) == (5_005_000, 195_000)


def test_without_records_or_without_logs() -> None:
    sender, listener = logs()
    found = join_logs(sender, listener)
    assert [trace.mgen_delay_ns for trace in found.traces] == [500_000, 690_000, None]
    assert found.traces[0][4:] == (None, None, None, None, None)
    assert found.offset_ns is None
    found = join_logs(None, listener)
    assert (found.sent, found.received) == (3, 3)
    found = join_logs(None, None, [row(40, 0, 0, 100)])
    assert (found.sent, found.received, found.traces[0].link_delay_ns) == (1, 0, 5_200_000)


def test_messages_of_the_other_direction_are_left_out() -> None:
    _, listener = logs()
    back = [row(0, 900, 5000, 100, f"{2:016x}"), row(1, 901, 5001, 100, f"{2:016x}")]
    found = join_logs(None, listener, [row(40, 0, 0, 100), *back])
    assert [trace.link_sequence for trace in found.traces] == [40]


def test_a_message_of_the_other_direction_with_the_same_key_does_not_take_its_place() -> None:
    """Both directions have a flow 1, and with 50 messages a second now and then send one in the same microsecond."""
    sender, listener = logs()
    back = [row(0, 0, 0, 100, f"{2:016x}"), row(1, 901, 5001, 100, f"{2:016x}")]
    rows = [*back, row(40, 0, 0, 100), row(41, 1, 10, 65635)]
    for order in (rows, rows[::-1]):
        found = join_logs(sender, listener, order)
        assert [trace.link_sequence for trace in found.traces] == [40, 41, None]
        found = join_logs(None, listener, order)
        assert {trace.link_sequence for trace in found.traces} == {40, 41}


def test_a_second_run_with_the_same_numbers() -> None:
    sender, listener = logs()
    found = join_logs(sender, listener, [row(40, 0, 0, 100), row(50, 0, 7_000_000, 100)])
    assert found.traces[0].link_sequence == 40
    assert found.sent == 3
