"""The PRB block as a state: what the twin desires, what is installed, and what the gNB has acknowledged."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from twinlink_e3 import Endpoints
from twinlink_exporter.authentication import Authentication
from twinlink_exporter.block_state import EXPIRES_S

import twinlink
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.identity import Identity
from twinlink.identity.watched import WatchedIdentity
from twinlink.signed_payload import Signer
from twinlink.testing import free_endpoint, patience, wait_until

from .agent import Agent
from .conftest import LONG_MS, RunningExporter, StartExporter, Twin, trusting_pair
from .twin_side import propose, results, say

KEY = "gnb-1"
none = twinlink.Value(b"", 0, "", 0, 0)


def block(id: str = "b-1", prbs: tuple[int, ...] = (40, 41), validity_ms: int = LONG_MS) -> bytes:
    return PrbBlock(id, prbs, time.time_ns(), validity_ms, "test").encode()


def column(link: twinlink.Link, name: str) -> twinlink.Value | None:
    item = link.state("prb-block").get(KEY)
    return item.columns.get(name) if item is not None else None


def says(link: twinlink.Link, name: str) -> Any:
    """What stands in a column: the id and the PRBs, or None."""
    value = column(link, name)
    return None if value is None else tuple(json.loads(value.payload)[one] for one in ("id", "prbs"))


def desire(link: twinlink.Link, decision: bytes, validity_ms: int = LONG_MS) -> int:
    """As a twin does that knows of the exporter."""
    wait_until(lambda: column(link, "installed"))
    return link.state("prb-block").desire(KEY, decision, expires_s=validity_ms / 1000)


def test_three_columns_say_what_is_desired_installed_and_on_air(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    link = twin[0]
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        began_ns = time.time_ns()
        version = desire(link, block(validity_ms=4000), 4000)
        agent.wait_for(lambda a: a.controls == [[40, 41]])
        wait_until(lambda: says(link, "on-air") == ("b-1", [40, 41]))
        since = [json.loads((column(link, name) or none).payload) for name in ("installed", "on-air")]
        assert began_ns < since[0]["sent_ns"] <= since[1]["acknowledged_ns"] < time.time_ns()
        assert since[1]["ran_ns"] is None
        assert says(link, "installed") == ("b-1", [40, 41])
        for name in ("installed", "on-air"):
            value = column(link, name)
            assert value is not None
            assert (value.answers, value.set_by) == (version, KEY)
        assert say(results(link, 1)[0]) == ("b-1", "installed", (40, 41))  # on the flow, too
        agent.wait_for(lambda a: a.controls == [[40, 41], []])
        wait_until(lambda: says(link, "on-air") == (None, []))
        assert says(link, "installed") == (None, [])
        wait_until(lambda: column(link, "desired") is None)


def test_what_the_guard_refuses_is_answered_and_a_decision_on_the_flow_counts_as_well(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        desire(twin[0], block("b-1", (500,)))
        desire(twin[0], b"no decision")
        (refused,) = results(twin[0], 1)
        assert refused.reason.startswith("schema:")
        propose(twin[0], "b-2", (12,))
        wait_until(lambda: says(twin[0], "on-air") == ("b-2", [12]))
        value = column(twin[0], "installed")
        assert value is not None
        assert value.answers == 0  # no desired value


def test_a_twin_that_decides_on_the_flow_is_obeyed_there_alone_and_its_desired_values_are_answered(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        desire(twin[0], block("b-0", (1,)))
        agent.wait_for(lambda a: a.controls == [[1]])
        propose(twin[0], "b-1", (2,))
        agent.wait_for(lambda a: a.controls == [[1], [2]])
        desire(twin[0], block("b-0", (3,)))
        version = desire(twin[0], block("b-1", (2,)))
        wait_until(lambda: (column(twin[0], "on-air") or none).answers == version)
        assert says(twin[0], "installed") == ("b-1", [2])
        assert agent.controls == [[1], [2]]


def test_what_an_earlier_exporter_was_told_is_not_obeyed_by_the_next(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints) as agent:
        link = twin[0]
        first = start_exporter(endpoints)
        first.wait_in_sync(agent)
        desire(link, block())
        wait_until(lambda: says(link, "installed") == ("b-1", [40, 41]))
        first.stop()
        agent.wait_for(lambda a: a.controls == [[40, 41], []])
        wait_until(lambda: says(link, "installed") == (None, []))
        start_exporter(endpoints).wait_in_sync(agent)
        assert column(link, "desired") is not None
        desire(link, block("b-2", (7,)))
        agent.wait_for(lambda a: a.controls == [[40, 41], [], [7]])


def test_a_list_that_the_gnb_does_not_acknowledge_is_not_on_air_and_ends_with_its_exporter(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints, ack=None) as agent:
        start_exporter(endpoints).wait_in_sync(agent)
        wait_until(lambda: column(twin[0], "installed"))
        idle = column(twin[0], "installed")
        assert idle is not None
        assert idle.remaining_s is None  # while nothing is blocked, nothing is renewed
        desire(twin[0], block())
        wait_until(lambda: says(twin[0], "installed") == ("b-1", [40, 41]))
        first = column(twin[0], "installed")
        assert first is not None
        assert first.remaining_s is not None
        assert 0 < first.remaining_s <= EXPIRES_S
        assert column(twin[0], "on-air") is None
        wait_until(lambda: (column(twin[0], "installed") or none).version > first.version)  # renewed


def test_signed_decisions_count_and_others_do_not(endpoints: Endpoints, tmp_path: Path) -> None:
    twin, gnb = (WatchedIdentity(Identity.load(one)) for one in trusting_pair(tmp_path))
    at = free_endpoint()
    with (
        Agent(endpoints) as agent,
        twinlink.open("zeromq", listen=at, node="twin-1") as link,
        twinlink.open("zeromq", connect=at, node=KEY) as gnb_link,
    ):
        link.receiver("spectrum", handler=lambda _: None)
        gnb_link.wait_ready(patience())
        authentication = Authentication(gnb, gnb_link.epoch)
        exporter = RunningExporter(gnb_link, endpoints, tmp_path / "log.jsonl", authentication=authentication)
        try:
            exporter.wait_in_sync(agent)
            desire(link, block("forged", (1,)))
            exporter.wait_for("block-rejected")
            assert exporter.events("block-rejected")[0]["reason"].startswith("unsigned:")
            signer = Signer(twin, link.epoch)
            desire(link, signer.sign("control", block("true", (2,)), KEY, gnb_link.epoch))
            agent.wait_for(lambda a: a.controls == [[2]])
        finally:
            exporter.stop()


@pytest.mark.parametrize("name", ["g" * 129])
def test_an_exporter_whose_name_is_too_long_for_a_key_takes_decisions_on_the_flow(
    name: str, endpoints: Endpoints, twin: Twin, tmp_path: Path
) -> None:
    with Agent(endpoints) as agent, twinlink.open("zeromq", connect=twin[1], node=name) as link:
        link.wait_ready(patience())
        exporter = RunningExporter(link, endpoints, tmp_path / "log.jsonl")
        try:
            exporter.wait_in_sync(agent)
            propose(twin[0])
            agent.wait_for(lambda a: a.controls == [[40, 41]])
            (result,) = results(twin[0], 1)
            assert isinstance(result, PrbBlockResult)
        finally:
            exporter.stop()
