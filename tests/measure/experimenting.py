"""An experiment without its command."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinlink_measure.experiments import description
from twinlink_measure.experiments.measuring import Run

Part = dict[str, Any]


def quiet(
    folder: Path,
    name: str,
    counts: dict[str, Any],
    parts: Callable[[Part], bool] | Sequence[Part] = lambda part: True,
    setting: str = "loopback",
) -> Run:
    """A run that shows nothing, of the parts of an experiment that are chosen, or of others."""
    whole = description.load(name)
    chosen = tuple(part for part in whole.parts if parts(dict(part))) if callable(parts) else tuple(parts)
    assert chosen
    experiment = dataclasses.replace(whole, parts=chosen)
    return Run(experiment, folder, setting, counts, lambda *_: None, lambda _: None, lambda: False)
