"""HTTP/1.1 (RFC 9112): `http.client` at the Real World, aiohttp's server at the Digital Twin.

| request | response |
|---|---|
| POST /traffic/sweep, a message | 200 with its answer, or 204 |
| POST /ack/sweep, an answer | 204 |
| GET /traffic/sweep | 200 with the message that waits longest, and the number behind it in header Waiting; or 204 |
"""

import asyncio
import http.client
import socket
from typing import Any

from aiohttp import web

from twinlink.transports import Endpoint

from .base import ACK, MAX_FRAME, TRAFFIC, PeerLost
from .loop import LoopThread
from .polled import ANSWER_S, PolledChannel

IDLE_S = 3600  # the server keeps an idle connection for this long; its default is shorter than a round may be
WAITING = "Waiting"


class HttpChannel(PolledChannel):
    """Answers to POST are in its response; the client polls for messages of the server.

    Options: ``new_connection`` for every request; ``no_delay`` (TCP_NODELAY); those of `PolledChannel`.
    """

    answers_wait = False

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._reply: bytes | None = None
        self._loop: LoopThread | None = None
        self._runner: web.AppRunner | None = None
        # One for the thread that sends, one for the thread that receives.
        self._writing, self._polling = (
            _Connection(endpoint.host.strip("[]"), endpoint.port, timeout=ANSWER_S) for _ in range(2)
        )
        self._writing.no_delay = self._polling.no_delay = options["no_delay"]

    def open(self) -> None:
        """Listen; the client connects at its first request.  Raises OSError."""
        if self.listening:
            self._loop = LoopThread()
            self._loop.run(self._listen())

    async def _listen(self) -> None:
        application = web.Application(client_max_size=MAX_FRAME)
        for topic in (TRAFFIC, ACK):
            application.router.add_post(f"/{topic.decode()}", self._on_post)
        application.router.add_get(f"/{TRAFFIC.decode()}", self._on_get)
        self._runner = web.AppRunner(application, access_log=None, keepalive_timeout=IDLE_S, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.endpoint.host.strip("[]"), self.endpoint.port).start()

    async def _on_post(self, request: web.Request) -> web.Response:
        octets = await request.read()
        await self._turn(request)
        self._reply = None
        self.arrived(octets)
        return web.Response(body=self._reply) if self._reply else web.Response(status=204)

    async def _on_get(self, request: web.Request) -> web.Response:
        await self._turn(request)
        if not self.outgoing:
            return web.Response(status=204)
        frame = self.outgoing.popleft()
        return web.Response(body=frame, headers={WAITING: str(len(self.outgoing))})

    async def _turn(self, request: web.Request) -> None:
        """What precedes the handling of a request: socket option, end of the sweep."""
        if not self.options["no_delay"] and request.transport is not None:
            request.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        if left_s := self.sweep_left_s():
            await asyncio.sleep(left_s)

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Write the frame, queue it for the client's polls, or, if it is an answer, return it in the response."""
        if self.listening and topic == ACK:
            self._reply = bytes(frame)
        else:
            super().put(topic, frame)

    def get(self, wait: bool = True) -> Any:
        """The next frame; a client that sends does not poll, as responses bring its answers."""
        return super().get(wait) if self.listening or self.reflects else self.from_inbox(wait)

    def write(self, topic: bytes, frame: bytes | bytearray) -> None:
        """POST the frame."""
        octets, _ = self._request(self._writing, "POST", topic, frame)
        if octets:
            self.inbox.put(octets)

    def poll(self) -> bytes | None:
        """GET a message."""
        octets, headers = self._request(self._polling, "GET", TRAFFIC)
        self.behind = int(headers.get(WAITING, 0))
        return octets or None

    def _request(
        self, connection: http.client.HTTPConnection, method: str, topic: bytes, body: bytes | bytearray | None = None
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """The body and the headers of the response.  Raises PeerLost."""
        what = f"{method} /{topic.decode()}"
        headers = {"Connection": "close"} if self.options["new_connection"] else {}
        try:
            connection.request(method, f"/{topic.decode()}", body, headers)
            response = connection.getresponse()
            octets = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise PeerLost(f"{what} at {self.endpoint} failed: {error}") from error
        if response.status not in (200, 204):
            raise PeerLost(f"{what} at {self.endpoint} was answered with {response.status} {response.reason}")
        return octets, response.headers

    def close(self) -> None:
        """Close the connections, and end the server."""
        self._writing.close()
        self._polling.close()
        if self._loop is not None:
            if self._runner is not None:
                self._loop.run(self._runner.cleanup())
            self._loop.close()


class _Connection(http.client.HTTPConnection):
    """A connection whose TCP_NODELAY may be off; `http.client` sets it."""

    no_delay = True

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(self.no_delay))
