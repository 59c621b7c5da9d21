"""The process in which a model runs, and the side that asks it: octets in, octets out, nothing that is code.

It takes a body (`examples.train.model`) and then samples, over a socket:

```
direction  octets  field
to it      0 to 3  number of the request, from 1; network byte order, as the others
           4 to 5  records; 0: the records that follow are of another session
           6 to 7  PRBs of a record
           8 to    samples, int16 in little-endian order, I and Q of each subcarrier
from it    0 to 3  number of the request
           4 to    an octet for each PRB of each record: its class, and 0x80 if it counts as interfered
```

It can write no file, and has `MEMORY_OCTETS` at most.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.control import MAX_PRBS

from .features import NAMES, FeatureTrack
from .model import MAX_OCTETS, Answers, Model

REQUEST, ANSWER, LENGTH = struct.Struct("!IHH"), struct.Struct("!I"), struct.Struct("!I")
INTERFERED, CLASS = 0x80, 0x7F
MEMORY_OCTETS = 4 << 30  # of address space: numpy's libraries reserve more than they use
START_S = 60.0
MOST_WAITING = 256  # records asked for and not answered
BUFFER_OCTETS = 4 << 20
MOST_TEXT = 1000
_FAILED = b"\0"
_READY = b"\1"


class ModelFailed(twinlink.TwinlinkError):
    """The process of a model did not start, or has ended."""


class ModelProcess:
    """Asks a model in a process of its own; closes it at the end of ``with``.

    Args:
        body: of the model; `examples.train.signed_model.read` has verified it.

    Attributes:
        pid: of the process.
    """

    def __init__(self, body: bytes) -> None:
        """Raises ModelFailed."""
        self._socket, theirs = socket.socketpair()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_OCTETS)
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
                env=environment,
            )
        self.pid = self._process.pid
        self._number, self._arrived = 0, bytearray()
        self._shapes: dict[int, tuple[int, int]] = {}  # of the requests that wait for an answer
        try:
            self._socket.settimeout(START_S)
            self._socket.sendall(LENGTH.pack(len(body)) + body)
            if (said := self._socket.recv(MOST_TEXT)) != _READY:
                raise ConnectionError(said[1:].decode("utf-8", "replace") or "its process has ended")
        except OSError as error:
            self.close()
            raise ModelFailed(f"the model did not start: {error}") from None

    def __enter__(self) -> "ModelProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def begin(self) -> None:
        """The records from now on are of another session.  Raises ModelFailed."""
        self._send(REQUEST.pack(self._next(), 0, 0), None)

    def ask(self, samples: NDArray[np.int16]) -> int | None:
        """Ask for records, samples ``(records, n_prbs * 12, 2)``; the request's number, None if too many wait.

        Raises ModelFailed.
        """
        records, n_prbs = len(samples), samples.shape[1] // 12
        if sum(shape[0] for shape in self._shapes.values()) + records > MOST_WAITING:
            return None
        number = self._next()
        self._send(REQUEST.pack(number, records, n_prbs) + samples.astype("<i2").tobytes(), (records, n_prbs))
        return number

    def answer(self, number: int, deadline_s: float) -> NDArray[np.uint8] | None:
        """The octets of a request, shape ``(records, n_prbs)``; None if they have not come by this monotonic time.

        Answers to earlier requests, which came too late, are passed over.  Raises ModelFailed.
        """
        while True:
            while (found := self._take()) is not None:
                if found[0] == number:
                    return found[1]
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            self._socket.settimeout(left_s)
            try:
                part = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError as error:
                raise ModelFailed(f"the process of the model cannot be read: {error}") from error
            if not part:
                raise ModelFailed(f"the process of the model has ended (exit code {self._process.poll()})")
            self._arrived += part

    def _next(self) -> int:
        self._number = self._number % (2**32 - 1) + 1
        return self._number

    def _send(self, octets: bytes, shape: tuple[int, int] | None) -> None:
        self._socket.settimeout(1.0)  # what waits has room in the buffer, unless the process hangs
        try:
            self._socket.sendall(octets)
        except OSError as error:
            raise ModelFailed(f"the process of the model takes no records: {error}") from error
        if shape is not None:
            self._shapes[self._number] = shape

    def _take(self) -> tuple[int, NDArray[np.uint8]] | None:
        """The next whole answer that has arrived; the order is that of the requests."""
        if len(self._arrived) < ANSWER.size:
            return None
        (number,) = ANSWER.unpack_from(self._arrived)
        shape = self._shapes.get(number)
        if shape is None:
            raise ModelFailed("the process of the model answers what it was not asked")
        end = ANSWER.size + shape[0] * shape[1]
        if len(self._arrived) < end:
            return None
        octets = np.frombuffer(bytes(self._arrived[ANSWER.size : end]), np.uint8).reshape(shape)
        del self._arrived[:end], self._shapes[number]
        return number, octets


# The process


def main(descriptor: int) -> int:
    """Serve until the socket is closed."""
    with socket.socket(fileno=descriptor) as channel:
        _limit()
        try:
            model = _receive_model(channel)
        except twinlink.MalformedPayload as error:
            channel.sendall(_FAILED + str(error).encode()[: MOST_TEXT - 1])
            return 2
        channel.sendall(_READY)
        track, answers, of = None, None, 0
        while (head := _exactly(channel, REQUEST.size)) is not None:
            number, records, n_prbs = REQUEST.unpack(head)
            if not records:
                track = answers = None
                continue
            samples = _exactly(channel, records * n_prbs * 48)
            if samples is None or not 1 <= n_prbs <= MAX_PRBS:
                return 2
            if track is None or answers is None or n_prbs != of:
                track, answers, of = FeatureTrack(n_prbs), Answers(model, n_prbs), n_prbs
            found = model.probabilities(track.add(np.frombuffer(samples, "<i2").reshape(records, -1, 2)))
            interfered = answers.add(model.interference(found))
            octets = found.argmax(axis=-1).astype(np.uint8) | np.where(interfered, INTERFERED, 0).astype(np.uint8)
            channel.sendall(ANSWER.pack(number) + octets.tobytes())
    return 0


def _limit() -> None:
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the twin, which ends this process
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_OCTETS, MEMORY_OCTETS))


def _receive_model(channel: socket.socket) -> Model:
    length = _exactly(channel, LENGTH.size)
    octets = LENGTH.unpack(length)[0] if length else 0
    if octets > MAX_OCTETS:
        raise twinlink.MalformedPayload(f"a model of {octets:,} octets; at most {MAX_OCTETS:,} are taken")
    model = Model.decode(_exactly(channel, octets) or b"")
    if model.features != NAMES:
        raise twinlink.MalformedPayload("the model was made for other features than this program has: train it again")
    return model


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    """So many octets; None if the other side has closed."""
    parts = bytearray()
    while len(parts) < count:
        try:
            part = channel.recv(min(count - len(parts), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
