"""The control loop when the twin is out of sync: a real E3 agent, exporter and replay, and faults."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_e3 import Endpoints

from tests.exporter.agent import Agent, encode_indication
from tests.exporter.conftest import endpoints  # noqa: F401 - a fixture
from tests.replay.uplink_scenes import Interferer, Scene, hear
from twinlink.testing import patience, wait_until

N_PRBS, FFT_SIZE, BEFORE = 51, 1024, 150
HEARD = hear(Scene(n_prbs=N_PRBS, n_records=400, interferers=(Interferer(BEFORE, 400, 30, 36, 20),)), 31)
VALIDITY_MS = 100_000  # long, so that a block ends early only for another reason


class Process:
    """A process, exporter or replay, and its log."""

    def __init__(self, module: str, log: Path, *arguments: str) -> None:
        self.log = log
        command = [sys.executable, "-m", module, "--log", str(log), *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def states(self) -> list[str]:
        return [event["state"] for event in self.events("sync")]


class Gnb:
    """Plays the scene to the exporter as E3 indications, then repeats its last part, which has the interferer."""

    def __init__(self, endpoints: Endpoints) -> None:  # noqa: F811
        self.agent = Agent(endpoints)
        self.silent = self.ending = False
        self._thread = threading.Thread(target=self._play)

    def play(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.ending = True
        if self._thread.ident:
            self._thread.join()
        self.agent.stop()

    def _play(self) -> None:
        k = 0
        while not self.ending:
            if not self.silent:
                bins = np.zeros((FFT_SIZE, 2), np.int16)
                bins[: N_PRBS * 12] = HEARD.samples[k if k < 400 else BEFORE + k % 250]
                dapp_id = self.agent.subscribed[-1]
                self.agent.send(encode_indication(dapp_id, np.roll(bins, -N_PRBS * 6, axis=0).tobytes(), k + 1))
                k += 1
            time.sleep(0.005)


class Loop:
    """Agent, exporter and twin, with an installed block."""

    def __init__(self, transport: str, endpoint: str, endpoints: Endpoints, folder: Path) -> None:  # noqa: F811
        self._link = ("--transport", transport)
        self._endpoint, self._endpoints, self._folder = endpoint, endpoints, folder
        self.gnb = Gnb(endpoints)
        self.processes: list[Process] = []

    def start(self) -> None:
        self.twin = self._start(
            "twinlink_replay", "--listen", self._endpoint, "--validity-ms", str(VALIDITY_MS)
        )  # fmt: skip
        self.exporter = self.start_exporter()
        self.gnb.agent.wait_for(lambda agent: agent.subscribed)
        wait_until(lambda: self.exporter.events("peer-up"))
        self.gnb.play()
        self.gnb.agent.wait_for(lambda agent: agent.controls and agent.controls[-1])
        wait_until(lambda: self.twin.events("block-result"))

    def start_exporter(self, *arguments: str) -> Process:
        to = self._endpoints
        e3 = ("--setup", to.setup, "--to-dapp", to.to_dapp, "--from-dapp", to.from_dapp)
        patient = ("--insecure-control", "--max-validity-ms", str(VALIDITY_MS), "--max-age-ms", str(VALIDITY_MS))
        carrier = ("--n-prbs", str(N_PRBS))
        return self._start("twinlink_exporter", "--connect", self._endpoint, *carrier, *e3, *patient, *arguments)

    def _start(self, module: str, *arguments: str) -> Process:
        log = self._folder / f"{len(self.processes)}.jsonl"
        self.processes.append(Process(module, log, *self._link, *arguments))
        return self.processes[-1]

    def close(self) -> None:
        self.gnb.stop()
        for each in self.processes:
            each.process.kill()
            each.process.wait()


@pytest.fixture
def loop(transport: str, endpoint: str, endpoints: Endpoints, tmp_path: Path) -> Iterator[Loop]:  # noqa: F811
    made = Loop(transport, endpoint, endpoints, tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


def became_out_of_sync(loop: Loop) -> None:
    """The twin was in sync, became stale, then out of sync."""
    wait_until(lambda: "out-of-sync" in loop.twin.states())
    states = loop.twin.states()
    assert states[0] == "in-sync"
    assert states[states.index("out-of-sync") - 1] == "stale"
    lost = next(event for event in loop.twin.events("sync") if event["state"] == "out-of-sync")
    assert lost["age_ns"] > 2e9
    assert lost["completeness"] in (1, None)  # None: on a slow machine all records are too old


def withdrawn(loop: Loop) -> None:
    """The twin became out of sync, and ended its block: that, or what came first, is the reason."""
    became_out_of_sync(loop)
    wait_until(lambda: loop.twin.events("proposed")[-1]["prbs"] == [])
    reason = loop.twin.events("proposed")[-1]["reason"]
    assert reason == "the twin is out of sync" or reason.startswith("taken back: ")


def in_sync_again(loop: Loop) -> bool:
    """Whether the twin was in sync again after it was out of sync; on a slow machine it may be stale since."""
    states = loop.twin.states()
    return "in-sync" in states[states.index("out-of-sync") :]


def test_when_the_gnb_is_silent_the_block_is_cleared(loop: Loop) -> None:
    """Twin and exporter go by the same thresholds: the first of them to notice it clears the block."""
    loop.gnb.silent = True
    became_out_of_sync(loop)
    loop.gnb.agent.wait_for(lambda agent: agent.controls[-1] == [])
    # An earlier list may have been replaced: the twin's first list is not its last.
    ends = {"requested", "out-of-sync"}
    wait_until(lambda: ends.intersection(event["reason"] for event in loop.exporter.events("block-cleared")[-1:]))
    loop.gnb.silent = False
    loop.gnb.agent.wait_for(lambda agent: agent.controls[-1] != [])  # it is requested again
    wait_until(lambda: in_sync_again(loop))
    loop.twin.process.send_signal(signal.SIGTERM)
    assert loop.twin.process.wait(patience()) == 0
    (summary,) = loop.twin.events("summary")
    assert summary["out_of_sync"] >= 1
    assert summary["sync"]["peak_age_ns"] > 2e9 > summary["sync"]["mean_age_ns"] > 0
    assert summary["sync"]["completeness"] == 1


def test_a_stopped_exporter_clears_the_block_when_it_continues(loop: Loop) -> None:
    os.kill(loop.exporter.process.pid, signal.SIGSTOP)
    withdrawn(loop)
    loop.gnb.silent = True
    os.kill(loop.exporter.process.pid, signal.SIGCONT)
    loop.gnb.agent.wait_for(lambda agent: agent.controls[-1] == [])
    wait_until(lambda: loop.exporter.events("block-cleared"))
    assert loop.exporter.events("block-cleared")[0]["reason"] != "expired"


def test_after_a_killed_exporter_the_twin_requests_again_from_the_next_one(loop: Loop) -> None:
    loop.exporter.process.kill()
    withdrawn(loop)
    asked = len(loop.gnb.agent.controls)
    loop.start_exporter("--clear-at-start")
    loop.gnb.agent.wait_for(lambda agent: len(agent.controls) > asked + 1)
    assert loop.gnb.agent.controls[asked] == []
    assert loop.gnb.agent.controls[-1] != []
    wait_until(lambda: in_sync_again(loop))
