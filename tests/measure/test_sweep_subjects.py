"""Subjects that the command's tests leave out, peers that die, and an end that is asked for."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE_S
from tests.measure.sweeping import Watched, measure, table
from twinlink.measure.cells import Plan

COUNT = 3


@pytest.mark.parametrize("subject", ["mqtt-qos1", "mqtt-qos2", "raw-mqtt", "raw-zenoh", "raw-zenoh-default"])
def test_it_carries_every_message_and_answers_it(subject: str, tmp_path: Path) -> None:
    plan = Plan((subject,), (100 * 1024,), ("dt-rw",), count=COUNT, rounds=1, warm_up=2, timeout_s=PATIENCE_S)
    (cell,) = measure(tmp_path, plan)["cells"]
    assert (cell["status"], cell["reason"]) == ("done", None)
    sent, received = table(tmp_path, cell, "sent"), table(tmp_path, cell, "received")
    assert sent["acknowledged"].all()
    assert received["sequence"].tolist() == list(range(COUNT))
    assert (received["octets"] == 100 * 1024).all()


@pytest.mark.parametrize("subject", ["zeromq", "zenoh", "raw-zeromq", "raw-tcp"])
def test_a_reflector_that_is_killed_ends_its_cell_and_not_the_sweep(subject: str, tmp_path: Path) -> None:
    setting = Watched()

    def step(what: str, share: float, _left_s: float | None) -> None:
        if share == 0:  # the first cell, which would take half an hour
            threading.Thread(target=kill, daemon=True).start()

    def kill() -> None:
        while not setting.pairs:
            time.sleep(0.01)
        time.sleep(1.5)
        pid = setting.pairs[0].digital_twin.pid
        assert pid
        os.kill(pid, signal.SIGKILL)

    plan = Plan((subject,), (100, 200), ("rw-dt",), ("open",), count=4000, rounds=1, rate_hz=2.0, timeout_s=PATIENCE_S)
    ends = time.monotonic() + PATIENCE_S
    run = measure(tmp_path, plan, setting, step, lambda: len(setting.pairs) > 1 or time.monotonic() > ends)
    lost = [cell for cell in run["cells"] if cell["status"] == "peer lost"]
    assert len(lost) == 1
    assert "round 0: the station at the Digital Twin was ended by signal 9" in lost[0]["reason"]
    others = [cell["status"] for cell in run["cells"] if cell is not lost[0]]
    assert others == ["interrupted"]  # it was begun, on fresh processes, where this test ends the sweep
    for entry in lost[0]["rounds"]:
        assert entry["sent"] == len(table(tmp_path, lost[0], "sent"))


def test_a_reflector_that_stops_answering_is_lost_after_two_messages(tmp_path: Path) -> None:
    setting = Watched()

    def step(_what: str, _share: float, _left_s: float | None) -> None:
        threading.Thread(target=freeze, daemon=True).start()

    def freeze() -> None:
        while not setting.pairs:
            time.sleep(0.01)
        time.sleep(1.5)
        pid = setting.pairs[0].digital_twin.pid
        assert pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(4)
        os.kill(pid, signal.SIGCONT)

    plan = Plan(("raw-zeromq",), (100,), ("rw-dt",), count=300_000, rounds=1, timeout_s=0.3)
    (cell,) = measure(tmp_path, plan, setting, step)["cells"]
    assert cell["status"] == "peer lost"
    assert "no answer to 2 messages in a row" in cell["reason"]
    (entry,) = cell["rounds"]
    sent = table(tmp_path, cell, "sent")
    assert entry["sent"] == len(sent)
    assert sent["acknowledged"].tolist() == [True] * (len(sent) - 2) + [False] * 2


def test_the_end_may_be_asked_for_in_the_midst_of_a_cell(tmp_path: Path) -> None:
    setting = Watched()
    begun: list[float] = []

    def stopped() -> bool:
        return bool(begun) and time.monotonic() > begun[0] + 3

    plan = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=100_000, rounds=1, rate_hz=100.0)
    run = measure(tmp_path, plan, setting, lambda *_: begun.append(time.monotonic()), stopped)
    (cell,) = run["cells"]
    assert not run["complete"]
    assert cell["status"] == "interrupted"
    (entry,) = cell["rounds"]
    sent, received = table(tmp_path, cell, "sent"), table(tmp_path, cell, "received")
    assert 0 < entry["sent"] == len(sent) < 100_000
    assert len(received) == sent["acknowledged"].sum()
    for station in (setting.pairs[0].real_world, setting.pairs[0].digital_twin):
        assert station.lost
