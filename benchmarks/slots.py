"""Whole slots from shared memory to a flowgraph: L10, by `every_slot`."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from . import every_slot
from .bench import Bench, Measurement
from .contest import FAILURES
from .verdict import Part

SECONDS = 60.0


class Slots(Measurement):
    """One run over ZeroMQ."""

    goals = ("L10",)
    seconds = SECONDS + 10

    def __init__(self) -> None:
        self._found: dict[str, Any] | None = None

    def run(self, bench: Bench) -> None:
        """Measure once."""
        seconds = 1.0 if bench.quick else SECONDS
        bench.step(f"every slot for {seconds:g} s", 0.0)
        given = argparse.Namespace(transport="zeromq", n_prbs=106, tdd="U", seconds=seconds, exporter=[])
        try:
            with tempfile.TemporaryDirectory(prefix="e3-") as folder:
                self._found = every_slot.run(given, Path(folder))
        except FAILURES as error:
            bench.missing("L10", str(error))

    def parts(self, bench: Bench) -> list[Part | None]:
        """What was lost and where, the age, and cores."""
        if (found := self._found) is None:
            return []
        lost = found["lost_on_the_way"] + found["dropped_by_the_source"]
        of = f"of {found['slots']:,} at {found['slots_per_second']:.0f}/s"
        return [
            Part("L10", "lost after the ring", lost, most=0, note=of),
            Part("L10", "missing, the ring's own included", found["missing"]),
            Part(
                "L10",
                "symbols that differ",
                found["symbols_different"],
                most=0,
                note=f"of {found['symbols_compared']:,}",
            ),
            Part("L10", "age p99", found["age_p99_ms"], most=10, unit=" ms"),
            Part("L10", "exporter", found["exporter_cores"], most=0.7, unit=" core"),
            Part("L10", "source, with the comparison", found["source_cores"], unit=" core"),
        ]
