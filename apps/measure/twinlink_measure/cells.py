"""What a sweep measures: its plan, and the cells that follow from it."""

from dataclasses import dataclass, field
from typing import Any

from twinlink_results import labels

DIRECTIONS = tuple(labels.DIRECTIONS)


@dataclass(frozen=True)
class Plan:
    """What is measured; the same plan and seed give the same order.

    Attributes:
        subjects: names from `twinlink_measure.channels.SUBJECTS`.
        payloads: octets.
        directions: of the data: ``rw-dt`` from Real World to Digital Twin, ``dt-rw`` back.
        modes: of ``closed``, ``open`` and ``saturation``.
        count: messages of each cell, over all rounds; in saturation the least number per trial.
        rounds: number of turns of each cell, in new processes.
        warm_up: messages before each cell in each round that are not counted.
        rate_hz: of an open loop.
        timeout_s: how long to wait for an answer, and for a peer.
        seed: of the order of subjects and cells.
        source: ``twinlink`` sends messages itself; ``mgen``: MGEN does, and a bridge carries them.
        options: of a subject's channel, in addition to its own.
    """

    subjects: tuple[str, ...]
    payloads: tuple[int, ...]
    directions: tuple[str, ...] = DIRECTIONS
    modes: tuple[str, ...] = ("closed",)
    count: int = 100
    rounds: int = 5
    warm_up: int = 20
    rate_hz: float = 100.0
    timeout_s: float = 5.0
    seed: int = 1
    source: str = "twinlink"
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def share(self, mode: str, number: int) -> int:
        """Messages of a cell in round ``number``; in saturation each round has the whole count."""
        if mode == "saturation":
            return self.count
        return self.count // self.rounds + (number < self.count % self.rounds)

    def cells(self) -> list[dict[str, Any]]:
        """A dictionary for each cell, as in run.json, not measured yet."""
        return [
            {
                "id": f"{subject}-{octets}-{direction}-{mode}",
                "subject": subject,
                "octets": octets,
                "direction": direction,
                "mode": mode,
                "rate_hz": self.rate_hz if mode == "open" else None,
                "status": "skipped",
                "reason": "not reached",
                "rounds": [],
                "search": None,
            }
            for mode in self.modes
            for subject in self.subjects
            for octets in self.payloads
            for direction in self.directions
        ]
