"""``python -m twinlink_demo.parent_death PARENT COMMAND...`` becomes COMMAND, which gets SIGTERM when PARENT dies.

A demo that was killed cannot stop its parts; so the kernel does (prctl(2), PR_SET_PDEATHSIG, kept across execve).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(0)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
