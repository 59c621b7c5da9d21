"""Handshakes of ZeroMQ that fail, from the events of libzmq's monitors: which side refuses the other.

A side that cannot read what the other says ends the connection without a word.  So a connector asks the listener's port
which mechanism it has (the greeting of ZMTP, RFC 23) before it says that the keys do not match.
"""

import errno
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from . import identity_advice

if TYPE_CHECKING:
    from .zeromq_curve import ZeromqCurve

SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
FAILED_AUTH = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
FAILED_PROTOCOL = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
FAILED = {int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), FAILED_PROTOCOL, FAILED_AUTH}
UNKNOWN_KEY = 400  # of ZAP (RFC 27), which the listener passes on
REASONS = {  # of a listener's handshakes that failed for the protocol, as `Refusal` names them
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "mechanism",
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "key",
}
# Of handshakes that fail without a reason: then the listener's port is asked.  More than a listener keeps a host out
# (PENALTY_S), which looks the same.
SUSPECT_S = 1.2
ASK_S = 0.3
ASK_AGAIN_S = 2.0
RETRY_S = 0.3  # after a handshake that failed; libzmq itself gives up after some failures
NEXT_KEY_S = 0.03  # and where another key is left to be tried; the handshakes of both sockets have failed by then
GREETING = b"\xff" + bytes(8) + b"\x7f\3"  # as far as a listener needs it to send its own
GREETING_OCTETS = 64
MECHANISM = slice(12, 32)


class Handshakes:
    """Tells from a monitor's events which accepted connections spoke another protocol, or were refused.

    libzmq names no connection when a handshake ends.  It reports a failure just before the end of the connection,
    except where the octets are not ZMTP's, or the key was refused: then the other side ends it, later.

    Attributes:
        reason: of the failure that was reported just before the last event, as `Refusal` names it, or empty.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._next_reason = ""
        self._succeeded = 0
        self._accepted: dict[int, int] = {}  # by descriptor: how many had succeeded then
        self._failed = False  # the last event was a failure
        self._refused = 0  # connections that are yet to end

    def take(self, kind: int, value: int) -> bool:
        """Take in an event; whether a connection has ended that certainly was not ZMTP's."""
        failed, self._failed = self._failed, kind in FAILED
        self.reason, self._next_reason = self._next_reason, REASONS.get(value, "") if kind == FAILED_PROTOCOL else ""
        if kind == SUCCEEDED:
            self._succeeded += 1
            self._refused = 0  # those that were accepted before do not count
        elif kind == FAILED_AUTH:
            self._refused += 1
        elif kind == zmq.EVENT_ACCEPTED:
            self._accepted[value] = self._succeeded
        elif kind == zmq.EVENT_DISCONNECTED:
            unexplained = self._accepted.pop(value, None) == self._succeeded and not failed
            if unexplained and self._refused:
                self._refused, unexplained = self._refused - 1, False
            return unexplained
        return False


@dataclass
class ConnectorHandshakes:
    """The handshakes of a connector.  The guard's thread calls the methods; any thread may read.

    Attributes:
        failing: whether the last handshake has failed.
        concluded: whether a handshake has succeeded or failed since the transport has connected.
        key_fits: whether it failed though the listener has the key that was expected.
        problem: why, and what repairs it, for a person, as soon as that is known.
    """

    port: int
    curve: "ZeromqCurve | None"
    host: str = ""  # an address; empty while none is known
    failing: bool = False
    concluded: bool = False
    key_fits: bool = False
    problem: str | None = None
    _since: float | None = None  # monotonic; of failures without a reason
    _asked: float = -ASK_AGAIN_S

    @property
    def _where(self) -> str:
        return f"the listener at {self.host} port {self.port}"

    def on_event(self, kind: int, value: int, now: float) -> None:
        """Take in an event of a monitor."""
        if kind == SUCCEEDED:
            self.failing, self.concluded, self.problem, self._since = False, True, None, None
        elif kind in FAILED:
            self.failing, self.concluded, self.key_fits = True, True, kind == FAILED_AUTH and value == UNKNOWN_KEY
            if self._since is None and value != errno.EAGAIN:  # that is a silent path, or a listener without a thread
                self._since = now
            if self.key_fits and self.curve is not None:
                self.problem = identity_advice.refused_there(self._where, self.curve.watched.identity, curve=True)

    def calls_for_retry(self, elapsed_s: float) -> bool:
        """Whether the transport is to connect anew, as it did so long ago: the handshake has failed."""
        keys_left = self.curve is not None and not self.key_fits and not self.curve.all_tried
        return self.failing and self.concluded and elapsed_s > (NEXT_KEY_S if keys_left else RETRY_S)

    def check(self, now: float) -> None:
        """Find out why handshakes have been failing without a reason."""
        if self._since is None or now - self._since < SUSPECT_S or now - self._asked < ASK_AGAIN_S:
            return
        if self.problem is None and (self.curve is None or self.curve.all_tried):
            self._asked = now
            self.problem = self._mismatch(mechanism(self.host, self.port, ASK_S))

    def _mismatch(self, spoken: str) -> str | None:
        if self.curve is None:
            return identity_advice.none_here(self._where) if spoken == "CURVE" else None
        if spoken == "NULL":
            return identity_advice.none_there(self._where)
        if spoken == "CURVE":
            return identity_advice.refused_here(self._where, self.curve.watched)
        return None


def mechanism(host: str, port: int, within_s: float) -> str:
    """The mechanism that a ZMTP listener has, such as ``NULL`` or ``CURVE``; empty if that cannot be found out."""
    greeting, until = b"", time.monotonic() + within_s
    with suppress(OSError), socket.create_connection((host, port), timeout=within_s) as connection:
        connection.sendall(GREETING)
        while len(greeting) < GREETING_OCTETS and time.monotonic() < until:
            received = connection.recv(GREETING_OCTETS)
            if not received:
                break
            greeting += received
    if len(greeting) < MECHANISM.stop or (greeting[0], greeting[9]) != (GREETING[0], GREETING[9]):
        return ""
    return greeting[MECHANISM].rstrip(b"\0").decode("ascii", "replace")
