"""What one peer may have this side hold, on all of its flows together."""

from tests.core.pair import Outlet
from tests.core.receiving import OURS, THEIRS
from twinlink.protocol.frames import HEADER, HELLO_TOPIC, Hello, Kind, frame
from twinlink.protocol.limits import Limits
from twinlink.protocol.receive.window import FIRST_GRANT_OCTETS
from twinlink.protocol.session import Session

MIB = 1024 * 1024
BUFFER = 4 * MIB
SIZE = 64 * 1024
FLOWS = 8


def session_with_a_peer() -> Session:
    limits = Limits(16 * MIB, MIB, MIB + 32, receive_buffer=BUFFER)
    session = Session(node="ours", epoch=OURS, limits=limits, path=Outlet(), mono_ns=1)
    _, ours = session.hello(2, 2)
    number = HEADER.unpack_from(ours)[3]
    body = Hello("theirs", {OURS: number}, {}, True, frozenset(), False, MIB, {OURS: {}}).encode()
    for sent in (1, 2):
        session.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, sent, sent, body), 2 + sent, 2 + sent)
    assert session.up == {THEIRS}
    return session


def test_a_peer_gets_half_of_it_however_many_flows_it_sends_on() -> None:
    session = session_with_a_peer()
    for number in range(FLOWS):
        session.receive_flow(f"flow-{number}").subscribed = True
    for sequence in range(BUFFER // SIZE):
        for number in range(FLOWS):
            octets = frame(Kind.DATA, THEIRS, sequence, 1, bytes(SIZE))
            session.receive(f"traffic/flow-{number}".encode(), octets, 10, 10)
    held = sum(flow.queued_octets for flow in session.receiving.values())
    assert BUFFER // 4 < held <= BUFFER // 2 + FLOWS * FIRST_GRANT_OCTETS
