"""A reception with a transport that keeps what it is given."""

import pytest

from tests.core.receiving import OURS, Kept
from twinlink.events import Event
from twinlink.reception import Reception


@pytest.fixture
def transport() -> Kept:
    return Kept()


@pytest.fixture
def reported() -> list[Event]:
    return []


@pytest.fixture
def reception(transport: Kept, reported: list[Event]) -> Reception:
    return Reception(transport, "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)
