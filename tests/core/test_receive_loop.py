"""A turn of the receive loop in which much is to be read."""

import pytest

from tests.core.pair import Outlet
from tests.core.receiving import THEIRS, acks_sent
from twinlink.protocol.frames import Kind, frame
from twinlink.protocol.receive.acks import MAX_BATCH
from twinlink.runtime import receive_loop
from twinlink.runtime.driver import SessionDriver
from twinlink.runtime.receive_loop import ReceiveLoop
from twinlink.transports.base import Frame

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
