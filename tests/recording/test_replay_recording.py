"""Playing recordings: order, payloads, pace, gaps, seek, rotation, and files that are cut or damaged."""

import contextlib
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mcap.reader import make_reader
from mcap.records import ChunkIndex

import twinlink
from tests.recording.recordings import only, pair, rows
from twinlink.errors import ConfigurationError
from twinlink.events import Gap
from twinlink.recording import Playback, RecordingError, play, verify
from twinlink.recording.message_order import HOLD_NS, MessageOrder, Played
from twinlink.recording.writer import RecordingWriter
from twinlink.testing import free_endpoint, patience, wait_until


class Heard:
    """What a link receives."""

    def __init__(self, link: twinlink.Link, *flows: str) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.sequences: dict[str, list[int]] = {flow: [] for flow in flows}
        self.gaps: list[tuple[str, int, int]] = []
        link.events(handler=self._on_event)
        for flow in flows:
            link.receiver(flow, handler=self._on_message)

    def _on_message(self, message: twinlink.Message) -> None:
        self.messages.append((message.flow, bytes(message.payload)))
        self.sequences[message.flow].append(message.sequence)

    def _on_event(self, event: twinlink.Event) -> None:
        if isinstance(event, Gap):
            self.gaps.append((event.flow, event.first, event.end))

    def of(self, flow: str) -> list[bytes]:
        return [payload for name, payload in self.messages if name == flow]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a twin has received: 300 messages on two flows in half a second, without numbers 40 to 49 of flow a.

    The recording has two files.
    """
    path = tmp_path_factory.mktemp("recorded") / "run.mcap"
    generator = random.Random(1)
    with pair("zeromq", free_endpoint()) as (twin, gnb):
        heard = Heard(twin, "a", "b")
        answers = twin.sender("answers")
        with twin.record(path, rotate_octets=3_000_000) as recorder:
            a, b = gnb.sender("a"), gnb.sender("b")
            for number in range(200):
                if number == 40:
                    a.skip(10)
                a.send(generator.randbytes(generator.choice((10, 1000, 70_000))))
                if number % 2:
                    b.send(f"b {number}")
                if number % 20 == 0:
                    answers.send(f"answer {number}")
                time.sleep(0.0025)
            a.flush(patience())
            b.flush(patience())
            wait_until(lambda: len(heard.messages) == 300)
        assert len(recorder.files) == 2
    assert heard.gaps == [("a", 40, 50)]
    return path


def files(recorded: Path) -> list[Path]:
    return sorted(recorded.parent.iterdir())  # not in their order


def received(paths: list[Path], flow: str) -> list[tuple[int, bytes]]:
    found = [(row.sequence, row.payload) for path in paths for row in rows(path, "received", flow)]
    return sorted(found)


def messages(playback: Playback) -> list[Played]:
    return [item for item in playback.items() if item.payload is not None]


@pytest.mark.parametrize("speed", [2.0, math.inf])
def test_a_recording_of_a_replay_has_the_same_messages(
    recorded: Path, endpoint: str, tmp_path: Path, speed: float
) -> None:
    again, sent = tmp_path / "again.mcap", tmp_path / "sent.mcap"
    playback = Playback(files(recorded))
    with pair("zeromq", endpoint) as (twin, gnb):
        heard = Heard(twin, "a", "b")
        with twin.record(again), gnb.record(sent):
            began_s = time.monotonic()
            assert playback.run(gnb, speed=speed)
            took_s = time.monotonic() - began_s
            for flow in ("a", "b"):
                gnb.sender(flow).flush(patience())
            wait_until(lambda: len(heard.messages) == 300)
            time.sleep(0.3)  # until the loss is an event
    for flow in ("a", "b"):
        first = received(files(recorded), flow)
        assert received([again], flow) == first
        assert heard.of(flow) == [payload for _, payload in first]
    assert heard.gaps == [("a", 40, 50)]
    assert (playback.messages, playback.skipped, playback.late) == (300, 10, 0)
    assert playback.octets == sum(len(payload) for flow in ("a", "b") for _, payload in received([again], flow))
    if speed == 2.0:
        assert took_s >= 0.25
    for path, direction in ((again, "received"), (sent, "sent")):
        report = verify(path)
        assert report.sound
        assert only(report.streams, direction, "a")["missing"] == {"sender": [[40, 50]]}


def test_messages_leave_in_the_order_in_which_they_came(recorded: Path) -> None:
    came = [row for path in files(recorded)[::-1] for row in rows(path, "received")]
    played = messages(Playback(files(recorded)))
    assert [(item.flow, item.payload) for item in played] == [(row.flow, row.payload) for row in came]
    assert [item.due_ns for item in played] == [row.log_ns for row in came]


def test_direction_and_flows(recorded: Path) -> None:
    playback = Playback(files(recorded), flows=["b*"])
    assert (playback.directions, {item.flow for item in playback.items()}) == (("received",), {"b"})
    assert Playback(files(recorded)).others == ["answers"]
    playback = Playback(files(recorded), direction="sent")
    assert [item.payload for item in messages(playback)] == [f"answer {n}".encode() for n in range(0, 200, 20)]
    assert Playback(files(recorded), flows=["answers"]).directions == ("sent",)  # nothing was received on it
    assert len(messages(Playback(files(recorded), direction="both"))) == 310
    for wrong in ({"direction": "left"}, {"flows": "b"}, {"start_s": -1.0}, {"start_s": 2.0, "end_s": 1.0}):
        with pytest.raises(ConfigurationError):
            Playback(files(recorded), **wrong)
    with pytest.raises(ConfigurationError, match="ends after"):
        Playback(files(recorded), start_s=3600)


def test_it_seeks_without_reading_what_is_before(recorded: Path, tmp_path: Path) -> None:
    octets = bytearray(recorded.read_bytes())
    chunk = chunks(recorded)[1]  # the first with messages
    octets[chunk.chunk_start_offset + 200] ^= 1
    damaged = tmp_path / "run.mcap"
    damaged.write_bytes(octets)
    playback = Playback([recorded])
    middle_s = (chunk.message_end_time + 1 - playback.begin_ns) / 1e9
    later = messages(Playback([recorded], start_s=middle_s))
    assert 0 < len(later) < len(messages(playback))
    sought = Playback([damaged], start_s=middle_s)
    assert messages(sought) == later
    assert sought.problems == []
    assert (sought.next_file, Playback(files(recorded)).next_file) == ("run.0001.mcap", None)
    assert len(messages(Playback([recorded], end_s=middle_s))) + len(later) == len(messages(playback))


def test_what_is_damaged_is_left_out_as_a_gap(recorded: Path, tmp_path: Path) -> None:
    octets = bytearray(recorded.read_bytes())
    octets[chunks(recorded)[1].chunk_start_offset + 200] ^= 1
    damaged = tmp_path / "run.mcap"
    damaged.write_bytes(octets)
    whole, playback = list(Playback([recorded]).items()), Playback([damaged])
    items = list(playback.items())
    assert any("a chunk is left out" in problem for problem in playback.problems)
    missing = sum(item.payload is not None for item in whole) - sum(item.payload is not None for item in items)
    assert missing > 0
    assert sum(item.skipped for item in items) == sum(item.skipped for item in whole) + missing


def chunks(path: Path) -> list[ChunkIndex]:
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    return list(summary.chunk_indexes)


def test_a_file_that_was_cut_is_played_as_far_as_it_goes(recorded: Path, tmp_path: Path) -> None:
    octets, cut = recorded.read_bytes(), tmp_path / "cut.mcap"
    cut.write_bytes(octets[: len(octets) * 2 // 3])
    playback = Playback([cut])
    played = messages(playback)
    assert played == messages(Playback([recorded]))[: len(played)]
    assert len(played) > 50
    assert "was cut" in playback.problems[0]


def test_what_is_no_recording_is_refused(recorded: Path, tmp_path: Path) -> None:
    other, empty = tmp_path / "x.txt", tmp_path / "empty.mcap"
    other.write_text("text")
    empty.write_bytes(recorded.read_bytes()[:60])
    for path in (other, empty):
        with pytest.raises(RecordingError):
            Playback([path])
    with pytest.raises(OSError, match="absent"):
        Playback([tmp_path / "absent.mcap"])
    with pytest.raises(RecordingError, match="same part"):
        Playback([recorded, recorded])
    with pytest.raises(ConfigurationError):
        Playback([])


def test_hostile_octets_never_raise(recorded: Path, tmp_path: Path) -> None:
    generator, octets, hostile = random.Random(5), recorded.read_bytes()[:400_000], tmp_path / "hostile.mcap"
    for _ in range(60):
        changed = bytearray(octets)
        for _ in range(generator.choice((1, 5, 500))):
            changed[generator.randrange(len(changed))] = generator.choice((0, 0xFF, generator.randrange(256)))
        hostile.write_bytes(changed)
        with contextlib.suppress(RecordingError, ConfigurationError):
            list(Playback([hostile]).items())


def test_it_can_be_played_several_times_and_ended(recorded: Path, endpoint: str) -> None:
    with pair("zeromq", endpoint) as (twin, gnb):
        heard = Heard(twin, "a", "b")
        playback = Playback(files(recorded), flows=["b"])
        assert playback.run(gnb, speed=math.inf, loops=3)
        wait_until(lambda: len(heard.messages) == 300)
        assert heard.of("b") == 3 * [payload for _, payload in received(files(recorded), "b")]
        assert heard.gaps == []
        assert not playback.run(gnb, speed=0.01, loops=math.inf, wait=lambda seconds: True)
        assert (playback.passes, playback.messages) == (3, 300)


def test_a_peer_that_reads_slowly_gets_every_message(recorded: Path, endpoint: str) -> None:
    """It is waited for, also beyond the time for which `send` waits."""
    options = {"window": 2**20, "retention": 2**20, "send_timeout": 0.01}
    with pair("zeromq", endpoint, **options) as (twin, gnb):
        got: list[bytes] = []

        def slowly(message: twinlink.Message) -> None:
            time.sleep(0.004)
            got.append(bytes(message.payload))

        twin.receiver("a", handler=slowly)
        playback = play(recorded, gnb, speed=100, flows=["a"])
        assert playback.most_behind_s > 0
        wait_until(lambda: len(got) == playback.messages)
        assert got == [payload for _, payload in received([recorded], "a")]


KEY = ("received", "a", 1)


def ordered(*steps: Callable[[MessageOrder], object]) -> list[tuple[int, bytes | None, int]]:
    order = MessageOrder()
    return [(item.due_ns, item.payload, item.skipped) for step in steps for item in step(order)]  # type: ignore[attr-defined]


def came(number: int, now_ns: int) -> Callable[[MessageOrder], object]:
    return lambda order: list(order.add(KEY, number, now_ns, bytes((number,))))


def test_a_message_that_came_late_takes_its_place_at_the_time_at_which_it_came() -> None:
    played = ordered(came(0, 1), came(2, 2), came(3, 3), came(1, 9), came(4, 10))
    assert played == [(1, b"\0", 0), (9, b"\1", 0), (9, b"\2", 0), (9, b"\3", 0), (10, b"\4", 0)]


def test_what_the_recording_side_gave_up_is_not_waited_for() -> None:
    gap = lambda order: list(order.gap(KEY, 2, 5))  # noqa: E731
    assert ordered(came(0, 1), came(2, 2), gap, came(1, 9)) == [(1, b"\0", 0), (5, b"\2", 1), (9, b"\1", 0)]


def test_what_never_comes_is_waited_for_a_while_and_to_the_end() -> None:
    late = 2 + HOLD_NS + 1
    assert ordered(came(0, 1), came(2, 2), came(3, late)) == [(1, b"\0", 0), (late, b"\2", 1), (late, b"\3", 0)]
    rest = lambda order: list(order.rest(7))  # noqa: E731
    end = lambda order: list(order.end(KEY, 9, 8))  # noqa: E731
    assert ordered(came(0, 1), came(2, 2), came(5, 3), rest, end) == [
        (1, b"\0", 0), (7, b"\2", 1), (7, b"\5", 2), (8, None, 3),
    ]  # fmt: skip


def test_what_was_imported_without_times_of_its_own_is_played_from_its_first_message(tmp_path: Path) -> None:
    path = tmp_path / "imported.mcap"
    with RecordingWriter(path, {}, f"{1:016x}", {7: "gnb"}) as writer:
        for number in range(10):
            writer.add("a", 7, number, 0, number * 1_000_000, bytes((number,)))
    playback = Playback([path])
    assert [(item.due_ns, item.payload, item.skipped) for item in playback.items()] == [
        (number * 1_000_000, bytes((number,)), 0) for number in range(10)
    ]
    assert playback.end_ns - playback.begin_ns == 9_000_000
