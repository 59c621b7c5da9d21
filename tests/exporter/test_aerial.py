"""The whole way with an agent as NVIDIA's: set up, subscribed and read without options."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from twinlink_e3 import GENERATIONS, Endpoints, MessageIds
from twinlink_exporter.generation_search import GenerationSearch
from twinlink_exporter.observation import Carrier
from twinlink_exporter.session import Refused, Session

from twinlink.slots import Clock, SlotSpectrum
from twinlink.testing import wait_until

from .aerial_agent import FIRST_CELL, AerialAgent, dump
from .conftest import StartExporter, Twin
from .twin_side import propose, receive, results

CARRIER = Carrier(24, 15_000)
SLOT_S = 0.005
STREAMS = [1, 4, 5, 6, 7, 8, 10, 25, 26]


@contextmanager
def slots(agent: AerialAgent) -> Iterator[None]:
    """The agent receives slots meanwhile."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(SLOT_S):
            agent.slot()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.mark.parametrize(
    ("grouped", "cells", "copy_delay_s", "cell_id"),
    [(False, 1, 0.001, None), (False, 2, 0.001, None), (True, 1, 0.003, None), (True, 3, None, 42)],
)
def test_its_slots_come_bit_for_bit(
    twin: Twin,
    start_exporter: StartExporter,
    tcp_endpoints: Endpoints,
    grouped: bool,
    cells: int,
    copy_delay_s: float | None,
    cell_id: int | None,
) -> None:
    receiver = twin[0].receiver("spectrum")
    with AerialAgent(tcp_endpoints, cells=cells, grouped=grouped, copy_delay_s=copy_delay_s) as agent:
        exporter = start_exporter(tcp_endpoints, carrier=replace(CARRIER, cell_id=cell_id))
        exporter.wait_for("subscribed")
        with slots(agent):
            taken = [SlotSpectrum.decode(message.payload) for message in receive(receiver, 80)]
        for message in taken:
            (slot,) = message.slots
            assert (message.antennas, message.n_prbs, slot.clock) == ((0,), 24, Clock.UNIX)
            truth = agent.written[slot.sfn, slot.slot, cell_id or FIRST_CELL][:, : 24 * 12]
            assert np.asarray(slot.data, np.float16)[0].tobytes() == truth.tobytes()
        numbers = [message.slots[0].sfn * 10 + message.slots[0].slot for message in taken]
        assert np.diff(numbers).tolist() == [1 + message.slots[0].missing for message in taken[1:]]

        (subscription,) = agent.subscriptions.values()
        assert (subscription["telemetryIdentifierList"], subscription["periodicity"]) == (STREAMS, 0)
        assert len(agent.setups) == 2  # in ASN.1, and in JSON
        assert not agent.ended
        told: dict[tuple[bool, int], list[int | None]] = {(False, 2): [None], (True, 3): [41, 43]}
        others = told.get((grouped, cells), [])
        exporter.wait_for("other-cells", len(others))
        assert [event["cell_id"] for event in exporter.events("other-cells")] == others
        assert exporter.counters.slots_not_indicated == 0
        (event,) = exporter.events("e3-setup")
        assert (event["ran"], event["dapp_id"], event["generation"]) == ("NVIDIA_L1", 1, "JSON-nested")
        assert "offers no control of PRB blocks, so decisions are rejected" in exporter.said()
        propose(twin[0], prbs=(4,))
        assert results(twin[0], 1)[0].reason == "e3: the E3 agent offers no control of PRB blocks"
        exporter.stop()
        wait_until(lambda: not agent.dapps)
        assert {request["type"] for request in agent.requests} == {"subscriptionRequest", "releaseMessage"}
    assert exporter.counters.undecodable == 0


def test_json_asks_once_and_a_dapp_that_is_released_sets_up_again(
    start_exporter: StartExporter, tcp_endpoints: Endpoints
) -> None:
    with AerialAgent(tcp_endpoints) as agent:
        exporter = start_exporter(tcp_endpoints, search=GenerationSearch.of(encoding="json"))
        exporter.wait_for("subscribed")
        assert len(agent.setups) == 1
        agent.release(1)
        exporter.wait_for("subscribed", 2)
        assert "the E3 agent released this dApp" in exporter.said()
        assert agent.dapps == {2}


def test_another_version_is_refused_in_its_words(start_exporter: StartExporter, tcp_endpoints: Endpoints) -> None:
    with AerialAgent(tcp_endpoints, version="1.1.0") as agent:
        exporter = start_exporter(tcp_endpoints)
        exporter.wait_for("e3-refused")
        assert "(protocol version mismatch)" in exporter.events("e3-refused")[0]["reason"]
        assert not agent.dapps


def test_a_refused_subscription_gives_its_reason() -> None:
    session = Session("dapp", "1.0.0", "vendor", MessageIds(), GenerationSearch.of(encoding="json"))
    request = json.loads(session.request(0) or b"")
    answer = {"id": 1, "requestId": request["id"], "responseCode": "positive", "type": "setupResponse"}
    function = {"ranFunctionIdentifier": 2, "telemetryIdentifierList": [1], "controlIdentifierList": []}
    functions = [{**function, "ranFunctionData": []}]
    session.setup_answered(dump({**answer, "dAppIdentifier": 1, "ranIdentifier": "g", "ranFunctionList": functions}), 0)
    session.connected(0)
    request = json.loads(session.request(0) or b"")
    refusal = {"id": 2, "requestId": request["id"], "dAppIdentifier": 1, "type": "subscriptionResponse"}
    pdu = session.read(dump({**refusal, "responseCode": "negative", "message": "invalid telemetry identifier"}))
    assert pdu is not None
    event = session.received(pdu, 0)
    assert isinstance(event, Refused)
    assert event.reason.endswith("(invalid telemetry identifier)")


@pytest.mark.parametrize("generation", ["auto", *GENERATIONS])
@pytest.mark.parametrize("encoding", ["auto", "asn1", "json"])
def test_a_setup_is_never_json_that_is_no_object(generation: str, encoding: str) -> None:
    """Such JSON ends NVIDIA's agent."""
    for _ in range(50):
        octets = Session("dapp", "1.0.0", "vendor", MessageIds(), GenerationSearch.of(generation, encoding)).request(0)
        assert octets
        try:
            message = json.loads(octets)
        except ValueError:
            continue
        assert isinstance(message, dict)
