"""Octets of the header, and of a message on the wire: G13."""

from twinlink_measure.namespaces import Namespaces

from twinlink.protocol.frames import HEADER_OCTETS

from .bench import NEEDS_ROOT, Bench, Measurement, is_root
from .contest import FAILURES, plain
from .verdict import Part

SUBJECTS = ("zeromq", "zenoh", "raw-zeromq", "raw-zenoh", "raw-tcp")
OCTETS = 100


class WireOctets(Measurement):
    """Octets by the counters of the cable between two namespaces; acks are counted on the way back."""

    goals = ("G13",)
    seconds = 12.0

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def run(self, bench: Bench) -> None:
        """Measure ping-pong and a flood of each subject, once, since octets vary less than time."""
        if not is_root():
            bench.missing("G13", f"octets on the wire: {NEEDS_ROOT}")
            return
        try:
            with Namespaces() as setting:
                for each in bench.rounds_of("octets on the wire", plain(*SUBJECTS), setting, 1):
                    for closed, how in ((True, "ping-pong"), (False, "flood")):
                        for name in SUBJECTS:
                            count = bench.scaled(500, 50) * (1 if closed else 10)
                            block = each.take(name, OCTETS, count, closed=closed) if name in each.pairs else None
                            if block is not None and block.entry["wire_octets"]:
                                sent, wire = block.entry["sent"], block.entry["wire_octets"]
                                self._seen[f"{name} {how}"] = wire["forward"] / sent, wire["back"] / sent
                    bench.missing_for(self.goals, each.lost)
        except FAILURES as error:
            bench.missing("G13", f"octets on the wire: {error}")

    def parts(self, bench: Bench) -> list[Part | None]:
        """Octets of the header, and of each subject in both directions."""
        found: list[Part | None] = [Part("G13", "header", HEADER_OCTETS, most=32, unit=" B")]
        for name, seen in self._seen.items():
            for octets, way in zip(seen, ("there", "back"), strict=True):
                found.append(Part("G13", f"{name}, {way}", octets, unit=" B", values=(octets,)))
        return found
