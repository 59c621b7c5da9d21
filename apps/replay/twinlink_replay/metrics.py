"""Metrics of the twin for Prometheus (docs/monitoring.md)."""

from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import twinlink
from twinlink.story import ENDS
from twinlink.sync import State

from .trial.trying import Rule
from .twin.twin import Twin

_TWIN = {
    "records": "Records analysed.",
    "foreign": "Records of another session or carrier than those that are followed.",
    "out_of_sync": "How often the records became out of sync.",
}
_DECISIONS = {
    "proposed": "PRB blocks proposed.",
    "installed": "Proposals answered with installed.",
    "rejected": "Proposals answered with rejected.",
    "refused_results": "Results that do not come from a trusted exporter.",
    "held_back": "Lists of PRBs that were due and did not leave, because the fidelity was low.",
}
_FIDELITY = {
    "windows": "Windows of a second that were compared with the exporter's digest.",
    "alarms": "How often the fidelity fell below the limit.",
    "asked": "Requests of a digest.",
    "answered": "Answers to them.",
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
        decisions = self._twin.decisions
        for name, text in _DECISIONS.items():
            yield CounterMetricFamily(f"twinlink_replay_{name}", text, getattr(decisions, name))
        text = "PRB blocks that the twin took back: their effect was missing, or harm showed."
        yield CounterMetricFamily("twinlink_replay_taken_back", text, decisions.stories.taken_back)
        ended = CounterMetricFamily("twinlink_replay_decisions", "PRB blocks that ended, by their end.", labels=["end"])
        for end in ENDS:
            ended.add_metric([end], decisions.stories.ended.get(end, 0))
        yield ended
        free = self._twin.free_ranges
        text = "Slots for which the exporter sent the PRBs that the MAC left free."
        yield CounterMetricFamily("twinlink_replay_sensing", text, free.slots)
        text = "Slots for which the exporter could not read the PRBs that the MAC left free."
        yield CounterMetricFamily("twinlink_replay_sensing_missing", text, free.missing)
        yield from self._fidelity()
        yield from self._trials()
        counted = self._source()
        for name, text in _SOURCE.items():
            yield CounterMetricFamily(f"twinlink_replay_{name}", text, counted[name])
        family = GaugeMetricFamily("twinlink_replay_sync_state", "1 for the state of the records.", labels=["state"])
        for state in State:
            family.add_metric([state.value], state is self._sync.state)
        yield family

    def _trials(self) -> Iterator[Metric]:
        trials = self._twin.decisions.trials
        yield CounterMetricFamily("twinlink_replay_trials", "Blocks tried in the model of the cell.", trials.tried)
        text = "Time that trying blocks took, in seconds."
        yield CounterMetricFamily("twinlink_replay_trial_seconds", text, trials.total_ns / 1e9)
        text = "Blocks that were not proposed, as the model of the cell says; by the rule that they broke."
        refused = CounterMetricFamily("twinlink_replay_trials_refused", text, labels=["rule"])
        for rule in get_args(Rule):
            refused.add_metric([rule], trials.refused[rule])
        yield refused

    def _fidelity(self) -> Iterator[Metric]:
        """A score and a part that are not known have no sample."""
        fidelity = self._twin.fidelity
        score = GaugeMetricFamily("twinlink_replay_fidelity", "How far the twin's picture is right, 0 to 1.", labels=[])
        if (now := fidelity.score()) is not None:
            score.add_metric([], now)
        yield score
        text = "Parts of the fidelity in the last window that was compared, 0 to 1; it is the least of them."
        parts = GaugeMetricFamily("twinlink_replay_fidelity_part", text, labels=["part"])
        for name, part in fidelity.last.parts.items() if fidelity.last else ():
            if part is not None:
                parts.add_metric([name], part)
        yield parts
        text = "Usage of the uplink's PRBs in the last window whose KPMs were compared, by the twin and by the gNB."
        usage = GaugeMetricFamily("twinlink_replay_ul_prb_usage_ratio", text, labels=["by"])
        if last := fidelity.last:
            for by, kpm in (("twin", last.kpm), ("gnb", last.kpm_gnb)):
                if kpm and kpm.usage is not None:
                    usage.add_metric([by], kpm.usage)
        yield usage
        text = "Whether no decision leaves, because the fidelity is low."
        yield GaugeMetricFamily("twinlink_replay_fidelity_low", text, fidelity.low)
        for name, text in _FIDELITY.items():
            yield CounterMetricFamily(f"twinlink_replay_fidelity_{name}", text, getattr(fidelity, name))
