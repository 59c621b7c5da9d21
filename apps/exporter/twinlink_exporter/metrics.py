"""The exporter's metrics for Prometheus (docs/monitoring.md)."""

from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from twinlink.control import Status
from twinlink.metrics import add_histogram
from twinlink.sync import State

from .block import Cause
from .decision_guard import Rule
from .delays import Delay
from .exporter import Exporter

_COUNTERS = {
    "indications": "Indications for this dApp.",
    "exported": "Observations sent to the twin: symbols, or slots.",
    "left_out": "Slots that were not to be sent.",
    "slots_late": "Slots that were read when the gNB may have overwritten them.",
    "slots_unreadable": "Slots in shared memory that cannot be read.",
    "slots_not_indicated": "Slots that the gNB wrote and did not indicate, at least.",
    "sensing": "Slots with sensing ranges sent to the twin.",
    "sensing_missing": "Slots with sensing ranges that could not be read, or were not indicated.",
    "without_twin": "Observations not sent, because no twin was up.",
    "undecodable": "PDUs, setup replies and symbols that cannot be read.",
    "for_others": "PDUs for other dApps, or of no use to one.",
    "setups": "E3 setups that the agent accepted.",
    "e3_lost": "Times that the E3 agent was lost, or silent for long.",
    "policies_installed": "Sensing policies that were installed.",
    "policies_rejected": "Sensing policies that the RAN refused.",
    "policies_cleared": "Sensing policies that no longer stand.",
    "decisions_dropped": "Decisions that came faster than they could be looked at.",
    "digest_requests": "Requests of a digest that were answered.",
    "out_of_sync": "Times that a twin was out of sync, as seen from here.",
}
# By status: help text and possible reasons, each of which has a series from the start.
_BLOCKS: dict[Status, tuple[str, tuple[Cause | Rule, ...]]] = {
    "installed": ("PRB blocks that were installed.", ("acknowledged", "handed-over", "followed")),
    "rejected": ("PRB blocks that the guard or the RAN refused.", (*get_args(Rule), "refused")),
    "cleared": (
        "PRB blocks that no longer stand.",
        ("expired", "twin-lost", "out-of-sync", "requested", "replaced", "refused", "e3-lost", "exporter-ends"),
    ),
}


class ExporterCollector(Collector):
    """Collects an exporter's metrics at each scrape."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        exporter = self._exporter
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"twinlink_exporter_{name}", text, getattr(exporter.counters, name))
        for status, (text, reasons) in _BLOCKS.items():
            family = CounterMetricFamily(f"twinlink_exporter_blocks_{status}", text, labels=["reason"])
            for reason in reasons:
                family.add_metric([reason], exporter.outcomes[status, reason])
            yield family
        twins = GaugeMetricFamily("twinlink_exporter_twins", "Twins that are up, by state of sync.", labels=["state"])
        by_state = exporter.twins_by_state()
        for state in (State.BOUND, State.IN_SYNC, State.OUT_OF_SYNC):
            twins.add_metric([state.value], by_state[state])
        yield twins
        yield GaugeMetricFamily("twinlink_e3_session_up", "Whether indications are subscribed to.", exporter.subscribed)
        yield GaugeMetricFamily("twinlink_block_active_prbs", "PRBs that stand blocked.", exporter.blocked_prbs)
        yield GaugeMetricFamily(
            "twinlink_block_unknown", "Whether it is not known what the RAN blocks.", exporter.block_unknown
        )
        remains = GaugeMetricFamily(
            "twinlink_block_remaining_seconds", "Until the block that stands ends unless it is renewed.", labels=[]
        )
        if (remains_s := exporter.block_remains_s) is not None:
            remains.add_metric([], remains_s)
        yield remains
        usage = GaugeMetricFamily(
            "twinlink_exporter_ul_prb_usage_ratio",
            "Usage of the uplink's PRBs, by the newest KPM of the gNB.",
            labels=[],
        )
        newest = exporter.kpms.newest
        if newest and newest.usage is not None:
            usage.add_metric([], newest.usage)
        yield usage
        delays = exporter.delays
        yield _histograms(
            "twinlink_exporter_observation_delay_seconds",
            "Until a symbol or slot is handed over to the link, since the gNB's time of it, or since it was read.",
            "since",
            delays.observations,
        )
        yield _histograms(
            "twinlink_exporter_decision_delay_seconds",
            "Of decisions that were installed: arrived, sent to the RAN, acknowledged by it.",
            "step",
            delays.decisions,
        )


def _histograms(name: str, text: str, label: str, delays: Mapping[str, Delay]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for value, delay in delays.items():
        add_histogram(family, (value,), delay.histogram)
    return family
