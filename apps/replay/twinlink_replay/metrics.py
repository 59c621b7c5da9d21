"""Metrics of the twin for Prometheus (docs/monitoring.md)."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import twinlink
from twinlink.sync import State

from .twin.twin import Twin

_TWIN = {
    "records": "Records analysed.",
    "foreign": "Records of another session or carrier than those that are followed.",
    "proposed": "PRB blocks proposed.",
    "installed": "Proposals answered with installed.",
    "rejected": "Proposals answered with rejected.",
    "refused_results": "Results that do not come from a trusted exporter.",
    "out_of_sync": "How often the records became out of sync.",
}
_SOURCE = {
    "missing": "Records that did not arrive, or were dropped.",
    "dropped": "Records dropped because the flowgraph's queue was full.",
    "malformed": "Messages that cannot be decoded.",
}


class ReplayCollector(Collector):
    """Reads the twin, the sync state of its records and its flowgraph's source at each scrape."""

    def __init__(self, twin: Twin, sync: twinlink.Sync, source: Callable[[], dict[str, int]]) -> None:
        self._twin, self._sync, self._source = twin, sync, source

    def collect(self) -> Iterator[Metric]:
        """All metrics, as of now."""
        for name, text in _TWIN.items():
            yield CounterMetricFamily(f"twinlink_replay_{name}", text, getattr(self._twin, name))
        free = self._twin.free_ranges
        text = "Slots for which the exporter sent the PRBs that the MAC left free."
        yield CounterMetricFamily("twinlink_replay_sensing", text, free.slots)
        text = "Slots for which the exporter could not read the PRBs that the MAC left free."
        yield CounterMetricFamily("twinlink_replay_sensing_missing", text, free.missing)
        counted = self._source()
        for name, text in _SOURCE.items():
            yield CounterMetricFamily(f"twinlink_replay_{name}", text, counted[name])
        family = GaugeMetricFamily("twinlink_replay_sync_state", "1 for the state of the records.", labels=["state"])
        for state in State:
            family.add_metric([state.value], state is self._sync.state)
        yield family
