"""How late observations leave the exporter, and how late decisions are installed, for the metrics and the summary.

    gNB's time of the slot --- gnb ---------------------+
    indication read ---------- read --------------------+--> handed over to the link

    decision arrived --- arrival-sent ---> sent to the RAN --- sent-acknowledged ---> the RAN's acknowledgement read
                     ----------------- arrival-acknowledged ---------------------->

A delay counts from the gNB's time only if that is of a clock of this host.
"""

from collections import deque
from typing import Any

from twinlink.histogram import Histogram
from twinlink.protocol.rtt import SAMPLES, percentiles

from .block import Outcome

SINCE = ("gnb", "read")
STEPS = ("arrival-sent", "sent-acknowledged", "arrival-acknowledged")


class Delay:
    """The delays of one way; one thread adds, any may read.

    Attributes:
        histogram: of all.
    """

    def __init__(self) -> None:
        self.histogram = Histogram()
        self._latest: deque[int] = deque(maxlen=SAMPLES)
        self._longest_ns = 0

    def add(self, delay_ns: int) -> None:
        """A delay below 0, of a clock that was set meanwhile, counts as 0."""
        delay_ns = max(delay_ns, 0)
        self.histogram.add(delay_ns)
        self._latest.append(delay_ns)
        self._longest_ns = max(self._longest_ns, delay_ns)

    def summary(self) -> dict[str, int] | None:
        """Percentiles in ns of the latest `SAMPLES`; number and maximum of all, ``total`` and ``longest``."""
        if not self._latest:
            return None
        return {**percentiles(self._latest), "total": sum(self.histogram.counts), "longest": self._longest_ns}


class Delays:
    """All of them.

    Attributes:
        observations: of symbols and slots, by `SINCE`.
        decisions: of those that were installed, by `STEPS`.
    """

    def __init__(self) -> None:
        self.observations = {since: Delay() for since in SINCE}
        self.decisions = {step: Delay() for step in STEPS}

    def left(self, read_ns: int, gnb_ns: int | None) -> None:
        """An observation was handed over so long after its indication was read, and after the gNB's time of it."""
        self.observations["read"].add(read_ns)
        if gnb_ns is not None:
            self.observations["gnb"].add(gnb_ns)

    def decided(self, outcome: Outcome) -> None:
        """A decision was installed, or something else came of it, which does not count."""
        if outcome.result.status != "installed":
            return
        self.decisions["arrival-sent"].add(outcome.sent_ns - outcome.received_ns)
        if outcome.cause == "acknowledged":
            self.decisions["sent-acknowledged"].add(outcome.result.time_ns - outcome.sent_ns)
            self.decisions["arrival-acknowledged"].add(outcome.result.time_ns - outcome.received_ns)

    def summary(self) -> dict[str, Any]:
        """For the summary; None where nothing is known."""
        return {
            "observation_delay_ns": {since: delay.summary() for since, delay in self.observations.items()},
            "decision_delay_ns": {step: delay.summary() for step, delay in self.decisions.items()},
        }
