"""The end of a link: calls that are due are made, the peers get what is announced, and everything is given back."""

import contextlib
import logging
import time
from collections.abc import Mapping

from ..errors import TransportError
from ..process.malloc import trim
from ..process.signals import defer_signals
from ..protocol.rangeset import RangeSet
from ..transports import Transport
from .driver import SessionDriver
from .heartbeat_thread import HeartbeatThread
from .port_probe import PortProbe
from .sender import Sender
from .transmit_thread import TransmitThread

STOP_S = 0.1  # for what is being sent: a transport may hold it while a peer is stalled
MAX_LOGGED_FLOWS = 3  # each with a line of its own
MAX_NAMED_FLOWS = 20  # in the line for the others
LOSS_ROUNDS = 16  # of reporting losses, 10 ms of handlers and 1000 ranges each

logger = logging.getLogger("twinlink")


class Shutdown:
    """Ends one link."""

    def __init__(
        self,
        transport: Transport,
        driver: SessionDriver,
        heartbeat_thread: HeartbeatThread,
        transmit_thread: TransmitThread,
        port_probe: PortProbe | None,
        senders: Mapping[str, Sender],
    ) -> None:
        self._transport = transport
        self._driver = driver
        self._senders = senders
        self._heartbeat_thread = heartbeat_thread
        self._transmit_thread = transmit_thread
        self._port_probe = port_probe
        self._name = ",".join(map(str, transport.endpoints))

    def run(self) -> None:
        """Make the calls that are due, then leave.  Called once, by the thread that leads."""
        callbacks, deadline = self._driver.callbacks, 0.0
        try:
            self._driver.report_undelivered()
            # Rounds are counted: a time limit would pass while the machine stands still.
            for _ in range(LOSS_ROUNDS):
                if not self._driver.report_losses():
                    break
                callbacks.run()
            deadline = time.monotonic() + STOP_S
            callbacks.run(STOP_S / 2)  # of what has been acknowledged
            if callbacks.pending:
                logger.warning("link to %s closed; %d calls of handlers were not made", self._name, callbacks.count)
        finally:
            self._log(self._give_back(deadline))

    def close_flows(self) -> None:
        """Name what is not acknowledged, and keep no message any more."""
        self._log(self._driver.close_flows())

    def _log(self, ended: list[tuple[str, str, RangeSet]]) -> None:
        """Log what `SessionDriver.close_flows` has said."""
        lacking = [one for one in ended if one[2]]
        for flow, by, missing in lacking[:MAX_LOGGED_FLOWS]:
            logger.warning("link to %s closed; on flow %s not acknowledged%s: %s", self._name, flow, by, missing)
        if more := lacking[MAX_LOGGED_FLOWS:]:
            logger.warning(
                "link to %s closed; on %d more flows %d messages were not acknowledged: %s",
                self._name,
                len(more),
                sum(missing.count() for _, _, missing in more),
                ", ".join([flow for flow, _, _ in more[:MAX_NAMED_FLOWS]] + ["..."] * (len(more) > MAX_NAMED_FLOWS)),
            )

    @defer_signals
    def _give_back(self, deadline: float) -> list[tuple[str, str, RangeSet]]:
        """Say goodbye, and give back threads and transport; returns what `SessionDriver.close_flows` says."""
        transmitters = [sender._transmitter for sender in list(self._senders.values())]
        self._heartbeat_thread.stop(deadline - time.monotonic())
        self._transmit_thread.stop(deadline - time.monotonic())  # so that the bye is the last frame
        with contextlib.suppress(TransportError):
            for transmitter in transmitters:
                transmitter.transmit_final()
        with contextlib.suppress(TransportError):
            self._driver.send_bye()
        for transmitter in transmitters:
            transmitter.wait_for_send(deadline - time.monotonic())
        if self._port_probe is not None:
            self._port_probe.cancel()
        self._driver.closed = True
        self._transport.close()
        ended = self._driver.close_flows()
        trim()
        return ended
