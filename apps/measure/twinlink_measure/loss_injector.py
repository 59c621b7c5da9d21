"""A known loss, for tests of the instrument: a transport that withholds every nth data message from the wire.

The link counts such a message as sent; the peer finds a gap.  Retransmissions, and messages in bundles, as in a flood,
are not withheld.
"""

from typing import Any

from twinlink.transports import TRANSPORTS, transport_class

from .frames import DATA_WORD, HEADER, HEADER_OCTETS


def lossy_transport(transport: str, every: int) -> str:
    """Register a lossy transport derived from ``transport`` in this process; returns its name."""
    base = transport_class(transport)

    class LossyTransport(base):  # type: ignore[valid-type, misc]
        def send(self, topic: bytes, frame: Any) -> None:
            word, _, _, sequence, _ = HEADER.unpack(frame[:HEADER_OCTETS])
            if word != DATA_WORD or not is_dropped(sequence, every):
                super().send(topic, frame)

    name = f"lossy-{transport}"
    globals()[name] = LossyTransport
    TRANSPORTS[name] = (__name__, name, None)
    return name


def count(first: int, end: int, every: int) -> int:
    """The number of withheld messages among ``first`` to ``end - 1``."""
    return end // every - first // every if every > 0 else 0


def is_dropped(sequence: int, every: int) -> bool:
    """Whether message ``sequence`` is withheld; none is if ``every`` is 0."""
    return every > 0 and sequence % every == every - 1
