"""A process that sends UDP datagrams at a fixed rate until its stdin ends, as traffic beside what is measured.

Arguments: ``host`` and ``port`` to send to, ``rate_mbit`` on the link (Mbit/s), ``octets`` of a datagram.
"""

import contextlib
import socket
import time

from .program import arguments, ended, say

HEADERS = 14 + 20 + 8  # octets of Ethernet, IPv4 and UDP
_BEHIND_S = 0.05  # what was not sent within this time is left out, so that it does not come as a burst


def main() -> None:
    """Send."""
    given = arguments()
    end, interval_s = ended(), 8e-6 * (given["octets"] + HEADERS) / given["rate_mbit"]
    payload = bytes(given["octets"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        say(ready=True)
        due_s = time.monotonic()
        while not end.is_set():
            now_s = time.monotonic()
            due_s = max(due_s, now_s - _BEHIND_S)
            while due_s <= now_s:
                with contextlib.suppress(OSError):  # the queue is full
                    sender.sendto(payload, (given["host"], given["port"]))
                due_s += interval_s
            time.sleep(max(0.001, due_s - now_s))


if __name__ == "__main__":
    main()
