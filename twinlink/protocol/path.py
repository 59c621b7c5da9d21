"""What a session needs of its transport."""

from typing import Protocol


class Path(Protocol):
    """The transport, as far as the peers of a session need it."""

    @property
    def gives_up_ns(self) -> int:
        """So long after a peer fell silent a transmission may wait for it; 0: it never waits."""

    @property
    def frame_limit(self) -> int:
        """Octets of the longest frame that it takes, as far as is known; it may change."""

    @property
    def frame_limit_reason(self) -> str:
        """What limits it, and what to change, for a person; empty where nothing less than the link's own is known."""

    @property
    def direct_octets(self) -> int:
        """So many octets may be in flight before the congestion limit holds back."""

    @property
    def whole_octets(self) -> int:
        """A frame of so many octets goes in one piece, where the path is fast and no flow must not be delayed."""

    @property
    def hellos_overtake(self) -> bool:
        """Whether hellos may pass data on their way."""

    def joins(self, epoch: int, hears_us: bool) -> bool:
        """Whether this peer has connected, and gets hellos and acks but no messages yet."""

    def greeted(self) -> None:
        """A peer has said hello."""

    def parted(self) -> None:
        """No peer is heard any more, or yet."""
