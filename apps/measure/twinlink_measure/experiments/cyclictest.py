"""Scheduling latency of this machine, by cyclictest of rt-tests."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from twinlink.transports.mosquitto import SBIN

from .pubsub_node import PRIORITY

_INTERVAL_US = 250


def scheduling_latency(cycles: int, command: Sequence[str] | None = None) -> str:
    """What cyclictest says, in a sentence; or why it was not measured.

    Args:
        cycles: of 5 ms, about.
        command: the one that starts cyclictest; None for what is installed.
    """
    if command is None and (path := shutil.which("cyclictest", path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")):
        command = [path]
    if command is None or os.geteuid() != 0:
        missing = "root" if command else "cyclictest (Debian: rt-tests)"
        return f"Scheduling latency was not measured: that needs {missing}"
    options = ["-q", "-m", "-t1", "-p", str(PRIORITY), "-i", str(_INTERVAL_US), "-l", str(20 * cycles)]
    try:
        done = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=False,
            timeout=60 + cycles,
        )
    except subprocess.TimeoutExpired as error:
        return f"Scheduling latency was not measured: cyclictest did not end within {error.timeout:g} s"
    found = re.search(r"Min:\s*(\d+).*Avg:\s*(\d+).*Max:\s*(\d+)", done.stdout)
    if found is None:
        return f"Scheduling latency was not measured: cyclictest ended with code {done.returncode}"
    least, mean, most = found.groups()
    return (
        f"Scheduling latency by cyclictest, {20 * cycles:,} cycles of {_INTERVAL_US} µs at SCHED_FIFO {PRIORITY}: "
        f"least {least}, mean {mean}, greatest {most} µs"
    )
