"""The hot PDU of G2, read and written without asn1tools: the same as with it, or left to it."""

from dataclasses import replace
from typing import Any

import pytest
import twinlink_e3 as e3
from hypothesis import given
from hypothesis import strategies as st
from twinlink_e3 import asn1_codec, grammar
from twinlink_e3.slot_indication import decode_g2_indication, decode_slot, encode_g2_indication, encode_slot

NUMBER, OPTIONAL = st.integers(0, 65535), st.none() | st.integers(0, 65535)
SLOTS = st.builds(
    e3.SlotIndication,
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=63),
    st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**64 - 1), NUMBER, NUMBER,
    OPTIONAL, OPTIONAL, st.none() | st.integers(0, 0x3FFF),
)  # fmt: skip
INDICATIONS = st.builds(
    e3.IndicationMessage,
    st.integers(1, 2**32 - 1) | st.sampled_from([1, 256, 257, 65536, 65537]),
    st.integers(1, 65535), st.integers(1, 65535), st.binary(min_size=1, max_size=60),
    timestamp=st.none() | st.integers(-(2**63), 2**64 - 1),
)  # fmt: skip
CODECS = [e3.ASN1_CODECS["G2a"], e3.ASN1_CODECS["G2b"]]
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)


def whole_slot(octets: bytes) -> dict[str, Any]:
    return asn1_codec.decode_type(grammar.l1_kpm(), "L1KPM-Indication", octets)


@given(slot=SLOTS, message=INDICATIONS, codec=st.sampled_from(CODECS))
def test_what_is_encoded_is_read_here(slot: e3.SlotIndication, message: e3.IndicationMessage, codec: e3.Codec) -> None:
    assert decode_slot(codec.encode_structure(slot)) == slot
    assert decode_g2_indication(codec.encode(message)) == message
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asn1_codec, "encode_slot", lambda structure: None)
        patch.setattr(asn1_codec, "encode_g2_indication", lambda pdu: None)
        assert (codec.encode_structure(slot), codec.encode(message)) == (
            encode_slot(slot),
            encode_g2_indication(message),
        )
    assert decode_g2_indication(memoryview(codec.encode(message))) == message


@given(slot=SLOTS, changes=CHANGES, cut=st.integers(0, 3))
def test_a_changed_slot_is_read_as_by_asn1tools_or_left_to_it(
    slot: e3.SlotIndication, changes: list[tuple[int, int]], cut: int
) -> None:
    octets = bytearray(CODECS[0].encode_structure(slot))
    for position, value in changes:
        octets[position % len(octets)] = value
    octets = octets[: len(octets) - cut]
    if (read := decode_slot(bytes(octets))) is not None:
        values = whole_slot(bytes(octets))
        reference = values["iqSamplesRef"]
        assert reference["shmName"].decode(errors="backslashreplace") == read.shm_name
        assert (reference["fhBufferIndex"], reference["fhWriteIndex"]) == (read.fh_buffer_index, read.fh_write_index)
        assert (values["timestamp"], values["sfn"], values["slot"]) == (read.timestamp, read.sfn, read.slot)
        optional = (read.cell_id, read.n_rx_ant, read.valid_symbol_mask)
        assert tuple(values.get(name) for name in ("cellId", "nRxAnt", "validSymbolMask")) == optional


@given(message=INDICATIONS, changes=CHANGES, cut=st.integers(0, 3), codec=st.sampled_from(CODECS))
def test_a_changed_pdu_is_read_as_by_asn1tools_or_left_to_it(
    message: e3.IndicationMessage, changes: list[tuple[int, int]], cut: int, codec: e3.Codec
) -> None:
    octets = bytearray(codec.encode(message))
    for position, value in changes:
        octets[position % len(octets)] = value
    octets = octets[: len(octets) - cut]
    if (read := decode_g2_indication(bytes(octets))) is not None:
        whole = asn1_codec.decode_type(grammar.e3ap(codec.generation), "E3-PDU", bytes(octets))
        name, body = whole["msg"]
        assert (name, whole["id"], whole.get("timestamp")) == ("indicationMessage", read.message_id, read.timestamp)
        assert (body["dAppIdentifier"], body["ranFunctionIdentifier"], body["protocolData"]) == (
            read.dapp_identifier, read.ran_function_identifier, bytes(read.protocol_data),
        )  # fmt: skip


@pytest.mark.parametrize("kind", [e3.MessageAck(7, 5, "positive"), e3.ReleaseMessage(7, 5)])
def test_other_pdus_are_left_to_asn1tools(kind: e3.Pdu) -> None:
    for codec in CODECS:
        assert decode_g2_indication(codec.encode(kind)) is None
        assert codec.decode(codec.encode(kind)) == kind


@pytest.mark.parametrize(
    "change",
    [
        {"shm_name": ""}, {"shm_name": "é" * 32}, {"fh_buffer_index": 256}, {"fh_write_index": 2**32}, {"sfn": -1},
        {"slot": 65536}, {"n_rx_ant": 65536}, {"valid_symbol_mask": 0x4000},
    ],
)  # fmt: skip
def test_a_slot_out_of_range_is_refused(change: dict[str, Any]) -> None:
    slot = e3.SlotIndication("/ring", 0, 0, 1, 2, 3)
    with pytest.raises(e3.InvalidPdu):
        CODECS[1].encode_structure(replace(slot, **change))


@pytest.mark.parametrize(
    "change", [{"message_id": 0}, {"message_id": 2**32}, {"dapp_identifier": 65536}, {"protocol_data": b""}]
)
def test_an_indication_out_of_range_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(e3.InvalidPdu):
        CODECS[1].encode(replace(e3.IndicationMessage(1, 1, 1, b"a"), **change))
