"""What of a flow is in flight: transmitted, and neither acknowledged nor refused by a peer that the flow waits for."""

from collections.abc import Collection, Iterator, Mapping, Set
from itertools import repeat

from .congestion import InFlightBudget

FRAMING_OCTETS = 96  # of a message, beside its payload: header, topic, and what a transport adds


class InFlight:
    """Bounds what a peer that takes nothing makes the transport keep, and what is ahead of a hello.

    Attributes:
        budget: of all flows with which it shares what may be in flight.
        uncertain: `ReceiverSet.resuming`: the transport may still have what was in flight to these before.
    """

    def __init__(self, budget: InFlightBudget, single: bool, uncertain: Set[int]) -> None:
        """``single``: one message at a time."""
        self.budget = budget
        self.uncertain = uncertain
        self._single = single
        self._transmitted = 0  # octets so far, framing included
        self._transmit_until: int | None = None  # so many, while a peer lags
        self._octets = 0  # framing included
        self._lost = 0  # octets so far, framing included, that a peer has requested again while they were in flight
        # sequence (of a run: the first) -> octets, framing included, in the order of transmission
        self._of: dict[int, int] = {}

    @property
    def room(self) -> int:
        """Octets that a thread that can wait for the transport may transmit now, framing included.

        Where nothing of the flow is in flight that is all that others leave, so that it can begin however many share.
        """
        left = self.budget.room
        if self._transmit_until is not None:
            left = min(left, self._transmit_until - self._transmitted)
        if not self._of:
            return left
        return 0 if self._single else min(left, self.budget.share - self._octets)

    @property
    def is_half_full(self) -> bool:
        """Whether half of what the flow, or all of them, may have in flight is."""
        budget = self.budget
        return 2 * self._octets >= budget.share or 2 * budget.in_flight >= budget.limit

    @property
    def inline_room(self) -> int:
        """Octets that may be transmitted now without having to wait for the transport, framing included."""
        budget, of = self.budget, self._of
        if self.uncertain or (of and self._single) or self._transmit_until is not None:
            return 0
        left, own = budget.inline - budget.in_flight, budget.inline_share - self._octets if of else budget.unfragmented
        return left if left < own else own

    def limit_unseen(self, octets: int | None) -> None:
        """A lagging peer has not seen this much of what was transmitted: what goes beyond it is limited as well.

        None: there is no such peer.
        """
        self._transmit_until = None if octets is None else self._transmitted - octets + self.budget.limit

    @property
    def transmitted(self) -> int:
        """Octets that were transmitted so far, framing included."""
        return self._transmitted

    @property
    def delivered(self) -> int:
        """Octets that got through, or were given up, so far, framing included."""
        return self._transmitted - self._octets - self._lost

    def has_room_for_fragment(self, sequence: int) -> bool:
        """Whether one more fragment of this message may be transmitted.

        While a fragment is in flight there must be room for all of the next one; else any room will do.
        """
        return self.room >= self.budget.fragment if self.has_fragments(sequence) else self.budget.room > 0

    def has_fragments(self, sequence: int) -> bool:
        """Whether a fragment of this message is in flight."""
        return self._of.get(sequence, 0) > FRAMING_OCTETS

    def add(self, sequence: int, octets: int) -> None:
        """This message was transmitted, or begins to be, in fragments; framing included."""
        budget = self.budget
        self._octets += octets  # in a row, without a call: Ctrl-C comes where a call ends
        self._transmitted += octets
        budget.in_flight += octets
        self._of[sequence] = octets

    def add_all(self, messages: Mapping[int, int], octets: int) -> None:
        """These were transmitted: sequence -> octets; and ``octets`` of all of them, framing included."""
        budget = self.budget
        self._octets += octets
        self._transmitted += octets
        budget.in_flight += octets
        self._of.update(messages)

    def split(self, runs: Mapping[int, tuple[int, int]]) -> None:
        """These runs, by first sequence, are single messages from now on: so many, of so many octets each."""
        if self._of.keys().isdisjoint(runs):
            return
        of = dict[int, int]()
        for first, octets in self._of.items():
            count, size = runs.get(first, (1, octets))
            of.update(zip(range(first, first + count), repeat(size), strict=False))
            of[first] = octets - (count - 1) * size  # with the framing of the run
        self._of = of

    def set(self, sequence: int, octets: int) -> None:
        """So many octets of this message, which leaves in fragments, are in flight now, framing included."""
        budget, more = self.budget, octets - self._of[sequence]
        if more > 0:
            self._transmitted += more
        self._octets += more
        budget.in_flight = left = budget.in_flight + more
        self._of[sequence] = octets
        if more < 0:
            budget.on_freed(-more, left)

    def remove(self, sequences: Collection[int]) -> None:
        """These arrived, or were given up; what was not in flight is passed over."""
        of = self._of
        if len(sequences) == 1:
            (sequence,) = sequences
            if sequence not in of:
                return
            budget, freed = self.budget, of[sequence]
            del of[sequence]
        else:
            budget, freed = self.budget, sum(map(of.pop, sequences, repeat(0)))
        self._octets -= freed
        budget.in_flight = left = budget.in_flight - freed
        if left < budget.limit <= left + freed:
            budget.on_room()

    def lose(self, sequence: int) -> None:
        """This did not arrive; where it is in flight, it says nothing of what the path takes."""
        self._lost += self._of.get(sequence, 0)
        self.remove((sequence,))

    def recover_after_interrupt(self, unacked: Collection[int]) -> None:
        """An interruption came between two steps: what is not ``unacked`` is not in flight, and the sums are as it
        is."""
        for sequence in [one for one in self._of if one not in unacked]:
            del self._of[sequence]
        budget, freed = self.budget, self._octets - sum(self._of.values())
        self._octets -= freed
        budget.in_flight = left = budget.in_flight - freed
        budget.on_freed(freed, left)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._of

    def __iter__(self) -> Iterator[int]:
        """The sequences that are in flight, in the order of transmission; of a run the first."""
        return iter(self._of)

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def oldest(self) -> int | None:
        """The sequence that has been in flight for longest; None when nothing is."""
        return next(iter(self._of), None)
