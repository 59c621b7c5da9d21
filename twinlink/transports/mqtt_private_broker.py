"""The broker of a listener, and which connections it has refused, as far as mosquitto's log tells."""

import re
from collections import deque
from typing import TYPE_CHECKING

from .base import Endpoint
from .mosquitto import Mosquitto
from .refusals import Refusal

if TYPE_CHECKING:
    from .mqtt_identity import MqttIdentity

AROUND_A_FRAME = 1024  # octets of an MQTT packet besides the frame: 5 + topic + properties, with a margin
MAX_PENDING = 64
ADDRESS = r"(?P<address>\S+)"
# mosquitto 2.0 logs each connection when it begins, when it is accepted, and when it fails.  It gives the address of a
# failed one only if the handshake was short; otherwise the newest pending connection is taken for it.
NEW = re.compile(rf"New connection from {ADDRESS} on port")
ACCEPTED = re.compile(rf"New client connected from {ADDRESS} as .* u'(?P<name>.*)'\)")
FAILED = re.compile(rf"(?:Client connection from {ADDRESS} failed|OpenSSL Error\[0\]): error:.*:(?P<error>[^:]*?)\.?$")
NO_IDENTITY = {"peer did not return a certificate", "wrong version number", "http request", "unsupported protocol"}


class PrivateBroker(Mosquitto):
    """Of one listener.

    Args:
        endpoint: where it listens.
        max_frame: octets of the longest frame that it is to forward.
        authentication: of the listener; None without an identity.
    """

    def __init__(self, endpoint: Endpoint, max_frame: int, authentication: "MqttIdentity | None") -> None:
        self._authentication = authentication
        self._pending: deque[str] = deque(maxlen=MAX_PENDING)
        security = authentication.broker_files if authentication is not None else None
        super().__init__(endpoint, max_packet=max_frame + AROUND_A_FRAME, security=security)

    def take_refusals(self) -> list[Refusal]:
        """Those since the last call.  One thread at a time."""
        found = []
        for line in self.take_log().splitlines():
            if new := NEW.match(line):
                self._pending.append(new["address"])
            elif accepted := ACCEPTED.match(line):
                if accepted["address"] in self._pending:
                    self._pending.remove(accepted["address"])
                if self._authentication is not None and (reason := self._authentication.denies(accepted["name"])):
                    found.append(Refusal(accepted["name"], accepted["address"], reason))
            elif failed := FAILED.match(line):
                newest = self._pending.pop() if failed["address"] is None and self._pending else ""
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
