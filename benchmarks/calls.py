"""Files and Python calls that one small message, its ack, the handler and ``on_ack`` cross: python -m benchmarks.calls.

Both ends are links of this process over ZeroMQ.  A call counts from `Sender.send` to its return, and from the moment
when a transport returns a frame until the receive loop waits for the next.
"""

import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mode
from types import FrameType

import twinlink
from twinlink.process.ports import free_ports

ROOT = f"{Path(twinlink.__file__).parent}/"
MESSAGES = 60  # what most of those cross counts that no hello and no tick came beside: those with the fewest files
BETWEEN_S = 0.02
TIMEOUT_S = 10.0


@dataclass
class Trace:
    """Calls of functions of the library, by the threads that handle a message."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    handling: set[int] = field(default_factory=set)  # threads

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """For `threading.setprofile`."""
        code, thread = frame.f_code, threading.get_ident()
        if not code.co_filename.startswith(ROOT):
            return
        if event == "return" and code.co_qualname == "ZeromqTransport.receive" and argument is not None:
            self.handling.add(thread)
        elif event == "call" and code.co_qualname == "ReceiveLoop.run_once":
            self.handling.discard(thread)
        elif event == "call" and thread in self.handling:
            self.calls.append((code.co_filename[len(ROOT) :], code.co_qualname))

    def run(self, sender: twinlink.Sender, acked: threading.Semaphore) -> list[tuple[str, str]]:
        """Send one message; returns the calls, from the first to the last before the next wait."""
        self.calls.clear()
        self.handling.add(threading.get_ident())
        sys.setprofile(self)
        try:
            sender.send(b"small")
        finally:
            sys.setprofile(None)
        if not acked.acquire(timeout=TIMEOUT_S):
            raise SystemExit(f"no ack came within {TIMEOUT_S:g} s")
        time.sleep(BETWEEN_S)
        return self.calls[:]


def count_files(calls: list[tuple[str, str]]) -> int:
    """How many files the called functions are in."""
    return len({file for file, _ in calls})


def main() -> None:
    """Trace the messages, and print what most of them crossed."""
    trace, acked = Trace(), threading.Semaphore(0)
    threading.setprofile(trace)
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    with (
        twinlink.open("zeromq", listen=endpoint, node="sender", busy_poll=False) as near,
        twinlink.open("zeromq", connect=endpoint, node="receiver", busy_poll=False) as far,
    ):
        far.receiver("flow", handler=lambda message: None)
        sender = near.sender("flow", on_ack=lambda ack: acked.release())
        near.wait_ready()
        runs = [trace.run(sender, acked) for _ in range(MESSAGES)]
    files = min(map(count_files, runs))
    calls = mode(tuple(run) for run in runs if count_files(run) == files)
    for file, name in calls:
        print(f"{file:40} {name}")
    print(f"{files} files, {len(calls)} calls")


if __name__ == "__main__":
    main()
