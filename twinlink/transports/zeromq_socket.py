"""The sockets of transport ``zeromq``, with their options set."""

import os

import zmq

from ..errors import TransportError
from ..process.ip_address import bracketed
from .base import Endpoint, advice
from .zeromq_guard import PUB_DOMAIN, SUB_DOMAIN
from .zeromq_options import ZeromqOptions

KEEPALIVE_S = 5


def make_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, options: ZeromqOptions, listening: bool, max_frame: int
) -> "zmq.Socket[bytes]":
    """A socket of this kind, neither bound nor connected; ``max_frame``: octets of the longest that it takes."""
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    # Refuses ZMTP before 3: libzmq mistakes answers of foreign programs for it, and aborts.
    made.setsockopt(zmq.ZAP_DOMAIN, PUB_DOMAIN if kind == zmq.XPUB else SUB_DOMAIN)
    made.setsockopt(zmq.SNDHWM, options.send_hwm)
    made.setsockopt(zmq.RCVHWM, options.receive_hwm)
    if options.os_send_buffer:
        made.setsockopt(zmq.SNDBUF, options.os_send_buffer)
    if options.os_receive_buffer:
        made.setsockopt(zmq.RCVBUF, options.os_receive_buffer)
    if listening:
        # libzmq 4.3.5 aborts the process if its heartbeat is due on a connection that was reset while its queue was
        # full, which any program can bring about.  The connectors' heartbeats have a lifetime instead, after which
        # the connection ends here as well, and TCP's own find other half-open connections.
        made.setsockopt(zmq.TCP_KEEPALIVE, 1)
        made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
        made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S)
    else:
        made.setsockopt(zmq.HEARTBEAT_IVL, options.heartbeat_ms)
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, options.heartbeat_timeout_ms)
        made.setsockopt(zmq.HEARTBEAT_TTL, options.heartbeat_timeout_ms)
    # A ping waits behind queued frames, and its time-out begins when it leaves.  If TCP makes no progress, only its
    # own limit ends the connection; without one it would retry after 6, 13 and 26 s, and go on then.
    # It is longer, so that TCP can retransmit a lost packet twice on a path with some delay.
    made.setsockopt(zmq.TCP_MAXRT, options.heartbeat_timeout_ms * 3 // 2)
    made.setsockopt(zmq.RECONNECT_IVL, options.reconnect_ms)
    made.setsockopt(zmq.RECONNECT_IVL_MAX, options.reconnect_max_ms)
    made.setsockopt(zmq.MAXMSGSIZE, max_frame)
    return made


def address(host: str, port: int) -> str:
    """As libzmq takes it."""
    return f"tcp://{bracketed(host)}:{port}"


def not_opened(endpoint: Endpoint, listening: bool, error: zmq.ZMQError | OSError) -> TransportError:
    """What to raise where the sockets cannot be bound or connected."""
    what = "listen on" if listening else "connect to"
    known = error.errno is not None and 0 < error.errno < 1000  # not libzmq's own, nor the resolver's
    reason = os.strerror(error.errno) if known and error.errno else str(error.strerror or error)
    ports = f"ports {endpoint.port} and {endpoint.port + 1}"
    return TransportError(f"zeromq cannot {what} {endpoint} ({ports}): {reason}{advice(reason)}")
