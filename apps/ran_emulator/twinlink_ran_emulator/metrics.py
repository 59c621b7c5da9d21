"""The emulator's metrics for Prometheus (docs/monitoring.md)."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinlink.metrics import build_info

from .emulator import Emulator


class EmulatorCollector(Collector):
    """Collects an emulator's metrics at each scrape."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        emulator = self._emulator
        yield build_info()
        yield CounterMetricFamily("twinlink_ran_emulator_records", "Records played.", emulator.played)
        indications = emulator.counters["indications"]
        yield CounterMetricFamily("twinlink_ran_emulator_indications", "Indications to dApps.", indications)
        refused = emulator.counters["refused"]
        yield CounterMetricFamily("twinlink_ran_emulator_refused", "PDUs of dApps that were refused.", refused)
        yield GaugeMetricFamily(
            "twinlink_ran_emulator_subscribers", "dApps that get indications.", emulator.subscribers
        )
        yield GaugeMetricFamily("twinlink_ran_emulator_blocked_prbs", "PRBs that a dApp blocks.", emulator.blocked_prbs)
