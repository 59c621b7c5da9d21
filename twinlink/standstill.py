"""What of a flow has not moved since the last look.  No I/O, no clock."""

LOST_LOOKS = 10  # two seconds: who is still up then has heard hellos that were behind what was on its way


class Standstill:
    """To be told a few times a second what the flow waits for, the oldest message that is on its way first."""

    def __init__(self) -> None:
        self._waited_for: tuple[int | None, ...] = ()
        self._looks = 0  # since which the same has been the oldest on its way
        self._stood_at = (0, 0)
        self._stood = 0  # looks since which that has been so

    def look(self, waited_for: tuple[int | None, ...]) -> tuple[bool, bool]:
        """Whether anything is waited for that was at the last look; whether the oldest on its way is to make way."""
        before, self._waited_for = self._waited_for, waited_for
        self._looks = self._looks + 1 if waited_for[:1] == before[:1] else 0
        same = any(now is not None and now == then for now, then in zip(waited_for, before, strict=False))
        makes_way = self._looks >= LOST_LOOKS
        if makes_way:
            self._looks = 0  # the next have their two seconds, too
        return same, makes_way

    def forget(self) -> None:
        """What is waited for is not to be compared with what will be."""
        self._waited_for = ()

    def stands(self, place: tuple[int, int], due: bool) -> bool:
        """Whether a peer that is ``due`` to consume something has been at this place for long."""
        self._stood = self._stood + 1 if due and place == self._stood_at else 0
        self._stood_at = place
        return self._stood >= LOST_LOOKS

    def begin_again(self) -> None:
        """The peer has been asked: give it as long again."""
        self._stood = 0
