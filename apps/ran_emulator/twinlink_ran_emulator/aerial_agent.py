"""The agent of NVIDIA's Aerial SDK, as its dApps know it; `agent` says what is not said here.

    setup channel     JSON              -> setupResponse with RAN function 2, whose streams ranFunctionData describes
                      anything else     -> a refusal without type and message id
    dApp -> RAN       subscriptionDelete -> subscriptionResponse
                      dAppControlAction  -> messageAck, negative
                      releaseMessage     -> nothing
    of a dApp that is not set up        -> nothing

PDUs have sorted keys and no timestamp.  An indication holds what was subscribed of a slot, ten times a second unless
a dApp asks for more.  A dApp identifier is given once.  Unlike there, a dApp that has no subscription stays, and JSON
that is no object on the setup channel is refused, which ends that agent.

    release   header of the memory   a slot is indicated     several cells
    26-1      64 octets              before it is written    the first is named, and their number
    26-1.2    200 octets             before it is written    the first is named, and their number
    next      200 octets             when it is written      all are named, in ``cells``
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import twinlink_e3 as e3
from twinlink_e3 import ran_buffers

from .agent import Agent, message_id

Message = dict[str, Any]
RAN_IDENTIFIER = "NVIDIA_L1"
ROWS = 120  # of each of the two buffers of I/Q
# The name of each stream, which is its field in indications, its type, and its description.
_STREAMS = {
    1: ("iq_samples", "array(float16)", "I/Q of the slot, in shared memory"),
    4: ("timestamp", "uint64", "Unix time of the slot in ns"),
    5: ("sfn", "uint16", "system frame number"),
    6: ("slot", "uint16", "slot in the frame"),
    7: ("cell_id", "uint16", "physical cell"),
    8: ("n_rx_ant", "uint16", "antennas in the row"),
    10: ("n_cells", "uint16", "cells in the slot"),
    25: ("rb_start", "uint16", "first PRB of a UE's grant"),
    26: ("rb_size", "uint16", "PRBs of a UE's grant"),
}
_PLACES_OF_UES = {"ue_metrics", "ues"}  # the second in ``cells``
_OF_SLOT = frozenset(("timestamp", "sfn", "slot", "n_cells"))  # the others are of a cell


@dataclass(frozen=True, slots=True)
class Release:
    """A release of that SDK.

    Attributes:
        version: of the layout of the shared memory.
        indicates_first: whether it indicates a slot before it writes its row.
        names_cells: whether an indication names each cell, in ``cells``.
    """

    version: int = ran_buffers.VERSION_SRS
    indicates_first: bool = True
    names_cells: bool = False


RELEASES = {
    "26-1": Release(ran_buffers.VERSION),
    "26-1.2": Release(),
    "next": Release(indicates_first=False, names_cells=True),  # the state after 26-1.2
}


class AerialAgent(Agent):
    """The state of the E3 agent; ``n_prbs`` as in `Agent`."""

    _usual_period_us = 100_000

    def __init__(self, n_prbs: int, release: Release = RELEASES["26-1.2"]) -> None:
        super().__init__(n_prbs, e3.JSON_CODECS["nested"], controls=False, by_reference=True)
        self._release_of_sdk = release
        self._given = 0

    def setup(self, octets: bytes) -> bytes | None:
        """See `Agent`."""
        try:
            json.loads(octets)
        except (ValueError, RecursionError) as error:
            self._count_malformed("setup channel", error)
            return _dump({"responseCode": "negative", "message": "invalid JSON format"})
        return super().setup(octets)

    def receive(self, octets: bytes, now_ns: int) -> list[bytes]:
        """See `Agent`."""
        try:
            pdu = self.codec.decode(octets)
        except e3.MalformedPdu:
            return super().receive(octets, now_ns)  # counts it
        dapp = getattr(pdu, "dapp_identifier", None)
        if dapp not in self._dapps:
            self.counters[type(pdu).__name__] += 1
            self._refuse(f"{type(pdu).__name__} of dApp {dapp}, which is not set up")
            return []
        match pdu:
            case e3.SubscriptionDelete():
                self.counters["SubscriptionDelete"] += 1
                response = e3.SubscriptionResponse(
                    message_id(), pdu.message_id, pdu.dapp_identifier, "positive", pdu.subscription_id
                )
                if problem := self._unsubscribe(pdu.dapp_identifier, pdu.subscription_id):
                    self._refuse(problem)
                    response = replace(response, response_code="negative", message=problem)
                return [self._encode(response)]
            case e3.DAppControlAction():
                self.counters["DAppControlAction"] += 1
                self._refuse(f"control from dApp {dapp}: none is offered")
                ack = json.loads(self._encode(e3.MessageAck(message_id(), pdu.message_id, "negative")))
                return [_dump(ack | {"dAppIdentifier": dapp, "message": "control actions not implemented"})]
            case e3.ReleaseMessage():
                super().receive(octets, now_ns)
                return []
        return super().receive(octets, now_ns)

    def _encode(self, pdu: e3.Pdu) -> bytes:
        message = json.loads(super()._encode(pdu))
        del message["timestamp"]
        if isinstance(pdu, e3.SetupResponse):
            message["ranIdentifier"] = RAN_IDENTIFIER
        if isinstance(pdu, e3.SubscriptionResponse):
            for name in ("telemetry", "control"):
                if (granted := message.pop(f"{name}IdentifierList", None)) is not None:
                    message[f"{name}GrantedList"] = granted
        return _dump(message)

    def _subscribe(self, request: e3.SubscriptionRequest, now_ns: int) -> e3.SubscriptionResponse:
        if not request.telemetry_identifier_list:
            self._refuse(f"subscription of dApp {request.dapp_identifier} to no telemetry")
            reason = "telemetryIdentifierList must not be empty"
            return e3.SubscriptionResponse(
                message_id(), request.message_id, request.dapp_identifier, "negative", message=reason
            )
        return super()._subscribe(request, now_ns)

    def _indication(self, dapp: int, function: int, data: bytes) -> bytes:
        """With what the dApp has subscribed of a `e3.SlotIndication`."""
        subscription, slot = self._subscriptions[dapp, function], json.loads(data)
        wanted = {_STREAMS[stream][0] for stream in subscription.telemetry}
        of_slot = {"n_cells": 1} | {name: value for name, value in slot.items() if name in _OF_SLOT}
        cells = [
            {name: value for name, value in cell.items() if name in wanted - _OF_SLOT} | _of_ues(cell, wanted)
            for cell in slot.get("cells", (slot,))
        ]
        content: Message = {name: value for name, value in of_slot.items() if name in wanted}
        content |= {"cells": cells} if self._release_of_sdk.names_cells else cells[0]
        return _dump({
            "type": "indicationMessage", "id": message_id(), "dAppIdentifier": dapp, "ranFunctionIdentifier": function,
            "subscriptionId": subscription.number, "protocolData": content,
        })  # fmt: skip

    def _free_identifier(self) -> int | None:
        self._given += 1
        return self._given

    @property
    def _functions(self) -> dict[int, e3.RanFunctionDefinition]:
        data = json.dumps([_stream(number) for number in _STREAMS]).encode()
        return {e3.L1_KPM_FUNCTION: e3.RanFunctionDefinition(e3.L1_KPM_FUNCTION, tuple(_STREAMS), (), data)}


def _of_ues(cell: Message, wanted: set[str]) -> Message:
    """What was subscribed of the UEs of a cell."""
    of_ue = {_STREAMS[stream][0] for stream in e3.TELEMETRY_GRANTS} & wanted
    places = _PLACES_OF_UES.intersection(cell) if of_ue else ()
    return {place: [{name: ue[name] for name in of_ue} for ue in cell[place]] for place in places}


def _stream(number: int) -> Message:
    name, data_type, description = _STREAMS[number]
    delivery: Message = {"transport_type": "protocolData", "keyword": name, "encoding": "json"}
    if number == e3.TELEMETRY_SLOT:
        delivery = {
            "transport_type": "shared_memory", "shared_memory_info": {"memory_key": e3.ran_buffers.NAME},
        }  # fmt: skip
    return {
        "telemetryIdentifier": number, "stream_id": name, "data_type": data_type, "description": description,
        "status": "available", "delivery_method": delivery,
    }  # fmt: skip


def _dump(message: Message) -> bytes:
    return json.dumps(message, sort_keys=True, separators=(",", ":")).encode()
