"""A known delay, for tests of the instrument: relays TCP connections, each octet after a fixed time per direction.

`python -m twinlink_measure.relay LISTEN_PORT HOST PORT COUNT FORWARD_NS BACK_NS` listens on 127.0.0.1 at ``COUNT``
ports and relays to as many; *forward* is from the side that connects.  The relay itself adds some 0.1 ms, equally in
both directions.  It ends when stdin does.
"""

import contextlib
import os
import queue
import socket
import sys
import time
from functools import partial

from twinlink.process.guarded_thread import GuardedThread

from .send_modes import precise_sleep

PIECE = 256 * 1024


def main() -> None:
    """Relay until stdin ends."""
    listen, host, port, count, forward_ns, back_ns = sys.argv[1:]
    for number in range(int(count)):
        listener = socket.create_server(("127.0.0.1", int(listen) + number))
        target = (host, int(port) + number)
        accept = partial(_accept, listener, target, int(forward_ns), int(back_ns))
        GuardedThread(accept, f"relay-{number}", again=lambda: True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


def _accept(listener: socket.socket, target: tuple[str, int], forward_ns: int, back_ns: int) -> None:
    while True:
        near = listener.accept()[0]
        far = socket.socket()
        try:
            far.connect(target)
        except OSError:
            near.close()
            continue
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink, delay_ns in ((near, far, forward_ns), (far, near, back_ns)):
            waiting: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
            GuardedThread(partial(_read, source, waiting, delay_ns), "relay-read").start()
            GuardedThread(partial(_write, sink, waiting), "relay-write").start()


def _read(source: socket.socket, waiting: "queue.SimpleQueue[tuple[int, bytes]]", delay_ns: int) -> None:
    piece = b"-"
    while piece:
        try:
            piece = source.recv(PIECE)
        except OSError:
            piece = b""
        waiting.put((time.monotonic_ns() + delay_ns, piece))


def _write(sink: socket.socket, waiting: "queue.SimpleQueue[tuple[int, bytes]]") -> None:
    precise_sleep()
    with contextlib.suppress(OSError):
        while True:
            due_ns, piece = waiting.get()
            left_ns = due_ns - time.monotonic_ns()
            if left_ns > 0:
                time.sleep(left_ns / 1e9)
            if not piece:
                break
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
