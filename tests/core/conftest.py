"""A reception with a transport that keeps what it is given, and a sender with a peer that repairs."""

import pytest

from tests.core.receiving import OURS, Kept
from tests.core.sending import RETENTION, TRANSIT, WINDOW
from twinlink.engine.dispatch import Reception
from twinlink.events import Event
from twinlink.protocol.send.congestion import Budget
from twinlink.protocol.send.flow import Outgoing


@pytest.fixture
def transport() -> Kept:
    return Kept()


@pytest.fixture
def reported() -> list[Event]:
    return []


@pytest.fixture
def reception(transport: Kept, reported: list[Event]) -> Reception:
    return Reception(transport, "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)


@pytest.fixture
def core() -> Outgoing:
    core = Outgoing("flow", WINDOW, RETENTION, Budget(TRANSIT))
    core.peer_up(1, repairs=True)
    return core
