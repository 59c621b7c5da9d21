"""Every generation of E3AP, in ASN.1 and in JSON."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import twinlink_e3 as e3
from hypothesis import given, settings
from hypothesis import strategies as st
from twinlink_e3.pdu import NAMES, to_fields

from .dapps_grammar import E3AP_FILE, SPECTRUM_FILE, compiled
from .pdus import CODECS, pdus

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
EACH_CODEC = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


def plain(value: Any) -> Any:
    """As in ``vectors.json``."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['generation']}-{vector['type']}")
def test_octets_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    codec, octets = e3.ASN1_CODECS[vector["generation"]], bytes.fromhex(vector["octets"])
    pdu = codec.decode(octets)
    assert NAMES[type(pdu)] == vector["type"]
    assert (pdu.message_id, pdu.timestamp) == (vector["id"], vector.get("timestamp"))
    assert plain(to_fields(pdu)) == vector["fields"]
    assert codec.encode(pdu) == octets
    assert codec.is_canonical(octets)


@EACH_CODEC
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_encoded_decodes_to_the_same(codec: e3.Codec, data: st.DataObject) -> None:
    pdu = data.draw(pdus(codec))
    assert codec.decode(codec.encode(pdu)) == pdu


@given(pdu=pdus(e3.G0))
def test_g0_equals_the_dapp_library(pdu: e3.Pdu) -> None:
    message = {"id": pdu.message_id, "msg": (NAMES[type(pdu)], to_fields(pdu))}
    assert e3.encode(pdu) == compiled(E3AP_FILE).encode("E3-PDU", message)


@pytest.mark.parametrize(
    ("structure", "name"),
    [
        (e3.RanFunctionData(b"n", 65535, b"d" * 128), "Spectrum-RanFunctionData"),
        (e3.PrbBlacklistControl((0, 9, 272), 100, 3600), "Spectrum-PRBBlacklistControl"),
        (e3.PrbBlacklistControl(()), "Spectrum-PRBBlacklistControl"),
        (e3.PrbBlacklistReport((4, 5)), "Spectrum-PRBBlacklistReport"),
        (e3.PrbBlockedControl((200,)), "Spectrum-PRBBlockedControl"),
    ],
)
def test_the_service_model_equals_the_dapp_library(structure: e3.Structure, name: str) -> None:
    assert e3.encode_structure(structure) == compiled(SPECTRUM_FILE).encode(name, to_fields(structure))


STRUCTURES: list[e3.Structure] = [
    e3.IqDataIndication(bytes(range(256)), 64, 7),
    e3.IqDataIndication(b"\xff", 0),
    e3.RanFunctionData(b"Spectrum", 1, b"I/Q"),
    e3.PrbBlacklistControl((0, 5, 272), 5, 3600),
    e3.PrbBlacklistControl(()),
    e3.SensingPolicyControl((0x3F80,) * 20, validity_period=60),
    e3.SensingPolicyControl((0,) * 160, deactivate=True),
    e3.PrbBlacklistReport((1,)),
    e3.PrbBlockedControl((1, 2)),
    e3.SlotIndication("/e3_ran_buffers", 1, 15, 123_456_789_012_345, 1023, 19, 0, 4, 0x3FFF),
    e3.SlotIndication("/x", 255, 2**32 - 1, 0, 65535, 65535),
    e3.SensingIndication(123_456_789_012_345, 1023, 19, "/e3_l2_sensing", 255, 128, 3),
    e3.SensingIndication(1, 0, 0, "/x", 65535, 0),
]


@EACH_CODEC
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: type(structure).__name__)
def test_structures_survive_the_round_trip(codec: e3.Codec, structure: e3.Structure) -> None:
    octets = codec.encode_structure(structure)
    assert codec.decode_structure(type(structure), octets) == structure
    with pytest.raises(e3.MalformedPdu):
        codec.decode_structure(type(structure), octets[: len(octets) // 2])


def test_a_control_is_wrapped_in_g2() -> None:
    control = e3.PrbBlacklistControl((), validity_period=10)
    assert e3.G0.encode_structure(control).hex() == "4000000009"
    assert e3.ASN1_CODECS["G2b"].encode_structure(control).hex() == "2000000009"
    assert json.loads(e3.JSON_CODECS["G0"].encode_structure(control)) == {"blacklistedPRBs": [], "validityPeriod": 10}
    wrapped = {"controlPayload": {"prbBlacklistControl": {"blacklistedPRBs": [], "validityPeriod": 10}}}
    assert json.loads(e3.JSON_CODECS["G2b"].encode_structure(control)) == wrapped


def test_a_sensing_policy_is_an_extension_of_the_control() -> None:
    policy = e3.SensingPolicyControl((0x3F80, 1), validity_period=60)
    # The first extension; an open type of 8 octets; without deactivate, with validityPeriod, 2 masks; masks; 60 - 1.
    assert e3.ASN1_CODECS["G2b"].encode_structure(policy).hex(" ") == "80 08 40 40 3f 80 00 01 00 3b"
    masks = {"maskPerSlot": [0x3F80, 1], "deactivate": False, "validityPeriod": 60}
    wrapped = {"controlPayload": {"sensingPolicyControl": masks}}
    assert json.loads(e3.JSON_CODECS["nested"].encode_structure(policy)) == wrapped


def test_json_is_flat_with_hexadecimal_payloads() -> None:
    codec = e3.JSON_CODECS["G0"]
    action = e3.DAppControlAction(5, 1, 1, 1, b"\x01\xfe", timestamp=123)
    assert json.loads(codec.encode(action)) == {
        "type": "dAppControlAction", "id": 5, "timestamp": 123, "dAppIdentifier": 1, "ranFunctionIdentifier": 1,
        "controlIdentifier": 1, "actionData": "01fe",
    }  # fmt: skip
    indication = e3.IndicationMessage(5, 1, 1, codec.encode_structure(e3.IqDataIndication(b"\x00\x01", 1)))
    message = json.loads(codec.encode(indication))
    assert message["protocolData"] == {"iqSamples": "0001", "sampleCount": 1}
    assert 0 < message["timestamp"] < 10**15  # ms
    now = json.loads(e3.JSON_CODECS["G2b"].encode(indication))["timestamp"]
    assert now > 10**15  # ns


def test_nested_payloads_are_read_by_every_json_codec_and_written_by_one() -> None:
    nested, data = e3.JSON_CODECS["nested"], b'{"a":[1,{"b":"c"}]}'
    function = e3.RanFunctionDefinition(2, (1,), (), data)
    for pdu, path in (
        (e3.DAppControlAction(5, 1, 1, 1, data, timestamp=10**15), ("actionData",)),
        (e3.DAppReport(5, 1, 1, data, timestamp=10**15), ("reportData",)),
        (
            e3.SetupResponse(5, 1, "positive", "g", None, 1, (function,), timestamp=10**15),
            ("ranFunctionList", 0, "ranFunctionData"),
        ),
    ):
        for codec, written in ((nested, json.loads(data)), (e3.JSON_CODECS["G2b"], data.hex())):
            octets = codec.encode(pdu)
            value = json.loads(octets)
            for step in path:
                value = value[step]
            assert value == written
            assert [each.decode(octets) for each in e3.JSON_CODECS.values()] == [pdu] * 3
    with pytest.raises(e3.InvalidPdu):
        nested.encode(e3.DAppControlAction(5, 1, 1, 1, b"\x01"))


@pytest.mark.parametrize(
    ("generation", "pdu"),
    [
        ("G0", e3.SetupResponse(1, 1, "negative", "g", message="why")),
        ("G0", e3.ReleaseMessage(1, 1, timestamp=5)),
        ("G0", e3.IndicationMessage(1, 1, 1, b"x", timestamp=5)),
        ("G1", e3.DAppControlAction(1, 1, 1, 1, b"x", 7)),
        ("G1", e3.ReleaseMessage(1, 101)),
        ("G1", e3.ReleaseMessage(1001, 1)),
        ("G2a", e3.DAppReport(1, 1, 1, b"x")),
        ("G2a", e3.SubscriptionResponse(1, 1, 1, "positive", 1, periodicity=5)),
        ("G2a", e3.ReleaseMessage(1, 65536)),
        ("G2a", e3.ReleaseMessage(2**32, 1)),
        ("G2b", e3.SetupRequest(1, "1.0.0", "ä" * 33, "1", "v")),
        ("G2b", e3.SubscriptionRequest(1, 1, 1, tuple(range(1, 258)), ())),
    ],
)
def test_what_a_generation_lacks_is_not_encoded(generation: str, pdu: e3.Pdu) -> None:
    with pytest.raises(e3.InvalidPdu):
        e3.ASN1_CODECS[generation].encode(pdu)


@pytest.mark.parametrize(
    "pdu",
    [
        e3.DAppControlAction(1, 1, 1, 1, b"x", 7),
        e3.ReleaseMessage(1, 0),
        e3.MessageAck(1, 1, "maybe"),  # type: ignore[arg-type]
        e3.SetupRequest(1, "1.0.0", "", "1", "v"),
        e3.SetupRequest(1, "1.0.0", "a", "1", None),  # type: ignore[arg-type]
        e3.IndicationMessage(1, 1, 1, b"no JSON"),
        e3.DAppReport(1, 1, 1, b""),
        e3.DAppReport(1, 1, 1, bytes(32769)),
    ],
)
def test_what_json_does_not_allow_is_not_encoded(pdu: e3.Pdu) -> None:
    with pytest.raises(e3.InvalidPdu):
        e3.JSON_CODECS["G0"].encode(pdu)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "5", '"messageAck"', "{}", '{"type": 5}', '{"type": "messageAck"}', "[" * 100_000,
        '{"type": "messageAck", "id": 1, "requestId": 1.0, "responseCode": "positive"}',
        '{"type": "messageAck", "id": true, "requestId": 1, "responseCode": "positive"}',
        '{"type": "messageAck", "id": 1, "requestId": 1, "responseCode": ["positive"]}',
        '{"type": "messageAck", "id": 1, "requestId": 1}',
        '{"type": "messageAck", "id": 1, "timestamp": -1, "requestId": 1, "responseCode": "positive"}',
        '{"type": "dAppReport", "id": 1, "dAppIdentifier": 1, "ranFunctionIdentifier": 1, "reportData": "0g"}',
        '{"type": "setupRequest", "id": 1, "e3apProtocolVersion": "1", "dAppName": "\\ud800", "dAppVersion": "1", '
        '"vendor": "v"}',
        '{"type": "setupResponse", "id": 1, "requestId": 1, "responseCode": "positive", "ranIdentifier": "g", '
        '"ranFunctionList": [{"ranFunctionIdentifier": 1}]}',
        '{"id": 1, "msg": {"messageAck": {"requestId": 1, "responseCode": "positive"}}}',  # as dapps 0.0.6
        '{"responseCode": "negative", "message": "no JSON"}',
    ],
    ids=range(20),
)  # fmt: skip
def test_json_that_is_no_pdu_is_malformed(text: str) -> None:
    with pytest.raises(e3.MalformedPdu):
        e3.JSON_CODECS["G0"].decode(text.encode())


@pytest.mark.parametrize("field", ["protocolData", "ranFunctionData"])
def test_json_that_is_nested_as_deep_as_can_just_be_read_is_no_error_of_ours(field: str) -> None:
    begin = '{"type": "indicationMessage", "id": 1, "dAppIdentifier": 1, "ranFunctionIdentifier": 2, "'
    read = 0
    for depth in range(1, sys.getrecursionlimit() + 100):
        octets = f'{begin}{field}": {"[" * depth}{"]" * depth}}}'.encode()
        with suppress(e3.MalformedPdu):
            e3.JSON_CODECS["nested"].decode(octets)
            read += 1
    assert (read > 0) == (field == "protocolData")


@EACH_CODEC
@settings(max_examples=50)
@given(data=st.data())
def test_mutated_pdus_decode_or_are_malformed(codec: e3.Codec, data: st.DataObject) -> None:
    octets = bytearray(codec.encode(data.draw(pdus(codec))))
    for _ in range(data.draw(st.integers(1, 6))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(0, len(octets)) | st.just(len(octets)))])
    try:
        pdu = codec.decode(cut)
    except e3.MalformedPdu as error:
        assert str(error)  # noqa: PT017 - any other exception fails the test
    else:
        assert type(pdu) in NAMES


def test_the_longest_indication_fits() -> None:
    data = e3.IqDataIndication(bytes(e3.MAX_IQ_OCTETS), 4096)
    for codec in CODECS:
        pdu = e3.IndicationMessage(1, 1, 1, codec.encode_structure(data))
        octets = codec.encode(pdu)
        assert len(octets) < e3.MAX_PDU_OCTETS
        assert codec.decode_structure(e3.IqDataIndication, _payload(codec.decode(octets))) == data


def _payload(pdu: e3.Pdu) -> bytes | bytearray | memoryview:
    assert isinstance(pdu, e3.IndicationMessage)
    return pdu.protocol_data
