"""Both ends in one process: the reference for other transports, and the quickest way to try a program.

It guarantees order and no loss once both ends are open; frames are passed by reference.  Endpoints are names only: no
port is used.
"""

import queue
import threading
import weakref

from ..errors import TransportError
from ..protocol.frames import AnyFrame, MessageFrame
from .base import Endpoint, Transport


class _Room:
    """All transports at one endpoint."""

    def __init__(self) -> None:
        self.listener: MemoryTransport | None = None
        self.connectors: weakref.WeakSet[MemoryTransport] = weakref.WeakSet()


_rooms: dict[Endpoint, _Room] = {}
_rooms_lock = threading.Lock()


class MemoryTransport(Transport):
    """In-process queues."""

    takes_split = True

    def open(self) -> None:
        self._closed = False
        self._inbox: queue.SimpleQueue[tuple[bytes, AnyFrame]] = queue.SimpleQueue()
        with _rooms_lock:
            room = _rooms.setdefault(self.endpoint, _Room())
            if not self.listening:
                room.connectors.add(self)
            elif room.listener is None:
                room.listener = self
            else:
                raise TransportError(f"{self.endpoint} is in use by another link of this process")
            self._room = room

    def send(self, topic: bytes, frame: MessageFrame) -> None:
        with _rooms_lock:
            if self._closed:
                return
            if self.listening:
                others = list(self._room.connectors)
            else:
                others = [self._room.listener] if self._room.listener else []
        for other in others:
            other._inbox.put((topic, frame))

    def receive(self, timeout_s: float) -> tuple[bytes, AnyFrame] | None:
        try:
            return self._inbox.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        with _rooms_lock:
            self._closed = True
            if self.listening:
                self._room.listener = None
            else:
                self._room.connectors.discard(self)
            if self._room.listener is None and not self._room.connectors:
                _rooms.pop(self.endpoint, None)
