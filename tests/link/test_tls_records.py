"""TLS records that hold the end of one message and the beginning of another, as a proxy makes them."""

import contextlib
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from twinlink.identity.certificates import self_signed
from twinlink.process.readiness import is_readable
from twinlink.testing import patience
from twinlink.transports.receive_buffers import ReceiveBuffers
from twinlink.transports.stream_connection import LONG_OCTETS
from twinlink.transports.tcp_stream import EPOCH_OCTETS, MAGIC, TcpStream, encode


def test_a_message_behind_a_long_one_does_not_wait_for_more_octets(tmp_path: Path) -> None:
    key, certificate = self_signed("twin", [], datetime.now(UTC) + timedelta(days=1))
    (tmp_path / "twin.pem").write_bytes(key + certificate)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(tmp_path / "twin.pem")
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), patience()) as near,
    ):
        opened, _ = listener.accept()
        accepted = server.wrap_socket(opened, server_side=True, do_handshake_on_connect=False)
        stream = TcpStream(accepted, 2**20, ReceiveBuffers(), 0.0, is_listeners=True, most=2**20)
        near.setblocking(False)
        far = client.wrap_socket(near, do_handshake_on_connect=False)
        with contextlib.closing(stream), far:
            shaking = True
            while shaking:
                with contextlib.suppress(ssl.SSLWantReadError):
                    far.do_handshake()
                    shaking = False
                stream.read(1.0)
            sent = [(b"flow", bytes(LONG_OCTETS + size)) for size in (40_000, 40_000)] + [(b"flow", b"last")]
            far.setblocking(True)
            far.sendall(MAGIC + bytes(EPOCH_OCTETS) + b"".join(b"".join(encode(*message)) for message in sent))
            taken: list[tuple[bytes, bytes]] = []
            while is_readable(stream.fd, 0.5):  # as `epoll` tells
                stream.read(1.0)
                taken += ((topic, bytes(frame)) for topic, frame in stream.inbox)
                stream.inbox.clear()
            assert taken == sent
