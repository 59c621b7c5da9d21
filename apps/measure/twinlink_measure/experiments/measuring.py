"""Runs an experiment: the setting, and the kinds."""

import importlib.util
import itertools
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from twinlink.appkit import formatting
from twinlink.errors import ConfigurationError, TwinlinkError
from twinlink.process.ports import free_ports
from twinlink.transports.mosquitto import SBIN

from ..namespaces import ADDRESSES, Namespaces
from ..setting import Loopback, Setting, default
from .description import Experiment
from .outcome import Row
from .program import INSTALL

REPORT_MODULES = ("jsonschema", "matplotlib")  # beside scipy, which this package imports
_ports = itertools.cycle(range(7800, 8800))  # in a namespace of its own every port is free
GUEST = "guest"
Say = Callable[[str], None]
Step = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class Run:
    """An experiment that is being measured.

    Attributes:
        experiment: its data file.
        folder: where raw records go.
        setting: `netns`, `loopback` or `GUEST`.
        counts: how often, as the data file says for this run.
        node_red: the folder of a Node-RED that is the hub; None for our own hub.
        step: shows what is being measured, the share that is done, and the seconds left if known.
        say: shows a line that stays.
        stopped: whether the end was requested.
        notes: sentences for the report, which a kind adds.
        figures: files of further figures, and what they show, which a kind adds.
    """

    experiment: Experiment
    folder: Path
    setting: str
    counts: Mapping[str, Any]
    step: Step
    say: Say
    stopped: Callable[[], bool]
    node_red: Path | None = None
    notes: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    def place(self, delay_ms: float = 0) -> "Setting":
        """A new setting of this run, not entered yet."""
        if self.setting == "netns":
            return Namespaces(delay_ms=delay_ms)
        return Loopback()


def address(setting: Setting) -> str:
    """Where the Digital Twin listens."""
    return ADDRESSES[1] if setting.name == "netns" else "127.0.0.1"


def port(setting: Setting) -> int:
    """A free port for a server at the Digital Twin."""
    return next(_ports) if setting.name == "netns" else free_ports()


def prefix(setting: Setting, side: int) -> list[str]:
    """The prefix that runs a command at the Real World (0) or the Digital Twin (1)."""
    return setting.prefix(side) if isinstance(setting, Namespaces) else []


def check(experiment: Experiment, setting: str | None) -> str:
    """The setting in which the experiment will be run.

    Raises:
        TwinlinkError: something that it needs is not installed; the message says what.
        ConfigurationError: not in this setting.
    """
    if experiment.guest and setting:
        raise ConfigurationError(f"experiment {experiment.name} runs in a virtual machine: leave --setting out")
    chosen = GUEST if experiment.guest else setting or default()
    if experiment.needs_root and chosen != "netns":
        raise ConfigurationError(
            f"experiment {experiment.name} needs two network namespaces, and so root: run it with sudo, "
            "and without --setting loopback"
        )
    _check_installed(experiment)
    return chosen


def _check_installed(experiment: Experiment) -> None:
    modules = [each for each in (*REPORT_MODULES, *experiment.modules) if importlib.util.find_spec(each) is None]
    if modules:
        raise TwinlinkError(
            f"experiment {experiment.name} needs {formatting.listed(modules)}, not installed here; "
            f"install with: {INSTALL}"
        )
    path = f"{os.environ.get('PATH', os.defpath)}:{SBIN}"
    programs = [each for each in experiment.programs if shutil.which(each, path=path) is None]
    if programs:
        raise TwinlinkError(
            f"experiment {experiment.name} needs {formatting.listed(programs)}, not installed here; on Debian and "
            f"Ubuntu: apt install {' '.join(programs)}"
        )


def measure(run: Run) -> list[Row]:
    """Measure all cases.  Raises TwinlinkError or OSError."""
    module = import_module(f"{__package__}.{run.experiment.kind}")
    rows: list[Row] = module.measure(run)
    return rows


def counts(experiment: Experiment, quick: bool) -> Mapping[str, Any]:
    """The counts of a full or quick run."""
    known = experiment.counts
    return {**known.full, **known.quick} if quick else known.full
