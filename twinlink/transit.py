"""What is on its way: handed to the transport, and not acknowledged by those who are up."""

from collections.abc import Iterable

FRAMING_OCTETS = 96  # of a message, beside its payload: header, topic, and what a transport adds


class Transit:
    """Bounds what a peer that takes nothing makes the transport keep.

    Attributes:
        limit: octets, framing included.
        direct: of them, as many as the transport takes at once: beyond, it may make whoever hands over wait.
        held: the transport makes somebody wait now.
        unsure: it may still have what was on its way to somebody who fell silent, and is back.
    """

    def __init__(self, limit: int, single: bool) -> None:
        """``single``: one message at a time."""
        self.limit = self.direct = limit
        self.held = self.unsure = False
        self._single = single
        self._octets = 0  # of payload
        self._of: dict[int, int] = {}  # sequence -> octets of payload, in the order of handing over

    @property
    def room(self) -> int:
        """So many octets may be handed over now, framing included."""
        of = self._of
        return 0 if of and self._single else self.limit - self._octets - FRAMING_OCTETS * len(of)

    @property
    def direct_room(self) -> int:
        """So many without having to wait."""
        of = self._of
        if self.held or self.unsure or (of and self._single):
            return 0
        return self.direct - self._octets - FRAMING_OCTETS * len(of)

    def add(self, messages: Iterable[tuple[int, int]], octets: int) -> None:
        """They were handed over: sequence and octets of each, octets of all."""
        self._of.update(messages)
        self._octets += octets

    def remove(self, sequences: Iterable[int]) -> None:
        """They are not on their way, or not any more."""
        of = self._of
        for sequence in sequences:
            self._octets -= of.pop(sequence, 0)

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
