"""A reception with a transport that keeps what it is given, and a sender with a peer that repairs."""

import pytest

from tests.core.pair import Outlet
from tests.core.receiving import OURS, driver_on
from tests.core.sending import RETENTION, TRANSIT, WINDOW
from twinlink.events import Event
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.runtime.driver import SessionDriver


@pytest.fixture
def transport() -> Outlet:
    return Outlet()


@pytest.fixture
def reported() -> list[Event]:
    return []


@pytest.fixture
def driver(transport: Outlet, reported: list[Event]) -> SessionDriver:
    return driver_on(transport, "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)


@pytest.fixture
def core() -> SendFlow:
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT))
    core.on_peer_up(1, repairs=True)
    return core
