"""What the exporter counts, for Prometheus (docs/monitoring.md)."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .exporter import Exporter

_COUNTERS = {
    "indications": "Indications for this dApp.",
    "exported": "Observations sent to the twin.",
    "without_twin": "Observations not sent, because no twin was up.",
    "undecodable": "PDUs, setup replies and symbols that cannot be read.",
    "for_others": "PDUs for other dApps, or of no use to one.",
    "setups": "E3 setups that the agent accepted.",
    "e3_lost": "Times that the E3 agent was lost, or silent for long.",
    "decisions_dropped": "Decisions that came faster than they could be looked at.",
    "out_of_sync": "Times that a twin was out of sync, as seen from here.",
}
_BLOCKS = {
    "installed": "PRB blocks that were installed.",
    "rejected": "PRB blocks that the guard or the RAN refused.",
    "cleared": "PRB blocks that no longer stand.",
}


class ExporterCollector(Collector):
    """Reads an exporter when it is scraped."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        """Everything, as of now."""
        exporter = self._exporter
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"twinlink_exporter_{name}", text, getattr(exporter.counters, name))
        outcomes = exporter.outcomes.copy()
        for status, text in _BLOCKS.items():
            family = CounterMetricFamily(f"twinlink_exporter_blocks_{status}", text, labels=["reason"])
            for (one, reason), count in outcomes.items():
                if one == status:
                    family.add_metric([reason], count)
            yield family
        yield GaugeMetricFamily("twinlink_e3_session_up", "Whether indications are subscribed to.", exporter.subscribed)
        yield GaugeMetricFamily("twinlink_block_active_prbs", "PRBs that stand blocked.", exporter.blocked_prbs)
