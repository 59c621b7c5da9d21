"""A twin as a process, which tests kill: ``twin_process.py TRANSPORT ENDPOINT NODE``.

It acknowledges observations, sends a decision for each line on stdin (id, then PRBs), and prints each result.
"""

import sys
import time

import twinlink
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.transports import transport_name

VALIDITY_MS = 100_000


def main() -> None:
    transport, endpoint, node = sys.argv[1:]
    with twinlink.open(transport_name(transport), connect=endpoint, node=node) as link:
        link.receiver("spectrum", handler=lambda _: None)
        link.receiver("control-result", handler=_print_result)
        for line in sys.stdin:
            id, *prbs = line.split()
            block = PrbBlock(id, tuple(map(int, prbs)), time.time_ns(), VALIDITY_MS, "test")
            link.sender("control").send(block.encode())


def _print_result(message: twinlink.Message) -> None:
    result = PrbBlockResult.decode(message.payload)
    print(result.id, result.status, result.reason, flush=True)


if __name__ == "__main__":
    main()
