"""What is on its way: handed to the transport, and not acknowledged by those who are up."""


class Transit:
    """Bounds what a peer that takes nothing makes the transport keep.

    Attributes:
        limit: octets; a single message may always go.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._octets = 0
        self._of: dict[int, int] = {}  # sequence -> octets, in the order of handing over

    def has_room(self, octets: int) -> bool:
        """Whether a payload may be handed over now."""
        return self._octets + octets <= self.limit or not self._octets

    def add(self, sequence: int, octets: int) -> None:
        """It was handed over."""
        self._of[sequence] = octets
        self._octets += octets

    def remove(self, sequence: int) -> None:
        """It is not on its way, or not any more."""
        self._octets -= self._of.pop(sequence, 0)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._of

    def sequences(self) -> list[int]:
        """In the order of handing over."""
        return list(self._of)

    @property
    def oldest(self) -> int | None:
        """What has been on its way for longest."""
        return next(iter(self._of), None)
