"""What to subscribe to at an E3 agent, by the RAN functions that its setupResponse names.

    offered                                     I/Q                     controls, sensing ranges
    RAN function 2 (L1-KPM)                     in shared memory, of 2  a second subscription, to RAN function 1
    RAN function 1 (spectrum) with telemetry 1  in PDUs, of 1           the same subscription

Where RAN function 2 is offered, telemetry 1 of RAN function 1 is sensing ranges.  OpenAirInterface serves controls of
RAN function 1 only to dApps that have subscribed to it.  NVIDIA's Aerial has RAN function 2 alone, which it describes
as a list of streams: of each slot it sends those that were subscribed, and ten slots a second unless it is asked for
all.

KPMs are those of the RAN emulator's own RAN function, a subscription after that of the I/Q, or follow from the grants
in NVIDIA's streams.
"""

from dataclasses import dataclass

from twinlink_e3 import (
    CONTROL_PRB_BLOCK,
    CONTROL_SENSING_POLICY,
    KPM_FUNCTION,
    KPM_NAME,
    L1_KPM_FUNCTION,
    RAN_FUNCTION,
    TELEMETRY_GRANTS,
    TELEMETRY_IQ,
    TELEMETRY_KPM,
    TELEMETRY_SENSING,
    TELEMETRY_SLOT,
    TELEMETRY_STREAMS,
    Codec,
    MalformedPdu,
    RanFunctionData,
    RanFunctionDefinition,
    SetupResponse,
)

# A subscription for control alone gets indications, too: as few as each generation can ask for.
_RARELY = dict.fromkeys(("G2b", "JSON-G2", "JSON-nested"), 60_000_000)
_RARELY_BEFORE = 1000
EVERY_SLOT = 0
CONTROLS = (CONTROL_PRB_BLOCK, CONTROL_SENSING_POLICY)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscriptionRequest; ``periodicity`` as there."""

    ran_function: int
    telemetry: tuple[int, ...]
    controls: tuple[int, ...]
    periodicity: int | None = None


def subscriptions(response: SetupResponse, codec: Codec, *, sensing: bool) -> tuple[Subscription, ...]:
    """The subscriptions, that of the I/Q first; there is an `objection` if that cannot be had."""
    controls = tuple(control for control in CONTROLS if offers_control(response, control))
    kpms = (Subscription(KPM_FUNCTION, (TELEMETRY_KPM,), ()),) if _reports_kpms(response, codec) else ()
    kpm = _function(response, L1_KPM_FUNCTION)
    if kpm is None or TELEMETRY_SLOT not in kpm.telemetry_identifier_list:
        return Subscription(RAN_FUNCTION, (TELEMETRY_IQ,), controls), *kpms
    slots = Subscription(L1_KPM_FUNCTION, (TELEMETRY_SLOT,), ())
    if has_streams(response):
        streams = tuple(stream for stream in TELEMETRY_STREAMS if stream in kpm.telemetry_identifier_list)
        slots = Subscription(L1_KPM_FUNCTION, streams, (), EVERY_SLOT)
    if sensing and offers_sensing(response):
        return slots, *kpms, Subscription(RAN_FUNCTION, (TELEMETRY_SENSING,), controls)
    if controls:
        return slots, *kpms, Subscription(RAN_FUNCTION, (), controls, _RARELY.get(codec.name, _RARELY_BEFORE))
    return slots, *kpms


def has_streams(response: SetupResponse) -> bool:
    """Whether RAN function 2 is a list of streams, each of which is subscribed, as in NVIDIA's Aerial."""
    kpm = _function(response, L1_KPM_FUNCTION)
    return kpm is not None and bytes(kpm.ran_function_data[:1]) == b"["


def offers_kpms(response: SetupResponse, codec: Codec) -> bool:
    """Whether the agent reports KPMs, or the grants of which they can be made."""
    l1_kpm = _function(response, L1_KPM_FUNCTION)
    streams = l1_kpm.telemetry_identifier_list if l1_kpm and has_streams(response) else ()
    return set(TELEMETRY_GRANTS) <= set(streams) or _reports_kpms(response, codec)


def _reports_kpms(response: SetupResponse, codec: Codec) -> bool:
    """Whether it has the RAN emulator's RAN function, by its name: other agents may give this number to another."""
    function = _function(response, KPM_FUNCTION)
    if function is None:
        return False
    try:
        named = codec.decode_structure(RanFunctionData, function.ran_function_data)
    except MalformedPdu:
        return False
    return named.name == KPM_NAME and TELEMETRY_KPM in function.telemetry_identifier_list


def offers_sensing(response: SetupResponse) -> bool:
    """Whether the agent offers sensing ranges: telemetry 1 of RAN function 1 where I/Q is of RAN function 2."""
    by_reference = _offers(response, L1_KPM_FUNCTION, TELEMETRY_SLOT)
    return by_reference and _offers(response, RAN_FUNCTION, TELEMETRY_SENSING)


def offers_control(response: SetupResponse, control: int) -> bool:
    """Whether the agent offers a control of RAN function 1; PRB blocks are assumed if it names no RAN functions."""
    if response.ran_function_list is None:
        return control == CONTROL_PRB_BLOCK
    function = _function(response, RAN_FUNCTION)
    return function is not None and control in function.control_identifier_list


def objection(response: SetupResponse) -> str | None:
    """Why an agent that accepted this dApp is of no use, or None."""
    ran, functions = response.ran_identifier, response.ran_function_list
    if response.dapp_identifier is None:
        return f"{ran} accepted this dApp, but gave it no identifier"
    if functions is None or _offers(response, L1_KPM_FUNCTION, TELEMETRY_SLOT):
        return None
    function = _function(response, RAN_FUNCTION)
    if function is None:
        numbers = ", ".join(str(entry.ran_function_identifier) for entry in functions) or "none"
        return f"{ran} offers RAN functions {numbers}, not {RAN_FUNCTION} (spectrum) or {L1_KPM_FUNCTION} (L1-KPM)"
    if TELEMETRY_IQ not in function.telemetry_identifier_list:
        numbers = ", ".join(map(str, function.telemetry_identifier_list)) or "none"
        return (
            f"{ran} offers telemetry {numbers} of RAN function {RAN_FUNCTION}, not {TELEMETRY_IQ} (I/Q in the PDU), "
            f"and no telemetry {TELEMETRY_SLOT} of RAN function {L1_KPM_FUNCTION}"
        )
    return None


def _function(response: SetupResponse, number: int) -> RanFunctionDefinition | None:
    for function in response.ran_function_list or ():
        if function.ran_function_identifier == number:
            return function
    return None


def _offers(response: SetupResponse, number: int, telemetry: int) -> bool:
    function = _function(response, number)
    return function is not None and telemetry in function.telemetry_identifier_list
