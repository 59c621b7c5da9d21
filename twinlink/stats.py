"""What `Link.stats` and `Sender.stats` return, for type checkers; docs/library.md says what each key means."""

from typing import TypedDict


class Percentiles(TypedDict):
    """Percentiles of ``n`` values, in ns."""

    n: int
    min: int
    p50: int
    p95: int
    p99: int
    max: int


class OneWayDelay(Percentiles):
    """Percentiles in ns, each known to ``bound``."""

    bound: int


class ClockOffset(TypedDict):
    """The offset of the peer's clock against this one, and how well it is known, in ns."""

    offset: int
    bound: int


class PeerDelays(TypedDict):
    """Between this side and one peer; None without acks."""

    rtt_ns: Percentiles | None
    one_way_ns: OneWayDelay | None
    clock_offset_ns: ClockOffset | None


class SenderStats(TypedDict):
    """Counters and delays of one flow that this side sends; ``peers`` by epoch, in 16 hexadecimal digits."""

    sent: int
    sent_octets: int
    acknowledged: int
    outstanding: int
    lost: int
    conflated: int
    repaired: int
    kept_octets: int
    in_flight_octets: int
    peers: dict[str, PeerDelays]


class SyncStats(TypedDict):
    """Freshness of a received flow."""

    state: str
    age_ns: int | None
    mean_age_ns: int | None
    peak_age_ns: int | None
    completeness: float | None


class ReceiverStats(TypedDict):
    """Counters of one flow that this side receives; ``sync`` is None where `Link.sync` does not watch it."""

    received: int
    received_octets: int
    missing: int
    gaps: int
    reordered: int
    duplicates: int
    unclaimed: int
    repaired: int
    repeated: int
    conflated: int
    stale: int
    held: int
    sessions: int
    queued: int
    queued_octets: int
    sync: SyncStats | None


class IdentityStats(TypedDict):
    """What a link with an identity refused: connections, and frames of its peers by kind."""

    refused_connections: int
    refused_frames: dict[str, int]


class LinkStats(TypedDict):
    """Counters of a link; ``sent`` and ``received`` by flow, ``malformed`` by reason, ``limits_exceeded`` by limit."""

    transport: str
    endpoint: str
    node: str
    epoch: str
    peers: list[str]
    sent: dict[str, SenderStats]
    received: dict[str, ReceiverStats]
    malformed: dict[str, int]
    limits_exceeded: dict[str, int]
    identity: IdentityStats | None
    acks_sent: int
    handler_errors: int
    internal_errors: int
    events_dropped: int
