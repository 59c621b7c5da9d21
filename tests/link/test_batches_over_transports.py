"""Batches over the transports: `Sender.send_many` and `Receiver.receive_many`."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import twinlink
from tests.link.coroutine_pair import both, pair, run
from twinlink.recording import verify
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName

each = pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh", "websocket", "tcp"])
COUNT = 5000


@each
def test_batches_and_single_messages_arrive_in_order_each_with_its_number(transport: TransportName) -> None:
    at = free_endpoint()
    payloads = [b"%d" % number * (number % 40) for number in range(COUNT)]
    payloads[COUNT // 2] = bytes(300_000)  # in between, in a frame of its own
    with twinlink.open(transport, listen=at) as far, twinlink.open(transport, connect=at, send_timeout=30) as near:
        receiver, sender = far.receiver("flow"), near.sender("flow")
        near.wait_ready(patience())
        numbers = [sender.send(payloads[0])]
        for first, end in ((1, 2), (2, 10), (10, 11), (11, 4000), (4000, COUNT)):
            run = sender.send_many(payloads[first:end])
            assert run == range(first, end)
            numbers += run
        got: list[Any] = []
        while len(got) < COUNT:
            batch = receiver.receive_many(700, patience())
            assert 0 < len(batch) <= 700
            got += [
                (int(number), bytes(payload)) for number, payload in zip(batch.sequence, batch.payloads, strict=True)
            ]
            assert (batch.epoch == near.epoch).all()
            assert (batch.received_ns > 0).all()
            assert (batch.sent_ns > 0).all()
            assert batch[0].sequence == batch.sequence[0]
        assert got == list(enumerate(payloads))
        sender.flush(patience())
        counters = sender.stats()
        assert counters["sent"] == counters["acknowledged"] == COUNT
        assert counters["sent_octets"] == sum(map(len, payloads))
        assert counters["outstanding"] == counters["lost"] == 0
        assert not receiver.receive_many(10, timeout=0)


@each
def test_of_an_array_each_row_is_a_message(transport: TransportName) -> None:
    at, samples = free_endpoint(), np.arange(1000 * 25, dtype=np.float32).reshape(1000, 25)
    with twinlink.open(transport, listen=at) as far, twinlink.open(transport, connect=at) as near:
        receiver, sender = far.receiver("flow"), near.sender("flow")
        near.wait_ready(patience())
        assert sender.send_many(samples) == range(1000)
        rows: list[Any] = []
        while sum(map(len, rows)) < 1000:
            rows.append(receiver.receive_many(timeout=patience()).rows(np.float32))
        assert (np.concatenate(rows) == samples).all()
        assert sender.send_many(np.zeros((3, 2, 4), np.int16)) == range(1000, 1003)
        assert sender.send_many(np.zeros((2, 0))) == range(1003, 1005)
        assert sender.send_many(np.zeros((0, 7))) == sender.send_many([]) == range(0)
        sizes = [len(receiver.receive(patience()).payload) for _ in range(5)]  # type: ignore[union-attr]
        assert sizes == [16, 16, 16, 0, 0]


def test_what_is_no_batch_is_refused_before_anything_is_sent(endpoint: str) -> None:
    with twinlink.open("memory", listen=endpoint, max_payload=1000) as link:
        sender = link.sender("flow")
        wrong: list[Any] = [b"one", bytearray(3), memoryview(b"one"), "text", {"a": 1}, np.zeros(3), 7, [b"1", None]]
        for payloads in wrong:
            with pytest.raises(TypeError):
                sender.send_many(payloads)
        with pytest.raises(twinlink.ConfigurationError):
            sender.send_many(np.zeros((4, 4)).T[::2])
        with pytest.raises(twinlink.PayloadTooLarge, match="1001 octets"):
            sender.send_many([b"1", bytes(1001), b"3"])
        assert sender.stats()["sent"] == 0
        for most in (0, -1, 1.5, True, None):
            with pytest.raises(twinlink.ConfigurationError, match="max_messages"):
                link.receiver("flow").receive_many(most)  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["memory", "zeromq"])
def test_a_batch_waits_for_room_and_says_how_much_of_it_was_sent(transport: TransportName) -> None:
    at, payloads = free_endpoint(), [bytes([number % 256]) * 1000 for number in range(3000)]
    with (
        twinlink.open(transport, listen=at, window=2**20, max_payload=2**14) as far,
        twinlink.open(
            transport, connect=at, retention=2**20, window=2**20, max_payload=2**14, send_timeout=0.2
        ) as near,
    ):
        receiver, sender = far.receiver("flow"), near.sender("flow")
        near.wait_ready(patience())
        with pytest.raises(twinlink.SendTimeout, match=r"of 3000 messages were sent") as raised:
            sender.send_many(payloads)
        sent = raised.value.sent
        assert 0 < sent < 3000
        assert sender.stats()["sent"] == sent
        assert sender.stats()["sent_octets"] == 1000 * sent
        got: list[bytes] = []

        def take() -> None:
            while len(got) < 3000:
                got.extend(map(bytes, receiver.receive_many(100, patience()).payloads))

        taking = threading.Thread(target=take)
        taking.start()
        while sent < 3000:  # on a machine that is busy, 0.2 s may pass again
            try:
                assert sender.send_many(payloads[sent:]) == range(sent, 3000)
                sent = 3000
            except twinlink.SendTimeout as error:
                sent += error.sent
        taking.join(patience())
        assert got == payloads
        sender.flush(patience())


def test_batches_of_several_threads_mix_and_nothing_is_lost(endpoint: str) -> None:
    with (
        twinlink.open("memory", listen=endpoint) as far,
        twinlink.open("memory", connect=endpoint, send_timeout=30, retention=2**20) as near,
    ):
        got: list[tuple[int, bytes]] = []
        far.receiver("flow", handler=lambda message: got.append((message.sequence, bytes(message.payload))))
        near.wait_ready(patience())
        sender, sent = near.sender("flow"), dict[int, bytes]()

        def send(thread: int) -> None:
            for batch in range(5):
                payloads = [b"%d %d %d" % (thread, batch, number) for number in range(3000)]
                sent.update(zip(sender.send_many(payloads), payloads, strict=True))

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience(60))
        sender.flush(patience(60))
        assert sorted(sent.items()) == got


@both
def test_batches_on_an_event_loop(transport: TransportName) -> None:
    async def test() -> None:
        async with pair(transport, retention=2**20) as (twin, gnb):
            sender, receiver = gnb.sender("flow"), twin.receiver("flow")
            payloads = [b"%d" % number for number in range(COUNT)]
            sending = asyncio.create_task(sender.send_many(payloads))
            got: list[bytes] = []
            while len(got) < COUNT:
                batch = await receiver.receive_many(timeout=patience())
                assert batch
                got += map(bytes, batch.payloads)
            assert got == payloads
            assert await sending == range(COUNT)
            assert not await receiver.receive_many(5, timeout=0.01)
            await sender.flush(patience())

    run(test())


def test_a_recording_has_every_message_of_a_batch(endpoint: str, tmp_path: Any) -> None:
    with twinlink.open("memory", listen=endpoint) as far, twinlink.open("memory", connect=endpoint) as near:
        receiver, sender = far.receiver("flow"), near.sender("flow")
        near.wait_ready(patience())
        with near.record(tmp_path / "near.mcap"):
            sender.send_many([b"%d" % number for number in range(500)])
            sender.flush(patience())
        assert len(receiver.receive_many(500, patience())) == 500
    report = verify(tmp_path / "near.mcap")
    assert report.complete
    assert [stream["recorded"] for stream in report.streams] == [[[0, 500]]]


WITHOUT_NUMPY = """
import sys, twinlink
at = sys.argv[1]
with twinlink.open("memory", listen=at) as far, twinlink.open("memory", connect=at) as near:
    receiver = far.receiver("flow")
    near.wait_ready(30)
    near.sender("flow").send_many([b"1", b"2"])
    got = []
    while len(got) < 2:
        got += receiver.receive_many(timeout=30).payloads
    assert got == [b"1", b"2"] and "numpy" not in sys.modules, got
    print(receiver.receive_many(timeout=0).sequence.dtype)
"""


def test_numpy_is_loaded_only_where_its_arrays_are_asked_for(endpoint: str) -> None:
    command = [sys.executable, "-c", WITHOUT_NUMPY, endpoint]
    assert subprocess.check_output(command, text=True, timeout=patience(60)) == "uint64\n"
