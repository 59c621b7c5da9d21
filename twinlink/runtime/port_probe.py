"""Probes the other side's port while no peer is up, to connect as soon as it can be reached.  No thread.

A transport's own attempts to connect last as long as its handshake may take, and TCP repeats a packet that was lost
after a second.  So after a partition what counts is how often an attempt begins.
An attempt here is TCP's alone, and ends with the first answer: the transport is told to connect then.
"""

import errno
import select
import socket
import struct
import time
from contextlib import suppress

from ..process.ip_address import family_of, is_address
from ..process.resolver import RepeatedLookup
from ..protocol.session import ProbeResult
from ..transports import Endpoint

INTERVAL_S = 0.02  # an attempt; after a minute of silence as much more seldom ...
INTERVAL_GROWTH = 1 / 3000  # ... as makes no difference after so long
MAX_INTERVAL_S = 0.2
MAX_ATTEMPTS = 6  # attempts at a time: the first of them for a long path, the others for a tenth of a second
ATTEMPT_TIMEOUT_S = 0.95  # an attempt; then TCP sends its first packet again, and the round trip cannot be told
WATCH_INTERVAL_S = 1.0  # where it answers though no peer is met, this often
MIN_ANSWER_S = 0.1  # an answer may take four round trips, and so long at least
MIN_SILENCE_S = 0.3  # where the first attempt after a shorter one is answered, a packet was lost and no more
RTT = struct.Struct("68xI")  # in the kernel's tcp_info: tcpi_rtt, in us; 0 where it could not be told


class PortProbe:
    """Probes for one connector; for the thread that receives.

    Attributes:
        reachable: whether the other side's port does, as far as is known.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        host = endpoint.host.strip("[]")
        self._port = endpoint.port
        self._lookup = None if is_address(host) else RepeatedLookup(host, endpoint.port)
        self._host = "" if self._lookup else host
        self._attempts: list[tuple[float, socket.socket]] = []  # when each was begun, in this order
        self._next_s = 0.0  # monotonic, as all times here
        self._silent_since_s = 0.0
        self._answer_timeout_s = ATTEMPT_TIMEOUT_S  # it does not answer when it has not for so long
        self.reachable = True  # until the transport's own attempt, the first, has had its time

    def probe(self, timeout_s: float) -> ProbeResult | None:
        """To be called over and over while no peer is up; waits only while the other side does not answer.

        Returns None after ``timeout_s`` or sooner.
        """
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._start_attempt(now_s)
        rtt_ns = self._first_answer(0.0 if self.reachable else max(0.0, min(timeout_s, self._next_s - now_s)))
        if rtt_ns is None:
            return None
        now_s = time.monotonic()
        result = ProbeResult(
            rtt_ns, newly_reachable=not self.reachable and now_s - self._silent_since_s > MIN_SILENCE_S
        )
        self.reachable = True
        self._answer_timeout_s = min(max(MIN_ANSWER_S, 4 * rtt_ns / 1e9), ATTEMPT_TIMEOUT_S)
        self._next_s = now_s + WATCH_INTERVAL_S
        self.cancel()
        return result

    def cancel(self) -> None:
        """Give up all attempts: a peer is up, or the link is closed."""
        while self._attempts:
            self._attempts.pop()[1].close()

    def _start_attempt(self, now_s: float) -> None:
        if self.reachable:
            self._next_s = now_s + WATCH_INTERVAL_S
            self.cancel()
        else:
            self._next_s = now_s + min(
                max(INTERVAL_S, (now_s - self._silent_since_s) * INTERVAL_GROWTH), MAX_INTERVAL_S
            )
        if self._lookup is not None:
            self._host = self._lookup.poll() or self._host
        if not self._host:
            return
        if len(self._attempts) == MAX_ATTEMPTS:
            self._attempts.pop(int(now_s - self._attempts[0][0] < ATTEMPT_TIMEOUT_S))[1].close()
        try:
            connection = socket.socket(family_of(self._host))
        except OSError:  # no descriptors: the transport's own attempts go on
            return
        connection.setblocking(False)
        with suppress(OSError):  # a zone of IPv6 that is not there
            if connection.connect_ex((self._host, self._port)) in {0, errno.EINPROGRESS}:
                self._attempts.append((now_s, connection))
                return
        connection.close()
        self._mark_silent(now_s)

    def _first_answer(self, timeout_s: float) -> int | None:
        """The round trip in ns, if an attempt succeeds within this time."""
        poll = select.poll()
        for _, connection in self._attempts:
            poll.register(connection, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
        now_s = time.monotonic()
        for attempt in [attempt for attempt in self._attempts if attempt[1].fileno() in ready]:
            connection = attempt[1]
            if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return int(RTT.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTT.size))[0]) * 1000
            self._attempts.remove(attempt)
            connection.close()
            self._mark_silent(now_s)
        if self._attempts and now_s - self._attempts[0][0] > self._answer_timeout_s:
            self._mark_silent(now_s)
        return None

    def _mark_silent(self, now_s: float) -> None:
        if self.reachable:
            self.reachable = False
            self._silent_since_s = now_s
            self._next_s = now_s + INTERVAL_S
