"""States on an asyncio event loop."""

import asyncio

import twinlink
from twinlink.testing import free_endpoint, patience


def test_changes_are_awaited_and_expire_while_the_loop_goes_on() -> None:
    at = free_endpoint()

    async def main() -> list[tuple[str, str]]:
        seen = list[tuple[str, str]]()
        async with (
            twinlink.open_async("zeromq", listen=at, node="twin") as twin,
            twinlink.open_async("zeromq", connect=at, node="gnb") as gnb,
        ):
            await gnb.wait_ready(patience())
            twin.state("cells").desire("cell-1", b"1", expires_s=0.5)
            changes = gnb.changes("cells")
            async with asyncio.timeout(patience()):
                async for change in changes:
                    seen.append((change.what, change.key))
                    if change.what == "expired":
                        break
            assert await changes.receive(0) is None
        return seen

    assert asyncio.run(main()) == [("set", "cell-1"), ("expired", "cell-1")]
