"""Subjects that the command's tests omit, peers that die, and requested ends."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from twinlink_measure.cell_run import LONG_OCTETS
from twinlink_measure.cells import Plan
from twinlink_measure.setting import HostLost, Loopback, Pair, SettingError
from twinlink_measure.sweep import RESTARTS
from twinlink_measure.worker_handle import Stopped

from tests.cli.running import PATIENCE_S
from tests.measure.sweeping import Watched, measure, table

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


class Nowhere(Loopback):
    """Where no worker can be started."""

    def start(self) -> Pair:
        raise SettingError("no ports are free")


def test_cells_that_are_not_tried_any_more_all_say_the_same(tmp_path: Path) -> None:
    plan = Plan(("raw-tcp",), (1, 2, 3), count=1, rounds=1)
    run = measure(tmp_path, plan, Nowhere())
    reasons = [cell["reason"] for cell in run["cells"] if cell["status"] == "skipped"]
    assert reasons == ["round 1 of 1: not tried after 3 failures of this subject: no ports are free"] * 3
    assert [cell["status"] for cell in run["cells"]].count("failed") == 3


KILLED = ("zeromq", "zenoh", "raw-zeromq", "raw-tcp")


@dataclass
class Ended:
    """A disturbed sweep: its folder, its run.json, its workers."""

    folder: Path
    run: dict[str, Any]
    setting: Watched


def waits_of(pid: int) -> int:
    """How often the threads of a process have waited for something."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            found += int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def killed(folder: Path, subject: str) -> Ended:
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
    run = measure(folder, plan, setting, step, lambda: len(setting.pairs) > 1 or time.monotonic() > ends)
    return Ended(folder, run, setting)


def frozen(folder: Path) -> Ended:
    setting = Watched()

    def step(_what: str, _share: float, _left_s: float | None) -> None:
        threading.Thread(target=freeze, daemon=True).start()

    def freeze() -> None:
        while not setting.pairs:
            time.sleep(0.01)
        pid = setting.pairs[0].digital_twin.pid
        assert pid
        while waits_of(pid) < 10_000:  # it answers thousands of messages: the warm-up is over
            time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(4 * timeout_s)
        os.kill(pid, signal.SIGCONT)

    timeout_s = 1.5  # an answer takes so long on no machine
    plan = Plan(("raw-zeromq",), (100,), ("rw-dt",), count=300_000, rounds=1, timeout_s=timeout_s)
    return Ended(folder, measure(folder, plan, setting, step), setting)


def stopped(folder: Path) -> Ended:
    setting, asked = Watched(), threading.Event()

    def stop() -> bool:
        pid = setting.pairs[0].digital_twin.pid if setting.pairs else None
        if pid is not None and waits_of(pid) > 250:  # it has answered some two hundred messages
            asked.set()
        return asked.is_set()

    plan = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=100_000, rounds=1, rate_hz=100.0)
    return Ended(folder, measure(folder, plan, setting, stopped=stop), setting)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ended]]]:
    """All of them at the same time: they mostly wait."""
    folder = tmp_path_factory.mktemp("ended")
    with ThreadPoolExecutor(len(KILLED) + 2) as pool:
        begun = {
            "frozen": pool.submit(frozen, folder / "frozen"),
            "stopped": pool.submit(stopped, folder / "stopped"),
        }
        yield begun | {subject: pool.submit(killed, folder / subject, subject) for subject in KILLED}


@pytest.mark.parametrize("subject", KILLED)
def test_a_reflector_that_is_killed_ends_its_cell_and_not_the_sweep(
    subject: str, ended: dict[str, Future[Ended]]
) -> None:
    one = ended[subject].result()
    lost = [cell for cell in one.run["cells"] if cell["status"] == "peer lost"]
    assert len(lost) == 1
    assert lost[0]["reason"].startswith("round 1 of ")
    assert "the worker at the Digital Twin was ended by signal 9" in lost[0]["reason"]
    others = [cell["status"] for cell in one.run["cells"] if cell is not lost[0]]
    assert others == ["interrupted"]  # it was begun, on fresh processes, where this test ends the sweep
    for entry in lost[0]["rounds"]:
        assert entry["sent"] == len(table(one.folder, lost[0], "sent"))
        if not subject.startswith("raw-"):
            known = {name for name, value in entry["counters"].items() if value is not None}
            assert known == {"lost", "acknowledged", "repaired"}


def test_a_reflector_that_stops_answering_is_lost_after_two_messages(ended: dict[str, Future[Ended]]) -> None:
    one = ended["frozen"].result()
    (cell,) = one.run["cells"]
    assert cell["status"] == "peer lost"
    assert "no answer to 2 messages in a row" in cell["reason"]
    (entry,) = cell["rounds"]
    sent = table(one.folder, cell, "sent")
    assert entry["sent"] == len(sent)
    assert sent["acknowledged"].tolist() == [True] * (len(sent) - 2) + [False] * 2


def test_the_end_may_be_asked_for_in_the_midst_of_a_cell(ended: dict[str, Future[Ended]]) -> None:
    one = ended["stopped"].result()
    (cell,) = one.run["cells"]
    assert not one.run["complete"]
    assert cell["status"] == "interrupted"
    (entry,) = cell["rounds"]
    sent, received = table(one.folder, cell, "sent"), table(one.folder, cell, "received")
    assert 0 < entry["sent"] == len(sent) < 100_000
    assert len(received) == sent["acknowledged"].sum()
    for worker in (one.setting.pairs[0].real_world, one.setting.pairs[0].digital_twin):
        assert worker.lost


def test_long_messages_are_warmed_up_for_until_the_path_is_known(tmp_path: Path) -> None:
    """Over a link that is new they leave in parts, and several times as slowly."""
    plan = Plan(("raw-tcp",), (100, LONG_OCTETS, LONG_OCTETS + 1), ("rw-dt",), count=2, rounds=1, warm_up=2)
    run = measure(tmp_path, plan, Loopback())
    short, at_most, longer = (cell["rounds"][0]["warm_up"] for cell in run["cells"])
    assert short == at_most == 2 < longer
    assert [cell["rounds"][0]["sent"] for cell in run["cells"]] == [2, 2, 2]


class Failing(Loopback):
    """Loopback of which the first workers do not start."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures

    def start(self) -> Pair:
        if self._failures:
            self._failures -= 1
            raise SettingError("no room for a worker")
        return super().start()


def test_what_was_not_tried_in_a_round_says_so_once_and_is_not_done_by_the_next(tmp_path: Path) -> None:
    plan = Plan(("raw-tcp",), (0, 1, 2, 3, 4, 5), ("rw-dt",), count=4, rounds=2, warm_up=0)
    run = measure(tmp_path, plan, Failing(RESTARTS + 1))
    told = [(cell["status"], cell["reason"]) for cell in run["cells"]]
    because = "round 1 of 2: not tried after 3 failures of this subject: no room for a worker"
    assert sorted(told) == [("failed", "round 1 of 2: no room for a worker")] * 3 + [("skipped", because)] * 3
    assert all([entry["round"] for entry in cell["rounds"]] == [1] for cell in run["cells"])


class Leaving(Loopback):
    """Loopback that loses the other host at the nth start, until the next round or for ever."""

    def __init__(self, at: int, comes_back: bool) -> None:
        super().__init__()
        self.starts = 0
        self._at, self._comes_back, self._away = at, comes_back, False

    def wait(self, stopped: Stopped) -> None:
        self._away = self._away and not self._comes_back
        if self._away:
            raise HostLost("it is still gone")

    def start(self) -> Pair:
        self.starts += 1
        self._away = self._away or self.starts == self._at
        if self._away:
            raise HostLost("it is gone")
        return super().start()


@pytest.mark.parametrize(("comes_back", "rounds"), [(True, [0, 2]), (False, [0])])
def test_without_the_other_host_the_round_ends_and_the_sweep_unless_it_comes_back(
    comes_back: bool, rounds: list[int], tmp_path: Path
) -> None:
    setting, told = Leaving(3, comes_back), list[str]()  # with two subjects: at the beginning of the second round
    plan = Plan(("raw-tcp", "raw-zeromq"), (1,), ("rw-dt",), count=3, rounds=3, warm_up=0)
    run = measure(tmp_path, plan, setting, say=told.append)
    left_out = "it is gone: the rest of the round is left out"
    assert [(cell["status"], cell["reason"]) for cell in run["cells"]] == [
        ("peer lost", f"round 2 of 3: {left_out}")
    ] * 2
    assert all([entry["round"] for entry in cell["rounds"]] == rounds for cell in run["cells"])
    assert run["complete"] == comes_back
    assert setting.starts == (5 if comes_back else 3)  # one wait for it, not one for every cell
    ends = [] if comes_back else ["round 3 of 3: it is still gone: the sweep ends"]
    of_rounds = [line for line in told if line.startswith("round")]  # the machine may be busy, which is told, too
    assert of_rounds == [f"round 2 of 3: {left_out}", *ends]
