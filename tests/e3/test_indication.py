"""The small codec of the hot PDU accepts and produces exactly what asn1tools does."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_e3 import (
    IndicationMessage,
    InvalidPdu,
    IqDataIndication,
    MalformedPdu,
    decode_indication,
    decode_iq_data,
    encode_indication,
    encode_iq_data,
    grammar,
    is_indication,
)
from twinlink_e3.asn1_codec import decode_type, encode_type

# Lengths around every border of a PER length determinant, and the symbols that occur.
LENGTHS = st.sampled_from([1, 2, 3, 127, 128, 129, 255, 256, 4096, 6144, 8192, 16383, 16384]) | st.integers(1, 16384)
TIMESTAMPS = st.none() | st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**24 - 1, 2**24, 2**31 - 1])
TIMESTAMPS |= st.integers(0, 2**31 - 1)


@st.composite
def iq_data(draw: st.DrawFn) -> IqDataIndication:
    length = draw(LENGTHS)
    seed = draw(st.binary(min_size=1, max_size=16))
    octets = (seed * (length // len(seed) + 1))[:length]
    return IqDataIndication(octets, draw(st.integers(0, 32768)), draw(TIMESTAMPS))


def asn1_iq(data: IqDataIndication) -> bytes:
    value: dict[str, Any] = {"iqSamples": data.iq_samples, "sampleCount": data.sample_count}
    if data.timestamp is not None:
        value["timestamp"] = data.timestamp
    return encode_type(grammar.spectrum(), "Spectrum-IQDataIndication", value)


def asn1_pdu(message: IndicationMessage) -> bytes:
    body = {
        "dAppIdentifier": message.dapp_identifier,
        "ranFunctionIdentifier": message.ran_function_identifier,
        "protocolData": bytes(message.protocol_data),
    }
    return encode_type(grammar.e3ap(), "E3-PDU", {"id": message.message_id, "msg": ("indicationMessage", body)})


@given(iq_data())
def test_iq_data_equals_asn1tools(data: IqDataIndication) -> None:
    octets = encode_iq_data(data)
    assert octets == asn1_iq(data)
    assert decode_iq_data(octets) == data


@given(
    st.integers(1, 1000),
    st.integers(1, 100),
    st.integers(1, 100),
    st.sampled_from([1, 2, 127, 128, 16384, 32767, 32768]) | st.integers(1, 32768),
)
def test_an_indication_equals_asn1tools(message_id: int, dapp: int, function: int, length: int) -> None:
    message = IndicationMessage(message_id, dapp, function, b"\xa5" * length)
    octets = encode_indication(message)
    assert octets == asn1_pdu(message)
    assert is_indication(octets)
    assert decode_indication(octets) == message


def outcome(read: Callable[[bytes], object], octets: bytes) -> object:
    try:
        return read(octets)
    except MalformedPdu:
        return MalformedPdu


def asn1_read_indication(octets: bytes) -> IndicationMessage:
    value = decode_type(grammar.e3ap(), "E3-PDU", octets)
    body = value["msg"][1]
    return IndicationMessage(
        value["id"], body["dAppIdentifier"], body["ranFunctionIdentifier"], bytes(body["protocolData"])
    )


def asn1_read_iq(octets: bytes) -> IqDataIndication:
    value = decode_type(grammar.spectrum(), "Spectrum-IQDataIndication", octets)
    return IqDataIndication(value["iqSamples"], value["sampleCount"], value.get("timestamp"))


@st.composite
def damaged(draw: st.DrawFn, octets_of: Callable[[st.DrawFn], bytes]) -> bytes:
    octets = bytearray(octets_of(draw))
    for _ in range(draw(st.integers(0, 4))):
        # The structure is at both ends, the middle is opaque.
        where = draw(st.integers(0, min(12, len(octets) - 1)) | st.integers(max(0, len(octets) - 8), len(octets) - 1))
        octets[where] = draw(st.integers(0, 255))
    end = draw(st.integers(0, len(octets)) | st.just(len(octets)))
    return bytes(octets[:end]) + draw(st.binary(max_size=4))


def some_iq(draw: st.DrawFn) -> bytes:
    length = draw(st.integers(1, 300) | st.just(16384))
    return encode_iq_data(IqDataIndication(b"\x5a" * length, draw(st.integers(0, 32768)), draw(TIMESTAMPS)))


def some_indication(draw: st.DrawFn) -> bytes:
    return encode_indication(IndicationMessage(draw(st.integers(1, 1000)), 100, 1, some_iq(draw)))


@given(damaged(some_iq))
def test_damaged_iq_data_reads_as_asn1tools_reads_it(octets: bytes) -> None:
    assert outcome(decode_iq_data, octets) == outcome(asn1_read_iq, octets)


@given(damaged(some_indication))
def test_a_damaged_indication_reads_as_asn1tools_reads_it(octets: bytes) -> None:
    if is_indication(octets):
        assert outcome(decode_indication, octets) == outcome(asn1_read_indication, octets)
    else:
        assert outcome(decode_indication, octets) is MalformedPdu


@given(st.binary(max_size=64))
def test_garbage_is_malformed_or_reads_as_asn1tools_reads_it(octets: bytes) -> None:
    assert outcome(decode_iq_data, octets) == outcome(asn1_read_iq, octets)
    if is_indication(octets):
        assert outcome(decode_indication, octets) == outcome(asn1_read_indication, octets)


def iq_octets(length: int, sample_count: int, timestamp: bytes = b"") -> bytes:
    flags = bytes((0x80 if timestamp else 0,))
    size = bytes(((len(timestamp) - 1) << 6,)) if timestamp else b""
    return flags + (length - 1).to_bytes(2, "big") + bytes(length) + sample_count.to_bytes(2, "big") + size + timestamp


@pytest.mark.parametrize(
    ("octets", "good"),
    [
        (iq_octets(16384, 32768, b"\x7f\xff\xff\xff"), True),
        (iq_octets(16385, 1), False),
        (iq_octets(65536, 1), False),
        (iq_octets(4, 32769), False),
        (iq_octets(4, 1, b"\x80\x00\x00\x00"), False),
        (iq_octets(4, 1, b"\x00\x00\x00\x05"), True),  # longer than needed, as PER forbids; asn1tools reads it
        (iq_octets(4, 1, b"\x05")[:-1], False),
    ],
    ids=["largest", "samples", "samples-16-bit", "count", "timestamp", "padded-timestamp", "cut-timestamp"],
)
def test_the_borders_of_iq_data_are_those_of_asn1tools(octets: bytes, good: bool) -> None:
    assert (outcome(asn1_read_iq, octets) is not MalformedPdu) is good
    assert outcome(decode_iq_data, octets) == outcome(asn1_read_iq, octets)


@pytest.mark.parametrize(
    ("position", "value", "good"),
    [
        (slice(0, 2), b"\x03\xe7", True),  # message 1000
        (slice(0, 2), b"\x03\xe8", False),
        (slice(2, 5), b"\x5c\x60\x00", True),  # dApp 100
        (slice(2, 5), b"\x5c\x80\x00", False),
        (slice(2, 5), b"\x50\x18\xc0", True),  # RAN function 100
        (slice(2, 5), b"\x50\x19\x00", False),
        (slice(5, 7), b"\x7f\xff", True),  # 32768 octets
        (slice(5, 7), b"\x80\x00", False),
    ],
)
def test_the_borders_of_an_indication_are_those_of_asn1tools(position: slice, value: bytes, good: bool) -> None:
    octets = bytearray(encode_indication(IndicationMessage(1, 1, 1, bytes(32768))) + b"\x00")
    octets[position] = value
    assert (outcome(asn1_read_indication, bytes(octets)) is not MalformedPdu) is good
    assert outcome(decode_indication, bytes(octets)) == outcome(asn1_read_indication, bytes(octets))


def test_samples_are_a_view_of_what_came_in() -> None:
    octets = bytearray(encode_indication(IndicationMessage(1, 1, 1, encode_iq_data(IqDataIndication(bytes(8), 2)))))
    samples = decode_iq_data(decode_indication(octets).protocol_data).iq_samples
    octets[7 + 3] = 0x7F
    assert samples[0] == 0x7F


@pytest.mark.parametrize(
    "data",
    [
        IqDataIndication(b"", 0),
        IqDataIndication(bytes(16385), 0),
        IqDataIndication(b"x", 32769),
        IqDataIndication(b"x", 1, -1),
        IqDataIndication(b"x", 1, 2**31),
    ],
)
def test_iq_data_beyond_the_grammar_is_not_encoded(data: IqDataIndication) -> None:
    with pytest.raises(InvalidPdu):
        encode_iq_data(data)
