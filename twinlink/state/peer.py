"""What a node knows of a peer's copy of a state: what it lacks, and how old what comes from it is."""

from dataclasses import dataclass, field

from .record import Slot, Stamp

WINDOW_OCTETS = 256 * 1024  # sent to a peer and not acknowledged; beyond that only the newest values wait to be sent
RESEND_NS, MAX_RESEND_NS = 1_000_000_000, 8_000_000_000  # without an ack; doubled each time
OFFSET_WINDOW_NS = 10_000_000_000

Sent = list[tuple[Slot, Stamp]]


class Transit:
    """How long ago a message was sent, without a common clock: what its way took beyond the shortest of late.

    The shortest is that of the last 10 to 20 s in which messages came.  So a step of either clock backwards makes what
    comes look older for so long; a step forwards changes nothing.
    """

    def __init__(self) -> None:
        self._before_ns: int | None = None  # the shortest of the window before
        self._shortest_ns: int | None = None
        self._since_mono_ns = 0

    def age_ns(self, sent_ns: int, received_ns: int, now_ns: int, mono_ns: int) -> int:
        """Age of a message with this time stamp, which arrived and is looked at at these times, all in Unix ns."""
        took_ns = received_ns - sent_ns
        if self._shortest_ns is None or mono_ns - self._since_mono_ns >= OFFSET_WINDOW_NS:
            self._before_ns, self._shortest_ns, self._since_mono_ns = self._shortest_ns, took_ns, mono_ns
        self._shortest_ns = min(self._shortest_ns, took_ns)
        base_ns = self._shortest_ns if self._before_ns is None else min(self._shortest_ns, self._before_ns)
        return took_ns - base_ns + max(0, now_ns - received_ns)


@dataclass(slots=True)
class Peer:
    """One session of a peer.

    Attributes:
        node: its name.
        up: whether it is up; otherwise it may return.
        down_mono_ns: since when it is not up.
        unsent: slots whose values it lacks, in the order in which they are sent.
        in_flight: slots that were sent to it and not acknowledged, and which value.
        transit: of what comes from it.
    """

    node: str
    up: bool = True
    down_mono_ns: int = 0
    unsent: dict[Slot, None] = field(default_factory=dict)
    in_flight: dict[Slot, Stamp] = field(default_factory=dict)
    transit: Transit = field(default_factory=Transit)
    _awaited: dict[int, tuple[Sent, int]] = field(default_factory=dict)  # sequence -> values, octets
    _octets: int = 0  # awaited
    _window: int = WINDOW_OCTETS
    _since_mono_ns: int = 0  # of the last ack, or of the first message that is awaited
    _resend_ns: int = RESEND_NS

    @property
    def has_room(self) -> bool:
        """Whether more may be sent to it now."""
        return self._octets < self._window

    def lacks(self, slot: Slot) -> bool:
        """Whether it has not acknowledged the value that stands."""
        return slot in self.unsent or slot in self.in_flight

    def owe(self, slot: Slot) -> None:
        """It lacks the value that stands there now."""
        self.in_flight.pop(slot, None)
        self.unsent[slot] = None

    def has(self, slot: Slot) -> None:
        """It has the value that stands there now."""
        self.unsent.pop(slot, None)
        self.in_flight.pop(slot, None)

    def come_up(self, mono_ns: int, octets: int) -> None:
        """All that it lacks is to be sent at once, which may be so many octets."""
        self.up = True
        self._window = WINDOW_OCTETS + octets
        self._repeat(mono_ns)

    def go_down(self, mono_ns: int) -> None:
        """It may return; until then nothing is sent for it."""
        self.up, self.down_mono_ns = False, mono_ns

    def on_sent(self, sequence: int, sent: Sent, octets: int, mono_ns: int) -> None:
        """A message with these values left for it."""
        if not self._awaited:
            self._since_mono_ns = mono_ns
        self._awaited[sequence] = sent, octets
        self._octets += octets
        for slot, stamp in sent:
            self.unsent.pop(slot, None)
            self.in_flight[slot] = stamp

    def on_ack(self, sequence: int, mono_ns: int) -> None:
        """It has acknowledged a message."""
        sent, octets = self._awaited.pop(sequence, ([], 0))
        self._octets -= octets
        self._since_mono_ns, self._resend_ns = mono_ns, RESEND_NS
        for slot, stamp in sent:
            if self.in_flight.get(slot) == stamp:
                del self.in_flight[slot]
        if not self._awaited:
            self._window = WINDOW_OCTETS

    @property
    def resend_mono_ns(self) -> int | None:
        """When to send again what it has not acknowledged; None: there is nothing, or it is down.

        Messages of which all values were replaced count, too: they leave no room for the new ones.
        """
        return self._since_mono_ns + self._resend_ns if self.up and (self.in_flight or self._awaited) else None

    def resend(self, mono_ns: int) -> None:
        """Send again what it has not acknowledged."""
        self._resend_ns = min(2 * self._resend_ns, MAX_RESEND_NS)
        self._repeat(mono_ns)

    def _repeat(self, mono_ns: int) -> None:
        self.unsent.update(dict.fromkeys(self.in_flight))
        self.in_flight.clear()
        self._awaited.clear()
        self._octets, self._since_mono_ns = 0, mono_ns
