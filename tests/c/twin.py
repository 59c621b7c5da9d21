"""A twin in a process of its own, which listens and says what arrives: ``python -m tests.c.twin TRANSPORT ENDPOINT``.

A line is ``message EPOCH SEQUENCE``, ``gap EPOCH FIRST END`` or ``peer_up EPOCH`` and so on.  Sends a decision on flow
control for every hundredth message.
"""

import os
import signal
import sys
import threading
from typing import Any

import twinlink
from twinlink import events
from twinlink.slots import SlotSpectrum, is_slots


def write(*words: object) -> None:
    """At once, and whole: a kill leaves no part of a line."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def watch(link: twinlink.Link, ending: threading.Event) -> None:
    while not ending.is_set():
        event = link.events().receive(timeout=0.1)
        if isinstance(event, events.Gap):
            write("gap", f"{event.epoch:016x}", event.first, event.end)
        elif isinstance(event, events.PeerUp | events.PeerDown | events.Restarted):
            write(type(event).__name__, f"{event.epoch:016x}")


def main(transport: Any, endpoint: str) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with twinlink.open(transport, listen=endpoint, node="twin") as link:
        spectrum, control = link.receiver("spectrum"), link.sender("control")
        watcher = threading.Thread(target=watch, args=(link, ending))
        watcher.start()
        write("listening")
        while not ending.is_set():
            message = spectrum.receive(timeout=0.1)
            if message is None:
                continue
            if message.sequence % 100 == 0:
                if is_slots(message.payload):
                    SlotSpectrum.decode(message.payload)
                control.send(b"decision")
            write("message", f"{message.epoch:016x}", message.sequence)
        watcher.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
