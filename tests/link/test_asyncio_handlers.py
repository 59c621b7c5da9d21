"""Links on an event loop that outlive a coroutine, and handlers that are called on the event loop."""

import asyncio
import threading
from typing import Any

import pytest

import twinlink
from tests.link.coroutine_pair import both, pair, run
from twinlink import aio
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName


async def until(done: Any) -> None:
    async with asyncio.timeout(patience()):
        while not done():
            await asyncio.sleep(0.005)


@both
def test_a_link_goes_on_from_cell_to_cell_of_a_notebook(transport: TransportName) -> None:
    """A notebook runs each cell as a coroutine of its own, on one event loop."""
    at = free_endpoint()

    async def first() -> tuple[aio.AsyncLink, aio.AsyncLink]:
        twin = await twinlink.open_async(transport, listen=at, node="twin")
        gnb = await twinlink.open_async(transport, connect=at, node="gnb")
        await asyncio.gather(twin.wait_ready(patience()), gnb.wait_ready(patience()))
        return twin, gnb

    async def second(gnb: aio.AsyncLink) -> None:
        await gnb.sender("telemetry").send({"snr_db": 21.5})
        await gnb.sender("telemetry").flush(patience())
        assert gnb.sender("telemetry").stats()["acknowledged"] == 1

    async def third(twin: aio.AsyncLink) -> None:
        message = await twin.receiver("telemetry").receive(patience())
        assert message is not None
        assert message.json() == {"snr_db": 21.5}
        assert twin.peers() == ["gnb"]
        assert twin.stats()["received"]["telemetry"]["received"] == 1

    async def last(link: aio.AsyncLink) -> None:
        async with link:
            assert not link.closed
        assert link.closed

    with asyncio.Runner() as runner:
        twin, gnb = runner.run(first())
        runner.run(second(gnb))
        runner.run(third(twin))
        runner.run(last(gnb))
        runner.run(last(twin))
    assert twin.link not in twinlink.open_links()


def test_a_link_that_was_not_awaited_says_so() -> None:
    opening: Any = twinlink.open_async("memory", listen=free_endpoint())
    with pytest.raises(AttributeError, match=r"link = await twinlink\.open_async"):
        opening.sender("spectrum")
    assert "await" in repr(opening)


@both
def test_on_ack_is_called_on_the_event_loop_and_flush_waits_for_it(transport: TransportName) -> None:
    async def test() -> None:
        acks: list[twinlink.Ack] = []
        async with pair(transport) as (twin, gnb):
            twin.receiver("spectrum")

            async def on_ack(ack: twinlink.Ack) -> None:
                assert threading.current_thread() is threading.main_thread()
                await asyncio.sleep(0)
                acks.append(ack)

            sender = gnb.sender("spectrum", on_ack=on_ack)
            for _ in range(200):
                await sender.send(b"")
            await sender.flush(patience())
            assert [ack.sequence for ack in acks] == list(range(200))
            gnb.sender("spectrum", on_ack=acks.append)  # takes the place of the other
            await gnb.sender("spectrum").send(b"")
            await sender.flush(patience())
            assert acks[-1].sequence == 200
            assert gnb.stats()["handler_errors"] == 0

    run(test())


def test_handlers_of_messages_and_events_are_called_in_order_and_their_errors_are_events() -> None:
    async def test() -> None:
        answers: list[bytes] = []
        events: list[twinlink.Event] = []
        async with pair("zeromq") as (twin, gnb):
            decisions = twin.sender("decisions")

            async def decide(message: twinlink.Message) -> None:
                if message.sequence == 3:
                    raise ValueError("the handler is wrong")
                await decisions.send(message.payload)

            twin.events(handler=events.append)
            twin.receiver("spectrum", handler=decide)
            gnb.receiver("decisions", handler=lambda message: answers.append(bytes(message.payload)))
            for number in range(10):
                await gnb.sender("spectrum").send(b"%d" % number)
            await until(lambda: len(answers) == 9 and any(isinstance(one, twinlink.HandlerError) for one in events))
            assert answers == [b"%d" % number for number in range(10) if number != 3]
            assert isinstance(events[0], twinlink.PeerUp)
            (error,) = [one for one in events if isinstance(one, twinlink.HandlerError)]
            assert (error.flow, error.error) == ("spectrum", "ValueError('the handler is wrong')")
            assert twin.stats()["handler_errors"] == 1

    run(test())


def test_send_waits_while_on_ack_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "MAX_UNREPORTED_ACKS", 10)

    async def test() -> None:
        may_go_on = asyncio.Event()
        async with pair("zeromq", send_timeout=0.2) as (twin, gnb):
            twin.receiver("spectrum")
            sender = gnb.sender("spectrum", on_ack=lambda ack: may_go_on.wait())

            async def fill() -> None:
                for _ in range(10_000):
                    await sender.send(b"")
                    await asyncio.sleep(0.001)

            with pytest.raises(twinlink.SendTimeout, match="on_ack takes longer"):
                await fill()
            assert sender.stats()["sent"] < 10_000
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sender.flush(patience()), 0.1)  # not all calls have been made
            may_go_on.set()
            await sender.send(b"")
            await sender.flush(patience())

    run(test())


def test_close_leaves_handlers_a_second_and_says_what_was_not_called(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handled: list[int] = []

        async def slow(message: twinlink.Message) -> None:
            await asyncio.sleep(0.01)
            handled.append(message.sequence)

        async with pair("zeromq") as (twin, gnb):
            twin.receiver("spectrum", handler=slow)
            twin.receiver("stuck", handler=lambda message: asyncio.Event().wait())
            for flow, count in (("spectrum", 5), ("stuck", 3)):
                for _ in range(count):
                    await gnb.sender(flow).send(b"")
                await gnb.sender(flow).flush(patience())
            await twin.close()
            assert handled == [0, 1, 2, 3, 4]

    run(test())
    assert "3 calls of handlers have not ended" in caplog.text
