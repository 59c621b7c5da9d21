"""The figures of a demo, drawn with matplotlib's Agg after the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from twinlink_results import plot_style

from . import curves, waterfalls
from .evidence import Evidence
from .folder import Folder

# On a page these figures are wider than those of a sweep, and a spectrogram has no grid.
STYLE: Any = plot_style.STYLE | {"figure.dpi": 150, "savefig.dpi": 150, "axes.titlesize": 10.5, "axes.grid": False}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure in the report.

    Attributes:
        transport: its transport, or None for all.
        path: the PNG; an SVG is beside it.
        title, caption: for the page.
        spectrum: its colours are a scale.
    """

    transport: str | None
    path: Path
    title: str
    caption: str
    spectrum: bool = False


def draw(folder: Folder, found: dict[str, Evidence], summary: dict[str, Any]) -> list[Drawn]:
    """Draw the figures that the files allow.  Raises OSError."""
    with mpl.rc_context(STYLE):
        drawn = [figure for name in found for figure in _transport(folder, name, found[name], summary)]
        drawn += _all(folder, found, summary)
    return drawn


def _transport(folder: Folder, name: str, evidence: Evidence, summary: dict[str, Any]) -> list[Drawn]:
    playout, rebuilt = evidence.playout, evidence.rebuilt
    if playout is None or rebuilt is None or not len(playout.samples) or not len(rebuilt.samples):
        return []
    figures = folder.transport(name).figure
    folder.transport(name).path.mkdir(exist_ok=True)
    facts = summary["transports"][name]
    samples = facts["samples"]
    path = figures("spectrogram.png")
    waterfalls.spectrogram(path, playout, rebuilt, name)
    drawn = [
        Drawn(
            name,
            path,
            "Spectrum at the gNB, and as rebuilt by the twin",
            f"Mean power of each PRB. {samples['compared']:,} complex samples compared, {samples['different']:,} "
            "differ. The broad patches are UEs, the steady bars the interferer.",
            spectrum=True,
        )
    ]
    path = figures("prbs.png")
    waterfalls.prbs(path, playout, rebuilt, name)
    drawn.append(
        Drawn(
            name,
            path,
            "PRBs over time: occupancy, interferer, detection, block",
            "Top: occupancy as detected by the twin. Middle: the interferer as played (outlined) and as detected, and "
            "the PRBs that the gNB kept free of UEs. Bottom: the share of PRBs in use. Grey: no playout.",
        )
    )
    shown = _telling(facts["episodes"])
    if shown is not None:
        path = figures("block.png")
        waterfalls.block(path, playout, rebuilt, shown, name)
        drawn.append(
            Drawn(
                name,
                path,
                "One interferer, from on to off",
                "As seen by the twin. Top: it starts and the loop closes. Bottom: it ends, the twin detects that and "
                "clears the block.",
                spectrum=True,
            )
        )
    return drawn


def _telling(episodes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The episode for the figure: closed, with most cells freed after its end."""
    closed = [each for each in episodes if each["closed"]]
    return max(closed, key=lambda each: each["freed_cells"], default=None)


def _all(folder: Folder, found: dict[str, Evidence], summary: dict[str, Any]) -> list[Drawn]:
    whole = {
        name: (evidence.playout, evidence.rebuilt)
        for name, evidence in found.items()
        if evidence.playout is not None and evidence.rebuilt is not None and len(evidence.rebuilt.sent_ns) > 1
    }
    if not whole:
        return []
    age, delay = folder.figure("age.png"), folder.figure("delay.png")
    curves.age(age, whole)
    curves.delay(delay, whole, summary)
    return [
        Drawn(
            None,
            age,
            "Age of information",
            "How long ago the gNB played the newest record that the twin has analysed. It grows by itself and drops "
            "with each record; at the recorded pace one comes every "
            f"{summary['configuration']['record_period_ns'] / 1e6:g} ms.",
        ),
        Drawn(
            None,
            delay,
            "One-way delay and round-trip time",
            "Each dot is one message: from the sender's stamp to the receiver's. Both ends read one clock here; "
            "between two hosts it is known only to within the bound that is given, which the link takes from its acks.",
        ),
    ]
