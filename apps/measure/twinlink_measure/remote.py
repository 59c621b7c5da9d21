"""A worker on another host: its lines are messages of a twinlink link to `twinlink pong` there.

Flow `sweep` carries commands, flow `sweep-answers` the answers; each message begins with the number of the worker,
which keeps answers of an earlier worker apart.  The pong's side starts workers, one at a time and for one peer at a
time, and ends them when that peer goes.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from functools import partial
from typing import Any

from twinlink import Link, Message, SendTimeout, TransportError, TwinlinkError
from twinlink.process.guarded_thread import GuardedThread

from .channels import PORTS
from .end_process import close_stdin_and_wait
from .request_bounds import REQUEST_OCTETS
from .row_buffer import PART_OCTETS
from .worker_handle import END_S, Stopped, WorkerFailed, WorkerHandle

TOLD, SAID = "sweep", "sweep-answers"
PORT_OFFSET = 10  # from the pong's own port: cells use the ports from there
LOOK_S = 0.2
ROWS_OCTETS = 128 * 1024 * 1024  # of one answer: twice the records of as many messages as it is asked for, at most
ANSWER_OCTETS = 2 * PART_OCTETS  # of a line with rows, base64 of what zlib may not have made shorter
_NUMBER = 16  # octets before a line: the worker's number in hexadecimal


class RemoteWorker(WorkerHandle):
    """A worker at the peer of a link.  What it may send for one command is limited, as this host need not trust it.

    Args:
        name: of its side.
        remote: the connection to the peer's workers.
    """

    def __init__(self, name: str, remote: "Remote") -> None:
        super().__init__(name)
        self.most_octets = ROWS_OCTETS
        self._remote = remote
        self._own = secrets.token_hex(_NUMBER // 2).encode()
        remote.workers[self._own] = self
        self._write(json.dumps({"start": name}).encode())

    def heard(self, line: bytes) -> None:
        """Handle a line from the worker."""
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, dict) and "ended" in told:
                self._ended(f"the worker at the {self.name} {told['ended']}")
                return
        self._take(line)

    def _write(self, line: bytes) -> None:
        try:
            self._remote.send(self._own + line)
        except TwinlinkError as error:
            raise OSError(str(error)) from error

    @property
    def lost(self) -> str | None:
        """Why the worker is lost; None while it runs."""
        if self._end is None and not self._remote.up:
            self._ended(f"the peer at {self._remote.endpoint} is gone")
        return self._end

    def answer(self, number: int, within_s: float, stopped: Stopped | None = None) -> dict[str, Any]:
        """As `WorkerHandle.answer`; an error names the other host, as its ports are not those of this one."""
        try:
            return super().answer(number, within_s, stopped)
        except WorkerFailed as error:
            raise WorkerFailed(f"on the other host ({self._remote.endpoint}): {error}", error.kind) from error

    def end(self) -> None:
        """End the worker at the peer."""
        with contextlib.suppress(OSError):
            self._write(json.dumps({"end": self.name}).encode())
        self._remote.workers.pop(self._own, None)


class Remote:
    """The connection to the workers of a peer."""

    def __init__(self, link: Link) -> None:
        self.workers: dict[bytes, RemoteWorker] = {}
        self.endpoint = link.endpoint
        self._link = link
        self._sender = link.sender(TOLD)
        link.receiver(SAID, handler=self._heard, max_payload=ANSWER_OCTETS)

    def send(self, line: bytes) -> None:
        """Send a line to a worker."""
        self._sender.send(line)

    @property
    def up(self) -> bool:
        """Whether the peer is up."""
        return bool(self._link.peers())

    def _heard(self, message: Message) -> None:
        octets = bytes(message.payload)
        worker = self.workers.get(octets[:_NUMBER])
        if worker is not None:
            worker.heard(octets[_NUMBER:])


class WorkerHost:
    """The pong's side: starts workers for a peer while that peer is up.

    Args:
        link: one that listens; workers may listen at its host, at `PORTS` ports from `PORT_OFFSET` above its own.
        ntp: the NTP server that they may ask; None: none.

    Attributes:
        started: number of workers so far.
    """

    def __init__(self, link: Link, ntp: str | None = None) -> None:
        self.started = 0
        self._link = link
        host, _, port = link.endpoint.removeprefix("tcp/").rpartition(":")
        first = int(port) + PORT_OFFSET
        self._bind = f"{host}:{first}-{first + PORTS - 1}"
        self._ntp = ntp
        self._sender = link.sender(SAID)
        # Without a handler, so that what waits here is limited by the link's window.
        self._receiver = link.receiver(TOLD, max_payload=_NUMBER + REQUEST_OCTETS)
        self._closing = False
        self._process: subprocess.Popen[bytes] | None = None
        self._number = b""
        self._owner: str | None = None  # the node that the worker belongs to
        self._thread = GuardedThread(self._serve, "twinlink-workers", again=lambda: not self._closing)
        self._thread.start()

    def close(self) -> None:
        """End the running worker."""
        self._closing = True
        self._thread.join()
        self._end()

    def _serve(self) -> None:
        while not self._closing:
            try:
                message = self._receiver.receive(LOOK_S)
            except TransportError:  # the link reports it
                time.sleep(LOOK_S)
                continue
            peers = self._link.peers()
            if self._process is not None and self._owner not in peers:
                self._end()
            if message is not None and message.node in peers:
                octets = bytes(message.payload)
                self._tell(message.node, octets[:_NUMBER], octets[_NUMBER:])

    def _tell(self, node: str, number: bytes, line: bytes) -> None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(told, dict):
            return
        if "start" in told:
            if self._process is not None and node != self._owner and self._owner in self._link.peers():
                why = "another sweep is running there; try again when it has ended"
                self._say(number, {"ended": f"was not started: {why}"})
                return
            self._end()
            try:
                self._start(node, number)
            except OSError as error:
                self._say(number, {"ended": f"was not started: {error.strerror or error}"})
        elif number != self._number or self._process is None:
            self._say(number, {"ended": "has ended"})
        elif "end" in told:
            self._end()
        elif not self._pass_on(self._process, line.rstrip(b"\n") + b"\n"):
            self._end()
            self._say(number, {"ended": "was ended: it was sent requests faster than it answers them"})

    def _pass_on(self, process: "subprocess.Popen[bytes]", line: bytes) -> bool:
        """Give a request to the worker; False if its pipe is full of others.  A sweep waits for the answers."""
        assert process.stdin is not None
        try:
            return os.write(process.stdin.fileno(), line) == len(line)
        except BlockingIOError:
            return False
        except OSError:  # it has ended, as `_read` tells
            return True

    def _start(self, node: str, number: bytes) -> None:
        ntp = ["--ntp", self._ntp] if self._ntp else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "twinlink_measure.worker", "--listen-only", self._bind, *ntp],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._owner, self._number = node, number
        self.started += 1
        GuardedThread(partial(self._read, self._process, number), "workers-read").start()

    def _read(self, process: "subprocess.Popen[bytes]", number: bytes) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._send(number + line)
        code = process.wait()
        self._say(number, {"ended": f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"})

    def _say(self, number: bytes, what: dict[str, str]) -> None:
        self._send(number + json.dumps(what).encode())

    def _send(self, octets: bytes) -> None:
        while True:
            try:
                self._sender.send(octets)
                return
            except SendTimeout:  # a slow path: rows are many octets
                if self._closing or not self._link.peers():
                    return
            except TwinlinkError:  # the link is being closed
                return

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            close_stdin_and_wait(process, END_S)
