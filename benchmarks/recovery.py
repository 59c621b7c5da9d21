"""A connection that is cut while 10^4 messages are sent, and comes back: a part of G10."""

import time
from dataclasses import dataclass

import numpy as np
from twinlink_measure.setting import Loopback, Pair, Truth, start_relay
from twinlink_measure.worker_handle import watching
from twinlink_results.run import received_table

from .bench import TRANSPORTS, Bench, Measurement
from .contest import FAILURES, OPEN_S, TIMEOUT_S, plain
from .verdict import Part, over_rounds

MESSAGES, OCTETS = 10_000, 100
CUT_S = 1.0  # shorter than the silence after which a peer is down


@dataclass(frozen=True)
class Recovery:
    """Result of one cut: time from the first to the last later message, and from the heal to the last."""

    took_ns: int
    since_heal_ns: int
    lost: int
    duplicates: int


class Recoveries(Measurement):
    """The connection passes a relay that is killed and restarted."""

    goals = ("G10",)
    seconds = 30.0

    def __init__(self) -> None:
        self._taken: dict[str, list[Recovery]] = {name: [] for name in TRANSPORTS}

    def run(self, bench: Bench) -> None:
        """Measure one cut of each transport per round."""
        setting = Loopback(Truth(forward_delay_ns=1))  # a minimal delay, which adds a relay
        for each in bench.rounds_of("recovery after a cut", plain(*TRANSPORTS), setting, min(bench.rounds, 5)):
            for name in each.shuffled(TRANSPORTS):
                if each.take(name, OCTETS, 20) is None:
                    continue
                try:
                    self._taken[name].append(cut(each.pairs[name], bench))
                except FAILURES as error:
                    each.fail(name, error)
            bench.missing_for(self.goals, each.lost)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Times, losses and duplicates."""
        found: list[Part | None] = []
        for name, taken in self._taken.items():
            took = [one.took_ns / 1e6 for one in taken]
            since = [one.since_heal_ns / 1e6 for one in taken]
            found.append(over_rounds("G10", f"{name} 10^4 recovered, first to last", took, most=100, unit=" ms"))
            found.append(over_rounds("G10", f"{name} 10^4 recovered, since the cut ended", since, unit=" ms"))
            if taken:
                wrong = sum(one.lost + one.duplicates for one in taken)
                found.append(Part("G10", f"{name} lost or twice after {len(taken)} cuts", wrong, most=0))
        return found


def cut(pair: Pair, bench: Bench) -> Recovery:
    """Send while the relay is down, then restart it."""
    sender, reflector, relay = pair.real_world, pair.digital_twin, pair.relay
    assert relay is not None
    reflector.ask("reflect", octets=OCTETS, count=MESSAGES, bulk=True)
    reflector.ask("mark")
    relay.kill()
    relay.communicate()
    question = sender.begin("send", mode="saturation", octets=OCTETS, count=MESSAGES, timeout_s=TIMEOUT_S)
    time.sleep(CUT_S)
    pair.relay = start_relay(relay.args)
    healed_ns = time.time_ns()
    said = sender.answer(question, OPEN_S + TIMEOUT_S, watching(reflector, bench.stopped))
    heard = reflector.ask("finish", OPEN_S, first=said["first"], expected=said["answered"])
    received = received_table(0, heard["received_rows"], said["first"], said["sent"])
    times, arrived = received["received_ns"], len(np.unique(received["sequence"]))
    if not len(times):
        raise OSError(f"nothing arrived within {TIMEOUT_S:g} s of the end of a cut")
    last = int(times.max())
    return Recovery(last - int(times.min()), last - healed_ns, MESSAGES - arrived, len(times) - arrived)
