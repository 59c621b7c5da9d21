"""A flow that the application has not asked for, and of which more is sent than there is room to hold."""

import pytest

import twinlink
from twinlink.events import Gap, Lost, Unclaimed
from twinlink.protocol.session import Reliability
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName

MESSAGES = 1000


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("reliability", ["repair", "detect"])
def test_both_sides_name_what_was_refused_and_in_few_words(transport: TransportName, reliability: Reliability) -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open(transport, listen=endpoint, window=2**20, max_payload=2**16) as receiving,
        twinlink.open(transport, connect=endpoint, window=2**20, max_payload=2**16) as sending,
    ):
        for link in (receiving, sending):
            link.wait_ready(patience())
        refused, lost, gaps = [], [], []
        sending.events(handler=lambda event: lost.append(event) if isinstance(event, Lost) else None)

        def note(event: twinlink.Event) -> None:
            refused.extend([event] if isinstance(event, Unclaimed) else [])
            gaps.extend([event] if isinstance(event, Gap) else [])

        receiving.events(handler=note)
        sync = receiving.sync("flow")
        sender = sending.sender("flow", reliability=reliability)
        for _ in range(MESSAGES):
            sender.send(bytes(5000))
        with pytest.raises(twinlink.AckTimeout, match=r"lost: .* under the same name") as caught:
            sender.flush(patience())
        inbox, came = receiving.receiver("flow"), []
        while (message := inbox.receive(0)) is not None:
            came.append(message.sequence)
        held = len(came)
        wait_until(lambda: refused and refused[-1].end == MESSAGES and lost and lost[-1].end == MESSAGES)
        assert came == list(range(held))
        assert 0 < held < MESSAGES
        assert sync.completeness() == pytest.approx(held / MESSAGES)
        for named in (refused, lost):
            assert (named[0].first, sum(event.end - event.first for event in named)) == (held, MESSAGES - held)
            assert len(named) < 100
        assert {event.reason for event in lost} == {
            "the peer's application takes nothing on this flow, or nothing so long"
        }
        assert caught.value.missing == ((held, MESSAGES),)
        assert caught.value.reason == "the peer's application takes nothing on this flow, or nothing so long"
        assert gaps == []
