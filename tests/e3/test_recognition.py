"""A reply tells its generation, and is never taken for one of another."""

import json
from dataclasses import replace

import pytest
import twinlink_e3 as e3
from hypothesis import given, settings
from hypothesis import strategies as st
from twinlink_exporter import agent_check

import twinlink

from .pdus import CODECS, pdus

EACH_CODEC = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


@EACH_CODEC
@settings(max_examples=50)
@given(data=st.data(), request_id=st.integers(1, e3.MAX_SHARED_ID))
def test_a_reply_is_recognised(codec: e3.Codec, data: st.DataObject, request_id: int) -> None:
    response = data.draw(pdus(codec, ("SetupResponse",)))
    if response.response_code == "positive":
        response = replace(response, request_id=request_id)
    found = e3.recognise(codec.encode(response), request_id)
    name = codec.name
    if name == "JSON-nested" and not response.ran_function_list:
        name = "JSON-G2"  # the form of its payloads is not seen
    assert (found.codec.name, found.response) == (name, response)


@EACH_CODEC
@settings(max_examples=40)
@given(data=st.data())
def test_a_positive_reply_to_another_request_is_none(codec: e3.Codec, data: st.DataObject) -> None:
    response = data.draw(pdus(codec, ("SetupResponse",)))
    response = replace(response, response_code="positive", request_id=7)
    with pytest.raises(e3.MalformedPdu, match="no setupResponse to request 8"):
        e3.recognise(codec.encode(response), 8)


@EACH_CODEC
@settings(max_examples=40)
@given(data=st.data())
def test_mutated_replies_are_of_some_generation_or_malformed(codec: e3.Codec, data: st.DataObject) -> None:
    octets = bytearray(codec.encode(data.draw(pdus(codec, ("SetupResponse", "MessageAck")))))
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        e3.recognise(bytes(octets), 1)
    except e3.MalformedPdu as error:
        assert str(error)  # noqa: PT017 - any other exception fails the test


@given(octets=st.binary(max_size=80))
def test_garbage_is_malformed(octets: bytes) -> None:
    try:
        e3.recognise(octets, 1)
    except e3.MalformedPdu as error:
        assert str(error)  # noqa: PT017


def test_the_unit_of_its_timestamps_tells_the_generation_of_a_json_agent() -> None:
    response = {"type": "setupResponse", "id": 1, "requestId": 1, "responseCode": "negative", "ranIdentifier": "g"}
    for timestamp, name in ((1_795_000_000_000, "JSON-G0"), (1_795_000_000_000_000_000, "JSON-G2"), (0, "JSON-G0")):
        octets = json.dumps({**response, "timestamp": timestamp}).encode()
        assert e3.recognise(octets, 1).codec.name == name


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"message": "invalid JSON format", "responseCode": "negative"}, "invalid JSON format"),
        ({"id": 3, "message": "no", "requestId": 0, "responseCode": "negative", "type": "setupResponse"}, "no"),
        ({"id": 3, "requestId": 0, "responseCode": "negative", "type": "setupResponse"}, None),
    ],
)
def test_a_refusal_of_few_fields_is_one(reply: dict[str, object], reason: str | None) -> None:
    """As NVIDIA's agent answers what it cannot read, and a version that is not its own."""
    found = e3.recognise(json.dumps(reply, sort_keys=True).encode(), 7)
    assert (found.codec.encoding, found.response.response_code, found.response.message) == ("json", "negative", reason)
    with pytest.raises(e3.MalformedPdu):
        e3.recognise(json.dumps({**reply, "responseCode": "positive"}).encode(), 7)


@pytest.mark.parametrize(
    "text",
    [
        '{"responseCode": "negative", "ranFunctionList": 5}',
        '{"responseCode": "negative", "ranFunctionList": [5]}',
        '{"responseCode": ["negative"]}',
        '{"responseCode": "negative", "requestId": -1}',
        '{"type": ["setupResponse"], "id": 1, "responseCode": "negative"}',
        "{}",
    ],
)
def test_a_refusal_of_wrong_types_is_malformed(text: str) -> None:
    with pytest.raises(e3.MalformedPdu):
        e3.recognise(text.encode(), 7)


def test_protobuf_is_named() -> None:
    with pytest.raises(e3.MalformedPdu, match="protobuf"):
        e3.recognise(bytes.fromhex("08051a0a08011001220467"), 1)


@pytest.mark.parametrize("name", ["twinlink-exporter", agent_check.NAME])
def test_setup_requests_of_g0_and_g2a_have_the_same_octets(name: str) -> None:
    for message_id in (1, 100, e3.MAX_SHARED_ID):
        request = e3.SetupRequest(message_id, "1.0.0", name, twinlink.__version__, "twinlink")
        assert e3.G0.encode(request) == e3.ASN1_CODECS["G2a"].encode(request)
        for generation in ("G1", "G2b"):  # agents of these must not accept it
            with pytest.raises(e3.MalformedPdu):
                e3.ASN1_CODECS[generation].decode(e3.G0.encode(request))
