"""Calls that other libraries have, and flows that are misspelt: the answer says what to write."""

import asyncio
import logging

import pytest

import twinlink
from twinlink.runtime import unread_flows
from twinlink.testing import free_endpoint, patience, wait_until


def test_what_other_libraries_call_it_is_answered_with_what_to_write() -> None:
    with twinlink.open("memory", listen=free_endpoint()) as link:
        for name, advice in {
            "send": r"write link\.sender\('flow'\)\.send",
            "subscribe": r"write link\.receiver\('flow'\)\.receive",
            "disconnect": r"write link\.close\(\)",
        }.items():
            with pytest.raises(AttributeError, match=advice):
                getattr(link, name)
        assert not hasattr(link, "anything_else")


def test_an_endpoint_in_place_of_the_transport_is_recognised() -> None:
    with pytest.raises(twinlink.ConfigurationError, match="is an endpoint, and the transport comes first"):
        twinlink.open("tcp/127.0.0.1:7447")  # type: ignore[arg-type]


def test_a_coroutine_function_is_no_handler_of_a_link_without_an_event_loop() -> None:
    async def handler(_: object) -> None:
        raise AssertionError

    with twinlink.open("memory", listen=free_endpoint()) as link:
        for take in (
            lambda: link.receiver("d", handler=handler),  # type: ignore[arg-type]
            lambda: link.events(handler=handler),  # type: ignore[arg-type]
            lambda: link.sender("d", on_ack=handler),  # type: ignore[arg-type]
        ):
            with pytest.raises(twinlink.ConfigurationError, match=r"open the link with twinlink\.open_async"):
                take()


def test_the_two_ways_to_open_are_told_apart() -> None:
    link = twinlink.open("memory", listen=free_endpoint())

    async def wrong() -> None:
        async with link:  # type: ignore[attr-defined]
            pass

    with pytest.raises(TypeError, match=r"async with twinlink\.open_async"):
        asyncio.run(wrong())
    assert link.closed
    with (
        pytest.raises(TypeError, match=r"async with twinlink\.open_async"),
        twinlink.open_async("memory", listen=free_endpoint()),
    ):
        pass


def test_a_flow_that_nothing_reads_beside_a_receiver_that_gets_nothing_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_flows, "LOOK_NS", 1_000_000)
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint, node="twin-1") as receiving,
        twinlink.open("memory", connect=endpoint, node="gnb-1") as sending,
    ):
        receiving.receiver("telemetry")
        sending.wait_ready(patience())
        sending.sender("telemtry").send(b"which nothing reads")

        def told() -> list[str]:
            return [record.getMessage() for record in caplog.records if "nothing reads flow" in record.getMessage()]

        with caplog.at_level(logging.WARNING, "twinlink"):
            wait_until(told)
        assert told()[0].startswith("twin-1: nothing reads flow 'telemtry' here (messages that wait: 1)")
        assert "did you mean telemetry?" in told()[0]


def test_a_flow_that_is_left_unread_beside_one_that_is_read_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as receiving, twinlink.open("memory", connect=endpoint) as sending:
        sending.wait_ready(patience())
        spectrum = receiving.receiver("spectrum")
        receiving.receiver("control")  # for which nothing has come yet
        for flow in ("spectrum", "sensing"):
            sending.sender(flow).send(b"1")
            sending.sender(flow).flush(patience())
        assert spectrum.receive(patience()) is not None
        unread = unread_flows.UnreadFlows(receiving._session.receiving)
        for look in range(2 * unread_flows.PATIENCE_LOOKS):
            unread.on_tick((look + 1) * unread_flows.LOOK_NS, "twin-1")
        assert caplog.text == ""
        sending.sender("contrl").send(b"which is like a receiver's")
        sending.sender("contrl").flush(patience())
        for look in range(20, 20 + 2 * unread_flows.PATIENCE_LOOKS):
            unread.on_tick((look + 1) * unread_flows.LOOK_NS, "twin-1")
        assert caplog.text.count("nothing reads flow 'contrl'") == 1


def test_a_state_in_which_nothing_is_set_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as receiving, twinlink.open("memory", connect=endpoint) as sending:
        sending.wait_ready(patience())
        receiving.state("prb-block")
        sending.sender("spectrum").send(b"1")
        sending.sender("spectrum").flush(patience())
        unread = unread_flows.UnreadFlows(receiving._session.receiving)
        for look in range(2 * unread_flows.PATIENCE_LOOKS):
            unread.on_tick((look + 1) * unread_flows.LOOK_NS, "twin-1")
        assert caplog.text == ""


def test_a_state_that_is_misspelt_is_told(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as receiving, twinlink.open("memory", connect=endpoint) as sending:
        sending.wait_ready(patience())
        receiving.state("prb-blok")
        sending.state("prb-block").desire("cell-1", b"1")
        flows = receiving._session.receiving
        wait_until(lambda: any(one.queue for one in flows.values()))
        unread = unread_flows.UnreadFlows(flows)
        for look in range(2 * unread_flows.PATIENCE_LOOKS):
            unread.on_tick((look + 1) * unread_flows.LOOK_NS, "twin-1")
    (said,) = [record.getMessage() for record in caplog.records if "nothing reads" in record.getMessage()]
    assert "nothing reads flow 'state.prb-block' here" in said
    assert "did you mean prb-blok?: call link.state('prb-block')" in said
