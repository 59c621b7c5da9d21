"""The mgen processes of one cell of a sweep, a listener and a sender, and the outcome by their logs."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

from twinlink_results.mgen import log
from twinlink_results.mgen.log import Log

from twinlink.appkit.mgen_message import Address, Protocol
from twinlink.errors import TwinlinkError

from .script import Flow

RECEIVE_BUFFER = 4 * 1024 * 1024  # octets, of the listener's UDP socket
_START_S = 10.0
_STOP_S = 5.0
_LOOK_S = 0.05
_MAX_SAID = 1 << 20
_NO_PORT = "Bind() bind() error"
QUIET_S = 1.5  # without a message at the listener, after which the rest is lost


class Outcome(NamedTuple):
    """The outcome of a cell, by both logs.

    Attributes:
        sender_log, listener_log: the logs' files, text, the sender's with SEND events.
        sent: messages that the sender sent.
        received: of these, received whole by the listener.
        duplicates: further arrivals of these.
        errors: RERR events at the listener.
        problem: why the sender did not complete, or None.
    """

    sender_log: Path
    listener_log: Path
    sent: int
    received: int
    duplicates: int
    errors: int
    problem: str | None


class Listener:
    """An mgen that listens and logs; a context manager that ends it on exit.

    Args:
        at: where; only the port counts, as ``prefix`` selects the host.
        protocol: UDP or TCP.
        path: of its log, which is written line by line.
        prefix: of the command, such as ``["ip", "netns", "exec", "dt"]``.
    """

    def __init__(self, at: Address, protocol: Protocol, path: Path, prefix: Sequence[str] = ()) -> None:
        self.path = path
        self._where = f"{protocol.name} port {at.port}"
        self._command = _command(
            prefix,
            *("flush", "rxbuffer", str(RECEIVE_BUFFER), "event", f"LISTEN {protocol.name} {at.port}"),
            *("output", str(path)),
        )
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        """Start it; returns when it listens.

        Raises:
            TwinlinkError: mgen is not installed, or ended at once; the message says why.
        """
        self.path.unlink(missing_ok=True)
        self._process = _Process(self._command)
        until = time.monotonic() + _START_S
        while not self.log().of("LISTEN"):
            if self._process.exit_code is not None or time.monotonic() > until:
                self._refuse()
            time.sleep(_LOOK_S)
        if _NO_PORT in self._process.said():  # it logs LISTEN all the same, but only after this error
            self._refuse()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log(self) -> Log:
        """The log so far."""
        return log.read(self.path) if self.path.exists() else Log()

    def wait_for(self, count: int, quiet_s: float) -> None:
        """Return when it has received so many messages, or none for ``quiet_s``."""
        seen, quiet_looks = -1, 0
        while seen < count and quiet_looks * _LOOK_S < quiet_s:
            now = sum(message.complete for message in log.join(self.log().events))
            quiet_looks = 0 if now != seen else quiet_looks + 1
            seen = now
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """End it, as Ctrl-C does."""
        if self._process:
            self._process.stop()

    def _refuse(self) -> NoReturn:
        assert self._process is not None
        self.stop()
        raise TwinlinkError(f"mgen does not listen at {self._where}: {self._process.last_words()}")


def send(flow: Flow, path: Path, prefix: Sequence[str] = (), timeout_s: float = 60.0) -> str | None:
    """Run an mgen that sends a flow and ends; returns why it did not complete, or None.

    Args:
        flow: what to send.
        path: of its log.
        prefix: of the command.
        timeout_s: in addition to the duration of the flow.

    Raises:
        TwinlinkError: mgen is not installed, or did not start; the message says why.
    """
    path.unlink(missing_ok=True)
    process = _Process(_command(prefix, "txlog", "event", flow.event(), "output", str(path)))
    until = time.monotonic() + 2 * flow.count / flow.rate_hz + timeout_s
    try:
        while process.exit_code is None:
            if time.monotonic() > until:
                return f"the sending mgen did not end within {timeout_s:g} s after its time"
            time.sleep(_LOOK_S)
    finally:
        process.stop()
    if process.exit_code and not path.exists():
        raise TwinlinkError(f"mgen does not send: {process.last_words()}")
    return f"the sending mgen ended with exit code {process.exit_code}" if process.exit_code else None


def run(
    flow: Flow,
    listen_at: Address,
    folder: Path,
    name: str,
    *,
    sender_prefix: Sequence[str] = (),
    listener_prefix: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> Outcome:
    """Run one cell: a listener and a sender; the bridge between them runs elsewhere.

    Args:
        flow: what to send, and where: to the bridge's end "in".
        listen_at: where the bridge's end "out" sends to.
        folder, name: the logs are ``name.tx.drc`` and ``name.rx.drc`` there.
        sender_prefix, listener_prefix: of the commands.
        timeout_s: of the sender, in addition to the planned duration.

    Raises:
        TwinlinkError: mgen is not installed, or did not start.
    """
    sender_log, listener_log = folder / f"{name}.tx.drc", folder / f"{name}.rx.drc"
    with Listener(listen_at, flow.protocol, listener_log, listener_prefix) as listener:
        problem = send(flow, sender_log, sender_prefix, timeout_s)
        listener.wait_for(flow.count, QUIET_S)
    return outcome(sender_log, listener_log, problem)


def outcome(sender_log: Path, listener_log: Path, problem: str | None = None) -> Outcome:
    """The outcome by two logs.  Raises OSError if one cannot be read."""
    sender, listener = log.read(sender_log), log.read(listener_log)
    sent = {(event.flow, event.sequence) for event in sender.of("SEND")}
    taken = [(one.flow, one.sequence) for one in log.join(listener.events) if one.complete]
    received = len(sent & set(taken))
    return Outcome(
        sender_log,
        listener_log,
        len(sent),
        received,
        len(taken) - len(set(taken)),
        len(listener.of("RERR")),
        problem,
    )


def require() -> None:
    """Raise TwinlinkError if mgen is not installed."""
    if shutil.which("mgen") is None:
        raise TwinlinkError("mgen is not installed; `apt install mgen` brings it")


def _command(prefix: Sequence[str], *arguments: str) -> list[str]:
    require()
    return [*prefix, "mgen", *arguments]


class _Process:
    """One mgen; its output goes to a file, as an unread pipe would block it."""

    def __init__(self, command: list[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as this)
        # A process group of its own: on Ctrl-C this process ends it in order.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT, process_group=0
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        if self.exit_code is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def said(self) -> str:
        # Not by seeking: the running process shares the file position.
        return os.pread(self._said.fileno(), _MAX_SAID, 0).decode(errors="replace")

    def last_words(self) -> str:
        lines = self.said().strip().splitlines()
        return "; ".join(lines[-3:]) or f"exit code {self.exit_code}"
