"""Why an MQTT link has no peer, as far as keys or the broker are the cause."""

import math
import time
from typing import TYPE_CHECKING, Any

from . import identity_advice
from .base import Endpoint
from .mqtt_broker_log import BrokerLog
from .refusals import Refusal, Refusals
from .tls_handshakes import TlsHandshakes

if TYPE_CHECKING:
    from ..protocol.authentication import AuthenticatedPeer
    from .mqtt_identity import MqttIdentity

# Reason codes of CONNACK and PUBACK (MQTT 5.0 section 2.4) for a client that may not connect or publish
BAD_CREDENTIALS, NOT_AUTHORIZED, BANNED, BAD_METHOD = 0x86, 0x87, 0x8A, 0x8C
FAILURE = 0x80  # the least reason code of a failure
REFUSED = {BAD_CREDENTIALS, NOT_AUTHORIZED, BANNED, BAD_METHOD}
DENIED_S = 0.5  # between two attempts to connect, as long as the broker refuses
REPORT_S, MAX_NAMES = 1.0, 1024  # limits for reports of names that are not trusted
RECENT_S = 10.0  # a refusal is taken for the cause of what happens now
UNCONFIRMED_S = 1.0  # a broker loses no hello: a peer that confirms none for so long refuses this side


class MqttProblem:
    """The problem of one transport with its broker.

    ``authentication`` is of this side, None without an identity; ``log`` takes what the broker refuses.
    """

    def __init__(
        self, endpoint: Endpoint, authentication: "MqttIdentity | None", refusals: Refusals, log: BrokerLog
    ) -> None:
        self._log = log
        self._refusal: tuple[str, float] | None = None  # for a person, the last one; and until when it counts
        self._is_repeated = False  # whether it was met before
        self._endpoint, self._authentication, self._refusals = endpoint, authentication, refusals
        self._where = f"the broker at {endpoint.host} port {endpoint.port}"
        watched = authentication.watched if authentication is not None else None
        self._handshakes = TlsHandshakes(endpoint, watched)
        self._connack: str | None = None  # why the broker refuses this side
        self._may_publish = True
        self._refused: dict[str, float] = {}  # when a name that is not trusted was last reported
        self._unknown: str | None = None  # the name of a peer that is not trusted, and says hello
        # When a trusted peer first said hello without confirming one of this side, and the peer's name.
        self._unconfirmed: tuple[float, str] | None = None

    def on_connack(self, code: int, reason: str) -> None:
        """The broker has answered; ``reason`` is the text of the code."""
        self._connack = reason if code in REFUSED else None
        self._unknown, self._unconfirmed = None, None
        if code >= FAILURE:
            self.on_refused(f"refuses us: {reason}")
        elif self._refusal is not None:
            self._refusal = self._refusal[0], min(self._refusal[1], time.monotonic() + RECENT_S)

    def on_terms(self, properties: Any, qos: int) -> int:
        """The broker has accepted this side, with these properties of its CONNACK; returns the QoS to use.

        The client heeds the Server Keep Alive itself.  A link uses no retained messages, topic aliases, subscription
        identifiers and shared subscriptions, and always gives its client identifier.
        """
        most = getattr(properties, "MaximumQoS", 2)
        if most < qos:
            self._log.note(
                f"takes messages with QoS {most} at most, so the option qos={qos} has no effect: raise it there "
                "(max_qos of mosquitto), or leave the option out; the link itself retransmits what is lost"
            )
        if not getattr(properties, "WildcardSubscriptionAvailable", 1):
            self.on_refused("permits no wildcards in subscriptions, which a link needs: use another broker", lasts=True)
        return min(qos, int(most))

    def on_suback(self, reasons: dict[str, Any]) -> None:
        """The broker has answered a SUBSCRIBE, with these reason codes by filter."""
        refused = {one: str(reason) for one, reason in reasons.items() if reason.is_failure}
        if refused:
            why = ", ".join(dict.fromkeys(refused.values()))
            self.on_refused(f"does not let us subscribe to {', '.join(refused)}: {why}", lasts=True)

    def on_refused(self, what: str, lasts: bool = False) -> None:
        """The broker refuses something; ``what`` says it with its reason, ``lasts``: until the next connection."""
        self._refusal = f"{self._where} {what}", math.inf if lasts else time.monotonic() + RECENT_S
        self._is_repeated = self._log.note(what)

    @property
    def refusal(self) -> str | None:
        """For a person, what the broker refuses this side; None: nothing that is known."""
        return self._refusal[0] if self._refusal is not None and time.monotonic() < self._refusal[1] else None

    def on_hello_answered(self, code: int) -> None:
        """The broker has acknowledged a hello of this side; mosquitto may end the connection after a refusal."""
        self._may_publish = code not in REFUSED

    @property
    def pause_s(self) -> float:
        """Before the next attempt to connect, at least."""
        is_refused = self._connack is not None or (self._is_repeated and self.refusal is not None)
        return DENIED_S if is_refused or not self._may_publish else 0.0

    def on_unknown(self, name: str) -> None:
        """A hello came through a broker below the name of a node that is not trusted here."""
        assert self._authentication is not None
        self._unknown = name
        now = time.monotonic()
        if now - self._refused.get(name, -REPORT_S) < REPORT_S:
            return
        if len(self._refused) >= MAX_NAMES:
            self._refused.clear()
        self._refused[name] = now
        if reason := self._authentication.denies(name):
            self._refusals.add(Refusal(name, f"{self._endpoint.host}:{self._endpoint.port}", reason))

    def on_hello(self, peer: "AuthenticatedPeer | None", hears_us: bool) -> None:
        """A hello of a trusted peer came; ``hears_us``: whether it confirms one of this side."""
        if hears_us or peer is None:
            self._unconfirmed = None
        elif self._unconfirmed is None:
            self._unconfirmed = time.monotonic(), peer.name

    def find(self, connected: bool) -> str | None:
        """What is wrong and what repairs it, for a person; ``connected``: whether the broker has accepted this side."""
        self._handshakes.check(connected)
        if self._connack is not None and not connected:
            return self._refused_by_broker(self._connack)
        if not connected and (found := self._handshake_problem()):
            return found
        authentication = self._authentication
        if authentication is None:
            return None
        watched = authentication.watched
        if not self._may_publish:
            return self._denied(authentication)
        if not (connected and authentication.through_broker):
            return None
        if self._unconfirmed is not None and time.monotonic() - self._unconfirmed[0] > UNCONFIRMED_S:
            return identity_advice.refused_there(self._unconfirmed[1], watched.identity)
        if not watched.names:
            return identity_advice.none_trusted(watched.identity.folder)
        if self._unknown is not None:
            return identity_advice.refused_behind(self._unknown, self._where, watched.identity.folder)
        return None

    def _denied(self, authentication: "MqttIdentity") -> str:
        own = authentication.watched.identity
        if not authentication.through_broker:
            where = f"the listener at {self._endpoint.host} port {self._endpoint.port}"
            return identity_advice.refused_there(where, own)
        return (
            f"{self._where} does not let {own.name} publish: its access list has not this name, or has it no more. "
            f"{_rewrite(own.name)}"
        )

    def _handshake_problem(self) -> str | None:
        found = self._handshakes.problem
        if found is None or self._authentication is None or not self._authentication.watched.brokers:
            return found
        name = self._authentication.watched.name
        return f"{found}. If it is an external broker, trust its line here with --role broker. {_rewrite(name)}"

    def _refused_by_broker(self, reason: str) -> str:
        if self._authentication is None:
            return (
                f"{self._where} refuses this side, which has no identity ({reason}): have the broker admit clients "
                "without a password, or make an identity with `twinlink key new`, and give it with --identity"
            )
        return f"{self._where} refuses this side ({reason}). {_rewrite(self._authentication.watched.name)}"


def _rewrite(name: str) -> str:
    return (
        f"At the broker, run `twinlink key trust LINE --as {name} --role ROLE` with the line that `twinlink key show` "
        "prints here, then `twinlink key broker`, and restart mosquitto"
    )
