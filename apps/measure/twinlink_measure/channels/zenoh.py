"""Bare zenoh-python: peer to peer, a publisher for each topic and one subscriber."""

import json
import os
import threading
from typing import Any

import zenoh

from twinlink.process.guarded_thread import GuardedThread
from twinlink.transports import Endpoint

from .base import MAX_FRAME, TICK_S, TRAFFIC, RawChannel

# What follows is what twinlink's transport configures by default, but for one: a link opens its session anew, with more
# time, where four round trips take longer than the default of 120 ms.  This session is opened once, so it has the
# longest time that a link tries: enough for round trips of 900 ms.
OPTIONS = {
    "data_queue": 16,
    "lease_ms": 2000,
    "block_before_close_ms": 700,
    "drop_after_ms": 20,
    "reconnect_ms": 30,
    "open_timeout_ms": 3600,
    "accept_timeout_ms": 4000,
}
RUNTIME = "(net: (worker_threads: 4), acc: (worker_threads: 2), rx: (worker_threads: 1), tx: (worker_threads: 1))"
FIFO_MESSAGES = 1_000_000
_QUEUE = "transport/link/tx/queue"
_PRIORITIES = (
    "control", "real_time", "interactive_high", "interactive_low", "data_high", "data", "data_low", "background",
)  # fmt: skip
_SENT_WITH = {"data", "interactive_high"}  # these priorities
TUNED = {
    "connect/retry": {
        "period_init_ms": OPTIONS["reconnect_ms"],
        "period_max_ms": OPTIONS["reconnect_ms"],
        "period_increase_factor": 1.5,
    },
    "open/return_conditions/connect_scouted": False,
    "open/return_conditions/declares": False,
    "listen/timeout_ms": 0,
    "listen/exit_on_failure": True,
    "transport/unicast/open_timeout": OPTIONS["open_timeout_ms"],
    "transport/unicast/accept_timeout": OPTIONS["accept_timeout_ms"],
    "transport/unicast/accept_pending": 1000,
    "transport/link/tx/lease": OPTIONS["lease_ms"],
    f"{_QUEUE}/size": {name: OPTIONS["data_queue"] if name in _SENT_WITH else 2 for name in _PRIORITIES},
    f"{_QUEUE}/congestion_control/block/wait_before_close": OPTIONS["block_before_close_ms"] * 1000,
    f"{_QUEUE}/congestion_control/drop/wait_before_drop": OPTIONS["drop_after_ms"] * 1000,
    f"{_QUEUE}/congestion_control/drop/max_wait_before_drop_fragments": OPTIONS["drop_after_ms"] * 1000,
    "transport/link/rx/max_message_size": MAX_FRAME + 4096,
}


class ZenohChannel(RawChannel):
    """With ``tuned``, the configuration of twinlink's transport; otherwise Zenoh's defaults.

    Both have static endpoints and no shared memory: payloads of 3072 octets and more would bypass the network.
    """

    def open(self) -> None:
        """Open the session."""
        self._tuned = bool(self.options.get("tuned", True))
        self._publishers: dict[bytes, zenoh.Publisher] = {}
        self._patience = 0  # ticks until a recv is woken
        self._closing = threading.Event()
        if self._tuned:
            os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
        self._session = zenoh.open(configuration(self.endpoint, self.listening, self._tuned))
        handler: Any = zenoh.handlers.FifoChannel(FIFO_MESSAGES) if self._tuned else zenoh.handlers.DefaultHandler()
        self._subscriber = self._session.declare_subscriber("*/*", handler)
        self._waker = self._session.declare_publisher(
            f"wake/{self._session.zid()}", allowed_destination=zenoh.Locality.SESSION_LOCAL
        )
        self._ticker = GuardedThread(self._tick, "raw-zenoh-tick")
        self._ticker.start()

    def _tick(self) -> None:
        """Wake a recv after two ticks by a message to ourselves, because Zenoh's recv has no time-out."""
        while not self._closing.wait(TICK_S * 2):
            if self._patience:
                self._patience -= 1
                if not self._patience:
                    self._waker.put(b"")

    def wake(self) -> None:
        """Wake a blocked `get`."""
        self._waker.put(b"")

    def settings(self) -> dict[str, Any]:
        """The explicit part of the session's configuration."""
        if not self._tuned:
            return {"tuned": False, "shared_memory": False}
        return {"tuned": True, "shared_memory": False, **OPTIONS}

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Publish."""
        (self._publishers.get(topic) or self._publisher(topic)).put(frame)

    def _publisher(self, topic: bytes) -> zenoh.Publisher:
        tuned: dict[str, Any] = {
            "reliability": zenoh.Reliability.RELIABLE,
            "congestion_control": zenoh.CongestionControl.BLOCK,
            "priority": zenoh.Priority.DATA if topic == TRAFFIC else zenoh.Priority.INTERACTIVE_HIGH,
            "express": False,
        }
        made = self._session.declare_publisher(
            topic.decode(), allowed_destination=zenoh.Locality.REMOTE, **(tuned if self._tuned else {})
        )
        self._publishers[topic] = made
        return made

    def get(self, wait: bool = True) -> Any:
        """The frame of the next message."""
        sample: zenoh.Sample | None
        if wait:
            self._patience = 2
            sample = self._subscriber.recv()
            self._patience = 0
        else:
            sample = self._subscriber.try_recv()
        return None if sample is None else sample.payload.to_bytes() or None  # our own wake-up message is empty

    def close(self) -> None:
        """Close the session, if that does not block."""
        self._closing.set()
        self._ticker.join()
        closer = GuardedThread(self._session.close, "raw-zenoh-close")
        closer.start()
        closer.join(0.4)


def configuration(endpoint: Endpoint, listening: bool, tuned: bool) -> zenoh.Config:
    """The configuration of the session."""
    endpoints = [str(endpoint)]
    config = zenoh.Config()
    for key, value in {
        "mode": "peer",
        "listen/endpoints": endpoints if listening else [],
        "connect/endpoints": [] if listening else endpoints,
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
        **(TUNED if tuned else {}),
    }.items():
        config.insert_json5(key, json.dumps(value))
    return config
