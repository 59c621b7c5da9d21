"""A twin that records what arrives: ``python -m tests.c.recorder ENDPOINT FILE``.

A record is ``D`` of a message or ``G`` of a gap, and then session, first sequence and end, 64 bits each in network byte
order.  Each is in the file before the next message is taken, also where the process is killed.
"""

import os
import signal
import struct
import sys
import threading

import twinlink
from twinlink import events

RECORD = struct.Struct("!cQQQ")


def main(endpoint: str, path: str) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def take(message: twinlink.Message) -> None:
        os.write(file, RECORD.pack(b"D", message.epoch, message.sequence, message.sequence + 1))

    with twinlink.open("websocket", listen=endpoint, node="twin") as link:
        link.receiver("spectrum", handler=take)
        print("listening", flush=True)
        while not ending.is_set():
            event = link.events().receive(timeout=0.1)
            if isinstance(event, events.Gap):
                os.write(file, RECORD.pack(b"G", event.epoch, event.first, event.end))


if __name__ == "__main__":
    main(*sys.argv[1:])
