"""S7 communication (ISO on TCP, RFC 1006): python-snap7's client and server, mailboxes in data blocks.

DB 1 has the mailbox that the client writes, DB 2 the one that it reads.
"""

import time

from snap7.client import Client
from snap7.error import S7Error
from snap7.server import Server
from snap7.type import SrvArea, SrvEvent

from twinlink.errors import ConfigurationError
from twinlink.transports import Endpoint

from .base import PeerLost
from .mailbox import S7, MailboxChannel

WRITTEN_BLOCK, READ_BLOCK = 1, 2
RACK, SLOT = 0, 1
_READ, _WRITE = 0x00020000, 0x00040000  # event codes of snap7's server


class S7Channel(MailboxChannel):
    """Options: those of `PolledChannel`.  python-snap7 sets TCP_NODELAY."""

    memory = S7

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, object]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._server: Server | None = None
        self._writing, self._reading = Client(), Client()  # for the thread that sends, and the one that receives

    def open(self) -> None:
        """Listen, or connect.  Raises OSError, or ConfigurationError."""
        host = self.endpoint.host.strip("[]")
        try:
            if not self.listening:
                for client in (self._writing, self._reading):
                    client.connect(host, RACK, SLOT, self.endpoint.port)
                return
            if ":" in host:
                raise ConfigurationError(f"python-snap7's server listens at IPv4 addresses only, not at {host}")
            self._server = _SweepingServer(self)
            self._server.register_area(SrvArea.DB, WRITTEN_BLOCK, self.written.memory)
            self._server.register_area(SrvArea.DB, READ_BLOCK, self.read.memory)
            self._server.set_events_callback(self._handled)
            self._server.start_to(host, self.endpoint.port)
        except S7Error as error:
            raise OSError(f"S7 at {self.endpoint}: {error}") from error

    def _handled(self, event: SrvEvent) -> None:
        """After the server executed a request, before it answers; on the thread of the connection."""
        area, block, first, count = event.EvtParam1, event.EvtParam2, event.EvtParam3, event.EvtParam4
        if area != SrvArea.DB:
            return
        if event.EvtCode == _WRITE and block == WRITTEN_BLOCK and first == 0:
            if (frame := self.written.take()) is not None:
                self.arrived(frame)
        elif event.EvtCode == _READ and block == READ_BLOCK:
            self.read.was_read(first + count)

    def write_at(self, first: int, octets: bytes) -> None:
        """Write into the data block."""
        try:
            self._writing.db_write(WRITTEN_BLOCK, first, bytearray(octets))
        except (S7Error, OSError) as error:
            raise PeerLost(f"writing DB {WRITTEN_BLOCK} at {self.endpoint} failed: {error}") from error

    def read_at(self, first: int, count: int) -> bytes:
        """Read from the data block."""
        try:
            return bytes(self._reading.db_read(READ_BLOCK, first, count))
        except (S7Error, OSError) as error:
            raise PeerLost(f"reading DB {READ_BLOCK} at {self.endpoint} failed: {error}") from error

    def close(self) -> None:
        """Close the connections, and end the server."""
        self._writing.disconnect()
        self._reading.disconnect()
        if self._server is not None:
            self._server.stop()


class _SweepingServer(Server):
    """snap7's server, which handles requests at the end of the sweep."""

    def __init__(self, channel: S7Channel) -> None:
        super().__init__(log=False)
        self._channel = channel

    def _process_request(self, request_data: bytes, client_address: tuple[str, int]) -> bytes | None:
        if left_s := self._channel.sweep_left_s():
            time.sleep(left_s)
        return super()._process_request(request_data, client_address)
