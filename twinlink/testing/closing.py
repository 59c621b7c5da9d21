"""Close from every state within a second, without leaving resources behind."""

# ruff: noqa: D102  (a test's name is its sentence)

import gc
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import twinlink
from twinlink.transports import transport_class

from .base import Conformance, MakeForeign, Open, drain, in_thread, other, patience, receive_all, wait_until

LONG_S = 2 * patience()  # longer than the time-out of a test
LEAVES_WITHOUT_CLOSE = """
import sys, threading, twinlink
transport, endpoint, options, *identities = sys.argv[1], sys.argv[2], eval(sys.argv[3]), *sys.argv[4:]
listener = twinlink.open(transport, listen=endpoint, identity=identities[0], **options)
connector = twinlink.open(transport, connect=endpoint, identity=identities[1], **options)
connector.wait_ready(60)
listener.receiver("handled", handler=lambda message: None)
threading.Thread(target=lambda: list(listener.receiver("iterated")), daemon=True).start()
for _ in range(100):
    connector.sender("handled").send(b"")
"""


class Closing(Conformance):
    """Close from any state, in about a second, without leaving resources behind."""

    def test_without_a_peer_and_twice(self, opening: Open, role: str) -> None:
        link = opening(role)
        link.sender("flow").send(b"")
        self.close_in_time(link)
        self.close_in_time(link)
        for use in (
            lambda: link.sender("flow"),
            lambda: link.receiver("flow"),
            lambda: link.wait_ready(1),
        ):
            with pytest.raises(twinlink.LinkClosed):
                use()

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_with_messages_unread_and_unacknowledged(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        peer = foreign()
        peer.meet(link)
        outbox, inbox = link.sender("out"), link.receiver("in")
        for number in range(100):
            peer.data("in", number, bytes(1000))
            outbox.send(bytes(1000))
        wait_until(lambda: link.stats()["received"]["in"]["queued"] == 100)
        self.close_in_time(link)
        assert [message.sequence for message in inbox] == list(range(100))  # received messages can still be read
        assert inbox.receive() is None
        assert len(drain(link, twinlink.PeerUp)) == 1
        assert list(link.events()) == []
        with pytest.raises(twinlink.LinkClosed):
            outbox.send(b"")

    @pytest.mark.parametrize("reliability", ["repair", "detect"])
    def test_what_it_still_owes_is_a_gap_at_its_peer(self, opening: Open, reliability: Any) -> None:
        """The peer reads nothing, so some messages have not left: it learns that they are abandoned."""
        listener, connector = opening("listen", window=2**20), opening("connect", window=2**20)
        for link in (listener, connector):
            link.wait_ready(patience())
        inbox, outbox = listener.receiver("flow"), connector.sender("flow", reliability=reliability)
        for _ in range(8):
            outbox.send(bytes(300_000))
        self.close_in_time(connector)
        wait_until(lambda: not listener.peers())
        wait_until(lambda: listener.stats()["received"]["flow"]["missing"] > 0)
        arrived = listener.stats()["received"]["flow"]["received"]
        assert [message.sequence for message in receive_all(inbox, arrived)] == list(range(arrived))
        assert [(gap.first, gap.end) for gap in drain(listener, twinlink.Gap)] == [(arrived, 8)]

    @pytest.mark.usefixtures("no_peer_falls_silent")
    def test_a_closed_link_holds_no_unacknowledged_payloads(self, opening: Open, foreign: MakeForeign) -> None:
        link = opening("listen")
        peer = foreign()
        peer.meet(link)
        outbox = link.sender("flow")
        gc.disable()  # a link has reference cycles: the time of their collection is unknown
        tracemalloc.start()
        try:
            for _ in range(10):
                outbox.send(bytes(1_000_000))
            self.close_in_time(link)
            while peer.receive(0.05) is not None:
                pass  # in memory, sent frames are in the peer's queue
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        assert held < 2_000_000
        with pytest.raises(twinlink.AckTimeout) as raised:
            outbox.flush(0)
        assert raised.value.missing == ((0, 10),)

    @pytest.mark.parametrize("waiting_in", ["receive", "iteration", "events", "flush", "wait_ready", "send"])
    def test_while_another_thread_waits(self, opening: Open, foreign: MakeForeign, waiting_in: str) -> None:
        link = opening("listen", retention=1024 * 1024, send_timeout=LONG_S)
        if waiting_in != "wait_ready":
            foreign().meet(link)
        if waiting_in in ("flush", "send"):
            link.sender("flow").send(bytes(1_000_000))  # it will not be acknowledged
        entered = threading.Event()
        waits: dict[str, Callable[[], Any]] = {
            "receive": lambda: link.receiver("flow").receive(),
            "iteration": lambda: list(link.receiver("flow")),
            "events": lambda: list(link.events())[:0],
            "flush": lambda: link.sender("flow").flush(LONG_S),
            "wait_ready": lambda: link.wait_ready(LONG_S),
            "send": lambda: link.sender("flow").send(bytes(100_000)),
        }

        def wait() -> Any:
            entered.set()
            return waits[waiting_in]()

        waiting = in_thread(wait)
        assert entered.wait(patience())
        time.sleep(0.05)  # most likely inside by now; the rest must hold in any case
        self.close_in_time(link)
        try:
            assert waiting.result() in (None, [])
        except (twinlink.LinkClosed, twinlink.AckTimeout):
            assert waiting_in in ("flush", "wait_ready", "send")

    @pytest.mark.parametrize("thread", ["own", "waiting"])
    def test_from_a_handler_in_the_middle_of_a_burst(self, opening: Open, thread: str) -> None:
        first, second = self.ready_pair(opening)
        closed = threading.Event()

        def close(message: twinlink.Message) -> None:
            if message.sequence == 20:
                self.close_in_time(second)
                closed.set()

        second.receiver("flow", handler=close)
        if thread == "waiting":
            waiting = in_thread(second.receiver("other").receive)
            time.sleep(0.05)  # as above
        for _ in range(500):
            first.sender("flow").send(b"")
        assert closed.wait(patience())
        self.close_in_time(second)
        if thread == "waiting":
            assert waiting.result() is None
        wait_until(lambda: first.peers() == [])

    def test_from_on_ack(self, opening: Open) -> None:
        first, second = self.ready_pair(opening)
        second.receiver("flow")
        closed = threading.Event()

        def close(_: twinlink.Ack) -> None:
            self.close_in_time(first)
            closed.set()

        first.sender("flow", on_ack=close).send(b"")
        assert closed.wait(patience())

    @pytest.mark.parametrize("how", ["closes", "falls silent"])
    def test_from_an_event_handler_when_the_peer_goes(self, opening: Open, foreign: MakeForeign, how: str) -> None:
        link = opening("listen")
        problems: list[BaseException] = []
        closed = threading.Event()

        def close(event: twinlink.Event) -> None:
            if isinstance(event, twinlink.PeerDown):
                try:
                    self.close_in_time(link)
                except BaseException as error:
                    problems.append(error)
                closed.set()

        link.events(handler=close)
        if how == "closes":
            with opening("connect") as peer:
                peer.wait_ready(patience())
                wait_until(link.peers)
        else:
            foreign().meet(link)
        assert closed.wait(patience())
        assert problems == []

    def test_while_a_handler_blocks(self, opening: Open, role: str) -> None:
        first, second = self.ready_pair(opening, other(role))
        inside, release = threading.Event(), threading.Event()

        def block(_: twinlink.Message) -> None:
            inside.set()
            release.wait(patience())

        second.receiver("flow", handler=block)
        first.sender("flow").send(b"")
        assert inside.wait(patience())
        try:
            self.close_in_time(second)
        finally:
            release.set()
        wait_until(lambda: not [t for t in threading.enumerate() if t.name == f"twinlink-{second.node}"])
        opening(role).wait_ready(patience())  # the blocked link has released the endpoint

    def test_while_threads_send(self, opening: Open, role: str) -> None:
        for _ in range(3):
            first, second = self.ready_pair(opening, role, send_timeout=LONG_S)
            second.receiver("flow", handler=lambda message: None)

            def send(link: twinlink.Link = first) -> None:
                outbox = link.sender("flow")
                while True:
                    outbox.send(bytes(1000))

            sending = [in_thread(send) for _ in range(2)]
            wait_until(lambda link=first: link.sender("flow").stats()["acknowledged"] > 100)  # type: ignore[misc]
            self.close_in_time(first)
            for thread in sending:
                with pytest.raises(twinlink.LinkClosed):
                    thread.result()
            second.close()

    def test_the_endpoint_can_be_used_again_at_once(self, endpoint: str) -> None:
        for number in range(5):
            with self.open("listen", endpoint, node=f"l{number}") as listener:
                with self.open("connect", endpoint, node=f"c{number}") as connector:
                    connector.wait_ready(patience())
                    connector.sender("flow").send(b"")
                    connector.sender("flow").flush(patience())
                assert [m.node for m in receive_all(listener.receiver("flow"), 1)] == [f"c{number}"]

    def test_nothing_is_left_behind(self, endpoint: str) -> None:
        def use() -> None:
            with (
                self.open("listen", endpoint) as listener,
                self.open("connect", endpoint) as connector,
            ):
                connector.wait_ready(patience())
                connector.sender("flow").send(bytes(100_000))
                receive_all(listener.receiver("flow"), 1)
            with pytest.raises(twinlink.TransportError):  # nor by a link that failed to open
                self._open_twice(endpoint)

        use()  # from now on the driver holds what it keeps for the whole process
        threads, descriptors = set(threading.enumerate()), open_descriptors()
        for _ in range(3):
            use()
        gc.collect()
        wait_until(lambda: set(threading.enumerate()) <= threads)
        wait_until(lambda: len(open_descriptors()) <= len(descriptors))

    def _open_twice(self, endpoint: str) -> None:
        if self.shares_endpoint:
            raise twinlink.TransportError("two listeners are welcome here")
        with self.open("listen", endpoint):
            self.open("listen", endpoint)

    def test_an_interpreter_that_leaves_without_close_does_not_hang(self, endpoint: str) -> None:
        transport_class(self.transport)
        identities = [str(self.identity_of(None, role) or "") for role in ("listen", "connect")]
        command = [sys.executable, "-c", LEAVES_WITHOUT_CLOSE, self.transport, endpoint, repr(self.options)]
        done = subprocess.run([*command, *identities], capture_output=True, text=True, timeout=patience(), check=False)
        assert (done.returncode, done.stdout) == (0, "")
        assert "Traceback" not in done.stderr


def open_descriptors() -> list[str]:
    """This process's open files, sockets and pipes."""
    return [entry.name for entry in Path("/proc/self/fd").iterdir()]
