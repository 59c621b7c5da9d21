"""The E3 agent of the emulated gNB: PDUs and time in, PDUs and events out; no sockets, no threads, no clock.

    setup channel     setupRequest         -> setupResponse (positive with an identifier, or negative)
                      no PDU at all        -> setupResponse, negative, to a random request id
    dApp -> RAN       subscriptionRequest  -> subscriptionResponse
                      subscriptionDelete   -> messageAck
                      dAppControlAction    -> messageAck; a positive one replaces the standing PRB block
                      dAppReport           -> messageAck
                      releaseMessage       -> messageAck; the dApp's subscription ends
                      messageAck           -> nothing
                      any other PDU        -> messageAck, negative
                      no PDU at all        -> nothing, as there is no message id

A PRB block belongs to the gNB, not to the dApp: it stands until the next one, also after the dApp has left.  In G2 it
ends with the last subscription.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import twinlink_e3 as e3

RAN_IDENTIFIER = "twinlink-ran-emulator"
# Between a subscriptionResponse and the first indication: dapps 0.0.6 sets ZMQ_CONFLATE on its socket, so an early
# indication overwrites the response, and the dApp waits for ever.
FIRST_INDICATION_GAP_NS = 300_000_000


@dataclass(frozen=True, slots=True)
class SetUp:
    """A dApp was given an identifier."""

    dapp: int
    name: str
    vendor: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A dApp subscribed; ``telemetry``: whether it gets indications."""

    dapp: int
    subscription: int
    telemetry: bool


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription ended; ``reason`` is ``deleted``, ``expired`` or ``released``."""

    dapp: int
    subscription: int
    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """A dApp replaced the PRB block; an empty list clears it."""

    dapp: int
    prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """A dApp reported the PRBs that it found occupied."""

    dapp: int
    prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A dApp left."""

    dapp: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A PDU was refused, with a negative response where the protocol has one."""

    reason: str


Event = SetUp | Subscribed | Unsubscribed | Blocked | Reported | Released | Refused


@dataclass(frozen=True, slots=True)
class _Subscription:
    telemetry: bool
    starts_ns: int
    ends_ns: int | None


@dataclass(slots=True)
class Agent:
    """The state of the E3 agent.

    Attributes:
        n_prbs: PRBs of the carrier; a block of others is refused.
        codec: of the only generation that it speaks.
        controls: whether it offers the control of PRB blocks; if not, it does not even acknowledge one, as libe3.
        answers_unreadable: whether it answers what it cannot decode on the setup channel; libe3 does since 0.0.8.
        block: the blocked PRBs.
        counters: PDUs by kind, ``malformed``, ``refused``, ``indications``.
    """

    n_prbs: int
    codec: e3.Codec = e3.G0
    controls: bool = True
    answers_unreadable: bool = True
    block: tuple[int, ...] = ()
    counters: Counter[str] = field(default_factory=Counter)
    _dapps: dict[int, _Subscription | None] = field(default_factory=dict)  # by identifier
    _events: list[Event] = field(default_factory=list)

    @property
    def max_dapps(self) -> int:
        """Number of dApp identifiers."""
        return 100 if self.codec.generation in ("G0", "G1") else 65535

    def setup(self, octets: bytes) -> bytes | None:
        """The answer to a message on the setup channel; None only without `answers_unreadable`."""
        try:
            request = self.codec.decode(octets)
        except e3.MalformedPdu as error:
            self._count_malformed("setup channel", error)
            return self._setup_refused(_message_id()) if self.answers_unreadable else None
        if not isinstance(request, e3.SetupRequest):
            self._refuse(f"{type(request).__name__} on the setup channel")
            return self._setup_refused(request.message_id)
        self.counters["SetupRequest"] += 1
        if request.e3ap_protocol_version != e3.PROTOCOL_VERSION:
            self._refuse(f"setup of {request.dapp_name!r} asks for E3AP {request.e3ap_protocol_version}, not 1.0.0")
            return self._setup_refused(request.message_id)
        free = next((number for number in range(1, self.max_dapps + 1) if number not in self._dapps), None)
        if free is None:
            self._refuse(f"setup of {request.dapp_name!r}: all {self.max_dapps} dApp identifiers are taken")
            return self._setup_refused(request.message_id)
        self._dapps[free] = None
        self._events.append(SetUp(free, request.dapp_name, request.vendor))
        return self.codec.encode(
            e3.SetupResponse(
                message_id=_message_id(),
                request_id=request.message_id,
                response_code="positive",
                ran_identifier=RAN_IDENTIFIER,
                e3ap_protocol_version=e3.PROTOCOL_VERSION,
                dapp_identifier=free,
                ran_function_list=(_spectrum_function(self.codec, self._controls),),
            )
        )

    def receive(self, octets: bytes, now_ns: int) -> list[bytes]:
        """Handle a message of a dApp; returns the PDUs to send."""
        try:
            pdu = self.codec.decode(octets)
        except e3.MalformedPdu as error:
            self._count_malformed("from a dApp", error)
            return []
        self.counters[type(pdu).__name__] += 1
        match pdu:
            case e3.SubscriptionRequest():
                return [self.codec.encode(self._subscribe(pdu, now_ns))]
            case e3.MessageAck():
                return []
            case e3.SubscriptionDelete():
                problem = self._unsubscribe(pdu.dapp_identifier, pdu.subscription_id)
            case e3.DAppControlAction() if not self.controls:
                self._refuse(f"control from dApp {pdu.dapp_identifier}: none is offered, so it is not answered")
                return []
            case e3.DAppControlAction():
                problem = self._control(pdu)
            case e3.DAppReport():
                problem = self._report(pdu)
            case e3.ReleaseMessage():
                problem = self._release(pdu.dapp_identifier)
            case _:
                problem = f"{type(pdu).__name__} is not for the RAN to receive here"
        if problem:
            self._refuse(problem)
        ack = e3.MessageAck(_message_id(), pdu.message_id, "negative" if problem else "positive")
        return [self.codec.encode(ack)]

    def indications(self, iq_data: bytes, now_ns: int) -> list[bytes]:
        """One indication for each dApp with an active I/Q subscription; ``iq_data`` is the protocolData."""
        pdus = []
        for identifier, subscription in list(self._dapps.items()):
            if subscription is None or not subscription.telemetry or now_ns < subscription.starts_ns:
                continue
            if subscription.ends_ns is not None and now_ns >= subscription.ends_ns:
                self._end_subscription(identifier, "expired")
                continue
            pdus.append(self.codec.encode(e3.IndicationMessage(_message_id(), identifier, e3.RAN_FUNCTION, iq_data)))
        self.counters["indications"] += len(pdus)
        return pdus

    def subscribers(self, now_ns: int) -> int:
        """Number of dApps with an active I/Q subscription."""
        return sum(
            subscription is not None and subscription.telemetry and now_ns >= subscription.starts_ns
            for subscription in list(self._dapps.values())  # may be called by another thread
        )

    def events(self) -> list[Event]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def _controls(self) -> tuple[int, ...]:
        return (e3.CONTROL_PRB_BLOCK,) if self.controls else ()

    def _subscribe(self, request: e3.SubscriptionRequest, now_ns: int) -> e3.SubscriptionResponse:
        identifier = request.dapp_identifier
        problem = None
        if identifier not in self._dapps:
            problem = f"dApp {identifier} is not set up"
        elif request.ran_function_identifier != e3.RAN_FUNCTION:
            problem = f"RAN function {request.ran_function_identifier} does not exist here"
        elif set(request.telemetry_identifier_list) - {e3.TELEMETRY_IQ}:
            problem = f"telemetry {request.telemetry_identifier_list} of RAN function 1 does not exist"
        elif not set(request.control_identifier_list) <= set(self._controls):
            problem = f"control {request.control_identifier_list} of RAN function 1 does not exist"
        if problem:
            self._refuse(f"subscription of dApp {identifier}: {problem}")
            return e3.SubscriptionResponse(_message_id(), request.message_id, identifier, "negative")
        # One subscription per dApp, with the dApp's identifier: a second request replaces the first.
        ends_ns = now_ns + request.subscription_time * 1_000_000_000 if request.subscription_time else None
        telemetry = bool(request.telemetry_identifier_list)
        self._dapps[identifier] = _Subscription(telemetry, now_ns + FIRST_INDICATION_GAP_NS, ends_ns)
        self._events.append(Subscribed(identifier, identifier, telemetry))
        granted: dict[str, int] = {}
        if self.codec is e3.ASN1_CODECS["G2b"]:  # the only one that has these fields
            granted = {"ran_function_identifier": e3.RAN_FUNCTION, "periodicity": 0}
        return e3.SubscriptionResponse(
            message_id=_message_id(),
            request_id=request.message_id,
            dapp_identifier=identifier,
            response_code="positive",
            subscription_id=identifier,
            telemetry_identifier_list=request.telemetry_identifier_list,
            control_identifier_list=request.control_identifier_list,
            **granted,
        )

    def _unsubscribe(self, identifier: int, subscription: int) -> str | None:
        if self._dapps.get(identifier) is None or identifier != subscription:
            return f"dApp {identifier} has no subscription {subscription}"
        self._end_subscription(identifier, "deleted")
        return None

    def _control(self, action: e3.DAppControlAction) -> str | None:
        sender = f"control from dApp {action.dapp_identifier}"
        if action.dapp_identifier not in self._dapps:
            return f"{sender}, which is not set up"
        if (action.ran_function_identifier, action.control_identifier) != (e3.RAN_FUNCTION, e3.CONTROL_PRB_BLOCK):
            return f"{sender}: RAN function {action.ran_function_identifier} has no control {action.control_identifier}"
        try:
            control = self.codec.decode_structure(e3.PrbBlacklistControl, action.action_data)
        except e3.MalformedPdu as error:
            return f"{sender}: {error}"
        prbs = tuple(sorted(set(control.blacklisted_prbs)))
        if prbs and prbs[-1] >= self.n_prbs:
            return f"{sender}: PRB {prbs[-1]} is outside the carrier of {self.n_prbs} PRBs"
        self.block = prbs
        self._events.append(Blocked(action.dapp_identifier, prbs))
        return None

    def _report(self, report: e3.DAppReport) -> str | None:
        sender = f"report from dApp {report.dapp_identifier}"
        if report.dapp_identifier not in self._dapps:
            return f"{sender}, which is not set up"
        try:
            content = self.codec.decode_structure(e3.PrbBlacklistReport, report.report_data)
        except e3.MalformedPdu as error:
            return f"{sender}: {error}"
        self._events.append(Reported(report.dapp_identifier, content.blacklisted_prbs))
        return None

    def _release(self, identifier: int) -> str | None:
        if identifier not in self._dapps:
            return f"release of dApp {identifier}, which is not set up"
        self._end_subscription(identifier, "released")
        del self._dapps[identifier]
        self._events.append(Released(identifier))
        return None

    def _end_subscription(self, identifier: int, reason: str) -> None:
        if self._dapps[identifier] is not None:
            self._dapps[identifier] = None
            self._events.append(Unsubscribed(identifier, identifier, reason))
        if self.block and self._ends_block and not any(self._dapps.values()):
            self.block = ()
            self._events.append(Blocked(identifier, ()))

    @property
    def _ends_block(self) -> bool:
        """Whether a block ends with the last subscription, as in OpenAirInterface since G2."""
        return self.codec.generation.startswith("G2")

    def _setup_refused(self, request_id: int) -> bytes:
        return self.codec.encode(e3.SetupResponse(_message_id(), request_id, "negative", RAN_IDENTIFIER))

    def _count_malformed(self, where: str, error: Exception) -> None:
        self.counters["malformed"] += 1
        self._events.append(Refused(f"{where}: {error}"))

    def _refuse(self, reason: str) -> None:
        self.counters["refused"] += 1
        self._events.append(Refused(reason))


def _message_id() -> int:
    return random.randint(1, 1000)  # random, as in libe3: no order


def _spectrum_function(codec: e3.Codec, controls: tuple[int, ...]) -> e3.RanFunctionDefinition:
    data = e3.RanFunctionData(b"Spectrum", 1, b"Uplink I/Q after the FFT and PRB blocks, played from a recording")
    return e3.RanFunctionDefinition(e3.RAN_FUNCTION, (e3.TELEMETRY_IQ,), controls, codec.encode_structure(data))
