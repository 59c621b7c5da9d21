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
ends with the last subscription to RAN function 1, and so does a sensing policy.

By default there is RAN function 1 with I/Q in PDUs.  With `by_reference`, I/Q is of RAN function 2, and RAN function 1
has sensing ranges and control; without control it is absent, as in OpenAirInterface upstream.  RAN function 100, with
KPMs, is no gNB's.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import twinlink_e3 as e3

from .events import Blocked, Event, PolicySet, Refused, Released, Reported, SetUp, Subscribed, Unsubscribed

RAN_IDENTIFIER = "twinlink-ran-emulator"
# Between a subscriptionResponse and the first indication: dapps 0.0.6 sets ZMQ_CONFLATE on its socket, so an early
# indication overwrites the response, and the dApp waits for ever.
FIRST_INDICATION_GAP_NS = 300_000_000


@dataclass(frozen=True, slots=True)
class _Subscription:
    number: int
    telemetry: tuple[int, ...]
    starts_ns: int
    ends_ns: int | None
    period_ns: int


@dataclass(slots=True)
class Agent:
    """The state of the E3 agent.

    Attributes:
        n_prbs: PRBs of the carrier; a block of others is refused.
        codec: of the only generation that it speaks.
        controls: whether it offers the control of PRB blocks; if not, it does not even acknowledge one, as libe3.
        answers_unreadable: whether it answers what it cannot decode on the setup channel; libe3 does since 0.0.8.
        by_reference: whether I/Q is in shared memory, of RAN function 2.
        free_ids: dApp identifiers that are free at the start; None: all that the generation has.
        kpms: whether it reports KPMs, as a RAN function of twinlink's own.
        block: the blocked PRBs.
        policy: the masks of the sensing policy, which changes nothing else here.
        counters: PDUs by kind, ``malformed``, ``refused``, ``indications``.
    """

    n_prbs: int
    codec: e3.Codec = e3.G0
    controls: bool = True
    answers_unreadable: bool = True
    by_reference: bool = False
    free_ids: int | None = None
    kpms: bool = False
    block: tuple[int, ...] = ()
    policy: tuple[int, ...] = ()
    counters: Counter[str] = field(default_factory=Counter)
    _dapps: set[int] = field(default_factory=set)  # identifiers
    _subscriptions: dict[tuple[int, int], _Subscription] = field(default_factory=dict)  # by dApp and RAN function
    _indicated_ns: dict[int, int] = field(default_factory=dict)  # by RAN function
    _events: list[Event] = field(default_factory=list)
    _usual_period_us: ClassVar[int] = 0  # between indications, if a dApp does not say

    @property
    def max_dapps(self) -> int:
        """Number of dApp identifiers that it can give at once."""
        all_of_them = 100 if self.codec.generation in ("G0", "G1") else 65535
        return all_of_them if self.free_ids is None else min(self.free_ids, all_of_them)

    def setup(self, octets: bytes) -> bytes | None:
        """The answer to a message on the setup channel; None only without `answers_unreadable`."""
        try:
            request = self.codec.decode(octets)
        except e3.MalformedPdu as error:
            self._count_malformed("setup channel", error)
            return self._setup_refused(message_id()) if self.answers_unreadable else None
        if not isinstance(request, e3.SetupRequest):
            self._refuse(f"{type(request).__name__} on the setup channel")
            return self._setup_refused(request.message_id)
        self.counters["SetupRequest"] += 1
        if request.e3ap_protocol_version != e3.PROTOCOL_VERSION:
            self._refuse(f"setup of {request.dapp_name!r} asks for E3AP {request.e3ap_protocol_version}, not 1.0.0")
            return self._setup_refused(request.message_id)
        free = self._free_identifier()
        if free is None:
            self._refuse(f"setup of {request.dapp_name!r}: all {self.max_dapps} dApp identifiers are taken")
            return self._setup_refused(request.message_id)
        self._dapps.add(free)
        self._events.append(SetUp(free, request.dapp_name, request.vendor))
        return self._encode(
            e3.SetupResponse(
                message_id=message_id(),
                request_id=request.message_id,
                response_code="positive",
                ran_identifier=RAN_IDENTIFIER,
                e3ap_protocol_version=e3.PROTOCOL_VERSION,
                dapp_identifier=free,
                ran_function_list=tuple(self._functions.values()),
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
                return [self._encode(self._subscribe(pdu, now_ns))]
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
        ack = e3.MessageAck(message_id(), pdu.message_id, "negative" if problem else "positive")
        return [self._encode(ack)]

    def indications(self, data: bytes, now_ns: int, function: int = e3.RAN_FUNCTION) -> list[bytes]:
        """One indication for each dApp with an active subscription; ``data`` is the protocolData.

        As in OpenAirInterface, the subscription with the shortest period decides how often there is one for all.
        """
        for dapp, subscribed in list(self._subscriptions):
            subscription = self._subscriptions[dapp, subscribed]
            if subscription.ends_ns is not None and now_ns >= subscription.ends_ns:
                self._end_subscription(dapp, subscribed, "expired")
        dapps = self._receivers(function, now_ns)
        periods = [self._subscriptions[dapp, function].period_ns for dapp in dapps]
        if not dapps or now_ns < self._indicated_ns.get(function, now_ns - min(periods)) + min(periods):
            return []
        self._indicated_ns[function] = now_ns
        self.counters["indications"] += len(dapps)
        return [self._indication(dapp, function, data) for dapp in dapps]

    def subscribers(self, now_ns: int, function: int | None = None) -> int:
        """Number of dApps with an active subscription to I/Q, or to telemetry of a RAN function."""
        return len(self._receivers(self.iq_function if function is None else function, now_ns))

    @property
    def iq_function(self) -> int:
        """The RAN function of I/Q."""
        return e3.L1_KPM_FUNCTION if self.by_reference else e3.RAN_FUNCTION

    def events(self) -> list[Event]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events

    def _free_identifier(self) -> int | None:
        return next((number for number in range(1, self.max_dapps + 1) if number not in self._dapps), None)

    def _encode(self, pdu: e3.Pdu) -> bytes:
        return self.codec.encode(pdu)

    def _indication(self, dapp: int, function: int, data: bytes) -> bytes:
        return self._encode(e3.IndicationMessage(message_id(), dapp, function, data))

    def _receivers(self, function: int, now_ns: int) -> list[int]:
        """The dApps that get indications of a RAN function."""
        return [
            dapp
            for (dapp, subscribed), subscription in list(self._subscriptions.items())  # may be called by another thread
            if subscribed == function
            and subscription.telemetry
            and now_ns >= subscription.starts_ns
            and (subscription.ends_ns is None or now_ns < subscription.ends_ns)
        ]

    @property
    def _functions(self) -> dict[int, e3.RanFunctionDefinition]:
        controls: tuple[int, ...] = (e3.CONTROL_PRB_BLOCK,) if self.controls else ()
        if controls and self.by_reference and self.codec.generation.startswith("G2"):
            controls += (e3.CONTROL_SENSING_POLICY,)
        functions = {}
        if self.by_reference:
            functions[e3.L1_KPM_FUNCTION] = _slot_function(self.codec)
        if self.controls or not self.by_reference:
            functions[e3.RAN_FUNCTION] = _spectrum_function(self.codec, controls)
        if self.kpms:
            functions[e3.KPM_FUNCTION] = _kpm_function(self.codec)
        return functions

    def _subscribe(self, request: e3.SubscriptionRequest, now_ns: int) -> e3.SubscriptionResponse:
        identifier, number = request.dapp_identifier, request.ran_function_identifier
        function = self._functions.get(number)
        problem = None
        if identifier not in self._dapps:
            problem = f"dApp {identifier} is not set up"
        elif function is None:
            problem = f"RAN function {number} does not exist here"
        elif not set(request.telemetry_identifier_list) <= set(function.telemetry_identifier_list):
            problem = f"telemetry {request.telemetry_identifier_list} of RAN function {number} does not exist"
        elif not set(request.control_identifier_list) <= set(function.control_identifier_list):
            problem = f"control {request.control_identifier_list} of RAN function {number} does not exist"
        if problem:
            self._refuse(f"subscription of dApp {identifier}: {problem}")
            return e3.SubscriptionResponse(message_id(), request.message_id, identifier, "negative")
        # One subscription per dApp and RAN function: a second request replaces the first.
        ends_ns = now_ns + request.subscription_time * 1_000_000_000 if request.subscription_time else None
        telemetry = request.telemetry_identifier_list
        period_us = self._usual_period_us if request.periodicity is None else request.periodicity
        subscription = _Subscription(
            self._subscription_number(identifier, number), telemetry, now_ns + FIRST_INDICATION_GAP_NS, ends_ns,
            period_us * 1000,
        )  # fmt: skip
        self._subscriptions[identifier, number] = subscription
        self._events.append(Subscribed(identifier, subscription.number, bool(telemetry), number))
        granted: dict[str, Any] = {}
        if self.codec in (e3.ASN1_CODECS["G2b"], e3.JSON_CODECS["nested"]):  # the others lack these fields
            granted = {"ran_function_identifier": number, "periodicity": period_us}
        return e3.SubscriptionResponse(
            message_id=message_id(),
            request_id=request.message_id,
            dapp_identifier=identifier,
            response_code="positive",
            subscription_id=subscription.number,
            telemetry_identifier_list=request.telemetry_identifier_list,
            control_identifier_list=request.control_identifier_list,
            **granted,
        )

    def _subscription_number(self, dapp: int, function: int) -> int:
        """The number of a subscription: the dApp's identifier if that is free, otherwise the lowest free number."""
        if (dapp, function) in self._subscriptions:
            return self._subscriptions[dapp, function].number
        taken = {subscription.number for subscription in self._subscriptions.values()}
        return min(set(range(1, len(taken) + 2)) - taken) if dapp in taken else dapp

    def _unsubscribe(self, identifier: int, subscription: int) -> str | None:
        for dapp, function in list(self._subscriptions):
            if dapp == identifier and self._subscriptions[dapp, function].number == subscription:
                self._end_subscription(dapp, function, "deleted")
                return None
        return f"dApp {identifier} has no subscription {subscription}"

    def _control(self, action: e3.DAppControlAction) -> str | None:
        sender = f"control from dApp {action.dapp_identifier}"
        if action.dapp_identifier not in self._dapps:
            return f"{sender}, which is not set up"
        offered = self._functions[e3.RAN_FUNCTION].control_identifier_list
        if action.ran_function_identifier != e3.RAN_FUNCTION or action.control_identifier not in offered:
            return f"{sender}: RAN function {action.ran_function_identifier} has no control {action.control_identifier}"
        try:
            if action.control_identifier == e3.CONTROL_SENSING_POLICY:
                policy = self.codec.decode_structure(e3.SensingPolicyControl, action.action_data)
                self._set_policy(action.dapp_identifier, () if policy.deactivate else policy.mask_per_slot)
                return None
            control = self.codec.decode_structure(e3.PrbBlacklistControl, action.action_data)
        except e3.MalformedPdu as error:
            return f"{sender}: {error}"
        prbs = tuple(sorted(set(control.blacklisted_prbs)))
        if prbs and prbs[-1] >= self.n_prbs:
            return f"{sender}: PRB {prbs[-1]} is outside the carrier of {self.n_prbs} PRBs"
        self.block = prbs
        self._events.append(Blocked(action.dapp_identifier, prbs))
        return None

    def _set_policy(self, dapp: int, mask_per_slot: tuple[int, ...]) -> None:
        self.policy = mask_per_slot
        self._events.append(PolicySet(dapp, mask_per_slot))

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
        for dapp, function in list(self._subscriptions):
            if dapp == identifier:
                self._end_subscription(dapp, function, "released")
        self._dapps.remove(identifier)
        self._events.append(Released(identifier))
        return None

    def _end_subscription(self, identifier: int, function: int, reason: str) -> None:
        subscription = self._subscriptions.pop((identifier, function))
        self._events.append(Unsubscribed(identifier, subscription.number, reason))
        left = any(subscribed == e3.RAN_FUNCTION for _, subscribed in self._subscriptions)
        if self.block and self._ends_block and not left:
            self.block = ()
            self._events.append(Blocked(identifier, ()))
        if self.policy and not left:
            self._set_policy(identifier, ())

    @property
    def _ends_block(self) -> bool:
        """Whether a block ends with the last subscription, as in OpenAirInterface since G2."""
        return self.codec.generation.startswith("G2")

    def _setup_refused(self, request_id: int) -> bytes:
        return self._encode(e3.SetupResponse(message_id(), request_id, "negative", RAN_IDENTIFIER))

    def _count_malformed(self, where: str, error: Exception) -> None:
        self.counters["malformed"] += 1
        self._events.append(Refused(f"{where}: {error}"))

    def _refuse(self, reason: str) -> None:
        self.counters["refused"] += 1
        self._events.append(Refused(reason))


def message_id() -> int:
    """The id of the next PDU."""
    return random.randint(1, 1000)  # random, as in libe3: no order


def _spectrum_function(codec: e3.Codec, controls: tuple[int, ...]) -> e3.RanFunctionDefinition:
    data = e3.RanFunctionData(b"Spectrum", 1, b"Uplink I/Q after the FFT and PRB blocks, played from a recording")
    return e3.RanFunctionDefinition(e3.RAN_FUNCTION, (e3.TELEMETRY_IQ,), controls, codec.encode_structure(data))


def _slot_function(codec: e3.Codec) -> e3.RanFunctionDefinition:
    data = e3.RanFunctionData(b"L1-KPM", 1, b"Uplink I/Q of whole slots in shared memory, played from a recording")
    return e3.RanFunctionDefinition(e3.L1_KPM_FUNCTION, (e3.TELEMETRY_SLOT,), (), codec.encode_structure(data))


def _kpm_function(codec: e3.Codec) -> e3.RanFunctionDefinition:
    data = e3.RanFunctionData(e3.KPM_NAME, 1, b"PRB usage of the uplink by the scheduler's grants, once a second")
    return e3.RanFunctionDefinition(e3.KPM_FUNCTION, (e3.TELEMETRY_KPM,), (), codec.encode_structure(data))
