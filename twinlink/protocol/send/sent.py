"""What becomes of a message that a session has taken in."""

from enum import Enum


class Sent(Enum):
    """What the caller of `Session.send` is to do."""

    TRANSMIT = "transmit the frame, before any later one of the flow"
    OFFER = "offer the frame to the transport: plain subscribers may listen"
    UNSENT = "nothing: the message waits in the queue of its flow, or no peer is to get it"
    TRANSMIT_QUEUE = "as UNSENT, and have the queues transmitted"
    TRANSMIT_BUNDLE = "as UNSENT; what waits makes up a bundle, to be transmitted now"
    FULL = "wait until the message fits: it was not sent"


TRANSMIT, OFFER, UNSENT = Sent.TRANSMIT, Sent.OFFER, Sent.UNSENT  # access to members of an enumeration is slow
TRANSMIT_QUEUE, TRANSMIT_BUNDLE, FULL = Sent.TRANSMIT_QUEUE, Sent.TRANSMIT_BUNDLE, Sent.FULL
