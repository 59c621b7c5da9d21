"""What an application receives: messages on a flow, and acks of its own messages."""

from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import MalformedPayload
from .text_payload import advice, decode_json, decode_text, is_array

if TYPE_CHECKING:
    from .npy import Array


class Message(NamedTuple):
    """One message as it arrived.

    Attributes:
        payload: bytes-like; a view into the received frame, valid as long as it is held.  A copy of the message, in
            this process or another, holds bytes.
        flow: name of the flow.
        sequence: the sender's number, per flow and session, from 0.
        epoch: the sender's session.
        node: the sender's name, or None when it has not said hello.
        sent_ns: Unix time in ns on the sender's clock, from the header.
        received_ns: Unix time in ns on this host's clock, taken when the frame came out of the transport.
    """

    payload: bytes | memoryview
    flow: str
    sequence: int
    epoch: int
    node: str | None
    sent_ns: int
    received_ns: int

    def array(self) -> "Array":
        """The numpy array that the peer has sent with `Sender.send_array`: read-only, and a view of ``payload``.

        Raises MalformedPayload where the payload is not an array in .npy format, or one of Python objects.
        """
        if not is_array(self.payload):
            raise MalformedPayload(f"the payload is not an array of send_array(): {advice(self.payload, 'array')}")
        from .npy import decode  # numpy is loaded by programs that use it

        return decode(self.payload)

    def text(self) -> str:
        """The str that the peer has sent, or any other UTF-8.  Raises MalformedPayload."""
        return decode_text(self.payload)

    def json(self) -> Any:
        """The dict or list that the peer has sent, or any other JSON value.  Raises MalformedPayload.

        Its memory may be many times that of the payload: ``link.receiver(flow, max_payload=...)`` limits both.
        """
        return decode_json(self.payload)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (bytes(self.payload), *self[1:])  # Python neither copies nor pickles a view

    def __repr__(self) -> str:
        return (
            f"Message(flow={self.flow!r}, sequence={self.sequence}, node={self.node!r}, "
            f"{len(self.payload)} octets, sent_ns={self.sent_ns}, received_ns={self.received_ns})"
        )


class Ack(NamedTuple):
    """One message of ours arrived at one peer.

    The four timestamps are Unix time in ns: T1 and T4 on our clock, T2 and T3 on the peer's.  ``rtt_ns`` is measured
    on our monotonic clock and includes the peer's residence time T3 - T2.  When an ack is lost or late, the peer's
    answer to what it misses takes its place; it does not know T2, which then equals T3: when it said so.
    """

    sequence: int
    rtt_ns: int
    sent_ns: int
    peer_received_ns: int
    peer_sent_ns: int
    received_ns: int
    epoch: int
    flow: str
