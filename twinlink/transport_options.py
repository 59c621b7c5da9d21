"""Names and options of the transports, for type checkers; docs/library.md says what each option means.

`twinlink.transports` checks at run time, and knows third-party transports too.
"""

from typing import Literal, TypedDict

TransportName = Literal["zeromq", "zenoh", "mqtt", "websocket", "tcp", "memory"]


class TransportOptions(TypedDict, total=False):
    """The options of all transports; each transport has some of them, see its ``Options`` class."""

    accept_timeout_ms: int
    block_before_close_ms: int
    connect_timeout_ms: int
    connections: int
    data_queue: int
    drop_after_ms: int
    handshake_ms: int
    handshakes: int
    heartbeat_ms: int
    heartbeat_timeout_ms: int
    io_threads: int
    keepalive_s: int
    lease_ms: int
    mode: Literal["peer", "client"]
    namespace: str
    open_timeout_ms: int
    origins: str
    os_receive_buffer: int
    os_send_buffer: int
    pages: str
    private_broker: bool
    proxy: str
    qos: int
    receive_hwm: int
    reconnect_max_ms: int
    reconnect_ms: int
    send_hwm: int
    shared_memory: bool
    subscription_octets: int
    tls: bool
    tls_certificate: str
    tls_private_key: str
    tls_trusted: str
    token: str
    unread_octets: int
    unsent_octets: int
    user_timeout_ms: int
