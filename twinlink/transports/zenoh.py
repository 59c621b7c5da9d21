"""Zenoh in peer mode with static endpoints: no router, no scouting, no gossip.

A frame is the payload of a put on the key expression ``traffic/<flow>`` or ``ack/<flow>``.  Acks and hellos have a
priority of their own above the data.
"""

import json
import queue
import threading
from dataclasses import dataclass

import zenoh

from ..errors import TransportError
from .base import Frame, Options, Transport

CLOSE_S = 0.6  # session.close() may hang on a lossy link; past this it goes on in a daemon thread


@dataclass(frozen=True)
class ZenohOptions(Options):
    """Options of transport ``zenoh``."""

    shared_memory: bool = False  # payloads of 3072 octets and more bypass TCP between peers on one host
    data_queue: int = 16  # batches of 64 KiB in the data priorities; 2 is Zenoh's default, 16 is quicker from 100 KB
    lease_ms: int = 4000  # silence after which Zenoh gives a connection up
    block_before_close_ms: int = 5000  # a peer that takes nothing for this long is disconnected
    reconnect_ms: int = 50
    reconnect_max_ms: int = 400
    os_send_buffer: int = 0  # octets; 0 leaves it to the kernel
    os_receive_buffer: int = 0


class ZenohTransport(Transport):
    """eclipse-zenoh >= 1.9."""

    options_class = ZenohOptions
    options: ZenohOptions

    def open(self) -> None:
        # The callback is the queue's own C method: it runs on Zenoh's network thread, never blocks and calls nothing.
        self._inbox: queue.SimpleQueue[zenoh.Sample] = queue.SimpleQueue()
        self._publishers: dict[bytes, zenoh.Publisher] = {}
        self._publishers_lock = threading.Lock()
        try:
            self._session = zenoh.open(self._config())
            handler = zenoh.handlers.Callback(self._inbox.put, indirect=False)
            self._subscribers = [
                self._session.declare_subscriber(key, handler)
                for key in ("ack/*", "traffic/*")  # acks first: who hears our traffic must hear our acks
            ]
        except zenoh.ZError as error:
            what = "listen on" if self.listening else "connect to"
            raise TransportError(f"zenoh cannot {what} {self.endpoint}: {str(error).split(' at ')[0]}") from error

    def _config(self) -> zenoh.Config:
        options = self.options
        endpoints = [str(self.endpoint)]
        retry = {
            "period_init_ms": options.reconnect_ms,
            "period_max_ms": options.reconnect_max_ms,
            "period_increase_factor": 1.5,
        }
        queues = {
            name: options.data_queue if name.startswith("data") else 2
            for name in (
                "control", "real_time", "interactive_high", "interactive_low", "data_high", "data", "data_low",
                "background",
            )
        }  # fmt: skip
        settings = {
            "mode": "peer",
            "listen/endpoints": endpoints if self.listening else [],
            "connect/endpoints": [] if self.listening else endpoints,
            "connect/timeout_ms": -1,
            "connect/exit_on_failure": False,
            "connect/retry": retry,
            "listen/timeout_ms": 0,
            "listen/exit_on_failure": True,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "transport/shared_memory/enabled": options.shared_memory,
            "transport/link/tx/lease": options.lease_ms,
            "transport/link/tx/queue/size": queues,
            "transport/link/tx/queue/congestion_control/block/wait_before_close": options.block_before_close_ms * 1000,
            "transport/link/rx/max_message_size": self.max_frame + 4096,
        }
        if options.os_send_buffer:
            settings["transport/link/tcp/so_sndbuf"] = options.os_send_buffer
        if options.os_receive_buffer:
            settings["transport/link/tcp/so_rcvbuf"] = options.os_receive_buffer
        config = zenoh.Config()
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        return config

    def _publisher(self, topic: bytes) -> zenoh.Publisher:
        with self._publishers_lock:
            if topic not in self._publishers:
                urgent = topic.startswith(b"ack/") or topic == b"traffic/_link"
                self._publishers[topic] = self._session.declare_publisher(
                    topic.decode(),
                    reliability=zenoh.Reliability.RELIABLE,
                    congestion_control=zenoh.CongestionControl.BLOCK,
                    priority=zenoh.Priority.INTERACTIVE_HIGH if urgent else zenoh.Priority.DATA,
                    express=True,
                    allowed_destination=zenoh.Locality.REMOTE,  # our own subscriber matches the key expression too
                )
            return self._publishers[topic]

    def send(self, topic: bytes, frame: bytes) -> None:
        publisher = self._publishers.get(topic) or self._publisher(topic)
        publisher.put(frame)

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        try:
            sample = self._inbox.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return None
        return str(sample.key_expr).encode(), sample.payload.to_bytes()

    def close(self) -> None:
        closer = threading.Thread(target=self._session.close, name="twinlink-zenoh-close", daemon=True)
        closer.start()
        closer.join(CLOSE_S)
