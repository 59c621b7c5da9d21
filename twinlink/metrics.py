"""A link's counters and delays for Prometheus: `collector`, to be registered with prometheus_client.

    import prometheus_client
    import twinlink.metrics

    prometheus_client.REGISTRY.register(twinlink.metrics.collector(link))

Needs the extra ``twinlink[metrics]``.  docs/monitoring.md lists the metrics.  Everything is read when it is scraped:
nothing is added to the path of a message.

Delays: a histogram takes in, at each scrape, the acks that have come since the scrape before, of the 2,048 acks of each
peer of a flow that the link keeps anyway.  Where more came, the oldest are not in it: ``twinlink_rtt_seconds_count``
against ``twinlink_flow_acknowledged_total`` tells what part is.

Counters never go back, unlike some of the link's own: a message that was lost, or missing, and arrived after all is
taken out of the link's count, but was counted here if a scrape came in between.
"""

import threading
from collections.abc import Collection, Iterator
from typing import Any

from . import __version__
from .errors import TwinlinkError
from .histogram import BUCKETS_S, Histogram
from .link import Link
from .message import Ack
from .protocol.rtt import clock_offset


class MetricsMissing(TwinlinkError, ImportError):
    """prometheus_client is not installed; the message names the extra that brings it."""


try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise MetricsMissing(
        "metrics need prometheus_client, which is not installed: pip install 'twinlink[metrics]'"
    ) from error

MAX_PEERS = 64  # that have labels: their names come from the other side, and each costs some 40 series a flow

_Row = tuple[str, str, str]  # key in stats, metric, help

# of `Sender.stats`
_SENT = (
    ("sent", "twinlink_flow_sent", "Messages sent."),
    ("sent_octets", "twinlink_flow_sent_bytes", "Octets of payload sent."),
    ("acknowledged", "twinlink_flow_acknowledged", "Messages that every peer has acknowledged."),
    ("lost", "twinlink_flow_lost", "Messages that a peer will not get."),
    ("repaired", "twinlink_flow_repaired", "Messages acknowledged after they had been retransmitted."),
    ("conflated", "twinlink_flow_conflated", "Messages that gave way to newer ones (overflow latest)."),
)
_SENT_NOW = (
    ("outstanding", "twinlink_flow_outstanding", "Messages sent and neither acknowledged nor lost."),
    ("kept_octets", "twinlink_flow_kept_bytes", "Octets kept for retransmission, at most the option retention."),
    ("in_flight_octets", "twinlink_flow_in_flight_bytes", "Octets with peers that have not been consumed there."),
)
# of `ReceiveFlow.stats`
_RECEIVED = (
    ("received", "twinlink_flow_received", "Messages received."),
    ("received_octets", "twinlink_flow_received_bytes", "Octets of payload received, those received twice included."),
    ("missing", "twinlink_flow_missing", "Messages of a peer that did not arrive."),
    ("repaired", "twinlink_flow_recovered", "Messages received after they had been requested again."),
    ("duplicates", "twinlink_flow_duplicates", "Messages received twice; the second is dropped."),
    ("reordered", "twinlink_flow_reordered", "Messages received after later ones."),
    ("stale", "twinlink_flow_stale", "Messages received too late, and not delivered."),
)
_RECEIVED_NOW = (
    ("queued", "twinlink_flow_queued", "Messages received that the application has not taken."),
    ("queued_octets", "twinlink_flow_queued_bytes", "Octets of these."),
)


def collector(link: Link) -> Collector:
    """A collector of this link's metrics, for one registry; a registry holds one link.

    It may be scraped from any thread, by several scrapers, and after the link was closed.
    """
    return _LinkCollector(link)


def add_histogram(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram) -> None:
    """Add a histogram to a family as the metric with these labels."""
    total, buckets = 0, []
    for count, bound in zip(list(histogram.counts), (*map(str, BUCKETS_S), "+Inf"), strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.sum_s)


def build_info(**labels: str) -> Metric:
    """The metric that tells which version runs; for programs without a link."""
    info = GaugeMetricFamily("twinlink_build_info", "Version of twinlink; always 1.", labels=["version", *labels])
    info.add_metric([__version__, *labels.values()], 1)
    return info


class _Rising:
    """Counters that never go back."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}  # by flow and metric: last value, and what is shown

    def value(self, flow: str, metric: str, now: int) -> int:
        """What to show; a count that the link takes back goes on from where it was."""
        last, shown = self._seen.get((flow, metric), (0, 0))
        shown += max(0, now - last)
        self._seen[flow, metric] = now, shown
        return shown


class _Delays:
    """Histograms of what the acks of every flow and peer tell."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], Ack] = {}  # that was taken in, by flow and session
        self._rtt: dict[tuple[str, str], Histogram] = {}  # by flow and node
        self._one_way: dict[tuple[str, str], Histogram] = {}

    def take(self, flow: str, epoch: int, node: str, acks: list[Ack], offset_ns: int) -> None:
        """Take in those acks of a session that have not been yet; they are in the order in which they came."""
        rtt = self._rtt.setdefault((flow, node), Histogram())
        one_way = self._one_way.setdefault((flow, node), Histogram())
        last = self._newest.get((flow, epoch))
        for ack in reversed(acks):
            if ack is last:  # the very object, so that neither a clock nor a number can deceive
                break
            rtt.add(ack.rtt_ns)
            one_way.add(ack.peer_received_ns - ack.sent_ns - offset_ns)
        self._newest[flow, epoch] = acks[-1]

    def keep(self, sessions: Collection[tuple[str, int]], nodes: Collection[str]) -> None:
        """Forget the others, of which nothing more will come."""
        self._newest = {key: ack for key, ack in self._newest.items() if key in sessions}
        for histograms in (self._rtt, self._one_way):
            for key in [key for key in histograms if key[1] not in nodes]:
                del histograms[key]

    def metrics(self) -> Iterator[Metric]:
        """What is known by now."""
        for histograms, name, text in (
            (self._rtt, "twinlink_rtt_seconds", "From sending a message to its ack, with the peer's residence time."),
            (self._one_way, "twinlink_one_way_delay_seconds", "From sending a message to its arrival, clocks aligned."),
        ):
            family = HistogramMetricFamily(name, text, labels=["flow", "peer"])
            for labels, histogram in histograms.items():
                add_histogram(family, labels, histogram)
            yield family


class _LinkCollector(Collector):
    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._peers: dict[str, bool] = {}  # that have labels, the longest known first -> whether it is up
        self._rising = _Rising()
        self._delays = _Delays()

    def describe(self) -> Iterator[Metric]:
        """One name suffices for a registry to refuse the collector of another link, whose series would be the same."""
        yield build_info()

    def collect(self) -> Iterator[Metric]:
        """Everything, as of now."""
        with self._lock:  # several may scrape
            found = [*self._link_metrics(), *self._sent_metrics(), *self._received_metrics()]
        yield from found

    def _link_metrics(self) -> Iterator[Metric]:
        link = self._link
        yield build_info(node=link.node, transport=link.transport_name)
        up = link.peers()
        yield GaugeMetricFamily("twinlink_peers", "Peers that are up.", len(set(up)))
        self._peers = {node: node in up for node in self._peers}
        for node in up:
            self._remember(node, True)
        family = GaugeMetricFamily("twinlink_peer_up", "Whether a peer is up; 0 once it has gone.", labels=["peer"])
        for node, is_up in self._peers.items():
            family.add_metric([node], is_up)
        yield family
        driver = link._driver
        with driver.lock:
            counted = driver.session.stats()
        for name, text, value in (
            ("twinlink_malformed", "Frames that are none of twinlink's, dropped.",
             sum(counted["malformed"].values())),
            ("twinlink_refused_connections", "Connections refused for the identity of one side.",
             link._transport.refusals.count),
            ("twinlink_handler_errors", "Exceptions of the application's handlers.", driver.callbacks.errors),
            ("twinlink_internal_errors", "Exceptions in threads and callbacks of twinlink.", driver.internal_errors),
            ("twinlink_events_dropped", "Events that the application did not take.", link.events().dropped),
        ):  # fmt: skip
            yield CounterMetricFamily(name, text, value)

    def _remember(self, node: str, up: bool) -> bool:
        """Whether this node has labels; one that has gone makes way for it."""
        if node not in self._peers and len(self._peers) >= MAX_PEERS:
            gone = next((one for one, is_up in self._peers.items() if not is_up), None)
            if gone is None:
                return False
            del self._peers[gone]
        self._peers[node] = self._peers.get(node, False) or up
        return True

    def _sent_metrics(self) -> Iterator[Metric]:
        session, counted = self._link._session, {}
        sessions: set[tuple[str, int]] = set()
        clocks: dict[str, tuple[int, int]] = {}  # by node: offset and bound, the flow that knows best
        for flow, sender in list(self._link._senders.items()):
            counted[flow], acks_of = sender._snapshot()
            for epoch, acks in acks_of.items():
                peer, estimate = session.peer(epoch), clock_offset(acks)
                if estimate is not None:  # None without acks
                    sessions.add((flow, epoch))
                    if peer is not None and self._remember(peer.node, peer.up):
                        self._delays.take(flow, epoch, peer.node, acks, estimate[0])
                        if peer.node not in clocks or estimate[1] < clocks[peer.node][1]:
                            clocks[peer.node] = estimate
        yield from self._families(_SENT, _SENT_NOW, counted)
        self._delays.keep(sessions, self._peers)
        yield from self._delays.metrics()
        for at, name, text in (
            (0, "twinlink_clock_offset_seconds", "The peer's clock less this one; one-way delays are corrected by it."),
            (1, "twinlink_clock_offset_bound_seconds", "Half the least round trip: by so much the offset may be off."),
        ):
            family = GaugeMetricFamily(name, text, labels=["peer"])
            for node, estimate in clocks.items():
                family.add_metric([node], estimate[at] / 1e9)
            yield family

    def _received_metrics(self) -> Iterator[Metric]:
        with self._link._driver.lock:
            flows = {flow: (each, each.stats()) for flow, each in self._link._session.receiving.items()}
        # A peer can make up flows, so only those that the application asked for have labels.
        ours = {flow: found for flow, found in flows.items() if found[0].subscribed or found[0].sync is not None}
        yield from self._families(_RECEIVED, _RECEIVED_NOW, {flow: values for flow, (_, values) in ours.items()})
        refused = sum(values["unclaimed"] for _, values in flows.values())
        yield CounterMetricFamily(
            "twinlink_unclaimed", "Messages rejected: the application has not subscribed to the flow.", refused
        )
        age = GaugeMetricFamily(
            "twinlink_age_of_information_seconds",
            "Age of the newest message of a flow that is watched, by the sender's clock.",
            labels=["flow"],
        )
        complete = GaugeMetricFamily(
            "twinlink_flow_completeness_ratio", "Part of the last ten seconds' messages that arrived.", labels=["flow"]
        )
        for flow, (each, _) in ours.items():
            if each.sync is not None and (age_ns := each.sync.age_ns()) is not None:
                age.add_metric([flow], age_ns / 1e9)
            if each.sync is not None and (part := each.sync.completeness()) is not None:
                complete.add_metric([flow], part)
        yield age
        yield complete

    def _families(
        self, counters: tuple[_Row, ...], gauges: tuple[_Row, ...], counted: dict[str, dict[str, Any]]
    ) -> Iterator[Metric]:
        """One family for each row, with a value for each flow."""
        for key, name, text in counters:
            counter = CounterMetricFamily(name, text, labels=["flow"])
            for flow, values in counted.items():
                counter.add_metric([flow], self._rising.value(flow, name, values[key]))
            yield counter
        for key, name, text in gauges:
            gauge = GaugeMetricFamily(name, text, labels=["flow"])
            for flow, values in counted.items():
                gauge.add_metric([flow], values[key])
            yield gauge
