"""The receive loop of the thread that leads: read what has arrived, have it dispatched, keep the time."""

import time

from ..process import cgroups
from ..protocol.frames import AnyFrame
from ..protocol.session import SEARCH_INTERVAL_NS, TICK_NS
from ..transports import Transport
from .busy_poll import MAX_POLL_NS, BusyPoll
from .driver import SessionDriver
from .port_probe import PortProbe

BULK_GAP_NS = 30_000  # messages closer together than this come in bulk: drain, and acknowledge many at once
SLOW_HANDLER_NS = 1_000_000  # after a handler that took longer, what has come meanwhile is read before the next call
DRAIN_NS = 10_000_000  # but not for longer than this: hellos wait meanwhile
ACKS_NS = 1_000_000  # between two flushes of acks in bulk: a flood from one peer must not delay those of another
LONG_HANDLER_NS = 5_000_000  # beside one that takes longer, another thread may read
LONG_NS = 1_000_000_000  # so long after such a handler, the next is expected to take long as well
SEARCH_S = SEARCH_INTERVAL_NS / 1e9
FAST_HELLO_S, FAST_HELLO_NS = 0.005, 100_000_000  # hellos to a side that has come into reach: this often, for so long
MIN_POLLED_WAIT_S = 0.001  # a thread that waits for less does not poll first: it would take too long

_monotonic_ns = time.monotonic_ns


class ReceiveLoop:
    """Between the transport and the session driver of one link; for the thread that leads."""

    def __init__(
        self, transport: Transport, driver: SessionDriver, port_probe: PortProbe | None, busy_poll: bool = True
    ) -> None:
        """``port_probe``: of a connector whose transport has one."""
        self._transport = transport
        self._port_probe = port_probe
        self._fast_hello_until_ns = 0
        self._driver = driver
        self._session = driver.session
        self._peer_manager = driver.session.peer_manager
        self._callbacks = driver.callbacks
        self._last_frame_ns = 0
        self._handled = False  # a frame came in the last turn, so handlers may have been called
        self._long_handler_ns = -LONG_NS  # when a handler last took long
        self._next_tick_ns = 0
        # Under a CPU limit, polling is paid for by being stopped later.
        self._busy_poll = BusyPoll(busy_poll and not cgroups.cpu_is_limited(), first=transport.listening)
        self._drained_ns = _monotonic_ns()  # when the transport was last found with nothing to read

    def run_once(self, timeout_s: float) -> None:
        """Receive and handle what comes within ``timeout_s``: one message, or a batch when they come in bulk."""
        callbacks = self._callbacks
        if callbacks.has_stand_in:  # an exception has ended the handler beside which it reads
            callbacks.wait_for_stand_in()
        if callbacks.running and not callbacks.nested:
            callbacks.begin_nested()
            try:
                self.run_once(timeout_s)
            finally:
                callbacks.nested = False
            return
        began = _monotonic_ns()
        if self._handled and began - self._last_frame_ns > SLOW_HANDLER_NS:
            if began - self._last_frame_ns > LONG_HANDLER_NS:
                self._long_handler_ns = began
            self._read_ahead(began)
        self._handled = False
        if callbacks.pending and not callbacks.running:
            callbacks.run()
            timeout_s, began = 0.0, _monotonic_ns()
            self._handled = True
            if callbacks.pending and began < self._next_tick_ns:
                return  # handlers are behind: what has come is read first
        received = None
        if self._busy_poll.polls and timeout_s > MIN_POLLED_WAIT_S:
            received = self._transport.poll(began + MAX_POLL_NS)
        if received is None:
            received = self._transport.receive(timeout_s) if self._peer_manager.up else self._search(timeout_s)
        now = _monotonic_ns()
        if received is None:
            self._drained_ns = now
        else:
            if now - self._last_frame_ns > BULK_GAP_NS:
                self._busy_poll.on_wait(now - began, now - self._last_frame_ns)
                self._driver.receive(received[0], received[1], now, in_bulk=False)
            else:
                self._busy_poll.skip()
                now = self._drain(received, now)
            self._last_frame_ns, self._handled = now, True
        if now >= self._next_tick_ns:
            self._tick(now)

    def stand_in(self) -> bool:
        """Read what has come while a handler takes long: for another thread than the one that leads.

        Returns whether it has read, or a handler has taken long of late.
        """
        has_read = self._callbacks.stand_in(lambda: self._read_ahead(_monotonic_ns()))
        return has_read or _monotonic_ns() - self._long_handler_ns < LONG_NS

    def _search(self, timeout_s: float) -> tuple[bytes, AnyFrame] | None:
        """What comes while no peer is up.  A connector probes meanwhile whether the other side comes into reach."""
        receive, port_probe, timeout_s = self._transport.receive, self._port_probe, min(timeout_s, SEARCH_S)
        if port_probe is None or not self._transport.scouts:
            return receive(timeout_s)
        fast = _monotonic_ns() < self._fast_hello_until_ns
        received = receive(0 if not port_probe.reachable else FAST_HELLO_S if fast else timeout_s)
        if received is None:
            result, received = port_probe.probe(timeout_s), receive(0)
            if received is not None:
                return received  # it came meanwhile, over a connection that is not to be given up with what is behind
            if result is not None and self._driver.on_probe_result(result):
                self._fast_hello_until_ns = _monotonic_ns() + FAST_HELLO_NS
            elif fast:
                self._driver.send_hello()
        return received

    def _read_ahead(self, now: int) -> None:
        """Read what has come while a handler took its time, before the next is called.

        So it is acknowledged soon, and what the application cannot take yet is known.
        """
        driver, receive = self._driver, self._transport.receive
        until, flush_at = now + DRAIN_NS, now + ACKS_NS
        while now < until:
            received, now = receive(0), _monotonic_ns()
            if received is None:
                self._drained_ns = now
                break
            driver.receive_ahead(received[0], received[1], now)
            if now > flush_at:
                driver.flush_acks()
                flush_at = now + ACKS_NS
        driver.flush_acks()
        self._last_frame_ns = now

    def _drain(self, received: tuple[bytes, AnyFrame] | None, now: int) -> int:
        """Handle this message and what is behind it, and acknowledge all together; returns when it last read."""
        driver, receive = self._driver, self._transport.receive
        until, flush_at = now + DRAIN_NS, now + ACKS_NS
        while received is not None:
            driver.receive(received[0], received[1], now, in_bulk=True)
            if now > flush_at:
                if now > until:
                    break
                driver.flush_acks()
                flush_at = now + ACKS_NS
            received = receive(0)
            now = _monotonic_ns()
        else:
            self._drained_ns = now
        driver.flush_acks()
        return now

    def _tick(self, now: int) -> None:
        if self._drained_ns < now:  # what comes one at a time may have been waiting, or may not
            received, now = self._transport.receive(0), _monotonic_ns()
            if received is None:
                self._drained_ns = now
            else:
                self._driver.receive(received[0], received[1], now, in_bulk=False)
        if self._port_probe is not None and self._session.up:
            self._port_probe.cancel()
        self._driver.on_tick(now, self._drained_ns)
        self._next_tick_ns = now + TICK_NS
