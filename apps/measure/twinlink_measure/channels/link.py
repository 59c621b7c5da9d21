"""twinlink itself, over one of its transports, used as an application would."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import twinlink
from twinlink.transports import Endpoint

from .base import FLOW, Channel, PeerLost

_time_ns = time.time_ns
_SENT = ("lost", "acknowledged", "repaired")
_RECEIVED = ("received", "missing", "gaps", "duplicates", "reordered")


class LinkChannel(Channel):
    """A link; ``options`` holds ``transport``, ``reliability`` of its sender, and options of `twinlink.open`."""

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._payload = b""
        self._reflecting = False
        self._broker: Any = None
        self._link: twinlink.Link
        self._sender: twinlink.Sender

    def open(self) -> None:
        """Open the link, its sender and its receiver."""
        options = dict(self.options)
        transport, reliability = options.pop("transport"), options.pop("reliability", None)
        if self.drop_every:
            from ..loss_injector import lossy_transport

            transport = lossy_transport(transport, self.drop_every)
        if transport == "mqtt":
            options["private_broker"] = False
            if self.listening:  # started here, so that its process id is known
                from twinlink.transports.mosquitto import Mosquitto

                self._broker = Mosquitto(self.endpoint)
                self.broker_pid = self._broker.pid
        side: dict[str, Any] = {"listen" if self.listening else "connect": str(self.endpoint)}
        # Without that of the environment: the two sides of a sweep may be on one host.
        self._link = twinlink.open(transport, node=self.node, identity="", **side, **options)
        self._sender = self._link.sender(FLOW, on_ack=self._on_ack, reliability=reliability)
        self._link.receiver(FLOW, handler=self._on_message)

    @property
    def link(self) -> twinlink.Link:
        """The link itself."""
        return self._link

    def close(self) -> None:
        """Close the link and end the broker."""
        self._link.close()
        if self._broker is not None:
            self._broker.stop()

    def settings(self) -> dict[str, Any]:
        """The options as given; others have the library's defaults."""
        return dict(self.options)

    def wait_ready(self, timeout_s: float) -> None:
        """Return when the other end is up."""
        try:
            self._link.wait_ready(timeout_s)
        except twinlink.PeerTimeout as error:
            raise PeerLost(str(error)) from error

    def load(self, octets: int) -> None:
        """Prepare a payload of this size."""
        self._payload = bytes(octets)

    def send(self, scheduled_ns: int = 0) -> None:
        """Send the next message."""
        before_ns = _time_ns()
        try:
            sequence = self._sender.send(self._payload)
        except (twinlink.SendTimeout, twinlink.TransportError) as error:
            raise PeerLost(str(error)) from error
        self.next = sequence + 1
        self.rows.sent(sequence, scheduled_ns, before_ns, 0)

    def exchange(self, timeout_s: float) -> bool:
        """Send the next message and flush: the waiting thread is the one that receives."""
        self.send()
        try:
            self._sender.flush(timeout_s)
        except twinlink.AckTimeout as error:  # it may name a message that was lost before
            return not any(first < self.next <= end for first, end in error.missing)
        return True

    def _on_ack(self, ack: twinlink.Ack) -> None:
        self.rows.answered(ack.sequence, ack.rtt_ns, *ack[2:6])

    def collect(self) -> None:
        """Nothing to do: the link's own thread receives acks."""

    def settle(self, quiet_s: float, cancelled: threading.Event) -> None:
        """Return when every message is answered, or answers have ceased."""
        self.rows.wait(quiet_s, cancelled)

    def peer_gone(self) -> str | None:
        """Whether the link has no peer any more."""
        return None if self._link.peers() else "the link says that its peer is gone"

    def reflect(self, octets: int, bulk: bool) -> None:
        """Record arrivals; the link answers by itself."""
        self._reflecting = True

    def stop(self) -> None:
        """Stop recording."""
        self._reflecting = False

    def _on_message(self, message: twinlink.Message) -> None:
        if self._reflecting:
            self.received.arrived(message.sequence, len(message.payload), message.sent_ns, message.received_ns)

    def counters(self) -> dict[str, int]:
        """Counters of the link over all flows, since MGEN's messages have their own."""
        stats: Mapping[str, Any] = self._link.stats()  # its keys are variables here
        sent, received = stats["sent"].values(), stats["received"].values()
        return {
            **{name: sum(each[name] for each in sent) for name in _SENT},
            **{name: sum(each[name] for each in received) for name in _RECEIVED},
            "malformed": sum(stats["malformed"].values()),
        }
