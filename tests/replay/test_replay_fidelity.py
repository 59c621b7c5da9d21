"""The twin's state of fidelity: what is not known, silence, replays, and requests."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_replay.blocks.observer import Record
from twinlink_replay.detection import free_prbs, noise_floor
from twinlink_replay.twin import fidelity as module
from twinlink_replay.twin.fidelity import SILENT_NS, Fidelity

import twinlink
from twinlink import digest, kpm
from twinlink.appkit.journal import Journal
from twinlink.digest import WINDOW_NS, Digest, DigestRequest, Settings, Window
from twinlink.errors import LinkClosed
from twinlink.kpm import Kpm, Source

EPOCH, BEGIN_NS = 7, 1_800_000_000 * WINDOW_NS
SETTINGS = Settings(6, 0, 6, 30_000, 3.6e9)
POWER = np.random.default_rng(3).gamma(12, 3, (500, 6)).astype(np.float32)


class Clock:
    """The time module as the twin uses it."""

    now_ns = BEGIN_NS

    def time_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns


@dataclass
class Run:
    """Ten records a second."""

    fidelity: Fidelity
    journal: Journal
    log: Path
    asked: list[bytes]
    told: list[bytes]
    clock: Clock
    k: int = 0

    def seconds(
        self, count: int, kept: float = 1.0, digests: bool = True, gain: float = 1.0, replayed: int = 0
    ) -> "Run":
        """Whole seconds, from one's first record to the next one's, which is never distorted."""
        for _ in range(10 * count):
            self.k += 1
            if 1 <= self.k % 10 <= 10 * (1 - kept):
                continue
            self.record(gain if self.k % 10 else 1.0, replayed)
            if digests and self.k % 10 == 0:
                self.send(self.window(self.k - 10).digest(SETTINGS))
            self.fidelity.look()
        return self

    def record(self, gain: float = 1.0, replayed: int = 0) -> None:
        at_ns = BEGIN_NS + self.k * WINDOW_NS // 10
        self.clock.now_ns = at_ns + replayed
        record = Record(np.zeros((0, 2), np.int16), self.k, EPOCH, at_ns, at_ns, at_ns, -1, 30_000, 3.6e9)
        self.fidelity.add([record], gain * POWER[self.k : self.k + 1])

    def window(self, first: int) -> Window:
        window = Window(BEGIN_NS + first * WINDOW_NS // 10)
        for k in range(first, first + 10):
            window.count(BEGIN_NS + k * WINDOW_NS // 10)
            window.sample(POWER[k : k + 1])
        return window

    def send(self, one: Digest, epoch: int = EPOCH) -> None:
        now_ns = self.clock.now_ns
        self.fidelity.digest(twinlink.Message(one.encode(), "digest", 0, epoch, "gnb-1", now_ns, now_ns))

    def events(self) -> list[str]:
        self.journal.__exit__(None, None, None)
        names = [json.loads(line)["event"] for line in self.log.read_text().splitlines()]
        return [name for name in names if name != "fidelity"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    clock, asked, told = Clock(), list[bytes](), list[bytes]()
    monkeypatch.setattr(module, "time", clock)
    log = tmp_path / "log.jsonl"
    journal = Journal("test", log, stream=io.StringIO())
    fidelity = Fidelity(journal, asked.append, told.append)
    fidelity.follow(EPOCH, "gnb-1", replayed=False)
    made = Run(fidelity, journal, log, asked, told, clock)
    made.record()
    yield made
    journal.__exit__(None, None, None)


def test_an_exporter_without_digests_is_not_known_and_holds_nothing_back(run: Run) -> None:
    run.seconds(10, digests=False)
    assert (run.fidelity.score(), run.fidelity.low, run.asked) == (None, False, [])
    assert run.fidelity.summary() == "fidelity not known"
    assert run.events() == []


def test_digests_of_another_session_do_not_count(run: Run) -> None:
    run.seconds(1)
    run.send(run.window(0).digest(SETTINGS), epoch=8)
    assert run.fidelity.windows == 0


def test_it_falls_at_once_and_recovers_with_a_whole_window(run: Run) -> None:
    assert run.seconds(4).fidelity.score() == 1
    assert run.seconds(1, kept=0.5).fidelity.low
    assert [DigestRequest.decode(one).node for one in run.asked] == ["gnb-1"]
    assert run.seconds(1).fidelity.score() == 1
    assert not run.fidelity.low
    assert not run.fidelity.anew
    assert run.events() == ["fidelity-low", "digest-asked", "fidelity-good"]


def test_after_a_wrong_level_the_detector_begins_anew_when_it_is_right(run: Run) -> None:
    run.seconds(3).seconds(2, gain=4)
    assert run.fidelity.low
    assert not run.fidelity.anew
    assert run.seconds(1).fidelity.anew
    assert not run.fidelity.low


def test_the_exporter_is_asked_again_as_long_as_it_is_low(run: Run) -> None:
    run.seconds(3).seconds(12, kept=0.5)
    assert len(run.asked) == 3  # at once, and every five seconds
    assert run.fidelity.asked == 3
    assert run.fidelity.alarms == 1


def test_an_answer_is_counted_and_not_compared(run: Run) -> None:
    run.seconds(3).seconds(1, kept=0.5)
    run.send(run.window(run.k - 10).digest(SETTINGS, answer=True))
    assert run.fidelity.answered == 1
    windows = run.fidelity.windows
    assert run.seconds(1).fidelity.windows == windows + 1
    assert run.events() == ["fidelity-low", "digest-asked", "digest-answered", "fidelity-good"]


def test_when_digests_cease_nothing_leaves(run: Run) -> None:
    run.seconds(4).seconds(SILENT_NS // WINDOW_NS, digests=False)
    assert not run.fidelity.low
    assert run.seconds(1, digests=False).fidelity.low
    assert run.fidelity.score() == 0


def test_when_nothing_comes_the_age_lowers_it(run: Run) -> None:
    run.seconds(4)
    newest_ns = run.clock.now_ns
    for age_s, score in ((0.5, 1.0), (0.8, 0.8), (2.0, 0.0), (9.0, 0.0)):
        run.clock.now_ns = newest_ns + round(age_s * 1e9)
        assert run.fidelity.score() == pytest.approx(score)
    assert run.fidelity.low


def test_in_a_replay_there_is_a_score_and_nothing_is_held_back(run: Run) -> None:
    run.fidelity.follow(EPOCH, "gnb-1", replayed=True)
    run.record(replayed=3600 * WINDOW_NS)
    run.seconds(4, replayed=3600 * WINDOW_NS).seconds(2, kept=0.5, replayed=3600 * WINDOW_NS)
    assert run.fidelity.score() == 0.5
    assert run.fidelity.last
    assert run.fidelity.last.parts["age"] is None
    assert not run.fidelity.low
    assert run.asked == []


def test_another_session_begins_with_what_is_not_known(run: Run) -> None:
    run.seconds(3).seconds(2, kept=0.5)
    run.fidelity.follow(8, "gnb-2", replayed=False)
    assert (run.fidelity.score(), run.fidelity.low) == (None, False)


def second_with_kpm(run: Run, used: int, epoch: int = EPOCH) -> None:
    """A second in which the twin finds UEs on 20 of 60 PRBs, and the gNB grants ``used``."""
    run.seconds(1)
    begin_ns = digest.begin_of(run.clock.now_ns)
    for source, of, count in ((Source.GNB, epoch + 1, 60), (Source.TWIN, epoch, 60), (Source.GNB, epoch, used)):
        one = Kpm(source, 6, 10, 0, begin_ns - WINDOW_NS, WINDOW_NS, count, 60)
        run.fidelity.kpm(twinlink.Message(one.encode(), "kpm", 0, of, "gnb-1", 0, 0))
    for k in range(10):
        at_ns = run.clock.now_ns + k * WINDOW_NS // 10
        record = Record(np.zeros((0, 2), np.int16), k, EPOCH, at_ns, at_ns, at_ns, -1, 30_000, 3.6e9)
        run.fidelity.analysed([record], np.arange(6)[None] < 2)


def test_kpms_that_disagree_make_it_low_and_the_twins_own_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kpm, "MIN_SLOTS", 10)  # as many as there are here
    for used in (20, 20, 50):
        second_with_kpm(run, used)
    assert run.fidelity.last
    assert run.fidelity.last.parts["kpm"] == 1
    assert not run.fidelity.low
    run.seconds(1)
    assert run.fidelity.last.parts["kpm"] == pytest.approx(0.5)
    assert run.fidelity.low
    assert "UEs use 0.333 of the uplink's PRBs by the spectrum, and 0.833 by the gNB" in run.fidelity.why_low
    own = [Kpm.decode(payload) for payload in run.told]
    assert [(one.source, one.session, one.used, one.available) for one in own] == [(Source.TWIN, EPOCH, 20, 60)] * 2
    run.fidelity.kpm(twinlink.Message(b"junk", "kpm", 0, EPOCH, "gnb-1", 0, 0))
    assert run.events() == ["fidelity-low", "digest-asked", "malformed-kpm"]


def test_kpms_that_agree_as_they_do_where_nothing_is_wrong_end_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kpm, "MIN_SLOTS", 10)
    low = []
    for used in (20, 50, 25, 24, 24, 24):
        second_with_kpm(run, used)
        low.append(run.fidelity.low)
    assert low == [False, False, True, True, False, False]  # by 0.5, 0.917, 0.933
    assert run.fidelity.last
    assert run.fidelity.last.score == pytest.approx(1 - 4 / 60)


def test_what_cannot_be_read_or_sent_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: bytes) -> Any:
        raise LinkClosed("the link is closed")

    monkeypatch.setattr(run.fidelity, "_ask", closed)
    run.fidelity.digest(twinlink.Message(b"junk", "digest", 0, EPOCH, "gnb-1", 0, 0))
    run.seconds(3).seconds(1, kept=0.5)
    assert run.events() == ["malformed-digest", "fidelity-low", "digest-asked"]


def test_the_rule_of_occupancy_is_that_of_the_twin() -> None:
    """The library and detection, which needs numpy alone, each have it."""
    assert digest.MIN_POWER == free_prbs.MIN_POWER
    assert digest.noise_floor(POWER) == noise_floor.lowest_cluster(POWER.ravel())
