"""Bare pyzmq: a PUB and a SUB, with the options of twinlink's transport that affect the measurement."""

from typing import Any

import zmq

from twinlink.process.malloc import keep_freed_memory
from twinlink.transports.zeromq import ZeromqOptions

from .base import MAX_FRAME, TICK_S, RawChannel

COPY_BELOW = 65536  # octets; below it a copy is quicker than shared memory


class ZeromqChannel(RawChannel):
    """Messages ``[topic, header + payload]``, as in the ZeroMQ guide."""

    def open(self) -> None:
        """Bind, or connect."""
        keep_freed_memory()  # as twinlink's transport does, so that allocation is not compared
        self._context = zmq.Context()
        self._pub, self._sub = self._socket(zmq.PUB), self._socket(zmq.SUB)
        for topic in (b"ack/", b"traffic/"):
            self._sub.setsockopt(zmq.SUBSCRIBE, topic)
        self._sub.setsockopt(zmq.RCVTIMEO, int(TICK_S * 1000))
        first, second = (f"tcp://{self.endpoint.host}:{self.endpoint.port + number}" for number in (0, 1))
        if self.listening:
            self._pub.bind(first)
            self._sub.bind(second)
        else:
            self._sub.connect(first)
            self._pub.connect(second)

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        options = ZeromqOptions()
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.IPV6, int(":" in self.endpoint.host))
        made.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        made.setsockopt(zmq.SNDHWM, options.send_hwm)
        made.setsockopt(zmq.RCVHWM, options.receive_hwm)
        made.setsockopt(zmq.HEARTBEAT_IVL, options.heartbeat_ms)
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, options.heartbeat_timeout_ms)
        made.setsockopt(zmq.RECONNECT_IVL, options.reconnect_ms)
        made.setsockopt(zmq.RECONNECT_IVL_MAX, options.reconnect_max_ms)
        return made

    def settings(self) -> dict[str, Any]:
        """The options of the sockets."""
        options = ZeromqOptions()
        return {"send_hwm": options.send_hwm, "receive_hwm": options.receive_hwm, "copy_below_octets": COPY_BELOW}

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Publish."""
        self._pub.send(topic, zmq.SNDMORE)
        self._pub.send(frame)

    def get(self, wait: bool = True) -> Any:
        """The frame of the next message."""
        try:
            self._sub.recv(0 if wait else zmq.NOBLOCK)
        except zmq.Again:
            return None
        return self._sub.recv() if self.expected < COPY_BELOW else self._sub.recv(copy=False).buffer

    def close(self) -> None:
        """Close both sockets."""
        self._context.destroy(linger=0)
