"""What the tests of a driver share."""

from collections.abc import Callable

from twinlink.events import Event
from twinlink.protocol.frames import Kind, frame, parse_ack, parse_ack_range
from twinlink.protocol.limits import Limits
from twinlink.protocol.session import ACKS, QUEUED, Session
from twinlink.runtime.driver import SessionDriver
from twinlink.transports import Endpoint, Transport
from twinlink.transports.base import Frame, Options

OURS, THEIRS = 1, 2


class Kept(Transport):
    """Keeps what is sent."""

    scouts = True

    def __init__(self) -> None:
        super().__init__(Endpoint("kept", 1), False, 2**24, Options())
        self.sent: list[tuple[bytes, bytes]] = []
        self.renewed: list[int] = []
        self.reached_with: list[int] = []

    def open(self) -> None: ...

    def send(self, topic: bytes, frame: bytes) -> None:
        self.sent.append((topic, frame))

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        return None

    def renew(self, patience: int) -> None:
        self.renewed.append(patience)

    def reached(self, patience: int) -> None:
        self.reached_with.append(patience)

    def close(self) -> None: ...

    def acks(self) -> list[tuple[int, list[int]]]:
        """Of every ack sent: consumed, and the sequences acknowledged."""
        found = []
        for _, octets in self.sent:
            if octets[3] == Kind.ACK:
                acked_epoch, consumed, records = parse_ack(octets)
                found.append((acked_epoch, consumed, [record[0] for record in records]))
            elif octets[3] == Kind.ACK_RANGE:
                acked_epoch, consumed, row, _ = parse_ack_range(octets)
                found.append((acked_epoch, consumed, list(row)))
        assert all(acked_epoch == THEIRS for acked_epoch, _, _ in found)
        return [(consumed, sequences) for _, consumed, sequences in found]


def deliver(session: Session) -> None:
    """Call the application's functions, as `CallbackQueue` does."""
    while session.deliveries:
        function, arguments, flow, kind = session.deliveries[0]
        for argument in arguments:
            if kind != QUEUED:
                function(argument)
            elif (taken := function.next_message()) is not None:
                function.handler(taken[0])
        session.deliveries.popleft()
        if kind == ACKS:
            session.on_acks_reported(flow, len(arguments))


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
