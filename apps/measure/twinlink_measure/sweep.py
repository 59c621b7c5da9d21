"""A sweep: in each round, every subject has one turn with new processes, in random order."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from twinlink_results import load
from twinlink_results.run import Run

from twinlink.appkit import formatting
from twinlink.errors import TwinlinkError

from .cell_run import CellRun, failure
from .cells import Plan
from .channels import beyond, round_trips, too_slow, without_cable
from .mgen_cell import MgenCell, MgenTaken
from .setting import HostLost, Pair, Setting
from .worker_handle import START_S, Interrupted, Stopped, WorkerFailed, WorkerHandle, WorkerLost, watching

RESTARTS = 2  # of a subject's processes in one round; after that its other cells are skipped
IDLE_COUNT, IDLE_OCTETS, IDLE_S = 20, 64, 0.01

Step = Callable[[str, float, float | None], None]  # what, share done from 0 to 1, seconds left if known


class Sweep:
    """Measures the cells of a plan and adds their results to a run."""

    def __init__(
        self,
        plan: Plan,
        setting: Setting,
        run: Run,
        step: Step,
        stopped: Stopped,
        say: Callable[[str], None],
        ntp_server: str | None = None,
    ) -> None:
        self._plan = plan
        self._setting = setting
        self._run = run
        self._step = step
        self._stopped = stopped
        self._say = say
        self._ntp_server = ntp_server
        self._ntp_view: dict[str, Any] | None = None  # of this host, once asked
        self._start_s = max(START_S, plan.timeout_s)
        self._order = random.Random(plan.seed)
        self._cells = list(self._measurable(plan.cells()))
        self._done = 0  # cell-rounds
        self._total = len(self._cells) * plan.rounds
        self._took: dict[str, list[float]] = {}  # subject -> seconds of each of its turns
        self._turns_left = [subject for _ in range(plan.rounds) for subject in plan.subjects]
        self._turn_began = 0.0
        self._unusable: dict[str, str] = {}
        self._gone_wrong: set[str] = set()  # ids of cells that miss a round
        self._peer_sampled: set[int] = set()  # rounds in which the other host's load was asked

    def _measurable(self, cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Add all cells to the run; yields those that their subject can carry here, the others stay skipped."""
        for cell in cells:
            subject, octets, direction = cell["subject"], cell["octets"], cell["direction"]
            cell["round_trips"] = round_trips(subject, octets, direction)
            self._run.add_cell(cell)
            options = self._plan.options.get(subject, {})
            reason = (
                without_cable(subject, self._setting.counts_wire)
                or beyond(subject, octets)
                or too_slow(subject, octets, direction, options, self._plan.timeout_s)
            )
            if reason is None:
                yield cell
            else:
                cell["reason"] = reason

    def execute(self) -> None:
        """Measure everything.  Results are saved however it ends; ``complete`` says whether all rounds are done."""
        try:
            for number in range(self._plan.rounds):
                self._sample_load()
                self._round(number)
                self._note_missing_rounds()  # so that the saved state stays valid after a kill or a full disk
                self._run.save()
            self._run.content["complete"] = True
        except (Interrupted, HostLost):
            pass
        finally:
            if self._stopped():
                self._note_missing_rounds()
            else:
                self._sample_load()
            self._run.content["ended_ns"] = time.time_ns()
            self._run.save()

    def _sample_load(self) -> None:
        """Note how busy this host is, while no worker runs on it."""
        self._note_load({"side": "real_world" if self._setting.name == "hosts" else load.ONE_HOST, **load.sample()})

    def _sample_load_of_peer(self, pair: Pair, number: int) -> None:
        """The same of the other host, whose worker is idle: once in each round, and in the last turn."""
        if self._setting.name != "hosts" or (number in self._peer_sampled and len(self._turns_left) > 1):
            return
        self._peer_sampled.add(number)
        taken = pair.digital_twin.ask("load", self._start_s)["load"]
        self._note_load({"side": "digital_twin", **taken})

    def _note_load(self, taken: dict[str, Any]) -> None:
        samples = self._run.content.setdefault("load", [])
        already = load.warning(samples)
        samples.append(taken)
        if not already and (now := load.warning(samples)):
            self._say(now)

    def _note_missing_rounds(self) -> None:
        """Mark a cell that misses rounds as interrupted, until `_end_cell` marks it as done."""
        for cell in self._cells:
            rounds, left_out = len(cell["rounds"]), cell["id"] in self._gone_wrong or cell["subject"] in self._unusable
            if rounds < self._plan.rounds and not left_out:
                cell["status"], cell["reason"] = "interrupted", f"{rounds} of {self._plan.rounds} rounds were done"

    def _round(self, number: int) -> None:
        """Every subject's turn; the round ends without the other host.  Raises HostLost if that does not come back."""
        try:
            self._setting.wait(self._stopped)
        except HostLost as error:
            self._leave_out(number, f"{error}: the sweep ends")
            raise
        try:
            for subject in self._order.sample(self._plan.subjects, len(self._plan.subjects)):
                if self._stopped():
                    raise Interrupted
                self._turn(subject, number)
        except HostLost as error:
            self._leave_out(number, f"{error}: the rest of the round is left out")

    def _leave_out(self, number: int, reason: str) -> None:
        """End the cells that this round did not reach, with the reason, and report it."""
        for cell in self._cells:
            if all(entry["round"] != number for entry in cell["rounds"]):
                self._end_cell(cell, "peer lost", reason, number)
        self._done = len(self._cells) * (number + 1)
        self._turns_left = list(self._plan.subjects) * (self._plan.rounds - number - 1)
        self._say(f"{self._which(number)}: {reason}")

    def _turn(self, subject: str, number: int) -> None:
        """All cells of a subject, in one round."""
        self._turn_began = time.monotonic()
        cells = [cell for cell in self._cells if cell["subject"] == subject]
        self._order.shuffle(cells)
        restarts, reason = 0, ""
        pair: Pair | None = None
        try:
            while cells and subject not in self._unusable and restarts <= RESTARTS:
                cell = cells.pop(0)
                self._tell(cell, number)
                try:
                    pair = pair or self._open(subject, number)
                    good = self._measure(pair, cell, number)
                except Interrupted:
                    raise
                except (WorkerLost, WorkerFailed, TwinlinkError, OSError) as error:
                    status, reason = failure(error)
                    if isinstance(error, WorkerFailed) and error.kind == "unusable":
                        self._unusable[subject] = reason
                    self._end_cell(cell, status, reason, number)
                    good = False
                self._done += 1
                if self._stopped():
                    raise Interrupted
                if not good:
                    restarts += 1
                    if pair is not None:
                        pair.end()
                        pair = None
            why = self._unusable.get(subject, f"not tried after {restarts} failures of this subject: {reason}")
            for cell in cells:  # they would fail in the same way
                self._end_cell(cell, "skipped", why, number)
                self._done += 1
        finally:
            if pair is not None:
                pair.end()
            with suppress(ValueError):
                self._turns_left.remove(subject)
            self._took.setdefault(subject, []).append(time.monotonic() - self._turn_began)

    def _open(self, subject: str, number: int) -> Pair:
        """New workers with the subject open on both."""
        pair = self._setting.start()
        try:
            self._note_systems(pair)
            options, drop_every = self._plan.options.get(subject), self._setting.truth.drop_every
            used = pair.open(subject, options, drop_every, self._start_s, self._stopped)
            self._run.content["configuration"]["used"].setdefault("subject_options", {})[subject] = used
            if number == 0:
                self._idle(pair, subject)
            self._sample_load_of_peer(pair, number)
        except BaseException:
            pair.end()
            raise
        return pair

    def _note_systems(self, pair: Pair) -> None:
        systems = self._run.content["system"]
        failed: dict[str, list[str]] = {}  # error of NTP -> sides
        for key, worker in (("real_world", pair.real_world), ("digital_twin", pair.digital_twin)):
            if systems.get(key) is None:
                systems[key] = worker.ask("system", self._start_s)["system"]
                if self._ntp_server is not None:
                    found = self._run.content["ntp"][key] = self._ask_ntp(self._ntp_server, worker)
                    if "error" in found:
                        failed.setdefault(found["error"], []).append(worker.name)
        for error, sides in failed.items():
            self._say(f"no time from NTP at the {' and the '.join(sides)}: {error}")

    def _ask_ntp(self, server: str, worker: WorkerHandle) -> dict[str, Any]:
        """The clock of a worker's host by an NTP server.

        Where both are on this host, it asks: a namespace cannot reach a server.  Once, because two questions within a
        second exceed the rate of some servers.
        """
        if self._setting.name == "hosts":
            return dict(worker.ask("ntp", self._start_s, server=server)["ntp"])
        from twinlink.appkit import ntp

        if self._ntp_view is None:
            self._ntp_view = ntp.view(server)
        return self._ntp_view

    def _idle(self, pair: Pair, subject: str) -> None:
        """RTT of an idle path, for the preflight."""
        timeout_s, watch = self._plan.timeout_s, watching(pair.digital_twin, self._stopped)
        pair.digital_twin.ask("reflect", octets=IDLE_OCTETS, count=IDLE_COUNT)
        pair.real_world.ask("warm", timeout_s * 4 + 5, watch, octets=IDLE_OCTETS, count=2, timeout_s=timeout_s)
        said = pair.real_world.ask(
            "idle", timeout_s * IDLE_COUNT + 5, watch,
            octets=IDLE_OCTETS, count=IDLE_COUNT, interval_s=IDLE_S, timeout_s=timeout_s,
        )  # fmt: skip
        pair.digital_twin.ask("mark")
        pair.digital_twin.ask("finish", first=0, expected=0)
        if said["rtt_ns"]:
            ordered = sorted(said["rtt_ns"])
            self._run.content["idle_rtt_ns"][subject] = ordered[len(ordered) // 2]

    def _measure(self, pair: Pair, cell: dict[str, Any], number: int) -> bool:
        """Measure one cell of one round; returns whether its workers can be used again."""
        means = MgenCell if self._plan.source == "mgen" else CellRun
        taken = means(self._plan, pair, cell, number, self._setting.counts_wire).run(self._stopped)
        if isinstance(taken, MgenTaken):
            self._run.add_mgen(cell["id"], taken.files)
        self._run.add_round(cell, taken.entry, taken.sent, taken.received)
        self._end_cell(cell, taken.status, taken.reason, number)
        return taken.status == "done"

    def _end_cell(self, cell: dict[str, Any], status: str, reason: str | None, number: int) -> None:
        """Set a cell's status and reason; the first failure stays."""
        if cell["id"] in self._gone_wrong:
            return
        if status == "done":
            cell["status"], cell["reason"] = "done", reason
        else:
            cell["status"], cell["reason"] = status, f"{self._which(number)}: {reason}"
            self._gone_wrong.add(cell["id"])

    def _which(self, number: int) -> str:
        """A round's number in messages, which count from 1."""
        return f"round {number + 1} of {self._plan.rounds}"

    def _tell(self, cell: dict[str, Any], number: int) -> None:
        payload = formatting.payload(cell["octets"])
        what = f"{self._which(number)}: {cell['subject']} {payload} {cell['direction']} {cell['mode']}"
        self._step(what, self._done / self._total, self._seconds_left())

    def _seconds_left(self) -> float | None:
        """An estimate from what the turns took so far; None before the first one ended."""
        if not self._took:
            return None
        every = [seconds for turns in self._took.values() for seconds in turns]
        mean = sum(every) / len(every)
        expected = 0.0
        for subject in self._turns_left:
            turns = self._took.get(subject)
            expected += sum(turns) / len(turns) if turns else mean
        return max(0.0, expected - (time.monotonic() - self._turn_began))
