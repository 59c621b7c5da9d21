"""One run: a world, its nodes, the faults of a schedule, and at the end the ledgers before the checker."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twinlink.testing.base import Stopwatch

from .checker import check
from .ledger import Session, read
from .schedule import Flow, Schedule
from .verdict import Verdict
from .world import World

PORT = 7447
PORTS = 2
OPEN_S = 120.0  # a Python process that imports twinlink, on a busy machine
FLUSH_S = 120.0  # a backlog of megabytes over a path of netem's
DRAIN_S = CLOSE_S = 60.0
OTHER = {"dt": "rw", "rw": "dt"}


class Broken(Exception):
    """A node died, hung or answered nonsense: no ledger can say what should have been."""


class Process:
    """A running node, its pipes and the ledger it writes."""

    def __init__(self, popen: "subprocess.Popen[str]", side: str, ledger: Path) -> None:
        self.popen = popen
        self.side = side
        self.ledger = ledger
        self.killed = False
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None: the node has ended
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            with contextlib.suppress(ValueError):
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def order(self, line: str) -> None:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(line + "\n")
            self.popen.stdin.flush()
        except OSError as error:
            raise Broken(f"{self.side} is gone (exit code {self.popen.poll()}): {error}") from None

    def answer(self, timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise Broken(f"{self.side} did not answer within {timeout_s:g} s") from None
        if answer is None:
            self._answers.put(None)
            raise Broken(f"{self.side} ended without an answer (exit code {self.popen.wait()})")
        return answer

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@dataclass
class Moment:
    """Something the lab did; monotonic time."""

    what: str
    began_ns: int
    ended_ns: int = 0


@dataclass
class Outcome:
    """What came of a run."""

    verdict: Verdict
    sessions: list[Session]
    moments: list[Moment]
    broken: str = ""
    close_s: dict[str, float] = field(default_factory=dict)
    slowest_send_s: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether everything was as it should be."""
        return self.verdict.clean and not self.broken


class Trial:
    """The nodes in a world; a context manager that leaves nothing behind but the folder.

    It is the `Place` on which faults act.
    """

    def __init__(
        self,
        folder: Path,
        transport: str,
        flows: Sequence[Flow],
        *,
        seed: int = 0,
        connectors: tuple[str, ...] = ("rw",),
        proxied: bool = False,
        iterating: frozenset[str] = frozenset(),
        subscribing_late: frozenset[str] = frozenset(),
        reliability: str = "repair",
        options: dict[str, Any] | None = None,
        buffered: bool = False,
        late: str = "",
    ) -> None:
        """``late``: nodes that `restart` starts later, not on entry."""
        self.folder = folder
        self.transport = transport
        self.flows = flows
        self.seed = seed
        self.proxied = proxied
        self.iterating = iterating
        self.subscribing_late = subscribing_late
        self.reliability = reliability
        self.options = options or {}
        self.buffered = buffered
        self.sides = tuple(side for side in ("dt", *connectors) if side != late)
        self.world = World(f"{seed}-{transport}-{threading.get_ident() % 10_000}")
        self.nodes: dict[str, Process] = {}
        self.moments: list[Moment] = []
        self._made: list[Process] = []
        self._helpers: list[subprocess.Popen[str]] = []
        self._proxy: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._errors = (self.folder / "stderr.txt").open("ab")
        self.world.__enter__()
        try:
            if self.proxied:
                self._proxy = self.world.start(
                    self.world.rw, "tests.faults.proxy", self.world.listener, str(PORT), str(PORTS), errors=self._errors
                )
                self._helpers.append(self._proxy)
                assert self._proxy.stdout is not None
                self._proxy.stdout.readline()
            for side in self.sides:
                self._start(side)
            for side in self.sides:
                self._ready(side)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._made:
            process.end()
        for helper in self._helpers:
            helper.kill()
            helper.communicate()
        self.world.remove()
        self._errors.close()

    def _start(self, side: str) -> None:
        number = sum(process.side == side for process in self._made)
        ledger = self.folder / f"{side}-{number}.ledger"
        host = "0.0.0.0" if side == "dt" else "127.0.0.1" if self.proxied else self.world.listener
        arguments = [
            "--ledger", str(ledger), "--transport", self.transport, "--node", side, "--seed", str(self.seed),
            "--listen" if side == "dt" else "--connect", f"tcp/{host}:{PORT}",
            "--reliability", self.reliability, "--options", json.dumps(self.options), "--answers",
            *(["--iterate"] if side in self.iterating else []),
            *(["--late"] if side in self.subscribing_late else []), *(["--buffered"] if self.buffered else []),
            "--receive", "answers",
        ]  # fmt: skip
        for flow in self.flows:
            sends = (flow.sender == "dt") == (side == "dt")
            arguments += ["--send", str(flow)] if sends else ["--receive", flow.name]
        namespace = self.world.dt if side == "dt" else self.world.rw
        popen = self.world.start(namespace, "tests.faults.node", *arguments, errors=self._errors)
        self.nodes[side] = Process(popen, side, ledger)
        self._made.append(self.nodes[side])

    def _ready(self, side: str) -> None:
        self.nodes[side].answer(OPEN_S)

    # What faults do

    def signal(self, side: str, number: int) -> None:
        self.nodes[side].popen.send_signal(number)

    def kill(self, side: str) -> None:
        self.nodes[side].killed = True
        self.nodes[side].popen.kill()
        self.nodes[side].popen.wait()

    def restart(self, side: str) -> None:
        self._start(side)
        self._ready(side)

    def tell(self, side: str, line: str, timeout_s: float = OPEN_S) -> dict[str, Any]:
        self.nodes[side].order(line)
        return self.nodes[side].answer(timeout_s)

    def tell_proxy(self, line: str) -> None:
        assert self._proxy is not None
        assert self._proxy.stdin is not None
        self._proxy.stdin.write(line + "\n")
        self._proxy.stdin.flush()

    def strangers(self, kind: str, count: int, seconds: float) -> None:
        self._helpers.append(
            self.world.start(
                self.world.rw, "tests.faults.strangers", kind, self.world.listener, str(PORT), str(PORTS), str(count),
                str(seconds), str(self.seed), errors=self._errors,
            )
        )  # fmt: skip

    # A run

    def run(self, schedule: Schedule) -> None:
        """The faults of a schedule, one after the other; what this machine is late by is added to each."""
        for fault in schedule.background:
            fault.begin(self)
        with Stopwatch() as watch:
            for step in schedule.steps:
                watch.sleep(step.wait_s)
                moment = Moment(str(step), time.monotonic_ns())
                self.moments.append(moment)
                step.fault.begin(self)
                watch.sleep(step.lasts_s)
                step.fault.end(self)
                moment.ended_ns = time.monotonic_ns()
            watch.sleep(schedule.quiet_s)
            for fault in schedule.background:
                fault.end(self)
            watch.sleep(schedule.calm_s)

    def finish(self) -> Outcome:
        """Stop the traffic, let everything settle, close, and judge."""
        closing: dict[str, dict[str, Any]] = {}
        broken = ""
        try:
            for side in self.nodes:
                self.nodes[side].order(f"finish {FLUSH_S}")
            for side in self.nodes:
                answer = self.nodes[side].answer(FLUSH_S * 3)
                if answer["alive"]:
                    raise Broken(f"{side}: send on {', '.join(answer['alive'])} did not return")
            for side in self.nodes:  # all flushed: nothing is on its way any more
                self.nodes[side].order(f"drain {DRAIN_S}")
            for side in self.nodes:
                if not self.nodes[side].answer(DRAIN_S * 2)["idle"]:
                    raise Broken(f"{side}: the application is still busy {DRAIN_S:g} s after the end")
            for side in self.nodes:
                self.nodes[side].order("close")
            for side in self.nodes:
                closing[side] = self.nodes[side].answer(CLOSE_S)
                code = self.nodes[side].popen.wait(CLOSE_S)
                if code:
                    raise Broken(f"{side} ended with exit code {code}")
        except (Broken, subprocess.TimeoutExpired) as error:
            broken = str(error)
        return self.judge(closing, broken)

    def judge(self, closing: dict[str, dict[str, Any]] | None = None, broken: str = "") -> Outcome:
        """Read the ledgers and check them."""
        sessions = [session for process in self._made if (session := read(process.ledger)) is not None]
        return Outcome(
            Verdict() if broken else check(sessions), sessions, self.moments, broken,
            {side: answer["close_s"] for side, answer in (closing or {}).items()},
            max((took_s for session in sessions for took_s in self._sends_s(session)), default=0.0),
        )  # fmt: skip

    def _sends_s(self, session: Session) -> Iterator[float]:
        """How long the slowest sends of a process took, except those during which it was stopped."""
        stops = [moment for moment in self.moments if moment.what.startswith(f"Stop({session.node})")]
        for took_s, returned_ns in session.counters.get("slowest_sends", []):
            if not any(returned_ns - took_s * 1e9 < stop.ended_ns and stop.began_ns < returned_ns for stop in stops):
                yield took_s


def run_seed(folder: Path, transport: str, schedule: Schedule, reliability: str) -> Outcome:
    """One schedule on one transport, from an empty folder to the verdict."""
    with Trial(
        folder, transport, schedule.flows, seed=schedule.seed, connectors=schedule.connectors,
        proxied=schedule.proxied, iterating=schedule.iterating, subscribing_late=schedule.subscribing_late,
        reliability=reliability, options=schedule.options,
    ) as trial:  # fmt: skip
        try:
            trial.run(schedule)
        except (Broken, AssertionError) as error:
            with contextlib.suppress(ProcessLookupError):
                for side in trial.nodes:
                    os.kill(trial.nodes[side].popen.pid, signal.SIGCONT)
            return trial.judge(broken=f"during the faults: {error}")
        return trial.finish()
