"""Measure delay, round-trip time, throughput and jitter over payloads, directions, modes and transports.

This command starts both sides: as two processes on loopback, in two network namespaces that it makes itself, or one
here and one on another host where `twinlink pong` runs (docs/sweep.md).
"""

import argparse
import dataclasses
import datetime
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlink.errors import ConfigurationError, TransportMissing
from twinlink.measure import formatting
from twinlink.measure.cells import DIRECTIONS, Plan
from twinlink.mgen import session
from twinlink.protocol.frames import MAX_PAYLOAD

from ..appkit import convert
from ..appkit.console import DONE, NOT_MET, Output, Stop, log, wrapped, writing

if TYPE_CHECKING:
    from twinlink.measure.setting import Setting

NAME = "twinlink sweep"
MODES, SETTINGS = tuple(formatting.MODES), tuple(formatting.SETTINGS)
MGEN_HZ = 20.0
REQUIREMENTS = ("loss", "duplicates", "reordered", "rtt-p50-ms", "rtt-p99-ms")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    _add_what(parser)
    _add_how_often(parser)
    _add_where(parser)
    parser.add_argument(
        "--seed",
        type=convert.whole(0),
        default=Plan.seed,
        metavar="N",
        help="of the order in which things are measured",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go; sweep-DATE-TIME if not given")
    parser.add_argument(
        "--require",
        action="append",
        type=_requirement,
        metavar="NAME=MOST",
        help=f"exit code 1 where a cell of twinlink has more: {', '.join(REQUIREMENTS)}; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="results.json on stdout")


def _add_what(parser: argparse.ArgumentParser) -> None:
    """What is measured, and in which way."""
    parser.add_argument(
        "--transports",
        type=convert.names,
        default="zeromq,zenoh",
        metavar="NAME[,NAME]",
        help="transports of twinlink that are measured",
    )
    parser.add_argument(
        "--baselines",
        choices=("yes", "no"),
        default="yes",
        help="measure the bare libraries, bare TCP and MQTT in the same run, interleaved",
    )
    parser.add_argument(
        "--subjects",
        type=convert.names,
        metavar="NAME[,NAME]",
        help="exactly these instead: zeromq, zenoh, mqtt-qos0, mqtt-qos1, mqtt-qos2, raw-tcp, raw-zeromq, raw-zenoh, "
        "raw-zenoh-default, raw-mqtt",
    )
    parser.add_argument(
        "--payloads",
        type=_payloads,
        default="100,1K,10K,100K,1M",
        metavar="B[,B]",
        help="octets of payload; K is 1024, M is 1024 x 1024",
    )
    parser.add_argument(
        "--directions",
        type=_some_of(DIRECTIONS),
        default=",".join(DIRECTIONS),
        metavar="D[,D]",
        help="rw-dt: from the Real World to the Digital Twin; dt-rw: back",
    )
    parser.add_argument(
        "--mode",
        type=_some_of(MODES),
        metavar="M[,M]",
        help="closed, if not given: the next message when the last is answered; open: at --rate, whatever comes back; "
        "saturation: search for the highest rate without loss",
    )
    parser.add_argument(
        "--rate",
        type=_above_0,
        metavar="HZ",
        help=f"messages per second in an open loop; {Plan.rate_hz:g}, and {MGEN_HZ:g} with mgen",
    )
    parser.add_argument(
        "--source",
        choices=("twinlink", "mgen"),
        default="twinlink",
        help="mgen: real mgen processes send and receive, in an open loop; a bridge carries their messages",
    )


def _add_how_often(parser: argparse.ArgumentParser) -> None:
    """How many messages, in how many rounds."""
    parser.add_argument(
        "--count", type=convert.count, default=Plan.count, metavar="N", help="messages of each cell, over all rounds"
    )
    parser.add_argument(
        "--rounds",
        type=convert.count,
        default=Plan.rounds,
        metavar="N",
        help="times that all processes are started anew",
    )
    parser.add_argument(
        "--warm-up",
        type=convert.whole(0),
        default=Plan.warm_up,
        metavar="N",
        help="messages before each cell in each round, not counted",
    )


def _add_where(parser: argparse.ArgumentParser) -> None:
    """Where the two sides stand, and with which options they are opened."""
    parser.add_argument("--setting", choices=SETTINGS, help="where the two sides stand; netns for root, else loopback")
    parser.add_argument(
        "--rate-limit", type=_rate_limit, metavar="RATE", help="of the cable between two namespaces, such as 100mbit"
    )
    parser.add_argument(
        "--peer", metavar="tcp/HOST:PORT", help="where `twinlink pong` listens on the other host; it takes the Digital "
        "Twin's side and the ports from 10 above its own"
    )  # fmt: skip
    parser.add_argument("--peer-transport", default="zeromq", metavar="NAME", help="the transport that pong was given")
    parser.add_argument(
        "--option",
        action="append",
        type=_option,
        metavar="SUBJECT.NAME=VALUE",
        help="an option of a subject's link or transport; may be given several times",
    )
    parser.add_argument(
        "--ntp",
        type=convert.ntp_server,
        metavar="HOST[:PORT]",
        help="NTP server that both hosts ask how far their clocks are off",
    )
    parser.add_argument(
        "--timeout", type=_above_0, default=Plan.timeout_s, metavar="S", help="wait for an answer, and for the peer"
    )


def run(given: argparse.Namespace) -> int:
    """Measure, report, print the table; 1 when something was lost, is missing, or a requirement is not met."""
    from twinlink.measure.progress import Progress
    from twinlink.measure.run import RUN, Run
    from twinlink.measure.sweep import Sweep

    plan = _plan(given)
    _check_programs(plan)
    folder: Path = given.out or Path(datetime.datetime.now().strftime("sweep-%Y%m%d-%H%M%S"))
    with writing(folder), Stop() as stop, _setting(given, stop) as setting, Progress(NAME) as progress:
        log(NAME, f"{_where(setting.name, given)}; results go to {folder}")
        if given.rate is not None and "open" not in plan.modes:
            log(NAME, f"--rate {given.rate:g} is not used: it is for --mode open, this is {', '.join(plan.modes)}")
        run = Run(folder, _content(given, plan, setting))
        try:
            Sweep(plan, setting, run, progress.step, lambda: stop.requested, progress.say, given.ntp).execute()
        except OSError:  # such as a full disk
            if (folder / RUN).exists():
                log(NAME, f"what was measured before is kept: `twinlink report {folder}` makes a page of it")
            raise
    return _report(given, folder)


def _report(given: argparse.Namespace, folder: Path) -> int:
    """Everything that is derived from the records; prints the table, also where the files cannot be written."""
    from twinlink.measure import results, summary, table

    log(NAME, "measured; now the report")
    found: dict[str, Any] = {}
    try:
        found, rows = results.compute(folder, results.load(folder))
        with writing(folder):
            results.derive(folder, found, rows)
    except (OSError, KeyboardInterrupt):  # a full disk, or nobody wants to wait
        log(NAME, f"the records are kept: `twinlink report {folder}` makes the report")
        raise
    finally:
        if found:
            Output(given.json).emit(found, f"{wrapped(summary.text(found))}\n\n{table.text(found)}")
    log(NAME, f"report: {folder / results.REPORT}")
    wrong = list(_not_met(found, given.require or [], _demanded(given)))
    for text in wrong:
        log(NAME, text)
    return NOT_MET if wrong else DONE


def _not_met(found: dict[str, Any], required: list[tuple[str, float]], demanded: set[str]) -> Iterator[str]:
    """What is not as it should be, cell by cell."""
    if not found["complete"]:
        interrupted = any(cell["status"] == "interrupted" for cell in found["cells"])
        yield f"{'interrupted' if interrupted else 'broken off'}: what was measured until then is kept"
    for cell in found["cells"]:
        if cell["status"] == "skipped" and cell["subject"] not in demanded:
            continue  # a baseline that this machine does not have
        if cell["status"] not in ("done", "interrupted"):
            yield f"{cell['id']}: {cell['status']}, {cell['reason']}"
        told = cell.get("mgen")
        if told and (told["received"] < told["sent"] or told["errors"]):
            yield f"{cell['id']}: MGEN received {told['received']} of {told['sent']}, {told['errors']} RERR"
        if cell["statistics"] is not None and not cell["subject"].startswith("raw-"):
            for text in _beyond(cell["statistics"], required):
                yield f"{cell['id']}: {text}"


def _beyond(figures: dict[str, Any], required: list[tuple[str, float]]) -> Iterator[str]:
    """What is worse than required; without a requirement for it, any loss."""
    if figures["lost"] and not any(name == "loss" for name, _ in required):
        yield f"{figures['lost']} of {figures['n_sent']} messages were lost"
    for name, most in required:
        value = _value(name, figures)
        if value is None or value > most:
            yield f"{name} is {'not known' if value is None else f'{value:g}'}, required is {most:g}"


def _value(name: str, figures: dict[str, Any]) -> float | None:
    match name:
        case "loss":
            return float(figures["loss_ratio"])
        case "duplicates" | "reordered":
            return float(figures[name])
    rtt = figures["rtt_ns"]
    return None if rtt is None else float(rtt[name.split("-")[1]]) / 1e6


def _plan(given: argparse.Namespace) -> Plan:
    from twinlink.measure.channels import SUBJECTS, check, find
    from twinlink.mgen import script

    subjects = list(convert.parts(given.subjects or given.transports))
    mgen = given.source == "mgen"
    if mgen and (given.mode not in (None, "open") or any(name.startswith("raw-") for name in subjects)):
        raise ConfigurationError(
            "--source mgen sends in an open loop (--mode open), through twinlink (no raw subjects)"
        )
    if given.subjects is None and given.baselines == "yes" and not mgen:
        bare = [f"raw-{name}" for name in subjects if f"raw-{name}" in SUBJECTS]
        subjects += [name for name in ("raw-tcp", *bare, "mqtt-qos0") if name not in subjects]
    for subject in subjects:
        find(subject)
    if mgen:
        for octets in map(convert.octets, convert.parts(given.payloads)):
            script.check(octets)
    options: dict[str, dict[str, Any]] = {}
    for subject, name, value in given.option or []:
        if subject not in subjects:
            raise ConfigurationError(f"--option {subject}.{name}: {subject!r} is not measured here")
        options.setdefault(subject, {})[name] = value
        try:
            check(subject, {name: value})
        except ConfigurationError as error:
            raise ConfigurationError(f"--option {subject}.{name}: {error}") from None
        except TransportMissing:
            continue  # its cells will be skipped, with the reason
    return Plan(
        subjects=tuple(subjects),
        payloads=tuple(map(convert.octets, convert.parts(given.payloads))),
        directions=convert.parts(given.directions),
        modes=convert.parts(given.mode or ("open" if mgen else "closed")),
        count=given.count,
        rounds=min(given.rounds, given.count),
        warm_up=given.warm_up,
        rate_hz=given.rate or (MGEN_HZ if mgen else Plan.rate_hz),
        source=given.source,
        timeout_s=given.timeout,
        seed=given.seed,
        options=options,
    )


def _check_programs(plan: Plan) -> None:
    """What the report needs, and what sends: missed now, and not when everything has been measured."""
    for name in ("scipy", "matplotlib"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(name=name)
    if plan.source == "mgen":
        session.require()


def _demanded(given: argparse.Namespace) -> set[str]:
    return set(convert.parts(given.subjects or given.transports))


def _setting(given: argparse.Namespace, stop: Stop) -> "Setting":
    from twinlink.measure.hosts import Hosts
    from twinlink.measure.namespaces import Namespaces
    from twinlink.measure.setting import Loopback, default

    name = given.setting or ("hosts" if given.peer else default())
    if (name == "hosts") != (given.peer is not None):
        raise ConfigurationError("--setting hosts and --peer tcp/HOST:PORT go together")
    if given.rate_limit is not None and name != "netns":
        raise ConfigurationError(f"--rate-limit is for the cable between two namespaces; the setting is {name}")
    match name:
        case "hosts":
            hosts = Hosts(given.peer, given.peer_transport, given.timeout, lambda: stop.requested)
            log(NAME, f"waits up to {given.timeout:g} s for the pong at {given.peer}")
            return hosts
        case "netns":
            return Namespaces(given.rate_limit)
    return Loopback()


def _where(name: str, given: argparse.Namespace) -> str:
    chosen = "" if given.setting else " (another: --setting)"
    match name:
        case "hosts":
            return f"two hosts, the other one at {given.peer}"
        case "netns":
            limit = f", {given.rate_limit} each way" if given.rate_limit else ""
            return f"two network namespaces of this host{limit}{chosen}"
    return f"two processes on loopback{chosen}"


def _content(given: argparse.Namespace, plan: Plan, setting: "Setting") -> dict[str, Any]:
    """run.json as it begins."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in sorted(vars(given).items())}
    return {
        "started_ns": time.time_ns(),
        "ended_ns": None,
        "complete": False,
        "configuration": {"given": options, "used": {**dataclasses.asdict(plan), **setting.describe()}},
        "setting": setting.name,
        "rate_limit": given.rate_limit,
        "source": given.source,
        "system": {"real_world": None, "digital_twin": None},
        "ntp": {side: {"error": "no server was given (--ntp)"} for side in ("real_world", "digital_twin")},
        "idle_rtt_ns": {},
        "mgen": None,
    }


def _some_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        for name in convert.parts(text):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return convert.names(text)

    return chosen


def _payloads(text: str) -> str:
    sizes = list(map(convert.octets, convert.parts(text)))
    if max(sizes, default=0) > MAX_PAYLOAD:
        raise argparse.ArgumentTypeError(f"a payload of {max(sizes)} octets; a link takes at most {MAX_PAYLOAD}")
    if len(set(sizes)) < len(sizes):  # 1K and 1024 would be one cell, measured twice
        raise argparse.ArgumentTypeError(f"each payload once, not {text!r}")
    return convert.names(text)


def _above_0(text: str) -> float:
    value = convert.seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("a number above 0 is expected")
    return value


def _rate_limit(text: str) -> str:
    from twinlink.measure.namespaces import octets_per_s

    try:
        octets_per_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text.lower()


def _option(text: str) -> tuple[str, str, Any]:
    subject, dot, rest = text.partition(".")
    if not dot:
        raise argparse.ArgumentTypeError(f"{text!r} is not SUBJECT.NAME=VALUE")
    return subject, *convert.link_option(rest)


def _requirement(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name not in REQUIREMENTS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(REQUIREMENTS)}")
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MOST, such as {name}=0")
    most = convert.seconds(value)
    if name == "loss" and most > 1:
        raise argparse.ArgumentTypeError(f"{text}: loss is a share of the messages, from 0 to 1")
    return name, most
