"""Bare zenoh-python: peer to peer, a publisher for each topic and one subscriber."""

import json
import os
import threading
from typing import Any

import zenoh

from twinlink.process.guarded_thread import GuardedThread
from twinlink.protocol.frames import HEADER_OCTETS, MAX_PAYLOAD
from twinlink.transports import Endpoint
from twinlink.transports.zenoh import FIFO_MESSAGES, RUNTIME, ZenohTransport
from twinlink.transports.zenoh_config import ZenohOptions
from twinlink.transports.zenoh_locators import Locators

from .base import TICK_S, TRAFFIC, RawChannel

# A link opens its session anew, with more time, where four round trips take longer than the default of 120 ms.  This
# session is opened once, so it has the longest time that a link tries: enough for round trips of 900 ms.
OPTIONS = ZenohOptions(open_timeout_ms=3600)


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
            transport = ZenohTransport(self.endpoint, self.listening, MAX_PAYLOAD + HEADER_OCTETS, OPTIONS)
            config = transport.config()
        else:
            config = _default(self.endpoint, self.listening)
        self._session = zenoh.open(config)
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
        return {"tuned": True, **vars(OPTIONS)}

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


def _default(endpoint: Endpoint, listening: bool) -> zenoh.Config:
    endpoints = Locators([endpoint], listening).current()
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
    }.items():
        config.insert_json5(key, json.dumps(value))
    return config
