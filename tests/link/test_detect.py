"""Flows on which nothing is sent again."""

import pytest

import twinlink
from twinlink.events import Gap, Lost
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("arrived", [0, 3])
def test_the_end_of_a_flow_that_is_lost_is_reported_on_both_sides(
    transport: TransportName, arrived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing comes later that would show it."""
    endpoint = free_endpoint()
    with (
        twinlink.open(transport, listen=endpoint, node="listener") as listener,
        twinlink.open(transport, connect=endpoint, node="connector") as connector,
    ):
        for link in (listener, connector):
            link.wait_ready(patience())
        lost, gaps, came = [], [], []
        connector.events(handler=lambda event: lost.append(event) if isinstance(event, Lost) else None)
        listener.events(handler=lambda event: gaps.append(event) if isinstance(event, Gap) else None)
        listener.receiver("flow", handler=lambda message: came.append(message.sequence))
        sender = connector.sender("flow", reliability="detect")
        for _ in range(arrived):
            sender.send(b"arrives")
        if arrived:
            sender.flush(patience())
        with monkeypatch.context() as broken:  # as what a connection had taken when it ended
            broken.setattr(connector._transport, "send", lambda *_: None)
            for _ in range(2):
                sender.send(b"is lost")
        wait_until(lambda: gaps and lost)
        assert [(gap.first, gap.end) for gap in gaps] == [(arrived, arrived + 2)]
        assert [(one.first, one.end) for one in lost] == [(arrived, arrived + 2)]
        assert came == list(range(arrived))
