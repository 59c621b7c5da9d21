"""Options of transport ``zenoh``, and the configuration of its session."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import zenoh

from ..errors import ConfigurationError
from .base import Options
from .zenoh_namespace import check_namespace

MODES = ("peer", "client")
ACCEPT_PENDING = 1000  # silent connections would occupy Zenoh's default of 100 until their time-out
# After a failed TLS handshake, a listener does nothing for 100 ms (Zenoh 1.10), so attempts are rare and wait longer.
TLS_OPEN_MS, TLS_RETRY_MS = 1000, 300
FRAMING_OCTETS = 4096  # greatest overhead of Zenoh and the seal per frame


@dataclass(frozen=True)
class ZenohOptions(Options):
    """Options of transport ``zenoh``."""

    mode: str = "peer"  # or "client": this node connects to a Zenoh router, as its peers do
    namespace: str = ""  # such as "twinlink/cell-7", a prefix of every key: separates groups of nodes
    shared_memory: bool = False  # payloads of 3072 octets and more bypass TCP between peers on one host
    # Batches of 64 KiB in the data priorities; 2 is Zenoh's default, 16 is quicker from 100 KB.
    data_queue: int = field(default=16, metadata={"most": 16})
    lease_ms: int = 2000  # silence after which Zenoh closes a connection
    block_before_close_ms: int = 700  # a peer that does not take a message, or part, for this long is disconnected
    # A frame is dropped for a peer whose queue stays full for so long: an ack or a hello, which the next one replaces,
    # and with several connections any frame, so that a peer that stops reading delays the others no longer.
    drop_after_ms: int = 20
    reconnect_ms: int = 30
    reconnect_max_ms: int = 30  # constant interval
    open_timeout_ms: int = 120  # at first, see renew: four round trips must fit; TCP would try again after 1, 3, 7 s
    accept_timeout_ms: int = 4000  # two round trips; a connection on which nothing comes is ended after 1 s
    os_send_buffer: int = 0  # octets; 0 leaves it to the kernel
    os_receive_buffer: int = 0
    connections: int = 400  # of a listener
    handshakes: int = 128  # of them, those that have not begun the handshake; then the oldest is ended
    unread_octets: int = 256 * 1024 * 1024  # received from all connections, and not read yet


def check(options: ZenohOptions, listening: bool) -> None:
    """Raise ConfigurationError if mode, namespace and side do not fit together."""
    if options.mode not in MODES:
        raise ConfigurationError(f"option mode of transport zenoh is one of {', '.join(MODES)}, not {options.mode!r}")
    if options.namespace:
        check_namespace(options.namespace, "option namespace of transport zenoh")
    if options.mode == "client" and listening:
        raise ConfigurationError(
            "zenoh in mode client connects to a router and cannot listen: give connect=, not listen="
        )
    if options.mode == "client" and not options.namespace:
        raise ConfigurationError(
            "zenoh in mode client needs the option namespace, such as twinlink/cell-7, the same on both sides: all "
            "nodes of a router network that have the same namespace hear each other"
        )


def configuration(
    options: ZenohOptions,
    locators: Sequence[str],
    listening: bool,
    max_frame: int,
    patience: int,
    security: Mapping[str, object],
) -> zenoh.Config:
    """The configuration of one session, every choice explicit.

    Args:
        options: of the transport.
        locators: to listen on, or to connect to: in mode client the first of them that answers.
        listening: whether to listen.
        max_frame: octets of the longest frame.
        patience: factor of the time-out of connecting.
        security: settings of a session over TLS; empty without an identity.
    """
    client, link = options.mode == "client", "tls" if security else "tcp"
    places = [locator.replace("tcp/", f"{link}/", 1) for locator in locators]
    settings: dict[str, object] = {
        "mode": options.mode,
        "listen/endpoints": places if listening else [],
        "connect/endpoints": [] if listening else places,
        # A client tries each router once: opening the session fails then, and the transport tries again.
        "connect/timeout_ms": 0 if client else -1,
        "connect/exit_on_failure": client,
        "connect/retry": _retry(options, TLS_RETRY_MS if security else 0),
        # Otherwise open and renew would take half a second without a peer.
        "open/return_conditions/connect_scouted": False,
        "open/return_conditions/declares": False,
        "listen/timeout_ms": 0,
        "listen/exit_on_failure": True,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/unicast/open_timeout": max(options.open_timeout_ms * patience, TLS_OPEN_MS if security else 0),
        "transport/unicast/accept_timeout": options.accept_timeout_ms,
        "transport/unicast/accept_pending": ACCEPT_PENDING,
        "transport/shared_memory/enabled": options.shared_memory,
        "transport/link/tx/lease": options.lease_ms,
        **_queues(options),
        "transport/link/rx/max_message_size": max_frame + FRAMING_OCTETS,
        **security,
    }
    if options.namespace:
        settings["namespace"] = options.namespace
    if options.os_send_buffer:
        settings[f"transport/link/{link}/so_sndbuf"] = options.os_send_buffer
    if options.os_receive_buffer:
        settings[f"transport/link/{link}/so_rcvbuf"] = options.os_receive_buffer
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return config


def _retry(options: ZenohOptions, least_ms: int) -> dict[str, float]:
    return {
        "period_init_ms": max(options.reconnect_ms, least_ms),
        "period_max_ms": max(options.reconnect_max_ms, least_ms),
        "period_increase_factor": 1.5,
    }


def _queues(options: ZenohOptions) -> dict[str, object]:
    queue, congestion = "transport/link/tx/queue", "transport/link/tx/queue/congestion_control"
    return {
        f"{queue}/size": _queue_sizes(options),
        f"{congestion}/block/wait_before_close": options.block_before_close_ms * 1000,
        f"{congestion}/drop/wait_before_drop": options.drop_after_ms * 1000,
        f"{congestion}/drop/max_wait_before_drop_fragments": options.drop_after_ms * 1000,
    }


def _queue_sizes(options: ZenohOptions) -> dict[str, int]:
    """Batches per priority: as many as asked for where twinlink sends, else the least that Zenoh takes."""
    priorities = (
        "control", "real_time", "interactive_high", "interactive_low", "data_high", "data", "data_low", "background",
    )  # fmt: skip
    return {name: options.data_queue if name in {"data", "interactive_high"} else 2 for name in priorities}
