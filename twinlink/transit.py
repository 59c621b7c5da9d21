"""What is on its way: handed to the transport, and not acknowledged by those who are up."""

FRAMING_OCTETS = 96  # of a message, beside its payload: header, topic, and what a transport adds


class Transit:
    """Bounds what a peer that takes nothing makes the transport keep.

    Attributes:
        limit: octets, framing included.
    """

    def __init__(self, limit: int, single: bool) -> None:
        """``single``: one message at a time."""
        self.limit = limit
        self._single = single
        self._octets = 0
        self._of: dict[int, int] = {}  # sequence -> octets, in the order of handing over

    def has_room(self, octets: int) -> bool:
        """Whether a payload may be handed over now."""
        return self._octets + octets + FRAMING_OCTETS <= self.limit and not (self._single and self._of)

    def add(self, sequence: int, octets: int) -> None:
        """It was handed over."""
        self._of[sequence] = octets + FRAMING_OCTETS
        self._octets += octets + FRAMING_OCTETS

    def remove(self, sequence: int) -> None:
        """It is not on its way, or not any more."""
        self._octets -= self._of.pop(sequence, 0)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._of

    def sequences(self) -> list[int]:
        """In the order of handing over."""
        return list(self._of)

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def oldest(self) -> int | None:
        """What has been on its way for longest."""
        return next(iter(self._of), None)
