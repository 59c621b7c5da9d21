"""The options of transport ``zeromq``."""

from dataclasses import dataclass, field

from .base import Options


@dataclass(frozen=True)
class ZeromqOptions(Options):
    """Options of transport ``zeromq``.

    The link bounds messages in flight (``window`` octets and 131,072 messages per flow), so the high-water marks, which
    count messages, are beyond what seven full flows hold: PUB drops at its mark in silence, and a full SUB stops
    answering heartbeats.  Foreign programs, such as a raw subscriber that stops reading or a raw publisher that floods,
    are limited in octets instead: a connection that exceeds one of those limits is ended.
    """

    send_hwm: int = 1_000_000  # messages for each subscriber
    receive_hwm: int = 1_000_000  # messages from each publisher; beyond it TCP holds the publisher back
    os_send_buffer: int = 0  # octets; 0 leaves it to the kernel's autotuning, which was never slower
    os_receive_buffer: int = 0
    heartbeat_ms: int = 200  # detects half-open TCP, and stopped peers
    heartbeat_timeout_ms: int = 1000
    reconnect_ms: int = 30  # plus a random time of up to as much
    reconnect_max_ms: int = 0  # always the same
    connect_timeout_ms: int = 50  # at first, see renew; TCP itself would try again after 1, 3, 7 s
    io_threads: int = field(default=1, metadata={"most": 64})  # libzmq aborts if it cannot start them all
    connections: int = 400  # on each of a listener's two ports
    handshakes: int = 128  # of them, those that have not completed the handshake; then the oldest is ended
    handshake_ms: int = 2000  # limit of a listener for the handshake: two round trips.  1 s if nothing comes
    subscription_octets: int = 4096  # of one connection, ever; 8 times as many of all.  libzmq takes 50 for each
    unsent_octets: int = 128 * 1024 * 1024  # queued for one connection
    unread_octets: int = 256 * 1024 * 1024  # received from all connections, and not read yet
