"""Bare pyzmq: a PUB and a SUB, with the options of twinlink's transport that affect the measurement."""

from typing import Any

import zmq

from .base import MAX_FRAME, TICK_S, RawChannel

SEND_HWM = RECEIVE_HWM = 1_000_000  # this and what follows are defaults of twinlink's transport
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 200, 1000
RECONNECT_MS, RECONNECT_MAX_MS = 30, 0
REUSED_OCTETS = 4 * 1024 * 1024
COPY_BELOW = 65536  # octets; below it a copy is quicker than shared memory


class ZeromqChannel(RawChannel):
    """Messages ``[topic, header + payload]``, as in the ZeroMQ guide."""

    def open(self) -> None:
        """Bind, or connect."""
        bytes(REUSED_OCTETS)  # glibc keeps blocks of this size from then on, as with twinlink's transport: mallopt(3)
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
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.IPV6, int(":" in self.endpoint.host))
        made.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        made.setsockopt(zmq.SNDHWM, SEND_HWM)
        made.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
        made.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        made.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        made.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        return made

    def settings(self) -> dict[str, Any]:
        """The options of the sockets."""
        return {"send_hwm": SEND_HWM, "receive_hwm": RECEIVE_HWM, "copy_below_octets": COPY_BELOW}

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
