"""Prints the address of the one node on col0 that listens at a port, once there is one.

A batch job's nodes do not know each other's addresses: col0 has 172.30.RESERVATION.(100 + SRN), and both numbers are
given when the job begins.  Exit code 1: col0 is missing, or several nodes listen.
"""

import subprocess
import sys
import time

from twinlink.process.resolver import accepting_addresses

INTERFACE = "col0"
HOSTS = range(101, 229)  # SRN 1 to 128
LOOK_S = 0.5


def main(port: int) -> int:
    """Look until a node is found."""
    own = _address()
    if own is None:
        print(f'there is no {INTERFACE}: set "isGateway" to true for this node in the batch file', file=sys.stderr)
        return 1
    network = own.rpartition(".")[0]
    others = [address for host in HOSTS if (address := f"{network}.{host}") != own]
    while not (found := accepting_addresses(others, port)):
        time.sleep(LOOK_S)
    if len(found) > 1:
        print(f"{', '.join(found)} all listen at port {port}: give each pair of nodes its own", file=sys.stderr)
        return 1
    print(found[0])
    return 0


def _address() -> str | None:
    """Of this node on col0."""
    shown = subprocess.run(
        ["ip", "-4", "-oneline", "address", "show", "dev", INTERFACE], capture_output=True, text=True, check=False
    ).stdout.split()
    return shown[3].partition("/")[0] if len(shown) > 3 else None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
