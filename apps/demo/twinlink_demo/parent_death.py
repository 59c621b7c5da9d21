"""``python -m twinlink_demo.parent_death PARENT COMMAND...`` executes COMMAND, which gets SIGTERM when PARENT dies.

A killed demo cannot stop its processes, so the kernel does (prctl(2), PR_SET_PDEATHSIG, kept across execve).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Execute the command; never returns."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the line above
        sys.exit(0)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
