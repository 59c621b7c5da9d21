"""What a Zenoh session has received and the link has not read yet."""

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import zenoh

from ..protocol.authentication import AuthenticatedPeer
from ..protocol.frames import HEADER_OCTETS
from .base import Frame

if TYPE_CHECKING:
    from .zenoh_identity import ZenohIdentity

TICK_S = 0.05
# A message that was sent alone occupies 64 KiB until it is read.  So while no thread reads, because of a long handler,
# each tick copies some; a reader waits meanwhile.
STOWED_IN_A_TICK = 256
POLL_S = 0.0005
# Zenoh sends a message in fragments when it does not fit the rest of a batch, and 1.10 glues the head of one to the
# tail of the next when a connection ends between them: right header, right length, wrong payload.  So a frame is
# followed by a seal, a copy of its timestamp, which the tail of another message does not have.
SEAL = slice(24, 32)
SEAL_OCTETS = 8
SEALED_OCTETS = HEADER_OCTETS + SEAL_OCTETS
PUT_OCTETS = 12  # of Zenoh's own for each frame
TLS_OCTETS = 22  # of a record of TLS, one for each frame at most
WAKE = "wake/"

Received = tuple[bytes, Frame, AuthenticatedPeer | None]  # topic, frame, and the peer that its key names


class ZenohInbox:
    """What has arrived at one transport, which changes its session now and then.

    Args:
        identity: tells the peers; None: without one.

    """

    def __init__(self, identity: "ZenohIdentity | None") -> None:
        self._identity = identity
        self._octets = self._messages = 0
        self._put_octets = PUT_OCTETS + (TLS_OCTETS if identity is not None else 0)
        self._subscriber: Any = None
        self._waker: Any = None
        self._ticks_left = 0  # until a recv is woken
        self._reading = threading.Lock()
        self._stowed: deque[tuple[Received, int]] = deque()  # before all later frames; with its octets
        self._drained = False  # whether everything was read since `take_drained` was called

    def use(self, subscriber: Any, waker: Any) -> None:
        """Read from this subscriber from now on, on which what ``waker`` puts arrives."""
        before = self._waker
        self._subscriber, self._waker = subscriber, waker
        if before is not None:
            _put(before)  # a thread may wait for the session before, which is closed next

    def leave(self) -> None:
        """The session is going to be closed: it must not have a publisher then."""
        self._waker = None

    @property
    def read(self) -> tuple[int, int]:
        """Octets and messages that were read since it was made."""
        return self._octets, self._messages

    def take_drained(self) -> bool:
        """Whether everything was read at some time since the last call."""
        drained, self._drained = self._drained, False
        return drained

    def receive(self, timeout_s: float) -> Received | None:
        """As `Transport.receive`, with the peer."""
        with self._reading:
            if self._stowed:
                received, octets = self._stowed.popleft()
            else:
                sample = self._subscriber.try_recv()
                if sample is None:
                    self._drained = True
                    sample = self._poll(timeout_s) if timeout_s < TICK_S else self._wait(timeout_s)
                taken = None if sample is None else self._taken(sample)
                if taken is None:
                    return None
                received, octets = taken
        self._octets += octets
        self._messages += 1
        return received

    def tick(self) -> None:
        """To be called every `TICK_S`: wakes a recv after its time, as Zenoh's has no time-out; and stows."""
        if self._ticks_left:
            self._ticks_left -= 1
            if not self._ticks_left:
                _put(self._waker)
        if self._reading.acquire(blocking=False):
            try:
                with contextlib.suppress(zenoh.ZError):
                    self._stow()
            finally:
                self._reading.release()

    def _poll(self, timeout_s: float) -> zenoh.Sample | None:
        """Wait for less than a tick."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            sample: zenoh.Sample | None = self._subscriber.try_recv()
            if sample is not None:
                return sample
        return None

    def _wait(self, timeout_s: float) -> Any:
        """Wait for some ticks; the sample may be that of a wake-up."""
        self._ticks_left = int(timeout_s / TICK_S)
        sample = self._subscriber.recv()
        self._ticks_left = 0
        return sample

    def _stow(self) -> None:
        for _ in range(STOWED_IN_A_TICK):
            sample = self._subscriber.try_recv()
            if sample is None:
                self._drained = not self._stowed
                break
            if (taken := self._taken(sample)) is not None:  # a wake-up without a waiting reader is discarded
                self._stowed.append(taken)

    def _taken(self, sample: zenoh.Sample) -> tuple[Received, int] | None:
        """With the octets that it took on the connection; None for a wake-up."""
        topic, sender = str(sample.key_expr), None
        if self._identity is not None:
            name, _, topic = topic.partition("/")
            sender = self._identity.sender(name)
        if topic.startswith(WAKE):
            return None
        frame = sample.payload.to_bytes()
        octets = len(frame) + self._put_octets
        if frame[-SEAL_OCTETS:] != frame[SEAL]:
            return (b"", b"", sender), octets
        return (topic.encode(), memoryview(frame)[:-SEAL_OCTETS], sender), octets


def _put(waker: Any) -> None:
    with contextlib.suppress(zenoh.ZError):
        waker.put(b"")
