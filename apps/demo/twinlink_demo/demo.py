"""The demo: each transport in turn, then the report.  run.json records the run, as that of a sweep."""

import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import twinlink_ran_emulator.recording
from twinlink_ran_emulator.recording import Recording
from twinlink_results import system
from twinlink_results.run import Run

import twinlink
from twinlink.appkit.arrays import write_arrays
from twinlink.appkit.convert import HttpAddress
from twinlink.transports import transport_class

from . import flows
from .child_process import ChildFailed
from .folder import Folder, TransportFolder
from .pace import RECORDED, may_be_slower
from .progress import Progress
from .session import Plan, Session, Stop

PACKAGES = ("pyzmq", "eclipse-zenoh", "numpy", "dapps", "asn1tools", "sigmf", "matplotlib", "rich")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the demo.

    Attributes:
        out: folder of the results.
        transports: in the order to run.
        seconds: least time to play for each transport; whole loops of the recording are played.
        recording: what to play.
        secure: whether both sides have identities.
        overwrite: whether an earlier demo in the folder gives way.
        pace: of the recorded pace; None: that, or a slower one where the first seconds of a transport are late.
        live: where the twin serves the page of its link; None: nowhere.
    """

    out: Path
    transports: tuple[str, ...]
    seconds: float
    recording: Path
    secure: bool = False
    overwrite: bool = False
    pace: float | None = None
    live: HttpAddress | None = None


def run(settings: Settings, stop: Stop) -> dict[str, Any]:
    """Run everything and write the report; returns the summary (docs/demo.md).

    Raises ConfigurationError, TransportMissing, RecordingError, OSError before anything has started.
    """
    recording = twinlink_ran_emulator.recording.read(settings.recording)
    for name in settings.transports:
        backend = transport_class(name)
        if settings.secure and not backend.takes_identity:
            raise twinlink.ConfigurationError(f"transport {name!r} takes no identity: leave it out, or --secure")
        if name == "memory":
            raise twinlink.ConfigurationError("transport 'memory' joins the two ends of one process, not processes")
    folder = Folder(settings.out)
    folder.prepare(list(settings.transports), settings.overwrite)
    try:
        with Progress(len(settings.transports)) as progress:
            _run_transports(settings, recording, folder, stop, progress)
            progress.phase("drawing the report")
            from . import report  # after the measurement, as matplotlib takes time and memory

            return report.write(folder.path)
    finally:
        folder.release()


def _run_transports(settings: Settings, recording: Recording, folder: Folder, stop: Stop, progress: Progress) -> None:
    period_s = recording.grid.n_records * recording.period_ns / 1e9
    loops = max(1, -int(-settings.seconds // period_s))
    run = Run(folder.path, _content(settings, recording, loops))
    for cell in flows.cells(settings.transports):
        run.add_cell(cell)
    facts = run.content["demo"]
    write_arrays(folder.truth, {"ue": recording.ue})
    pace, slowed = settings.pace or RECORDED, None
    for name in settings.transports:
        may_slow = settings.pace is None and may_be_slower(pace)
        session = Session(
            Plan(name, recording, loops, settings.secure, pace, may_slow, settings.live),
            folder.transport(name),
            stop,
            progress,
        )
        progress.begin(name, session.plan.seconds, pace)
        failure = None
        try:
            session.run()
            while session.slower is not None:
                pace, slowed = session.slower, _slowed(session)
                session = _again(session, folder.transport(name), stop, progress, slowed)
                session.run()
        except ChildFailed as error:
            failure = {"part": error.part, "reason": error.reason, "last_lines": error.last_lines}
            progress.result(f"{name}: {error}")
        finally:
            facts["transports"][name] = {
                "exit_codes": session.ended,
                "failure": failure,
                "interrupted": session.interrupted,
                "pace": session.plan.pace,
                "slowed": slowed,
                "load_1min": round(os.getloadavg()[0], 2),
            }
            facts["interrupted"] = stop.requested
            flows.add(run, name, session.records, _wrong(failure, session.interrupted))
            run.content["complete"] = all(cell["status"] == "done" for cell in run.content["cells"])
            run.content["ended_ns"] = time.time_ns()
            run.save()
        if failure or stop.requested:
            return


def _slowed(session: Session) -> str:
    """Why a slower pace was chosen."""
    plan = session.plan
    before = "the recorded pace" if plan.pace == RECORDED else f"{plan.pace:g} of it"
    late = f"the twin was {session.late_ns / 1e6:,.0f} ms late in the first seconds of {plan.transport}"
    return f"played at {session.slower:g} of the recorded pace, as at {before} {late}"


def _again(session: Session, files: TransportFolder, stop: Stop, progress: Progress, why: str) -> Session:
    pace = session.slower or RECORDED
    plan = replace(session.plan, pace=pace, may_slow=may_be_slower(pace))
    progress.result(f"{plan.transport} is {why}; --pace {RECORDED:g} forces the recorded pace")
    files.clear()
    files.path.mkdir(exist_ok=True)
    progress.begin(plan.transport, plan.seconds, plan.pace, again=True)
    return Session(plan, files, stop, progress)


def _content(settings: Settings, recording: Recording, loops: int) -> dict[str, Any]:
    """The initial run.json (docs/results-format.md); a sweep has no ``demo``."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(settings).items()}
    sides = ("real_world", "digital_twin")
    host = system.facts()
    return {
        "started_ns": time.time_ns(),
        "ended_ns": None,
        "complete": False,
        "configuration": {
            "given": given,
            "used": {
                "transports": list(settings.transports),
                "seconds": settings.seconds,
                "recording": settings.recording.name,
                "records": recording.grid.n_records,
                "record_period_ns": recording.period_ns,
                "loops": loops,
                "secure": settings.secure,
                "pace": "recorded, or slower on a busy machine" if settings.pace is None else settings.pace,
                "n_prbs": recording.grid.n_prbs,
                "scs_hz": recording.grid.scs_hz,
                "centre_hz": recording.grid.centre_hz,
            },
        },
        "setting": "loopback",
        "rate_limit": None,
        "source": "twinlink",
        "system": dict.fromkeys(sides, host),
        "ntp": dict.fromkeys(sides),  # both read one clock
        "idle_rtt_ns": {},
        "mgen": None,
        "demo": {"interrupted": False, "versions": _versions(), "system": _system(), "transports": {}},
    }


def _wrong(failure: dict[str, Any] | None, interrupted: bool) -> tuple[str, str] | None:
    """Status and reason of the cells of an unfinished transport."""
    if failure:
        return "failed", f"the {failure['part']} {failure['reason']}"
    return ("interrupted", "interrupted before the end") if interrupted else None


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"twinlink": twinlink.__version__, "python": platform.python_version()}
    script = "from gnuradio import gr; print(gr.version())"  # in a process of its own, which a wrong numpy may abort
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=120,
        check=False,
    )
    found["gnuradio"] = done.stdout.strip() if done.returncode == 0 else None
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _system() -> dict[str, Any]:
    try:
        names = platform.freedesktop_os_release()
    except OSError:
        names = {}
    return {
        "os": names.get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
    }
