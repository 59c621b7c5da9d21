"""What the tests of a driver share."""

from collections.abc import Callable

from tests.core.pair import Outlet
from twinlink.events import Event
from twinlink.protocol.frames import Kind, frame, parse_ack, parse_ack_range
from twinlink.protocol.limits import Limits
from twinlink.runtime.driver import SessionDriver
from twinlink.transports import Transport

OURS, THEIRS = 1, 2


def acks_sent(transport: Outlet) -> list[tuple[int, list[int]]]:
    """Of every ack sent: consumed, and the sequences acknowledged."""
    found = []
    for _, octets in transport.sent:
        if octets[3] == Kind.ACK:
            acked_epoch, consumed, records = parse_ack(octets)
            found.append((acked_epoch, consumed, [record[0] for record in records]))
        elif octets[3] == Kind.ACK_RANGE:
            acked_epoch, consumed, row, _ = parse_ack_range(octets)
            found.append((acked_epoch, consumed, list(row)))
    assert all(acked_epoch == THEIRS for acked_epoch, _, _ in found)
    return [(consumed, sequences) for _, consumed, sequences in found]


def driver_on(
    transport: Transport, node: str, epoch: int, window: int, max_payload: int, report: Callable[[Event], None]
) -> SessionDriver:
    limits = Limits(window, max_payload, transport.max_frame)
    driver = SessionDriver(transport, node=node, epoch=epoch, limits=limits)
    events = driver.session.events

    def on_events() -> None:
        while events:
            report(events.popleft())

    driver.on_events = on_events
    return driver


def data(driver: SessionDriver, sequence: int, at_once: bool, size: int = 10) -> None:
    octets = frame(Kind.DATA, THEIRS, sequence, 1, bytes(size))
    driver.receive(b"traffic/flow", octets, 0, not at_once)
