"""One transport's run: emulator, exporter and replay as processes on private endpoints."""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from twinlink_ran_emulator.recording import Recording

from twinlink.appkit.convert import HttpAddress
from twinlink.process.ports import free_ports

from . import flows
from .child_process import ChildProcess
from .folder import RECORDED, TransportFolder
from .pace import FirstSeconds

START_S = 180.0  # GNU Radio's first import from a cold disk, on a busy machine
STUCK_S = 30.0  # how late the playout may be, and how long the twin may analyse nothing, before it counts as stuck
IDLE_S = 5.0  # the twin ends when it has every record, or after so long without one
LOOK_S = 0.1
PORTS = 2  # of a link: its own and the next
DRAIN_S = 0.5  # after an interrupted playout, for records in flight


class Stop(Protocol):
    """A request to end, such as `twinlink.appkit.console.Stop`."""

    requested: bool

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; returns True at once if the end is requested."""


class Observer(Protocol):
    """Observes a session, such as `progress.Progress`."""

    def phase(self, text: str) -> None:
        """The current phase."""

    def parts(self, states: dict[str, str]) -> None:
        """The state of each process."""

    def event(self, part: str, event: dict[str, Any]) -> None:
        """A process logged an event."""

    def played(self, seconds: float) -> None:
        """How long the recording has been playing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a session.

    Attributes:
        transport: name of the link's transport.
        recording: what the emulator plays.
        loops: number of times to play it.
        secure: whether exporter and replay have identities.
        pace: of the recorded pace.
        may_slow: whether the session ends early where the machine does not keep the pace.
        live: where the replay serves the page of its link, or None.
    """

    transport: str
    recording: Recording
    loops: int
    secure: bool = False
    pace: float = 1.0
    may_slow: bool = False
    live: HttpAddress | None = None

    @property
    def period_ns(self) -> float:
        """Time between two records."""
        return self.recording.period_ns / self.pace

    @property
    def records(self) -> int:
        """Records to be played."""
        return self.recording.grid.n_records * self.loops

    @property
    def seconds(self) -> float:
        """Time to play them."""
        return self.records * self.period_ns / 1e9


class Session:
    """Runs a plan; the processes write their files into a folder.

    Attributes:
        plan: as given.
        ended: exit code of each process, once all have ended.
        interrupted: whether Ctrl-C ended the playout early.
        records: the processes' records of each message.
        slower: the pace to play at instead, where the first seconds were late and ended the session; else None.
        late_ns: how late the twin was then.
    """

    def __init__(self, plan: Plan, folder: TransportFolder, stop: Stop, observer: Observer) -> None:
        self.ended: dict[str, int] = {}
        self.interrupted = False
        self.records: flows.Tables = {}
        self.slower: float | None = None
        self.late_ns = 0
        self.plan = plan
        self._folder, self._stop, self._observer = folder, stop, observer
        self._parts: dict[str, ChildProcess] = {}
        self._seen: dict[str, set[str]] = {}
        self._playing_since: float | None = None
        self._begin_ns = 0  # Unix time of record 0
        self._first_seconds = FirstSeconds(plan.period_ns)

    def run(self) -> None:
        """Run the session.  Raises ChildFailed, after the other processes have ended cleanly."""
        private = Path(tempfile.mkdtemp(prefix="twinlink-", dir="/tmp"))  # a UNIX socket's path has 107 octets at most
        try:
            try:
                self._play(private)
            finally:
                self._end()
                self.records = flows.read(self._folder.recording)
        finally:
            shutil.rmtree(private, ignore_errors=True)

    def _play(self, private: Path) -> None:
        plan, folder = self.plan, self._folder
        endpoint = f"tcp/127.0.0.1:{free_ports(PORTS)}"
        e3 = [f"--{name}=ipc://{private}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
        grid = plan.recording.grid
        carrier = [f"--n-prbs={grid.n_prbs}", f"--scs-khz={grid.scs_hz / 1e3:.0f}", f"--centre-hz={grid.centre_hz}"]
        ends = [f"--count={plan.records}", f"--idle={IDLE_S}"]
        link = ["--transport", plan.transport]
        of_twin, of_gnb = _identities(private) if plan.secure else ([], ["--insecure-control"])

        self._observer.phase("starting the twin's replay and the exporter")
        out = ["--out", str(folder.rebuilt), *([f"--live={plan.live}"] if plan.live else [])]
        self._start("replay", "twinlink_replay", [*link, *of_twin, "--listen", endpoint, *out, *ends])
        summary = ["--summary", str(folder.exporter_summary)]
        self._start("exporter", "twinlink_exporter", [*link, *of_gnb, "--connect", endpoint, *e3, *carrier, *summary])
        if not self._wait(lambda: "peer-up" in self._seen["exporter"] and "peer-up" in self._seen["replay"],
                          "replay", "did not meet the exporter"):  # fmt: skip
            return
        self._observer.phase("starting the RAN emulator")
        play = ["--recording", str(plan.recording.path), f"--loop={plan.loops}", f"--pace={plan.pace:g}"]
        play += ["--kpm", "--heard", str(folder.playout)]
        self._start("emulator", "twinlink_ran_emulator", [*play, *e3])
        if not self._wait(lambda: "playing" in self._seen["emulator"], "exporter", "did not subscribe"):
            return
        self._observer.phase("playing")
        self._playing_since = time.monotonic()
        # The twin ends when it has every record, perhaps before the emulator has said that it has played them.
        if not self._wait(self._played_or_late, "emulator", "did not play everything", plan.seconds + STUCK_S,
                          may_end="replay", with_code=0):  # fmt: skip
            return
        if "done" not in self._seen["emulator"]:
            self.slower = self._first_seconds.slower(plan.pace)
            self.late_ns = self._first_seconds.least_late_ns or 0
            return
        self._observer.phase("waiting for the twin to have everything")
        self._playing_since = None
        replay = self._parts["replay"]
        self._wait(lambda: replay.exit_code is not None, "replay", "did not end", STUCK_S + IDLE_S, may_end="replay",
                   progress=self._analysed)  # fmt: skip
        if replay.exit_code not in (None, 0, 1):  # 1: records are missing, which the verdict reports
            raise replay.failed(f"failed (exit code {replay.exit_code})")

    def _start(self, name: str, module: str, arguments: list[str]) -> None:
        self._seen[name] = set()
        if name in RECORDED:
            arguments = [*arguments, "--record", str(self._folder.recording(name))]
        part = ChildProcess(name, module, arguments, self._folder.log(name), self._folder.said(name))
        self._parts[name] = part
        self._observer.event(name, {"time_ns": time.time_ns(), "event": "process", "pid": part.pid})

    def _played_or_late(self) -> bool:
        if self.plan.may_slow and self._begin_ns:
            since_ns = time.time_ns() - self._begin_ns  # before the file is looked at: it may have grown since
            self._first_seconds.look(since_ns, self._analysed())
            if self._first_seconds.late:
                return True
        return "done" in self._seen["emulator"]

    def _analysed(self) -> int:
        """How many records the twin has written, which it does when it has analysed them."""
        file = self._folder.rebuilt / "rebuilt.sigmf-data"
        return file.stat().st_size // self.plan.recording.samples[0].nbytes if file.exists() else 0

    def _wait(
        self,
        done: Callable[[], bool],
        part: str,
        problem: str,
        seconds: float = START_S,
        may_end: str | None = None,
        with_code: int | None = None,
        progress: Callable[[], int] = lambda: 0,
    ) -> bool:
        """Wait until ``done``; False if Ctrl-C came first.

        Raises ChildFailed if a process other than ``may_end`` ends, or that with another exit code than ``with_code``
        (None: any will do), or, naming ``part``, if it takes too long without ``progress``.
        """
        end, before = time.monotonic() + seconds, progress()
        while not done():
            if self._stop.wait(LOOK_S):
                self.interrupted = True
                return False
            self._look()
            for name, each in self._parts.items():
                if name != may_end or (with_code is not None and each.exit_code not in (None, with_code)):
                    each.check()
            if (now := progress()) != before:
                end, before = time.monotonic() + seconds, now
            if time.monotonic() > end and not done():
                raise self._parts[part].failed(f"{problem} within {seconds:.0f} s")
        return True

    def _look(self) -> None:
        news = [(event["time_ns"], name, event) for name, part in self._parts.items() for event in part.events()]
        for _, name, event in sorted(news, key=lambda item: item[0]):
            self._seen[name].add(event["event"])
            if event["event"] == "playing":
                self._begin_ns = event["time_ns"]
            self._observer.event(name, event)
        self._observer.parts({name: _state(part) for name, part in self._parts.items()})
        if self._playing_since is not None:
            self._observer.played(min(time.monotonic() - self._playing_since, self.plan.seconds))

    def _end(self) -> None:
        """Stop the processes, in the direction of the data."""
        order = ["replay", "exporter", "emulator"]
        if "emulator" in self._parts and "done" not in self._seen["emulator"]:
            order = ["emulator", "replay", "exporter"]
        try:
            for name in order:
                if name in self._parts:
                    self._observer.phase(f"stopping the {name}")
                    self._parts[name].stop()
                    self._look()
                    if name == "emulator" and order[0] == "emulator":
                        time.sleep(DRAIN_S)
        finally:
            for part in self._parts.values():  # a second Ctrl-C comes here
                part.kill()
            self.ended = {name: code for name, part in self._parts.items() if (code := part.exit_code) is not None}


def _identities(private: Path) -> tuple[list[str], list[str]]:
    """The options of a twin and a gNB with new identities, which trust each other."""
    from twinlink.identity import Identity, trust  # needs a package that other demos do without

    twin = Identity.create(private / "twin-1.id", "twin-1", "twin")
    gnb = Identity.create(private / "gnb-1.id", "gnb-1", "gnb")
    trust.trust(twin.folder, gnb.line, "gnb")
    trust.trust(gnb.folder, twin.line, "twin")
    return ["--identity", str(twin.folder)], ["--identity", str(gnb.folder)]


def _state(part: ChildProcess) -> str:
    code = part.exit_code
    return "running" if code is None else "ended" if code == 0 else f"ended ({code})"
