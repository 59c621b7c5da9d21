"""Opens and closes links, many times in one process: `python -m tests.faults.closer TRANSPORT ENDPOINT COUNT`.

Prints for each close a JSON line: seconds, and the process's threads, descriptors and memory afterwards.
"""

import contextlib
import json
import random
import sys
import threading
import time
from pathlib import Path

import twinlink
from twinlink.transports import transport_name

FLOW = "load"
LOADS = 50


def main() -> int:
    transport, endpoint, count = transport_name(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rng = random.Random(count)
    for number in range(count):
        link = twinlink.open(transport, connect=endpoint, node=f"closer-{number}", send_timeout=0.05)
        link.receiver("traffic", handler=lambda message: None)
        if rng.random() < 0.8:
            with contextlib.suppress(twinlink.PeerTimeout):
                link.wait_ready(0.5)
        stop = threading.Event()
        load = threading.Thread(target=send, args=(link, stop, rng.choice((100, 10_000, 500_000))))
        load.start()
        time.sleep(rng.uniform(0, 0.3))
        began = time.monotonic()
        link.close()
        close_s = time.monotonic() - began
        stop.set()
        load.join()
        print(json.dumps({"close_s": close_s, **kept()}), flush=True)
    return 0


def send(link: twinlink.Link, stop: threading.Event, octets: int) -> None:
    """Send until the link is closed."""
    sender = link.sender(FLOW)
    payload = bytes(octets)
    while not stop.is_set():
        try:
            for _ in range(LOADS):
                sender.send(payload)
        except twinlink.LinkClosed:
            return
        except twinlink.SendTimeout:
            pass
        time.sleep(0.01)


def kept() -> dict[str, int]:
    """What this process holds."""
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "fds": len(list(Path("/proc/self/fd").iterdir())),
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * 4096,
    }


if __name__ == "__main__":
    sys.exit(main())
