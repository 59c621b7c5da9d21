"""A known loss: a transport that withholds every so many-th data message from the wire.

For tests of the instrument.  The link counts such a message as sent; the peer finds a gap.  What is sent again, and
what goes in a bundle, as in a flood, is not withheld.
"""

from ..protocol.frames import DATA_WORD, HEADER
from ..transports import TRANSPORTS, transport_class


def lossy_transport(transport: str, every: int) -> str:
    """The name of a transport like ``transport`` that does so; known in this process from now on."""
    base = transport_class(transport)

    class LossyTransport(base):  # type: ignore[valid-type, misc]
        def send(self, topic: bytes, frame: bytes) -> None:
            word, _, _, sequence, _ = HEADER.unpack_from(frame)
            if word != DATA_WORD or not is_dropped(sequence, every):
                super().send(topic, frame)

    name = f"lossy-{transport}"
    globals()[name] = LossyTransport
    TRANSPORTS[name] = (__name__, name, None)
    return name


def count(first: int, end: int, every: int) -> int:
    """How many of messages ``first`` to ``end - 1`` are."""
    return end // every - first // every if every > 0 else 0


def is_dropped(sequence: int, every: int) -> bool:
    """Whether message ``sequence`` is one of those; with ``every`` 0 none is."""
    return every > 0 and sequence % every == every - 1
