"""What a call that waits takes for its ``timeout``."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from decimal import Decimal

import pytest

import twinlink
from twinlink.testing import free_endpoint, patience


@pytest.mark.parametrize("timeout", ["5", b"5", -1, True, Decimal(1), (1,)])
def test_what_is_no_number_of_seconds_is_refused_also_where_there_is_nothing_to_wait_for(timeout: object) -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint) as receiving,
        twinlink.open("memory", connect=endpoint) as sending,
    ):
        sending.wait_ready(patience())
        sender, receiver = sending.sender("d"), receiving.receiver("d")
        sender.send(b"which is there")
        sender.flush(patience())
        calls: list[Callable[..., object]] = [
            sending.wait_ready, sender.flush, receiver.receive, receiving.events().receive,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(twinlink.ConfigurationError, match="timeout must be seconds from 0 up, or None"):
                call(timeout)
        assert receiver.receive(0) is not None


def test_a_time_that_has_just_passed_is_no_mistake() -> None:
    """As of a loop that receives until a deadline."""
    with twinlink.open("memory", listen=free_endpoint()) as link:
        assert link.receiver("d").receive(-0.001) is None
        assert link.events().receive(-0.001) is None


def test_coroutines_refuse_the_same() -> None:
    async def wrong() -> None:
        async with twinlink.open_async("memory", listen=free_endpoint()) as link:
            calls: list[Callable[..., Awaitable[object]]] = [
                link.wait_ready, link.sender("d").flush, link.receiver("d").receive,
            ]  # fmt: skip
            for call in calls:
                for timeout in ("5", -1, math.nan):
                    with pytest.raises(twinlink.ConfigurationError, match="timeout"):
                        await call(timeout)

    asyncio.run(wrong())
