"""Framing of E3's POSIX link: stream sockets (Unix or TCP), one listener of the RAN for each channel.

    channel      dApp to RAN                 RAN to dApp
    setup        setupRequest, unframed      4 octets of length (big-endian), setupResponse
    RAN -> dApp                              4 octets of length, PDU; again and again
    dApp -> RAN  PDUs, unframed

The RAN takes what one read returns for one PDU, so a dApp must not send the next before the RAN has read the last.
"""

import struct
from collections.abc import Iterator

from .errors import MalformedPdu

MAX_PDU_OCTETS = 1024 * 1024  # libe3 sends at most 64 KiB; bounds what a wrong length can make us hold
MAX_UNFRAMED_OCTETS = 64 * 1024  # of one read by the RAN
_LENGTH = struct.Struct(">I")


def frame(octets: bytes) -> bytes:
    """The PDU with its length before it."""
    return _LENGTH.pack(len(octets)) + octets


class FrameReader:
    """Divides a stream into PDUs."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, octets: bytes) -> Iterator[bytes]:
        """The PDUs that these octets complete.  Raises MalformedPdu if the stream has no frames."""
        buffer = self._buffer
        buffer += octets
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if not 0 < length <= MAX_PDU_OCTETS:
                    raise MalformedPdu(_no_frame(bytes(buffer[start : start + 8]), length))
                end = start + _LENGTH.size + length
                if end > len(buffer):
                    return
                pdu = bytes(memoryview(buffer)[start + _LENGTH.size : end])
                start = end
                yield pdu
        finally:
            del buffer[:start]


def _no_frame(head: bytes, length: int) -> str:
    if head[:1] == b"\xff" and not any(head[1:8]):  # the signature of a ZMTP greeting
        return "the E3 agent speaks ZeroMQ, not POSIX: set --e3-link zmq"
    return f"a frame claims {length} octets, from 1 to {MAX_PDU_OCTETS} are expected; see --e3-link"
