"""Playing recordings: order, payloads, pace, gaps, seek, and files that are cut."""

import math
import random
import time
from pathlib import Path

import pytest

import twinlink
from tests.recording.recordings import pair, rows
from twinlink.events import Gap
from twinlink.recording import play
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
    """What a twin has received: 300 messages on two flows in half a second, without numbers 40-49 of flow a."""
    path = tmp_path_factory.mktemp("recorded") / "run.mcap"
    generator = random.Random(1)
    with pair("zeromq", free_endpoint()) as (twin, gnb):
        heard = Heard(twin, "a", "b")
        with twin.record(path):
            a, b = gnb.sender("a"), gnb.sender("b")
            for number in range(200):
                if number == 40:
                    a.skip(10)
                a.send(generator.randbytes(generator.choice((10, 1000, 70_000))))
                if number % 2:
                    b.send(f"b {number}")
                time.sleep(0.0025)
            a.flush(patience())
            b.flush(patience())
            wait_until(lambda: len(heard.messages) == 300)
    assert heard.gaps == [("a", 40, 50)]
    return path


def replay(path: Path, endpoint: str, again: Path, **options: object) -> Heard:
    """What is received of a replay, and recorded there."""
    with pair("zeromq", endpoint) as (twin, gnb):
        heard = Heard(twin, "a", "b")
        with twin.record(again):
            play(path, gnb, **options)  # type: ignore[arg-type]
            for flow in ("a", "b"):
                gnb.sender(flow).flush(patience())
    return heard


@pytest.mark.parametrize("speed", [2.0, math.inf])
def test_a_recording_of_a_replay_has_the_same_messages(
    recorded: Path, endpoint: str, tmp_path: Path, speed: float
) -> None:
    again = tmp_path / "again.mcap"
    heard = replay(recorded, endpoint, again, speed=speed)
    for flow in ("a", "b"):
        first = [(row.flow, row.sequence, row.payload) for row in rows(recorded, "received", flow)]
        assert [(row.flow, row.sequence, row.payload) for row in rows(again, "received", flow)] == first
        assert heard.of(flow) == [payload for _, _, payload in first]
    assert heard.gaps == [("a", 40, 50)]
