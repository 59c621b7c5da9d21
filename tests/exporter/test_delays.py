"""How late observations leave and decisions are installed, in the summary and in the metrics."""

import time
from typing import Any

import pytest
from prometheus_client.core import Metric
from twinlink_e3 import Endpoints
from twinlink_exporter.block import Outcome
from twinlink_exporter.delays import Delay, Delays
from twinlink_exporter.metrics import ExporterCollector
from twinlink_exporter.observation import Carrier

from twinlink.control import PrbBlockResult, Status
from twinlink.protocol.rtt import SAMPLES
from twinlink.testing import wait_until

from .agent import Agent
from .conftest import RunningExporter, StartExporter, Twin
from .gnb_memory import GnbMemory
from .slot_agent import SlotAgent, no_gap
from .twin_side import propose, receive, results

__all__ = ["no_gap"]
MS = 1_000_000
OBSERVATIONS = "twinlink_exporter_observation_delay_seconds"
DECISIONS = "twinlink_exporter_decision_delay_seconds"


def counts(exporter: RunningExporter, name: str) -> dict[str, int]:
    """Number of delays in a histogram, by its label, as a scraper finds them."""
    found: dict[str, Metric] = {family.name: family for family in ExporterCollector(exporter.exporter).collect()}
    samples = [sample for sample in found[name].samples if sample.name == f"{name}_count"]
    return {next(iter(sample.labels.values())): int(sample.value) for sample in samples}


def test_symbols_count_since_they_were_read_and_decisions_until_they_were_acknowledged(
    twin: Twin, start_exporter: StartExporter, endpoints: Endpoints
) -> None:
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        assert counts(exporter, DECISIONS) == {"arrival-sent": 0, "sent-acknowledged": 0, "arrival-acknowledged": 0}
        before_ns = time.monotonic_ns()
        propose(twin[0], prbs=(4,))
        assert results(twin[0], 1)[0].status == "installed"
        took_ns = time.monotonic_ns() - before_ns
    exporter.stop()
    assert counts(exporter, OBSERVATIONS) == {"gnb": 0, "read": exporter.counters.exported}
    assert counts(exporter, DECISIONS) == {"arrival-sent": 1, "sent-acknowledged": 1, "arrival-acknowledged": 1}
    summary = exporter.exporter.summary()
    assert summary["observation_delay_ns"]["gnb"] is None
    steps: dict[str, dict[str, Any]] = summary["decision_delay_ns"]
    parts = steps["arrival-sent"]["max"] + steps["sent-acknowledged"]["max"]
    assert parts == steps["arrival-acknowledged"]["max"] <= took_ns


def test_a_decision_without_an_answer_of_the_ran_counts_until_it_was_sent(
    twin: Twin, start_exporter: StartExporter, endpoints: Endpoints
) -> None:
    with Agent(endpoints, ack=None) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        propose(twin[0], prbs=(4,))
        assert results(twin[0], 1)[0].reason == "sent to the RAN, which acknowledged nothing"
        exporter.stop()
        assert counts(exporter, DECISIONS) == {"arrival-sent": 1, "sent-acknowledged": 0, "arrival-acknowledged": 0}


@pytest.mark.usefixtures("no_gap")
def test_slots_count_since_the_gnb_wrote_them(twin: Twin, start_exporter: StartExporter, endpoints: Endpoints) -> None:
    with GnbMemory(rows=16) as memory, SlotAgent(endpoints, memory, 1, 0.002):
        exporter = start_exporter(endpoints, carrier=Carrier(24, 30_000))
        receive(twin[0].receiver("spectrum"), 50)
        wait_until(lambda: exporter.counters.exported >= 50)
        exporter.stop()
    exported = exporter.counters.exported
    assert counts(exporter, OBSERVATIONS) == {"gnb": exported, "read": exported}
    delays = exporter.exporter.summary()["observation_delay_ns"]
    for point in ("min", "p50", "max", "longest"):
        assert delays["gnb"][point] >= delays["read"][point]
    assert delays["gnb"]["total"] == exported


def test_percentiles_are_of_the_latest_and_the_longest_is_of_all() -> None:
    delay = Delay()
    assert delay.summary() is None
    delay.add(9 * MS)
    for _ in range(SAMPLES):
        delay.add(MS)
    delay.add(-5)  # a clock was set
    assert delay.summary() == {
        "n": SAMPLES, "min": 0, "p50": MS, "p95": MS, "p99": MS, "max": MS, "total": SAMPLES + 2, "longest": 9 * MS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "cause", "expected"),
    [("installed", "followed", [1, 0, 0]), ("cleared", "replaced", [0, 0, 0]), ("rejected", "refused", [0, 0, 0])],
)
def test_only_decisions_that_were_installed_count(status: Status, cause: Any, expected: list[int]) -> None:
    delays = Delays()
    delays.decided(Outcome(PrbBlockResult("b", status, (), 30, ""), cause, 0, 10, 20))
    assert [sum(delay.histogram.counts) for delay in delays.decisions.values()] == expected
