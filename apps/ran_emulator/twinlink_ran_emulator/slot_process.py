"""The emulator's end of the process that writes slots (`slot_writer`)."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from twinlink_e3 import sensing_ring

from twinlink.errors import TwinlinkError

from . import slot_writer
from .slot_writer import NOTICE, RANGES, READY, Notice, SlotPattern

START_S = 60.0  # an interpreter starts
Range = tuple[int, int, int, int]  # first symbol, symbols, first PRB, PRBs


class SlotProcess:
    """The process; its ``descriptor`` is readable when there are notices.  Raises TwinlinkError: it does not start."""

    def __init__(self, pattern: SlotPattern, scs_hz: float) -> None:
        self.pattern = pattern
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.descriptor = self._socket.fileno()
        with theirs:
            arguments = (str(theirs.fileno()), str(round(scs_hz)), json.dumps(asdict(pattern)))
            self._process = subprocess.Popen(
                (sys.executable, "-m", slot_writer.__name__, *arguments), pass_fds=(theirs.fileno(),)
            )
        self._socket.settimeout(START_S)
        try:
            if self._socket.recv(1) != READY:
                raise self._ended()
        except BaseException:
            self.close()
            raise
        self._socket.setblocking(False)

    def play(self, samples: NDArray[np.int16], ranges: Sequence[Range]) -> None:
        """Write this record from now on, shape ``(subcarriers, 2)``, with these ranges left free by the MAC."""
        head = RANGES.pack(len(ranges)) + b"".join(sensing_ring.RANGE.pack(*entry) for entry in ranges)
        self._send(head + samples.tobytes())

    def pause(self) -> None:
        """Write no slots until `play`."""
        self._send(RANGES.pack(0))

    def notices(self) -> Iterator[Notice]:
        """The slots that were written since the last call.  Raises TwinlinkError if the process has ended."""
        while True:
            try:
                octets = self._socket.recv(NOTICE.size)
            except BlockingIOError:
                return
            if len(octets) < NOTICE.size:
                raise self._ended()
            yield Notice(*NOTICE.unpack(octets))

    def close(self) -> None:
        """End the process, which removes the shared memory."""
        self._socket.close()
        self._process.wait()

    def _send(self, octets: bytes) -> None:
        try:
            self._socket.setblocking(True)
            self._socket.send(octets)
        except ConnectionError as error:
            raise self._ended() from error
        finally:
            self._socket.setblocking(False)

    def _ended(self) -> TwinlinkError:
        return TwinlinkError("the process that writes slots to shared memory has ended; it says why on stderr")
