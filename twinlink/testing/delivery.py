"""Messages arrive as they were sent, and the sender learns it."""

# ruff: noqa: D102  (a test's name is its sentence)

import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twinlink
from twinlink.protocol.frames import MAX_PAYLOAD
from twinlink.protocol.session import Reliability

from .base import (
    Conformance,
    MakeForeign,
    Open,
    Pair,
    drain,
    in_thread,
    patience,
    receive_all,
    wait_for_event,
    wait_until,
)

ORDER_EVENTS = (twinlink.Gap, twinlink.Duplicate, twinlink.Reordered, twinlink.Lost, twinlink.Malformed)
SIZES = (0, 1, 31, 32, 33, 1023, 8191, 8192, 65503, 65504, 65536, 1_000_003, MAX_PAYLOAD - 1, MAX_PAYLOAD)


class Delivery(Conformance):
    """Payloads, limits, flows, order, both directions, bursts."""

    def test_payloads_of_every_size_arrive_identical(self, pair: Pair) -> None:
        first, second = pair
        inbox, outbox = second.receiver("sizes"), first.sender("sizes")
        sent = [random.Random(size).randbytes(size) for size in SIZES]
        for number, payload in enumerate(sent):
            assert outbox.send(payload) == number
        outbox.flush(patience())
        messages = receive_all(inbox, len(SIZES))
        assert [len(message.payload) for message in messages] == list(SIZES)
        assert all(bytes(message.payload) == payload for message, payload in zip(messages, sent, strict=True))
        assert [message.sequence for message in messages] == list(range(len(SIZES)))
        assert {(message.flow, message.node, message.epoch) for message in messages} == {
            ("sizes", "first", first.epoch)
        }

    def test_payloads_of_every_type_arrive_identical(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        inbox, outbox = second.receiver("types"), first.sender("types")
        samples = (np.arange(24) * (1 + 1j)).astype(np.complex64).reshape(2, 3, 4)
        payloads: list[Any] = [
            b"octets",
            bytearray(b"octets"),
            memoryview(b"octets")[1:4],
            memoryview(bytes(8)).cast("H"),
            samples,
            samples.data,
            samples[:0],
            np.array(7, dtype=">i2"),
            np.zeros(3, dtype=[("re", "<i2"), ("im", "<i2")]),
            np.zeros(3, dtype=[("O", "<i2"), ("RO-O", "<f4", (2,))]),
        ]
        for payload in payloads:
            outbox.send(payload)
        received = [bytes(message.payload) for message in receive_all(inbox, len(payloads))]
        assert received == [memoryview(payload).tobytes() for payload in payloads]
        for objects in (np.array([None]), np.zeros(1, dtype=[("number", "<i2"), ("object", "O")])):
            with pytest.raises(TypeError, match="Python objects"):
                outbox.send(objects)

    def test_a_payload_may_be_changed_after_send(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        inbox, outbox = second.receiver("reused"), first.sender("reused")
        buffer = bytearray(100_000)
        for value in range(20):
            buffer[:] = bytes([value]) * len(buffer)
            outbox.send(buffer)
        assert [set(bytes(message.payload)) for message in receive_all(inbox, 20)] == [{value} for value in range(20)]

    def test_batches_arrive_as_single_messages_do(self, pair: Pair) -> None:
        first, second = pair
        inbox, outbox = second.receiver("batches"), first.sender("batches")
        payloads = [bytes([number % 251]) * (number % 90) for number in range(2000)]
        assert outbox.send_many(payloads[:1200]) == range(1200)
        assert outbox.send(payloads[1200]) == 1200
        assert outbox.send_many(payloads[1201:]) == range(1201, 2000)
        got: list[twinlink.Message] = []
        while len(got) < 2000 and (batch := inbox.receive_many(500, patience())):
            got += batch
        assert [(message.sequence, bytes(message.payload)) for message in got] == list(enumerate(payloads))
        outbox.flush(patience())
        assert outbox.stats()["acknowledged"] == 2000

    def test_what_cannot_be_sent_is_refused_and_the_link_goes_on(self, opening: Open) -> None:
        first, second = self.ready_pair(opening, max_payload=100_000)
        inbox, outbox = second.receiver("flow"), first.sender("flow")
        with pytest.raises(twinlink.PayloadTooLarge, match=r"100001 octets .* open both sides with a greater"):
            outbox.send(bytes(100_001))
        with pytest.raises(twinlink.ConfigurationError, match="contiguous"):
            outbox.send(np.zeros((4, 4))[:, ::2])
        with pytest.raises(TypeError, match="a payload cannot be of type float"):
            outbox.send(3.5)  # type: ignore[arg-type]
        assert outbox.send(bytes(100_000)) == 0
        outbox.flush(patience())
        assert len(receive_all(inbox, 1)[0].payload) == 100_000

    def test_what_one_peer_does_not_take_is_lost_to_that_peer_only(self, opening: Open) -> None:
        first = opening("listen")
        large, outbox = opening("connect", node="large").receiver("flow"), first.sender("flow")
        small = opening("connect", node="small", max_payload=100_000)
        inbox = small.receiver("flow")
        wait_until(lambda: len(first.peers()) == 2)
        assert [outbox.send(bytes(size)) for size in (100, 100_001, 100_000)] == [0, 1, 2]
        assert [message.sequence for message in receive_all(large, 3)] == [0, 1, 2]
        assert [message.sequence for message in receive_all(inbox, 2)] == [0, 2]
        lost = wait_for_event(first, twinlink.Lost)
        assert (lost.first, lost.end, lost.peers) == (1, 2, ("small",))
        gap = wait_for_event(small, twinlink.Gap)
        assert (gap.first, gap.end) == (1, 2)

    def test_what_no_peer_takes_is_refused(self, opening: Open) -> None:
        first, small = opening("listen"), opening("connect", node="small", max_payload=100_000)
        inbox, outbox = small.receiver("flow"), first.sender("flow")
        wait_until(lambda: first.peers() == ["small"])
        with pytest.raises(twinlink.PayloadTooLarge, match="small takes at most 100000"):
            outbox.send(bytes(100_001))
        assert outbox.send(bytes(100_000)) == 0
        assert len(receive_all(inbox, 1)[0].payload) == 100_000

    @pytest.mark.parametrize("reliability", ["repair", "detect"])
    def test_what_a_receiver_does_not_take_is_rejected_and_named_at_both_ends(
        self, opening: Open, reliability: Reliability
    ) -> None:
        first, second = self.ready_pair(opening)
        inbox, other = second.receiver("short", max_payload=1000), second.receiver("long")
        outbox = first.sender("short", reliability=reliability)
        sizes = (1000, 1001, 2_000_000, 0)  # the third leaves in fragments
        for size in sizes:
            outbox.send(bytes(size))
            first.sender("long").send(bytes(size))
        assert [(message.sequence, len(message.payload)) for message in receive_all(inbox, 2)] == [(0, 1000), (3, 0)]
        assert [len(message.payload) for message in receive_all(other, 4)] == list(sizes)
        for link, kind in ((first, twinlink.Lost), (second, twinlink.Unclaimed)):
            named: list[int] = []
            while len(named) < 2:
                event = wait_for_event(link, kind)
                assert event.flow == "short"
                named += range(event.first, event.end)
            assert named == [1, 2]
        assert second.stats()["limits_exceeded"]["max_payload"] >= 2
        assert outbox.stats()["lost"] == 2

    def test_what_a_silent_peer_does_not_take_reaches_the_others(self, opening: Open, foreign: MakeForeign) -> None:
        first = opening("listen")
        inbox, outbox = opening("connect", node="large").receiver("flow"), first.sender("flow")
        small = foreign(node="small")
        small.repairs, small.max_payload = True, 100_000
        small.meet(first)
        wait_until(lambda: first.peers() == ["large"])
        assert outbox.send(bytes(100_001)) == 0
        assert len(receive_all(inbox, 1)[0].payload) == 100_001
        assert wait_for_event(first, twinlink.Lost).peers == ("small",)

    def test_a_small_limit_still_lets_hellos_and_acks_through(self, opening: Open) -> None:
        first, second = self.ready_pair(opening, max_payload=10)
        inbox, outbox = second.receiver("flow"), first.sender("flow")
        for _ in range(500):
            outbox.send(bytes(10))
        outbox.flush(patience())
        receive_all(inbox, 500)

    def test_flows_never_mix(self, pair: Pair) -> None:
        first, second = pair
        names = ["a", "ab", "a.b", "a-b", "abc", "A", "a_", "0", "x" * 63]
        inboxes = {name: second.receiver(name) for name in names}
        outboxes = {name: first.sender(name) for name in names}
        for number in range(50):
            for name in names:
                outboxes[name].send(f"{name} {number}".encode())
        for name in names:
            messages = receive_all(inboxes[name], 50)
            assert [bytes(m.payload).decode() for m in messages] == [f"{name} {number}" for number in range(50)]
            assert {message.flow for message in messages} == {name}
            outboxes[name].flush(patience())
        assert drain(second, *ORDER_EVENTS) == []

    def test_messages_of_an_unclaimed_flow_are_held(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        for number in range(100):
            first.sender("later").send(bytes([number]))
        first.sender("later").flush(patience())
        assert [message.payload[0] for message in receive_all(second.receiver("later"), 100)] == list(range(100))

    def test_both_directions_at_once(self, pair: Pair) -> None:
        count = 3000
        sizes = [random.Random(number).choice((0, 10, 1000, 20_000)) for number in range(count)]

        def send(link: twinlink.Link) -> None:
            for number, size in enumerate(sizes):
                link.sender("traffic").send(number.to_bytes(4) + bytes(size))
            link.sender("traffic").flush(patience())

        def receive(link: twinlink.Link) -> list[int]:
            return [int.from_bytes(m.payload[:4]) for m in receive_all(link.receiver("traffic"), count)]

        senders = [in_thread(lambda link=link: send(link)) for link in pair]  # type: ignore[misc]
        receivers = [in_thread(lambda link=link: receive(link)) for link in pair]  # type: ignore[misc]
        assert [receiver.result() for receiver in receivers] == [list(range(count))] * 2
        for sender in senders:
            sender.result()
        for link in pair:
            assert drain(link, *ORDER_EVENTS) == []
            sent, received = self.plain(link)["sent"]["traffic"], self.plain(link)["received"]["traffic"]
            assert (sent["sent"], sent["acknowledged"], sent["lost"], sent["outstanding"]) == (count, count, 0, 0)
            assert (received["received"], received["missing"], received["duplicates"]) == (count, 0, 0)

    def test_a_burst_of_1000_times_100_kb_loses_nothing(self, opening: Open, role: str) -> None:
        if available_octets() < 2 * 1024**3:
            pytest.skip("less than 2 GiB of memory available")
        first, second = self.ready_pair(opening, role, send_timeout=patience())  # more than the window: send may block
        outbox = first.sender("burst")
        payload = random.Random(0).randbytes(100_000)
        for number in range(1000):
            outbox.send(number.to_bytes(4) + payload[4:])
        outbox.flush(patience())
        messages = receive_all(second.receiver("burst"), 1000)  # claimed only now: everything was held
        assert [int.from_bytes(message.payload[:4]) for message in messages] == list(range(1000))
        assert all(message.payload[4:] == payload[4:] for message in messages)
        assert drain(first, *ORDER_EVENTS) + drain(second, *ORDER_EVENTS) == []


class Acks(Conformance):
    """Every message is acknowledged; missing ones are named."""

    def test_every_message_is_acknowledged_with_four_timestamps(self, pair: Pair) -> None:
        first, second = pair
        acks: list[twinlink.Ack] = []
        outbox, inbox = first.sender("flow", on_ack=acks.append), second.receiver("flow")
        for number in range(1000):
            outbox.send(bytes(number))
        outbox.flush(patience())
        assert [ack.sequence for ack in acks] == list(range(1000))
        messages = receive_all(inbox, 1000)
        for ack, message in zip(acks, messages, strict=True):
            assert ack.sent_ns == message.sent_ns
            late = ack.peer_received_ns == ack.peer_sent_ns  # on a busy machine some are late
            assert late or ack.peer_received_ns == message.received_ns
            assert ack.sent_ns <= ack.peer_received_ns <= ack.peer_sent_ns <= ack.received_ns  # one host, one clock
            assert ack.rtt_ns > 0
            assert (ack.epoch, ack.flow) == (second.epoch, "flow")
        stats = self.plain(first)["sent"]["flow"]
        delays = stats["peers"][f"{second.epoch:016x}"]
        assert (stats["sent"], stats["acknowledged"], stats["lost"]) == (1000, 1000, 0)
        measured = [ack.rtt_ns for ack in acks if ack.peer_received_ns != ack.peer_sent_ns]
        found = delays["rtt_ns"]
        assert (found["n"], found["min"], found["max"]) == (len(measured), min(measured), max(measured))
        assert abs(delays["clock_offset_ns"]["offset"]) <= delays["clock_offset_ns"]["bound"]

    def test_flush_waits_until_on_ack_has_been_called_for_all(self, pair: Pair) -> None:
        """Also while a handler waits: acks that come meanwhile are reported afterwards."""
        first, second = pair
        second.receiver("flow", handler=lambda _: None)
        elsewhere = first.receiver("elsewhere")
        acked: list[int] = []

        def on_ack(ack: twinlink.Ack) -> None:
            if not acked:
                elsewhere.receive(timeout=0.05)
            time.sleep(0.012)
            acked.append(ack.sequence)

        outbox = first.sender("flow", on_ack=on_ack)
        for _ in range(10):
            outbox.send(b"")
            time.sleep(0.002)
        outbox.flush(patience())
        assert sorted(acked) == list(range(10))

    def test_flush_does_not_wait_for_an_on_ack_that_was_cut_off(self, pair: Pair) -> None:
        """By Ctrl-C, or by leaving with SystemExit."""
        first, second = pair
        second.receiver("flow", handler=lambda _: None)
        begun = threading.Event()

        def on_ack(_: twinlink.Ack) -> None:
            begun.set()
            raise KeyboardInterrupt

        outbox = first.sender("flow", on_ack=on_ack)
        outbox.send(b"")
        with contextlib.suppress(KeyboardInterrupt):
            outbox.flush(patience())
        assert begun.wait(patience())
        began = time.monotonic()
        outbox.flush(patience())
        assert time.monotonic() - began < patience() / 2

    def test_a_round_trip_is_no_shorter_than_the_way_there(self, pair: Pair) -> None:
        first, second = pair
        acks: list[twinlink.Ack] = []
        outbox = first.sender("flow", on_ack=acks.append)
        second.receiver("flow", handler=lambda _: None)
        for _ in range(100):
            outbox.send(bytes(1_000_000))  # takes long to copy
            outbox.flush(patience())
        assert [ack.sequence for ack in acks if ack.rtt_ns < ack.peer_received_ns - ack.sent_ns] == []

    def test_come_before_a_handler_takes_its_time(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        turn, running = threading.Semaphore(0), threading.Semaphore(0)

        def handle(message: twinlink.Message) -> None:
            if message.sequence % 3 == 0:
                running.release()
                turn.acquire(timeout=patience())

        outbox = first.sender("flow")
        second.receiver("flow", handler=handle)
        outbox.send(b"")
        for _ in range(20):
            assert running.acquire(timeout=patience())
            wait_until(lambda: outbox.stats()["outstanding"] == 0)
            for _ in range(3):
                outbox.send(b"")
                time.sleep(0.002)  # they leave one by one, and are all there when the handler returns
            turn.release()
        assert running.acquire(timeout=patience())
        turn.release()

    def test_one_at_a_time(self, pair: Pair) -> None:
        first, second = pair
        outbox, inbox = first.sender("flow"), second.receiver("flow")
        for number in range(300):
            outbox.send(b"x")
            outbox.flush(patience())
            message = inbox.receive(timeout=patience())
            assert message is not None
            assert message.sequence == number

    def test_flush_names_messages_sent_without_a_peer(self, opening: Open, role: str) -> None:
        outbox = opening(role).sender("flow")
        for _ in range(3):
            outbox.send(b"")
        with pytest.raises(twinlink.AckTimeout, match="0-2") as caught:
            outbox.flush(0.01)
        assert caught.value.missing == ((0, 3),)
        outbox.flush(0.01)  # reported once
        assert outbox.stats()["lost"] == 3

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_flush_does_not_wait_for_what_is_sent_later(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        peer = foreign()
        peer.meet(link)
        outbox = link.sender("flow")
        outbox.send(b"before")
        flushing = in_thread(lambda: outbox.flush(patience()))
        wait_until(lambda: link._leader_follower._waiting or link._leader_follower.followers)
        outbox.send(b"after")
        peer.ack(link, "flow", 1, 0)
        flushing.result()
        assert outbox.stats()["outstanding"] == 1

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_flush_names_the_ranges_that_are_outstanding(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        peer = foreign()
        peer.meet(link)
        outbox = link.sender("flow")
        for _ in range(6):
            outbox.send(b"")
        peer.ack(link, "flow", 0, 1, 2, 4)
        wait_until(lambda: outbox.stats()["acknowledged"] == 3)
        with pytest.raises(twinlink.AckTimeout) as caught:
            outbox.flush(0.05)
        assert caught.value.missing == ((0, 1), (3, 4), (5, 6))
        peer.ack(link, "flow", 5, 5)  # skips 0 and 3
        wait_until(lambda: outbox.stats()["outstanding"] == 0)
        assert [(lost.first, lost.end) for lost in drain(link, twinlink.Lost)] == [(0, 1), (3, 4)]
        with pytest.raises(twinlink.AckTimeout) as caught:
            outbox.flush(0.05)
        assert caught.value.missing == ((0, 1), (3, 4))


def available_octets() -> int:
    """Memory available without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
