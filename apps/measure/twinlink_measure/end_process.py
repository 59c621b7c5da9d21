"""The end of a process that reads requests from its stdin, and ends when that is closed."""

import contextlib
import subprocess
from collections.abc import Sequence

from twinlink.process.guarded_thread import GuardedThread


def close_stdin_and_wait(process: subprocess.Popen[bytes], within_s: float) -> None:
    """Close its stdin, a pipe; kill it if it does not end within this time, in s."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_process(process: subprocess.Popen[bytes], readers: Sequence[GuardedThread], within_s: float) -> None:
    """End it as `close_stdin_and_wait` does; then close what the readers have read.

    Args:
        process: with pipes as stdin, stdout and stderr.
        readers: the threads that read its stdout and its stderr, in this order.
        within_s: seconds.
    """
    close_stdin_and_wait(process, within_s)
    for reader in readers:
        reader.join(1)
    for pipe, reader in zip((process.stdout, process.stderr), readers, strict=True):
        if pipe is not None and not reader.is_alive():  # a child of the process may have the pipe open
            pipe.close()
