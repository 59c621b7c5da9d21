"""A turn of the receive loop in which much is to be read."""

import pytest

from tests.core.pair import Outlet
from tests.core.receiving import THEIRS, acks_sent
from twinlink.protocol.frames import HELLO_TOPIC, Hello, Kind, frame
from twinlink.protocol.receive.acks import MAX_BATCH
from twinlink.protocol.reconnect import ProbeResult
from twinlink.runtime import receive_loop
from twinlink.runtime.driver import SessionDriver
from twinlink.runtime.port_probe import PortProbe
from twinlink.runtime.receive_loop import ReceiveLoop
from twinlink.transports.base import Endpoint, Frame

COUNT = MAX_BATCH // 2
NEVER_NS = 10**15


@pytest.mark.parametrize(("waits_ns", "acks"), [(-1, COUNT), (NEVER_NS, 1)])
def test_acks_in_bulk_leave_before_all_is_read(
    waits_ns: int, acks: int, driver: SessionDriver, transport: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACKS_NS", waits_ns), ("DRAIN_NS", NEVER_NS), ("BULK_GAP_NS", NEVER_NS)):
        monkeypatch.setattr(receive_loop, name, value)
    waiting = [frame(Kind.DATA, THEIRS, sequence, 1, b"") for sequence in reversed(range(COUNT))]

    def receive(timeout_s: float) -> tuple[bytes, Frame] | None:
        return (b"traffic/flow", waiting.pop()) if waiting else None

    monkeypatch.setattr(transport, "receive", receive)
    ReceiveLoop(transport, driver, None, busy_poll=False).run_once(0)
    assert [len(sequences) for _, sequences in acks_sent(transport)] == [COUNT // acks] * acks


def test_what_came_while_it_probed_is_read_before_it_connects_anew(
    driver: SessionDriver, transport: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port answers, as the transport's own attempt has just shown: a peer may be up, with its data behind."""
    hello = HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, Hello("theirs", {}, {}).encode())
    waiting: list[tuple[bytes, Frame]] = []

    class Answered(PortProbe):
        def probe(self, timeout_s: float) -> ProbeResult:
            waiting.extend(came.pop() for _ in came[:1])
            return ProbeResult(1, newly_reachable=True)

    def receive(timeout_s: float) -> tuple[bytes, Frame] | None:
        return waiting.pop() if waiting else None

    monkeypatch.setattr(transport, "receive", receive)
    came = [hello]
    loop = ReceiveLoop(transport, driver, Answered(Endpoint("127.0.0.1", 1)), busy_poll=False)
    loop.run_once(0)
    assert transport.reached_with == []
    assert [peer.node for peer in driver.session.peer_manager.peers.all()] == ["theirs"]
    loop.run_once(0)  # nothing came
    assert len(transport.reached_with) == 1
