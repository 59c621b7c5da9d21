"""Links on an asyncio event loop."""

import asyncio
import selectors
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.link.coroutine_pair import both, pair, run
from twinlink.recording import verify
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName

EXAMPLES = Path(__file__).parents[2] / "examples"
WINDOW = 1024 * 1024
PARTS = ("-heartbeat", "-transmit")  # threads of a link, beside the one that receives


@both
def test_messages_go_both_ways_and_are_acknowledged(transport: TransportName) -> None:
    async def test() -> None:
        async with pair(transport) as (twin, gnb):
            spectrum, decisions = gnb.sender("spectrum"), twin.sender("decisions")
            received, answers = twin.receiver("spectrum"), gnb.receiver("decisions")

            async def answer() -> None:
                async for message in received:
                    await decisions.send(message.payload)

            answering = asyncio.create_task(answer())
            for number in range(200):
                assert await spectrum.send(b"%d" % number) == number
            got = [await answers.receive(patience()) for _ in range(200)]
            assert [bytes(message.payload) for message in got if message] == [b"%d" % number for number in range(200)]
            await spectrum.flush(patience())
            assert spectrum.sender.stats()["acknowledged"] == 200
            up = twin.events()
            assert isinstance(await up.receive(patience()), twinlink.PeerUp)
            answering.cancel()

    run(test())


@both
def test_a_receive_that_is_cancelled_loses_nothing(transport: TransportName) -> None:
    """At every point where it may be cancelled: before it waits, while it does, and when the message has come."""

    async def test() -> None:
        async with pair(transport) as (twin, gnb):
            sender, receiver = gnb.sender("spectrum"), twin.receiver("spectrum")
            received: list[int] = []
            cancelled = 0

            async def take() -> None:
                message = await receiver.receive()
                if message is not None:
                    received.append(message.sequence)

            async def send() -> None:
                for _ in range(300):
                    await sender.send(b"")
                    await asyncio.sleep(0.001)

            sending = asyncio.create_task(send())
            for turns in range(100_000):
                taking = asyncio.create_task(take())
                for _ in range(turns % 4):
                    await asyncio.sleep(0.0005 * (turns % 3))
                taking.cancel()
                await asyncio.wait([taking])
                cancelled += taking.cancelled()
                if len(received) == 300:
                    break
            await sending
            assert received == list(range(300))
            assert cancelled > 10

    run(test())


def test_tasks_that_share_a_receiver_get_each_message_once() -> None:
    async def test() -> None:
        async with pair("zeromq") as (twin, gnb):
            sender, receiver = gnb.sender("spectrum"), twin.receiver("spectrum")
            received: list[int] = []

            async def take() -> None:
                async for message in receiver:
                    received.append(message.sequence)

            taking = [asyncio.create_task(take()) for _ in range(3)]
            for _ in range(100):
                await sender.send(b"")
            while len(received) < 100:
                await asyncio.sleep(0.01)
            await twin.close()
            await asyncio.wait_for(asyncio.gather(*taking), patience())  # closing ends the iteration
            assert received == list(range(100))

    run(test())


def test_send_to_a_full_flow_holds_up_neither_the_event_loop_nor_its_cancellation() -> None:
    async def test() -> None:
        async with pair("zeromq", window=WINDOW, retention=WINDOW, send_timeout=0.3) as (twin, gnb):
            sender, receiver = gnb.sender("spectrum"), twin.receiver("spectrum")  # which reads nothing

            async def fill() -> None:
                while True:
                    await sender.send(bytes(WINDOW // 8))

            with pytest.raises(twinlink.SendTimeout, match="spectrum"):
                await fill()
            sent = sender.sender.stats()["sent"]
            waiting = asyncio.create_task(sender.send(bytes(WINDOW // 8)))
            await asyncio.sleep(0)  # returns while the other task waits for room
            await asyncio.sleep(0.01)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert sender.sender.stats()["sent"] == sent
            waiting = asyncio.create_task(sender.send(bytes(WINDOW // 8)))
            while not waiting.done():  # a reader makes room
                await receiver.receive(0.01)
            assert await waiting == sent

    run(test())


def test_an_event_loop_that_waits_is_not_woken_and_no_thread_is_added() -> None:
    class Counting(selectors.DefaultSelector):
        calls = 0

        def select(self, timeout: float | None = None) -> Any:
            self.calls += 1
            return super().select(timeout)

    counting = Counting()

    async def test() -> None:
        before = set(threading.enumerate())
        async with pair("memory") as (twin, _):
            receiver = twin.receiver("spectrum")
            waiting = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0.05)
            calls = counting.calls
            await asyncio.sleep(0.5)  # ten hellos come meanwhile
            assert counting.calls - calls <= 2
            names = {thread.name for thread in set(threading.enumerate()) - before if "twinlink-" in thread.name}
            assert names == {f"twinlink-{node}{part}" for node in ("twin", "gnb") for part in ("", *PARTS)}
            waiting.cancel()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(counting)) as runner:
        runner.run(test())


def test_without_a_peer_it_says_so_and_a_closed_link_is_closed() -> None:
    async def test() -> None:
        async with twinlink.open_async("zeromq", connect=free_endpoint(), node="gnb") as link:
            with pytest.raises(twinlink.PeerTimeout, match=r"no peer within 0\.05 s"):
                await link.wait_ready(0.05)
            sender, receiver = link.sender("spectrum"), link.receiver("spectrum")
            await sender.send(b"")
            with pytest.raises(twinlink.AckTimeout):
                await sender.flush(0.01)
            assert await receiver.receive(0.01) is None
        with pytest.raises(twinlink.LinkClosed):
            await link.wait_ready(0.05)
        with pytest.raises(twinlink.LinkClosed):
            await sender.send(b"")
        assert await receiver.receive() is None
        assert [message async for message in receiver] == []

    run(test())


@both
def test_an_open_that_is_cancelled_leaves_no_link_behind(transport: TransportName) -> None:
    async def open_and_stay(at: str) -> None:
        async with twinlink.open_async(transport, listen=at):
            await asyncio.Event().wait()

    async def test() -> None:
        for turns in range(5):
            at = free_endpoint()
            opening = asyncio.create_task(open_and_stay(at))
            for _ in range(turns):
                await asyncio.sleep(0.0005 * turns)
            opening.cancel()
            await asyncio.wait([opening])
            assert opening.cancelled()
            while True:  # the endpoint is given back
                try:
                    await asyncio.wait_for(open_and_stay(at), 0.2)
                except twinlink.TransportError:
                    await asyncio.sleep(0.01)
                except TimeoutError:
                    break

    run(test())


def test_its_link_is_recorded_until_it_is_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with pair("zeromq") as (twin, gnb):
            twin.receiver("x")
            recorder = gnb.record(tmp_path / "gnb.mcap", flows=["x"])
            sender = gnb.sender("x")
            for number in range(5):
                await sender.send(bytes([number]))
            await sender.flush(patience())
        assert recorder.closed

    run(test())
    report = verify(tmp_path / "gnb.mcap")
    assert report.complete
    assert [stream["recorded"] for stream in report.streams] == [[[0, 5]]]


def test_the_example_reads_what_the_example_of_a_gnb_sends(endpoint: str, tmp_path: Path) -> None:
    running = []
    for name in ("asyncio_twin", "gnb"):
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        path = tmp_path / f"{name}.py"
        text = text.replace("tcp/127.0.0.1:7447", endpoint).replace("timeout=60", f"timeout={patience()}")
        path.write_text(text.replace("3000", "100").replace("2999", "99"))
        running.append(subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True))
    try:
        said = [process.communicate(timeout=patience())[0].splitlines() for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0, 0]
    assert len(said[0]) == 100
