"""WebSocket over TLS and through proxies, and what a connector says that meets no listener."""

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, web
from websockets.sync.server import serve

import twinlink
from twinlink.identity.certificates import self_signed
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import drain

Answer = Callable[[socket.socket], None]
AnyWebSocket = ClientWebSocketResponse | web.WebSocketResponse


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The path of a file: ``twin.pem``, ``gnb.pem``, or ``twin.key``, ``gnb.key``."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("twin", "gnb"):
        key, certificate = self_signed(name, [], datetime.now(UTC) + timedelta(days=1))
        (folder / f"{name}.key").write_bytes(key)
        (folder / f"{name}.pem").write_bytes(certificate)
    return lambda name: str(folder / name)


@contextlib.contextmanager
def listening(answer: Answer) -> Iterator[int]:
    """A port of a program that answers each connection in this way, and ends it."""

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = server.accept()
                with opened, contextlib.suppress(OSError):
                    answer(opened)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def saying(octets: bytes) -> Answer:
    """Reads a request, and answers this."""

    def answer(opened: socket.socket) -> None:
        opened.recv(4096)
        opened.sendall(octets)

    return answer


def tunnel(opened: socket.socket) -> None:
    """An HTTP proxy: connects where CONNECT says, and passes octets on in both directions."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += opened.recv(4096)
    target = request.split()[1].decode().rpartition(":")
    with socket.create_connection((target[0], int(target[2]))) as other:
        opened.sendall(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n")
        back = threading.Thread(target=passed_on, args=(other, opened), daemon=True)
        back.start()
        passed_on(opened, other)
        back.join()


def passed_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while octets := source.recv(65536):
            target.sendall(octets)
        target.shutdown(socket.SHUT_WR)


def deliver(sending: twinlink.Link, receiving: twinlink.Link, payload: bytes) -> None:
    sending.wait_ready(patience())
    sender = sending.sender("flow")
    for _ in range(20):
        sender.send(payload)
    sender.flush(patience())
    for _ in range(20):
        message = receiving.receiver("flow").receive(timeout=patience())
        assert message is not None
        assert message.payload == payload


def says(text: str, port: int, **options: str | bool) -> bool:
    """Whether a connector that meets no peer comes to say this."""
    with twinlink.open("websocket", connect=f"tcp/127.0.0.1:{port}", **options) as link:  # type: ignore[arg-type]
        transport = link._transport
        wait_until(lambda: text in (transport.authentication_problem or transport.why_alone() or ""))
    return True


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


# TLS


def test_tls_with_certificates_of_both_sides(endpoint: str, files: Callable[[str], str]) -> None:
    with (
        twinlink.open(
            "websocket",
            listen=endpoint,
            tls_certificate=files("twin.pem"),
            tls_private_key=files("twin.key"),
            tls_trusted=files("gnb.pem"),
        ) as twin,
        twinlink.open(
            "websocket",
            connect=endpoint.replace("127.0.0.1", "localhost"),
            tls_certificate=files("gnb.pem"),
            tls_private_key=files("gnb.key"),
            tls_trusted=files("twin.pem"),
        ) as gnb,
    ):
        deliver(gnb, twin, b"small")
        deliver(twin, gnb, bytes(3_000_000))
        assert drain(twin, twinlink.Malformed) == []


@pytest.mark.parametrize(
    ("connector", "text"),
    [
        (
            {},
            "the listener takes only TLS: give this side an identity",
        ),
        ({"tls": True}, "certificate is not accepted (self-signed certificate): give tls_trusted"),
        (
            {"tls_trusted": "twin.pem"},
            "does not accept our certificate (TLSV13_ALERT_CERTIFICATE_REQUIRED): give tls_cert",
        ),
        (
            {"tls_trusted": "twin.pem", "tls_certificate": "twin.pem", "tls_private_key": "twin.key"},
            "does not accept our certificate (TLSV1_ALERT_UNKNOWN_CA): give tls_certificate",
        ),
    ],
)
def test_a_certificate_that_is_missing_or_not_trusted_is_named(
    endpoint: str, files: Callable[[str], str], connector: dict[str, str | bool], text: str
) -> None:
    options = {name: files(value) if isinstance(value, str) else value for name, value in connector.items()}
    with twinlink.open(
        "websocket",
        listen=endpoint,
        tls_certificate=files("twin.pem"),
        tls_private_key=files("twin.key"),
        tls_trusted=files("gnb.pem"),
    ) as twin:
        assert says(text, port_of(endpoint), **options)
        assert twin.peers() == []


def test_tls_to_a_listener_without_it(endpoint: str, files: Callable[[str], str]) -> None:
    with twinlink.open("websocket", listen=endpoint) as twin:
        text = "what listens there does not speak TLS: give the listener tls_certificate"
        assert says(text, port_of(endpoint), tls_trusted=files("twin.pem"))
        wait_until(lambda: twin.stats()["malformed"].get("transport"))


@pytest.mark.parametrize(
    ("side", "options", "text"),
    [
        ("listen", {"tls": True}, "a listener needs its certificate for TLS: give tls_certificate"),
        ("connect", {"tls_private_key": "gnb.key"}, "tls_private_key needs tls_certificate beside it"),
        ("connect", {"tls_trusted": "nothing.pem"}, "tls_trusted: there is no file"),
        ("connect", {"tls_trusted": "gnb.key"}, "TLS takes nothing from"),
        ("listen", {"tls_certificate": "gnb.pem", "tls_private_key": "twin.key"}, "belongs to the certificate"),
        ("connect", {"proxy": "socks5://user:secret@proxy:1"}, "is not of the form http://"),
        ("connect", {"proxy": "http://proxy:port"}, "is not of the form http://"),
    ],
)
def test_wrong_options_are_named(
    endpoint: str, files: Callable[[str], str], side: str, options: dict[str, str | bool], text: str
) -> None:
    given = {name: files(value) if name.startswith("tls_") else value for name, value in options.items()}  # type: ignore[arg-type]
    with pytest.raises(twinlink.ConfigurationError) as caught:
        twinlink.open("websocket", **{side: endpoint}, **given)  # type: ignore[arg-type]
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


# Proxies


def test_a_proxy_that_is_asked_for_a_tunnel(endpoint: str) -> None:
    with (
        listening(tunnel) as port,
        twinlink.open("websocket", listen=endpoint) as twin,
        twinlink.open("websocket", connect=endpoint, proxy=f"http://gnb:secret@localhost:{port}") as gnb,
    ):
        deliver(gnb, twin, b"small")
        deliver(twin, gnb, bytes(3_000_000))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "answers with status 407 Proxy Authentication Required",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is no HTTP proxy"),
    ],
)
def test_a_proxy_that_makes_no_tunnel_is_named(answer: bytes, text: str) -> None:
    with listening(saying(answer)) as port:
        assert says(text, 9, proxy=f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def reverse_proxy(target: str) -> Iterator[int]:
    """A port where aiohttp accepts WebSocket connections, and passes their messages on to the target and back."""

    async def copied(source: AnyWebSocket, sink: AnyWebSocket) -> None:
        async for message in source:
            await sink.send_bytes(message.data)
        await sink.close()

    async def passed(request: web.Request) -> web.WebSocketResponse:
        names = request.headers["Sec-WebSocket-Protocol"].split(",")
        near = web.WebSocketResponse(protocols=names, max_msg_size=0, compress=False)
        await near.prepare(request)
        async with (
            ClientSession() as session,
            session.ws_connect(f"http://{target}{request.path_qs}", protocols=names, max_msg_size=0) as far,
        ):
            await asyncio.gather(copied(near, far), copied(far, near))
        return near

    async def serve_until(over: asyncio.Event) -> None:
        application = web.Application()
        application.router.add_get("/", passed)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ready.put((asyncio.get_running_loop(), over, runner.addresses[0][1]))
        await over.wait()
        await runner.cleanup()

    ready: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: asyncio.run(serve_until(asyncio.Event())), daemon=True)
    thread.start()
    loop, over, port = ready.get(timeout=patience())
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def test_a_reverse_proxy(endpoint: str) -> None:
    with (
        twinlink.open("websocket", listen=endpoint) as twin,
        reverse_proxy(endpoint.removeprefix("tcp/")) as port,
        twinlink.open("websocket", connect=f"tcp/127.0.0.1:{port}") as gnb,
    ):
        deliver(gnb, twin, b"small")
        deliver(twin, gnb, bytes(3_000_000))


# What answers in place of a listener


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            "503 Service Unavailable: a proxy or Route that",
        ),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n", "403 Forbidden: a proxy that wants a login"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 OK, and no listener of twinlink: check the address"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak WebSocket: open both sides with the same transport"),
        (b"", "ends the connection without an answer"),
    ],
)
def test_what_answers_in_place_of_a_listener_is_named(answer: bytes, text: str) -> None:
    with listening(saying(answer)) as port:
        assert says(text, port)


def test_an_error_says_so() -> None:
    answer = saying(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    with listening(answer) as port, twinlink.open("websocket", connect=f"tcp/127.0.0.1:{port}") as link:
        wait_until(link._transport.why_alone)
        with pytest.raises(twinlink.PeerTimeout, match=r"no peer within 0 s, .* over websocket: what answers there is"):
            link.wait_ready(0)


def test_a_websocket_server_of_another_kind_is_named() -> None:
    with serve(lambda _: None, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = "no listener of twinlink (it does not take the subprotocol twinlink.1): check the address"
        assert says(text, server.socket.getsockname()[1])
        server.shutdown()


def test_a_silent_program_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert says("does not answer the WebSocket handshake", server.getsockname()[1])


def test_no_listener_is_what_tcp_says() -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("websocket", connect=endpoint) as link,
        pytest.raises(twinlink.PeerTimeout, match=r"TCP says: Connection refused; check that the other side listens"),
    ):
        link.wait_ready(0.1)
