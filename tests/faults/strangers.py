"""Connections of foreign programs.

python -m tests.faults.strangers idle|garbage HOST FIRST_PORT PORTS COUNT SECONDS SEED
"""

import contextlib
import random
import socket
import sys
import time


def main() -> int:
    kind, host, first, ports, count, seconds, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    until = time.monotonic() + float(seconds)
    held = []
    for number in range(int(count)):
        with contextlib.suppress(OSError):
            made = socket.create_connection((host, int(first) + number % int(ports)), timeout=1)
            if kind == "garbage":
                made.sendall(rng.randbytes(rng.choice((1, 10, 64, 4096))))
                if rng.random() < 0.5:
                    made.close()
            held.append(made)
    time.sleep(max(0.0, until - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
