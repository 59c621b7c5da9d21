"""Handlers that take long, on several links of one process: what comes meanwhile is acknowledged on each of them."""

import threading
from contextlib import ExitStack

import twinlink
from twinlink.runtime.heartbeat_thread import HeartbeatThread
from twinlink.testing.base import patience

LINKS = 3


def test_each_link_is_read_while_its_handler_takes_long_also_when_the_first_links_have_been_closed() -> None:
    with ExitStack() as stack:
        pairs = [
            tuple(
                stack.enter_context(twinlink.open("memory", node=f"{side}-{number}", **{side: f"tcp/several:{number}"}))  # type: ignore[arg-type]
                for side in ("listen", "connect")
            )
            for number in range(1, LINKS + 1)
        ]
        release = threading.Semaphore(0)

        def handle(message: twinlink.Message) -> None:
            if message.sequence % 2 == 0:
                release.acquire(timeout=4 * patience())

        for far, _ in pairs:
            far.receiver("flow", handler=handle)
        senders = [near.sender("flow") for _, near in pairs]
        for _, near in pairs:
            near.wait_ready(patience())
        while pairs:
            for sender in senders:
                sender.send(b"its handler takes long")
                sender.flush(patience())
            for sender in senders:
                sender.send(b"comes meanwhile")
                sender.flush(patience())
            release.release(len(senders))
            for link in pairs.pop(0):
                link.close()
            del senders[0]


def test_a_thread_that_begins_to_check_handlers_while_its_link_is_closed_does_not_keep_the_link() -> None:
    with twinlink.open("memory", listen="tcp/closing:1") as link:
        ending = link._heartbeat_thread
        ending.abandon()
        HeartbeatThread._checking = ending  # which it had seen that it is to do just before
        ending._wakeup.wake()
        ending._thread.join(patience())
        assert HeartbeatThread._checking is not ending
