"""Two links on one event loop."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import twinlink
from twinlink.aio import AsyncLink
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName

both = pytest.mark.parametrize("transport", ["zeromq", "zenoh"])


@asynccontextmanager
async def pair(transport: TransportName, **options: Any) -> AsyncIterator[tuple[AsyncLink, AsyncLink]]:
    """A listener and a connector that are up."""
    at = free_endpoint()
    async with (
        twinlink.open_async(transport, listen=at, node="twin", **options) as twin,
        twinlink.open_async(transport, connect=at, node="gnb", **options) as gnb,
    ):
        await asyncio.gather(twin.wait_ready(patience()), gnb.wait_ready(patience()))
        yield twin, gnb


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, patience(60)))
