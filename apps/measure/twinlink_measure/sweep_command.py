"""Measure delay, round-trip time, throughput and jitter over payloads, directions, modes and transports.

The command starts both sides: as two processes on loopback, in two network namespaces that it creates, or one here and
one on another host where `twinlink pong` runs (docs/sweep.md).
"""

import argparse
import dataclasses
import datetime
import importlib
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlink.appkit import convert, linking
from twinlink.appkit.console import DONE, NOT_MET, Output, Stop, interruptible, log, wrapped, writing
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError, TransportMissing
from twinlink.spelling import near

from . import sweep_options
from .cells import Plan
from .mgen import session

if TYPE_CHECKING:
    from .setting import Setting

_NAME = "twinlink sweep"
EXAMPLES = """
twinlink sweep --quick                   # does it run here? under a minute
twinlink sweep --setting loopback        # the paper's table on this machine
twinlink sweep --subjects zeromq,raw-zeromq --payloads 100,64KB --rounds 10
twinlink sweep --systems mqtt,opcua --count 500
twinlink sweep --mode open,saturation --rate 1000 --setting loopback
twinlink sweep --peer tcp/10.0.0.5:7447  # two hosts
twinlink sweep --require loss=0 --require rtt-p99-ms=5 --out run1
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    sweep_options.declare(parser)


def run(given: argparse.Namespace) -> int:
    """Measure, report, print the table; 1 if messages were lost, cells are missing, or a requirement is not met."""
    from twinlink_results.run import RUN, Run

    from .progress import Progress
    from .sweep import Sweep

    plan = _plan(given)
    _check_programs(plan)
    folder: Path = given.out or Path(datetime.datetime.now().strftime("sweep-%Y%m%d-%H%M%S"))
    with writing(folder), Stop() as stop, _setting(given, stop) as setting, Progress(_NAME) as progress:
        log(_NAME, f"{_where(setting.name, given)}; results go to {folder}")
        if given.rate is not None and "open" not in plan.modes:
            log(_NAME, f"--rate {given.rate:g} is not used: it is for --mode open, this is {', '.join(plan.modes)}")
        run = Run(folder, _content(given, plan, setting))
        try:
            Sweep(plan, setting, run, progress.step, lambda: stop.requested, progress.say, given.ntp).execute()
        except OSError:  # such as a full disk
            if (folder / RUN).exists():
                log(_NAME, f"the records are kept: `twinlink report {folder}` makes the report")
            raise
    return _report(given, folder)


def _report(given: argparse.Namespace, folder: Path) -> int:
    """Derive everything from the records; prints the table even if the files cannot be written."""
    from twinlink_results import results, summary, table

    found: dict[str, Any] = {}
    try:
        with interruptible(), writing(folder):
            log(_NAME, "measured; making the report")
            found, rows = results.compute(folder, results.load(folder))
            results.derive(folder, found, rows)
    except (OSError, KeyboardInterrupt):  # a full disk, or a request to end
        log(_NAME, f"the records are kept: `twinlink report {folder}` makes the report")
        raise
    finally:
        if found:
            Output(given.json).emit(found, f"{wrapped(summary.text(found))}\n\n{table.text(found)}")
    log(_NAME, f"report: {folder / results.REPORT}")
    wrong = list(_not_met(found, given.require or [], _demanded(given)))
    for text in wrong:
        log(_NAME, text)
    return NOT_MET if wrong else DONE


def _not_met(found: dict[str, Any], required: list[tuple[str, float]], demanded: set[str]) -> Iterator[str]:
    """What is wrong, cell by cell."""
    from .channels import beyond, without_cable

    if not found["complete"]:
        interrupted = any(cell["status"] == "interrupted" for cell in found["cells"])
        yield f"{'interrupted' if interrupted else 'broken off'}: what was measured until then is kept"
    for cell in found["cells"]:
        if cell["status"] == "skipped" and cell["subject"] not in demanded:
            continue  # a baseline that is not installed here
        if cell["status"] == "skipped" and beyond(cell["subject"], cell["octets"]) is not None:
            continue  # a limit of its protocol
        if cell["status"] == "skipped" and without_cable(cell["subject"], cable=False) == cell["reason"]:
            continue  # a limit of this setting
        if cell["status"] not in ("done", "interrupted"):
            yield f"{cell['id']}: {cell['status']}, {cell['reason']}"
        told = cell.get("mgen")
        if told and (told["received"] < told["sent"] or told["errors"]):
            yield f"{cell['id']}: MGEN received {told['received']} of {told['sent']}, {told['errors']} RERR"
        if cell["statistics"] is not None and not cell["subject"].startswith("raw-"):
            for text in _beyond(cell["statistics"], required):
                yield f"{cell['id']}: {text}"


def _beyond(figures: dict[str, Any], required: list[tuple[str, float]]) -> Iterator[str]:
    """The requirements that are not met; without one for loss, any loss counts."""
    if figures["lost"] and not any(name == "loss" for name, _ in required):
        yield f"{figures['lost']} of {figures['n_sent']} messages were lost"
    for name, most in required:
        value = _value(name, figures)
        if value is None or value > most:
            yield f"{name} is {'unknown' if value is None else f'{value:g}'}; at most {most:g} is required"


def _value(name: str, figures: dict[str, Any]) -> float | None:
    match name:
        case "loss":
            return float(figures["loss_ratio"])
        case "duplicates" | "reordered":
            return float(figures[name])
    rtt = figures["rtt_ns"]
    return None if rtt is None else float(rtt[name.split("-")[1]]) / 1e6


def _plan(given: argparse.Namespace) -> Plan:
    from .channels import SUBJECTS, check, find
    from .channels.subjects import OWN_SUBSCRIPTION
    from .mgen import script

    named = sweep_options.chosen(given)
    subjects = list(named or convert.parts(given.transports))
    mgen = given.source == "mgen"
    if mgen and (given.mode not in (None, "open") or any(name.startswith("raw-") for name in subjects)):
        raise ConfigurationError(
            "--source mgen sends in an open loop (--mode open) and through twinlink (no raw subjects)"
        )
    if named is None and given.baselines == "yes" and not mgen:
        bare = [f"raw-{name}" for name in subjects if f"raw-{name}" in SUBJECTS]
        subjects += [name for name in ("raw-tcp", *bare, "mqtt-qos0") if name not in subjects]
    for subject in subjects:
        if subject in OWN_SUBSCRIPTION:
            raise ConfigurationError(f"{subject} is no subject of a sweep: `twinlink experiment loopback` measures it")
        find(subject)
    if mgen:
        for octets in map(convert.octets, convert.parts(given.payloads)):
            script.check(octets)
    options: dict[str, dict[str, Any]] = {}
    for subject, name, value in given.option or []:
        if subject not in subjects:
            raise ConfigurationError(
                f"--option {subject}.{name}: {subject!r} is not measured here{near(subject, subjects)}"
            )
        options.setdefault(subject, {})[name] = value
        try:
            check(subject, {name: value})
        except ConfigurationError as error:
            raise ConfigurationError(f"--option {subject}.{name}: {error}") from None
        except TransportMissing:
            continue  # its cells are skipped, with the reason
    return Plan(
        subjects=tuple(subjects),
        payloads=tuple(map(convert.octets, convert.parts(given.payloads))),
        directions=convert.parts(given.directions),
        modes=convert.parts(given.mode or ("open" if mgen else "closed")),
        **sweep_options.how_often(given),
        rate_hz=given.rate or (sweep_options.MGEN_HZ if mgen else Plan.rate_hz),
        source=given.source,
        timeout_s=given.timeout,
        seed=given.seed,
        options=options,
    )


def _check_programs(plan: Plan) -> None:
    """Check for what the report and the source need before measuring, not after."""
    for name in ("jsonschema", "jinja2"):
        importlib.import_module(name)
    for name in ("scipy", "matplotlib"):  # these take a second to load
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(name=name)
    if plan.source == "mgen":
        session.require()


def _demanded(given: argparse.Namespace) -> set[str]:
    return set(sweep_options.chosen(given) or convert.parts(given.transports))


def _setting(given: argparse.Namespace, stop: Stop) -> "Setting":
    from .hosts import Hosts
    from .namespaces import Namespaces
    from .setting import Loopback, default

    name = given.setting or ("hosts" if given.peer else default())
    if (name == "hosts") != (given.peer is not None):
        raise ConfigurationError("--setting hosts and --peer tcp/HOST:PORT go together")
    if given.rate_limit is not None and name != "netns":
        raise ConfigurationError(f"--rate-limit is for the cable between two namespaces; the setting is {name}")
    if given.delay is not None and name != "netns":
        raise ConfigurationError(
            f"--delay is for the path between two namespaces, which need root; the setting is {name}"
        )
    match name:
        case "hosts":
            linking.check_identity(given)
            hosts = Hosts(given.peer, given.peer_transport, given.timeout, lambda: stop.requested, given.identity)
            log(_NAME, f"waits up to {given.timeout:g} s for the pong at {given.peer}")
            return hosts
        case "netns":
            return Namespaces(given.rate_limit, given.delay or 0)
    return Loopback()


def _where(name: str, given: argparse.Namespace) -> str:
    chosen = "" if given.setting else " (change it with --setting)"
    match name:
        case "hosts":
            return f"two hosts, the other at {given.peer}"
        case "netns":
            limit = f", {given.rate_limit} each way" if given.rate_limit else ""
            delay = f", {given.delay:g} ms each way" if given.delay else ""
            return f"two network namespaces of this host{limit}{delay}{chosen}"
    return f"two processes on loopback{chosen}"


def _content(given: argparse.Namespace, plan: Plan, setting: "Setting") -> dict[str, Any]:
    """The initial content of run.json."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in sorted(vars(given).items())}
    return {
        "started_ns": time.time_ns(),
        "ended_ns": None,
        "complete": False,
        "configuration": {"given": options, "used": {**dataclasses.asdict(plan), **setting.describe()}},
        "setting": setting.name,
        "rate_limit": given.rate_limit,
        "delay_ms": given.delay,
        "source": given.source,
        "system": {"real_world": None, "digital_twin": None},
        "ntp": {side: {"error": "no server was given (--ntp)"} for side in ("real_world", "digital_twin")},
        "idle_rtt_ns": {},
        "mgen": None,
    }
