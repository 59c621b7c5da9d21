"""What can go wrong, as one tree.

TwinlinkError
├── ConfigurationError (ValueError)    an argument or option cannot be used as given
├── TransportMissing (ImportError)     the driver of a transport is not installed; says what brings it
├── TransportError (OSError)           the transport refused: port in use, address that does not resolve
├── PayloadTooLarge (ValueError)       the payload exceeds the stated limit; nothing was sent
├── LinkClosed                         the link was closed, here, before or during the call
├── PeerTimeout (TimeoutError)         no peer said hello in time; names the endpoint and what to check
│   └── AuthenticationError            one side refuses the other's identity; says which, and what repairs it
├── SendTimeout (TimeoutError)         the peers did not take what was sent before; nothing was sent
├── AckTimeout (TimeoutError)          messages without acknowledgement; which (``missing``) and why (``reason``)
├── StateFull                          a state takes no more values; nothing was set
└── MalformedPayload (ValueError)      a payload does not have the format in which it is read

Loss, gaps, duplicates and peers that come and go are not errors but events (``twinlink.events``).
"""


class TwinlinkError(Exception):
    """Everything that twinlink raises on purpose."""


class ConfigurationError(TwinlinkError, ValueError):
    """An argument or an option cannot be used as given.

    Example scenarios:
        - an unknown option, or one of the wrong type;
        - an endpoint that is not ``tcp/host:port``;
        - neither or both of ``listen`` and ``connect``.
    """


class TransportMissing(TwinlinkError, ImportError):
    """The driver of a transport is not installed; the message names the package or extra that brings it."""


class TransportError(TwinlinkError, OSError):
    """The transport refused.

    Example scenarios:
        - the port is in use by another program;
        - the host name does not resolve;
        - the process can open too few files, or start too few threads.
    """


class PayloadTooLarge(TwinlinkError, ValueError):
    """The payload is longer than the link's limit; nothing was sent."""


class StateFull(TwinlinkError):
    """A state holds as many values, or octets, as it takes; nothing was set."""


class LinkClosed(TwinlinkError):
    """The link is closed."""


class PeerTimeout(TwinlinkError, TimeoutError):
    """No peer said hello in both directions in the given time."""


class AuthenticationError(PeerTimeout):
    """One of the two sides refuses the other's identity, or has none.

    The link goes on trying: it meets the peer as soon as that is repaired.

    Example scenarios:
        - the listener does not trust this side's key, has revoked it, or it has expired;
        - the listener has another key than those that are trusted here;
        - one side was opened with an identity, and the other without.
    """


class SendTimeout(TwinlinkError, TimeoutError):
    """The flow stayed full for the given time: a peer takes nothing, or less than is sent.

    Attributes:
        sent: how many of the messages of `Sender.send_many` were sent, the first ones; with `Sender.send` none was.
    """

    def __init__(self, message: str, sent: int = 0) -> None:
        super().__init__(message)
        self.sent = sent


class AckTimeout(TwinlinkError, TimeoutError):
    """Messages were not acknowledged.

    Attributes:
        missing: the sequence numbers without acknowledgement, as half-open ranges ``(first, end)``.
        reason: why, for a person, as in the message: for what is lost that of the `Lost` events; else what the peers do
            that owe an ack.

    Example scenarios:
        - no peer was up when the message was sent;
        - the peer is down, or its application reads slower than is sent;
        - the peer's application has no receiver for the flow, and refuses more.
    """

    # An exception is unpickled by calling its class with the message alone; then its attributes are set.
    def __init__(self, message: str, missing: tuple[tuple[int, int], ...] = (), reason: str = "") -> None:
        super().__init__(message)
        self.missing = missing
        self.reason = reason


class MalformedPayload(TwinlinkError, ValueError):
    """A payload does not have its flow's format, or the one that was asked for; says how it can be read."""
