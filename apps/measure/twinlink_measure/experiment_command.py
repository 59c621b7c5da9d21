"""Make a published experiment again on this machine, and show its table beside the published one.

`twinlink experiment list` names the experiments (docs/experiments.md).
"""

import argparse
import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlink.appkit.console import DONE, NOT_MET, Output, Stop, log, markdown, wrapped, writing
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError

from .experiments import NAMES

if TYPE_CHECKING:
    from .experiments.description import Experiment
    from .experiments.outcome import Row

_NAME = "twinlink experiment"
EXAMPLES = """
twinlink experiment list                 # what there is, and what each needs
twinlink experiment table-1 --quick      # does it run here? under a minute
twinlink experiment octets --out octets  # with its table and records
"""
_LIST = "list"
HUBS = ("own", "node-red")


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("name", choices=(_LIST, *NAMES), metavar="NAME", help=f"{_LIST}, or one of {', '.join(NAMES)}")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few values, in under a minute, or two on a busy machine: whether it runs here",
    )
    parser.add_argument(
        "--setting",
        choices=("loopback", "netns"),
        help="where the two sides run; default netns for root, else loopback",
    )
    parser.add_argument(
        "--hub", choices=HUBS, default=HUBS[0], help="hub of the hub-* experiments: our own, or Node-RED"
    )
    parser.add_argument(
        "--node-red", type=Path, metavar="DIR", help="folder in which npm has installed Node-RED (docs/experiments.md)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results; default NAME-DATE-TIME")
    parser.add_argument("--json", action="store_true", help="results.json on stdout")


def run(given: argparse.Namespace) -> int:
    """Measure and report; 1 if a case has no figures, 2 if the experiment cannot be run here."""
    from .experiments import description, measuring

    if given.name == _LIST:
        return _list(given)
    experiment = description.load(given.name)
    setting = measuring.check(experiment, given.setting)
    _check_hub(given, experiment)
    folder: Path = given.out or Path(f"{given.name}-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty: give another --out, or remove it")
    return _measure(given, experiment, folder, setting)


def _check_hub(given: argparse.Namespace, experiment: "Experiment") -> None:
    from .experiments import node_red

    if given.hub == HUBS[0]:
        if given.node_red is not None:
            raise ConfigurationError("--node-red is for --hub node-red")
        return
    if experiment.kind != "hub":
        raise ConfigurationError(f"--hub is for the hub-* experiments; {given.name} has no hub")
    if given.node_red is None:
        raise ConfigurationError("--hub node-red needs --node-red DIR, the folder in which npm has installed it")
    if not any(node_red.carries(part, given.node_red) for part in experiment.parts):
        raise ConfigurationError(f"{given.name} has no part for --hub node-red: {node_red.NOT_CARRIED}")
    node_red.find(given.node_red)


def _measure(given: argparse.Namespace, experiment: "Experiment", folder: Path, setting: str) -> int:
    from twinlink_results import load, system

    from .experiments import measuring, report
    from .progress import Progress

    about: dict[str, Any] = {
        "started_ns": time.time_ns(),
        "quick": given.quick,
        "setting": setting,
        "hub": given.hub,
        "counts": dict(measuring.counts(experiment, given.quick)),
        "system": system.facts(),
        "load": [{"side": load.ONE_HOST, **load.sample()}],
    }
    log(_NAME, f"{experiment.name}: {experiment.title}; results go to {folder}")
    with writing(folder), Stop() as stop, Progress(_NAME) as progress:
        folder.mkdir(parents=True, exist_ok=True)
        run = measuring.Run(
            experiment, folder, setting, about["counts"], progress.step, progress.say, lambda: stop.requested,
            given.node_red if given.hub != HUBS[0] else None,
        )  # fmt: skip
        rows = measuring.measure(run)
        about |= {
            "ended_ns": time.time_ns(),
            "complete": not stop.requested,
            "notes": run.notes,
            "figures": run.figures,
        }
        about["load"].append({"side": load.ONE_HOST, **load.sample()})
        found = report.content(experiment, rows, about)
    from .experiments.folder import REPORT, write  # loads matplotlib

    with writing(folder):
        try:
            write(folder, experiment, rows, found)
        finally:  # a full disk does not keep the figures from the terminal
            Output(given.json).emit(found, markdown(report.text(experiment, rows, found)))
    log(_NAME, f"report: {folder / REPORT}")
    return _code(experiment, rows, about["complete"])


def _code(experiment: "Experiment", rows: "list[Row]", complete: bool) -> int:
    from .experiments.outcome import DONE as MEASURED
    from .experiments.outcome import LEFT_OUT

    wrong = [row for row in rows if row.status not in (MEASURED, LEFT_OUT) or row.missing]
    for row in wrong:
        log(_NAME, f"{experiment.case(row.case)}: {row.status}, {row.reason}")
    return DONE if rows and complete and not wrong else NOT_MET


def _list(given: argparse.Namespace) -> int:
    from .experiments import description

    found = []
    for name in NAMES:
        each = description.load(name)
        place = ["root"] if each.needs_root else ["a virtual machine"] if each.guest else []
        needs = [*place, *each.modules, *each.programs]
        found.append({"name": name, "title": each.title, "source": each.source, "needs": needs})
    width = max(map(len, NAMES))
    lines = [f"{each['name']:<{width}}  {each['title']}{_told_needs(each)}" for each in found]
    Output(given.json).emit({"experiments": found}, wrapped("\n".join(lines)))
    return DONE


def _told_needs(each: dict[str, Any]) -> str:
    return f" [needs {', '.join(each['needs'])}]" if each["needs"] else ""
