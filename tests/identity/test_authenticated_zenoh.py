"""Zenoh with identities: who meets whom, and that a good certificate opens nothing to another name."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zenoh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import twinlink
from tests.identity.nodes import Node, make, make_pair
from tests.identity.test_authenticated_zeromq import CELLS, deliver, renew
from twinlink.identity import trust
from twinlink.protocol.authentication import epoch_prefix
from twinlink.protocol.frames import Kind, frame
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transports.zenoh_identity import ZenohIdentity


def opened(role: str, endpoint: str, node: Node | None) -> twinlink.Link:
    folder = node.folder if node else None
    if role == "listen":
        return twinlink.open("zenoh", listen=endpoint, identity=folder)
    return twinlink.open("zenoh", connect=endpoint, identity=folder)


@pytest.mark.parametrize("name", CELLS)
def test_two_sides_do_not_meet_until_both_trust_each_other(name: str, endpoint: str, tmp_path: Path) -> None:
    cell = CELLS[name]
    at_listener, at_connector = cell.spoil(tmp_path, *make_pair(tmp_path))
    with opened("listen", endpoint, at_listener) as listener, opened("connect", endpoint, at_connector) as connector:
        up, down = connector.sender("up"), listener.sender("down")
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience())  # long before this
        assert cell.says in str(raised.value)
        for sender in (up, down):
            sender.send(b"secret")
        for link in (listener, connector):
            assert link.peers() == []
            assert link.stats()["received"] == {}
        if cell.repair is None:
            return
        assert at_listener is not None
        assert at_connector is not None
        cell.repair(at_listener, at_connector)
        wait_until(lambda: connector.peers() and listener.peers())
        connector.wait_ready()
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")
