"""Flows on which nothing is sent again."""

import pytest

import twinlink
from twinlink.events import Gap, Lost
from twinlink.testing import free_endpoint, patience, wait_until


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("arrived", [0, 3])
def test_the_end_of_a_flow_that_is_lost_is_reported_on_both_sides(
    transport: str, arrived: int, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_what_is_sent_while_one_of_two_peers_is_down_is_reported_on_both_sides(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is sent before and after is not."""
    endpoint = free_endpoint()
    with (
        twinlink.open(transport, listen=endpoint, node="listener") as listener,
        twinlink.open(transport, connect=endpoint, node="staying") as staying,
        twinlink.open(transport, connect=endpoint, node="going") as going,
    ):
        wait_until(lambda: len(listener.peers()) == 2)
        lost, gaps, came = [], [], []
        listener.events(handler=lambda event: lost.append(event) if isinstance(event, Lost) else None)
        going.events(handler=lambda event: gaps.append(event) if isinstance(event, Gap) else None)
        going.receiver("flow", handler=lambda message: came.append(message.sequence))
        staying.receiver("flow", handler=lambda message: None)
        sender = listener.sender("flow", reliability="detect")

        def send(count: int) -> None:
            for _ in range(count):
                sender.send(b"")

        send(3)
        sender.flush(patience())
        receive = going._transport.receive
        with monkeypatch.context() as cut_off:

            def take_nothing(timeout_s: float) -> None:
                receive(timeout_s)

            cut_off.setattr(going._transport, "receive", take_nothing)
            cut_off.setattr(going._transport, "send", lambda *_: None)
            wait_until(lambda: listener.peers() == ["staying"])
            send(5)
            with pytest.raises(twinlink.AckTimeout, match="lost; the events say why") as caught:
                sender.flush(patience())
            assert caught.value.missing == ((3, 8),)
        wait_until(lambda: len(listener.peers()) == 2 and going.peers())
        send(2)
        sender.flush(patience())
        wait_until(lambda: came[3:] == [8, 9] and lost)
        assert [(gap.first, gap.end) for gap in gaps] == [(3, 8)]
        assert (lost[0].first, lost[-1].end, sum(one.end - one.first for one in lost)) == (3, 8, 5)
        stats = sender.stats()
        assert (stats["sent"], stats["acknowledged"], stats["lost"], stats["outstanding"]) == (10, 5, 5, 0)
