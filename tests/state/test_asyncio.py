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
            twin.state("cells").desire("cell-1", b"1", expires_s=1000)
            changes = gnb.changes("cells")
            async with asyncio.timeout(patience()):
                async for change in changes:
                    seen.append((change.what, change.key))
                    if change.what == "expired":
                        break
                    if len(seen) == 1:
                        twin.state("cells").desire("cell-1", b"1", expires_s=0.5)
            assert await changes.receive(0) is None
        return seen

    first, *renewed, last = asyncio.run(main())
    assert (first, last) == (("set", "cell-1"), ("expired", "cell-1"))
    assert renewed in ([], [("set", "cell-1")])  # it may have ended by the time it comes
