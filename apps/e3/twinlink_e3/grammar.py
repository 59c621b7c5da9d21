"""The grammars of E3AP and of two service models, for aligned PER (ITU-T X.691), compiled by asn1tools.

E3AP has had four grammars under the version string "1.0.0".  They are written here once, with what differs as fields:

    G0   libe3 up to 0.0.9, dapps 0.0.x
    G1   libe3 0.1.x: extension markers, and a timestamp in the envelope
    G2a  libe3 0.2.x: wider identifiers, and sequence ids
    G2b  libe3 0.2.x: names as octets, other bounds, and more in subscriptionResponse
"""

from functools import cache
from string import Template
from typing import Any

from .errors import GrammarMissing

GENERATIONS = ("G0", "G1", "G2a", "G2b")

# Fields that older generations lack: the first generation with the field, by ASN.1 type and name.
SINCE = {
    ("E3-PDU", "timestamp"): "G1",
    ("dAppControlAction", "sequenceId"): "G2a",
    ("dAppReport", "sequenceId"): "G2a",
    ("xAppControlAction", "sequenceId"): "G2a",
    ("subscriptionResponse", "ranFunctionIdentifier"): "G2b",
    ("subscriptionResponse", "periodicity"): "G2b",
}

JSON_ONLY = {("setupResponse", "message"), ("subscriptionResponse", "message")}

# `more` is the extension marker, with the comma before it.  Octets depend on the order of fields and alternatives, but
# not on the names of types.
_E3AP = Template("""
E3AP DEFINITIONS AUTOMATIC TAGS ::= BEGIN

E3-PDU ::= SEQUENCE { id MessageId, $timestamp msg Body $more }

Body ::= CHOICE {
    setupRequest SetupRequest,
    setupResponse SetupResponse,
    subscriptionRequest SubscriptionRequest,
    subscriptionDelete SubscriptionDelete,
    subscriptionResponse SubscriptionResponse,
    indicationMessage IndicationMessage,
    dAppControlAction DAppControlAction,
    dAppReport DAppReport,
    xAppControlAction XAppControlAction,
    releaseMessage ReleaseMessage,
    messageAck MessageAck
    $more
}

-- Setup channel

SetupRequest ::= SEQUENCE { e3apProtocolVersion Version, dAppName Name, dAppVersion Version, vendor Name $more }

SetupResponse ::= SEQUENCE {
    requestId MessageId,
    responseCode ResponseCode,
    ranIdentifier Name,
    e3apProtocolVersion Version OPTIONAL,
    dAppIdentifier Identifier OPTIONAL,
    ranFunctionList SEQUENCE $functions OF RanFunction OPTIONAL
    $more
}

RanFunction ::= SEQUENCE {
    ranFunctionIdentifier Identifier,
    telemetryIdentifierList Identifiers,
    controlIdentifierList Identifiers,
    ranFunctionData OCTET STRING (SIZE (1..$functionData))
    $more
}

-- dApp to RAN, and RAN to dApp

SubscriptionRequest ::= SEQUENCE {
    dAppIdentifier Identifier,
    ranFunctionIdentifier Identifier,
    telemetryIdentifierList Identifiers,
    controlIdentifierList Identifiers,
    subscriptionTime INTEGER (0..$seconds) OPTIONAL,
    periodicity Periodicity OPTIONAL
    $more
}

SubscriptionDelete ::= SEQUENCE { dAppIdentifier Identifier, subscriptionId Identifier $more }

SubscriptionResponse ::= SEQUENCE {
    requestId MessageId,
    dAppIdentifier Identifier,
    responseCode ResponseCode,
    subscriptionId Identifier OPTIONAL,
    telemetryIdentifierList Identifiers OPTIONAL,
    controlIdentifierList Identifiers OPTIONAL
    $more $granted
}

IndicationMessage ::= SEQUENCE {
    dAppIdentifier Identifier, ranFunctionIdentifier Identifier, protocolData Payload $more
}

DAppControlAction ::= SEQUENCE {
    dAppIdentifier Identifier,
    ranFunctionIdentifier Identifier,
    controlIdentifier Identifier,
    $sequenceIdOptional
    actionData Payload
    $more
}

DAppReport ::= SEQUENCE {
    dAppIdentifier Identifier, ranFunctionIdentifier Identifier, $sequenceId reportData Payload $more
}

XAppControlAction ::= SEQUENCE {
    dAppIdentifier Identifier, ranFunctionIdentifier Identifier, $sequenceId xAppControlData Payload $more
}

ReleaseMessage ::= SEQUENCE { dAppIdentifier Identifier $more }

MessageAck ::= SEQUENCE { requestId MessageId, responseCode ResponseCode $more }

-- Values

MessageId ::= INTEGER (1..$messageIds)
Identifier ::= INTEGER (1..$identifiers)
Identifiers ::= SEQUENCE (SIZE (0..$list)) OF Identifier
Name ::= $text (SIZE (1..64))
Version ::= $text (SIZE (1..$version))
Periodicity ::= INTEGER (0..$periodicity)
Payload ::= OCTET STRING (SIZE (1..32768))
ResponseCode ::= ENUMERATED { positive, negative }

END
""")

_G0 = {
    "more": "",
    "timestamp": "",
    "granted": "",
    "sequenceIdOptional": "",
    "sequenceId": "",
    "messageIds": "1000",
    "identifiers": "100",
    "list": "100",
    "functions": "",
    "functionData": "32768",
    "seconds": "3600",
    "periodicity": "1000",
    "text": "UTF8String",
    "version": "11",
}
_G1 = _G0 | {"more": ", ...", "timestamp": "timestamp INTEGER OPTIONAL,"}
_G2A = _G1 | {
    "sequenceIdOptional": "sequenceId INTEGER (1..4294967295) OPTIONAL,",
    "sequenceId": "sequenceId INTEGER (1..4294967295),",
    "messageIds": "4294967295",
    "identifiers": "65535",
    "list": "1000",
}
_G2B = _G2A | {
    "granted": ", ranFunctionIdentifier Identifier OPTIONAL, periodicity Periodicity OPTIONAL",
    "list": "256",
    "functions": "(SIZE (0..64))",
    "functionData": "262144",
    "seconds": "86400",
    "periodicity": "60000000",
    "text": "OCTET STRING",
    "version": "32",
}
_DIFFERENCES = dict(zip(GENERATIONS, (_G0, _G1, _G2A, _G2B), strict=True))

# Spectrum-DAppControlData wraps the control of G2.
_SPECTRUM = """
Spectrum DEFINITIONS AUTOMATIC TAGS ::= BEGIN

Spectrum-RanFunctionData ::= SEQUENCE {
    name OCTET STRING (SIZE (1..32)), version INTEGER (0..65535), description OCTET STRING (SIZE (1..128))
}

Spectrum-IQDataIndication ::= SEQUENCE {
    iqSamples OCTET STRING (SIZE (1..16384)),
    sampleCount INTEGER (0..32768),
    timestamp INTEGER (0..2147483647) OPTIONAL
}

Spectrum-SensingIndication ::= SEQUENCE {
    timestamp INTEGER,
    sfn INTEGER (0..65535),
    slot INTEGER (0..65535),
    beam INTEGER (0..3) OPTIONAL,
    shmName OCTET STRING,
    shmWriteIdx INTEGER (0..65535),
    nRanges INTEGER (0..128)
}

Spectrum-DAppControlData ::= SEQUENCE {
    controlPayload CHOICE {
        prbBlacklistControl Spectrum-PRBBlacklistControl, ..., sensingPolicyControl Spectrum-SensingPolicyControl
    }
}

Spectrum-SensingPolicyControl ::= SEQUENCE {
    maskPerSlot SEQUENCE (SIZE (1..160)) OF INTEGER (0..16383),
    deactivate BOOLEAN DEFAULT FALSE,
    validityPeriod INTEGER (1..3600) OPTIONAL
}

Spectrum-PRBBlacklistControl ::= SEQUENCE {
    blacklistedPRBs Prbs, samplingThreshold INTEGER (0..100) OPTIONAL, validityPeriod INTEGER (1..3600) OPTIONAL
}

Spectrum-PRBBlacklistReport ::= SEQUENCE { blacklistedPRBs Prbs }

Spectrum-PRBBlockedControl ::= SEQUENCE { blockedPRBs Prbs }

Prbs ::= SEQUENCE (SIZE (0..273)) OF INTEGER (0..272)

END
"""

# I/Q of a slot by reference: a row of the shared memory that `ran_buffers` describes.
_L1_KPM = """
L1-KPM DEFINITIONS AUTOMATIC TAGS ::= BEGIN

L1KPM-Indication ::= SEQUENCE {
    iqSamplesRef L1KPM-ShmRef OPTIONAL,
    timestamp INTEGER,
    sfn INTEGER (0..65535),
    slot INTEGER (0..65535),
    cellId INTEGER (0..65535) OPTIONAL,
    nRxAnt INTEGER (0..65535) OPTIONAL,
    validSymbolMask INTEGER (0..16383) OPTIONAL
}

L1KPM-ShmRef ::= SEQUENCE {
    shmName OCTET STRING (SIZE (1..63)), fhBufferIndex INTEGER (0..255), fhWriteIndex INTEGER (0..4294967295)
}

END
"""


@cache
def e3ap(generation: str = "G0") -> Any:
    """The compiled E3AP grammar of a generation (an ``asn1tools`` specification).  Raises GrammarMissing."""
    return _compile(_E3AP.substitute(_DIFFERENCES[generation]))


@cache
def spectrum() -> Any:
    """The compiled spectrum service model (an ``asn1tools`` specification).  Raises GrammarMissing."""
    return _compile(_SPECTRUM)


@cache
def l1_kpm() -> Any:
    """The compiled L1-KPM service model (an ``asn1tools`` specification).  Raises GrammarMissing."""
    return _compile(_L1_KPM)


def names_are_octets(generation: str) -> bool:
    """Whether names and versions are octet strings in this generation."""
    return _DIFFERENCES[generation]["text"] == "OCTET STRING"


def _compile(text: str) -> Any:
    try:
        import asn1tools
    except ImportError:
        raise GrammarMissing(
            "asn1tools, which compiles the E3 grammar, is not installed; install the extra: pip install 'twinlink[e3]'"
        ) from None
    return asn1tools.compile_string(text, "per")
