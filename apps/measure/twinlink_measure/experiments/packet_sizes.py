"""A process that notes the length of each packet of its network namespace, both ways, without loopback.  Needs root.

It writes a line when it is ready; when it reads a line, it writes ``{"sizes": {octets: packets}}`` and ends.  A length
is that of the Ethernet frame, before segmentation, as Wireshark has it at the sender.
"""

import json
import select
import socket
import sys
from collections import Counter

from .program import say

_ALL = 3  # ETH_P_ALL


def main() -> None:
    """Note them."""
    sizes: Counter[int] = Counter()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as taps:
        ready = select.poll()
        ready.register(taps, select.POLLIN)
        ready.register(sys.stdin)
        say(ready=True)
        while taps.fileno() in dict(ready.poll()):  # then what has come before the line is noted
            octets, (interface, *_) = taps.recvfrom_into(bytearray(1), 0, socket.MSG_TRUNC)
            if interface != "lo":
                sizes[octets] += 1
    sys.stdout.write(json.dumps({"sizes": sizes}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
