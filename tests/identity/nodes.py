"""Identities for tests, in folders of their own, and links between nodes that have them."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import twinlink
from twinlink.identity import Identity, PublicLine, Role, trust
from twinlink.identity.folder import Folder
from twinlink.identity.watched import WatchedIdentity
from twinlink.testing import patience, wait_until
from twinlink.testing.base import GENEROUS, drain
from twinlink.transport_options import TransportName
from twinlink.transports.mosquitto import SBIN

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SBIN}") is None, reason="mosquitto is not installed"
)
REFUSED_S = GENEROUS * 2.0  # the contract is two seconds, after which the error says which side refuses the other

OTHER, RANDOM = 65534, 1000680000  # another user; the one that OpenShift chooses for a pod
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@dataclass(frozen=True)
class Node:
    """The folder of an identity."""

    folder: Path

    @property
    def identity(self) -> Identity:
        return Identity.load(self.folder)

    @property
    def name(self) -> str:
        return self.identity.name

    def trust(self, peer: "Node", role: Role | None = None, beside: bool = False) -> None:
        line = peer.identity.line
        trust.trust(self.folder, line, role or line.role, beside=beside)

    def revoke(self, peer: "Node", fingerprint: str | None = None) -> None:
        trust.revoke(self.folder, peer.name, fingerprint)


def put(folder: Path, name: str, content: bytes) -> None:
    """Write a file of an identity as twinlink itself does."""
    with Folder.opened(folder, exclusive=True) as opened:
        opened.write(name, content)


def make(folder: Path, name: str, role: Role, expires_in_s: float | None = None) -> Node:
    expiry = None if expires_in_s is None else datetime.now(UTC) + timedelta(seconds=expires_in_s)
    Identity.create(folder / name, name, role, expiry=expiry)
    return Node(folder / name)


def make_pair(folder: Path, expires_in_s: float | None = None) -> tuple[Node, Node]:
    """A twin and a gNB that trust each other."""
    twin, gnb = make(folder, "twin-1", "twin", expires_in_s), make(folder, "gnb-1", "gnb", expires_in_s)
    twin.trust(gnb)
    gnb.trust(twin)
    return twin, gnb


Opened = Callable[[str, str, Node | None], twinlink.Link]


def opener(transport: TransportName) -> Opened:
    """Opens links: the role ("listen" or "connect"), the endpoint, the identity or None."""

    def opened(role: str, endpoint: str, node: Node | None) -> twinlink.Link:
        folder = node.folder if node else None
        if role == "listen":
            return twinlink.open(transport, listen=endpoint, identity=folder)
        return twinlink.open(transport, connect=endpoint, identity=folder)

    return opened


def deliver(sending: twinlink.Link, receiving: twinlink.Link, flow: str) -> None:
    receiver, sender = receiving.receiver(flow), sending.sender(flow)
    sender.send(b"payload")
    sender.flush(patience())
    message = receiver.receive(timeout=patience())
    assert message is not None
    assert message.payload == b"payload"


@contextmanager
def streaming(listener: twinlink.Link, connector: twinlink.Link) -> Iterator[list[bytes]]:
    """The payloads that the listener has from a stream of the connector; in the end all are there, in order."""
    got: list[bytes] = []
    listener.receiver("spectrum", handler=lambda message: got.append(bytes(message.payload)))
    sender, sent, stop = connector.sender("spectrum"), 0, threading.Event()

    def send() -> None:
        nonlocal sent
        while not stop.wait(0.0005):
            sender.send(sent.to_bytes(4))
            sent += 1

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield got
    finally:
        stop.set()
        sending.join()
    sender.flush(patience())
    wait_until(lambda: len(got) == sent)
    assert got == [number.to_bytes(4) for number in range(sent)]
    assert drain(listener, twinlink.Gap) == []
    assert drain(connector, twinlink.Lost) == []


@dataclass(frozen=True)
class Rotation:
    """A node that uses its next keys, while messages flow and its peer still trusts the old ones.

    Attributes:
        rotating, peer: the links of the node and of its peer.
        line: of the next keys.
        got: payloads that have arrived.
        revoke_old: has the peer revoke the old keys.
    """

    rotating: twinlink.Link
    peer: twinlink.Link
    line: PublicLine
    got: list[bytes]
    revoke_old: Callable[[], None]

    def goes_on(self, messages: int = 100) -> None:
        """Wait until as many more messages have arrived."""
        seen = len(self.got)
        wait_until(lambda: len(self.got) > seen + messages)


@contextmanager
def rotation(opened: Opened, role: str, endpoint: str, folder: Path) -> Iterator[Rotation]:
    """The listener or the connector rotates its keys, by ``role``; in the end no message was lost."""
    twin, gnb = make_pair(folder)
    node, peer = (twin, gnb) if role == "listen" else (gnb, twin)
    old = node.identity.fingerprint
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        with streaming(listener, connector) as got:
            line = trust.prepare_rotation(node.folder)
            trust.trust(peer.folder, line, line.role, beside=True)
            wait_until(lambda: len(got) > 100)
            trust.complete_rotation(node.folder)
            links = (listener, connector) if role == "listen" else (connector, listener)
            yield Rotation(*links, line, got, lambda: peer.revoke(node, old))


def watch(node: Node) -> WatchedIdentity:
    return WatchedIdentity(node.identity)


def content(node: Node) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in node.folder.iterdir() if file.is_file()}
