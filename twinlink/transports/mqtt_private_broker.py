"""The broker of a listener, and which connections it has refused, as far as mosquitto's log tells."""

import re
from typing import TYPE_CHECKING

from .base import Transport
from .mosquitto import BrokerLimits, Mosquitto
from .mqtt_broker_guard import MqttBrokerGuard
from .mqtt_client import MqttOptions
from .refusals import Refusal

if TYPE_CHECKING:
    from .mqtt_identity import MqttIdentity

AROUND_A_FRAME = 1024  # octets of an MQTT packet besides the frame: 5 + topic + properties, with a margin
MAX_PENDING = 2048
ADDRESS = r"(?P<address>\S+)"
# mosquitto 2.0 logs each connection when it begins, when it is accepted, and when it fails.  It gives the address of a
# failed one only if the handshake was short; otherwise the newest pending connection is taken for it.
NEW = re.compile(rf"New connection from {ADDRESS} on port")
ACCEPTED = re.compile(rf"New client connected from {ADDRESS} as .*?(?: u'(?P<name>.*)')?\)\.?$")
FAILED = re.compile(rf"(?:Client connection from {ADDRESS} failed|OpenSSL Error\[0\]): error:.*:(?P<error>[^:]*?)\.?$")
NO_IDENTITY = {"peer did not return a certificate", "wrong version number", "http request", "unsupported protocol"}


class PrivateBroker(Mosquitto):
    """The broker of one listener.

    Args:
        transport: whose broker it is: its endpoint, longest frame, options and counters.
        authentication: of the listener; None without an identity.
    """

    def __init__(self, transport: Transport, authentication: "MqttIdentity | None") -> None:
        self._authentication = authentication
        self._pending: dict[str, None] = {}  # addresses of clients that were not accepted yet
        options: MqttOptions = transport.options
        super().__init__(
            transport.endpoint,
            max_packet=transport.max_frame + AROUND_A_FRAME,
            limits=BrokerLimits(options.connections + options.handshakes, options.keepalive_s),
            security=authentication.broker_files if authentication is not None else None,
        )
        endpoint = transport.endpoint
        self._guard = MqttBrokerGuard(f"mqtt {endpoint}", endpoint.port, self.pid, options, transport.limits_exceeded)

    def guard(self, own: str) -> None:
        """End connections that exceed a limit; ``own``: the address of the link's client.  Call `take_refusals` before.

        One thread at a time.
        """
        self._guard.check(own, self._pending.keys(), self._authentication is None)

    def stop(self) -> None:
        if hasattr(self, "_guard"):
            self._guard.close()
        super().stop()

    def take_refusals(self) -> list[Refusal]:
        """Those since the last call.  One thread at a time."""
        found = []
        for line in self.take_log().splitlines():
            if new := NEW.match(line):
                self._pending[new["address"]] = None
                if len(self._pending) > MAX_PENDING:
                    del self._pending[next(iter(self._pending))]
            elif accepted := ACCEPTED.match(line):
                self._pending.pop(accepted["address"], None)
                if self._authentication is not None and (reason := self._authentication.denies(accepted["name"])):
                    found.append(Refusal(accepted["name"], accepted["address"], reason))
            elif failed := FAILED.match(line):
                self._pending.pop(failed["address"], None)
                newest = self._pending.popitem()[0] if failed["address"] is None and self._pending else ""
                if reason := _reason(failed["error"]):
                    found.append(Refusal("", failed["address"] or newest, reason))
        return found


def _reason(error: str) -> str | None:
    """The reason of a `Refusal`, from OpenSSL's text; None: the connection has not failed because of keys.

    The text does not distinguish revoked, expired and unknown certificates.
    """
    if error in NO_IDENTITY:
        return "mechanism"
    if " alert " in error:
        return "key"
    return "unknown" if error == "certificate verify failed" else None
