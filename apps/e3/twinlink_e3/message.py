"""What every PDU of E3AP has: the envelope's fields."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """The base of every PDU.

    Attributes:
        message_id: from 1; to 1000 in G0 and G1, to 2**32 - 1 in G2.  Agents need not count.
        timestamp: the sender's Unix time; in ns, but in ms in the JSON of libe3 0.0.9.  None: absent, as in G0.
    """

    message_id: int
    timestamp: int | None = field(default=None, kw_only=True)
