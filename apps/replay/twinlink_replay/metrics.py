"""What the twin counts, for Prometheus (docs/monitoring.md)."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import twinlink
from twinlink.sync import State

from .twin.twin import Twin

_TWIN = {
    "records": "Records that were analysed.",
    "foreign": "Records of another session or carrier than the one that is followed.",
    "proposed": "PRB blocks that were proposed.",
    "installed": "Proposals that were answered with installed.",
    "rejected": "Proposals that were answered with rejected.",
    "out_of_sync": "Times that the records were out of sync.",
}
_SOURCE = {
    "missing": "Records that did not arrive, or were dropped.",
    "dropped": "Records that the flowgraph had no room for.",
    "malformed": "Messages that cannot be read.",
}


class ReplayCollector(Collector):
    """Reads the twin, the freshness of its records and the source of its flowgraph when it is scraped."""

    def __init__(self, twin: Twin, sync: twinlink.Sync, source: Callable[[], dict[str, int]]) -> None:
        self._twin, self._sync, self._source = twin, sync, source

    def collect(self) -> Iterator[Metric]:
        """Everything, as of now."""
        for name, text in _TWIN.items():
            yield CounterMetricFamily(f"twinlink_replay_{name}", text, getattr(self._twin, name))
        counted = self._source()
        for name, text in _SOURCE.items():
            yield CounterMetricFamily(f"twinlink_replay_{name}", text, counted[name])
        family = GaugeMetricFamily("twinlink_replay_sync_state", "1 for the state of the records.", labels=["state"])
        for state in State:
            family.add_metric([state.value], state is self._sync.state)
        yield family
