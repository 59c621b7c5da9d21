"""Every PDU of generation G0 goes through the grammar and back, and nothing but MalformedPdu comes out of garbage."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_e3 import (
    DAppControlAction,
    DAppReport,
    GrammarMissing,
    IndicationMessage,
    InvalidPdu,
    IqDataIndication,
    MalformedPdu,
    MessageAck,
    MessageIds,
    Pdu,
    PrbBlacklistControl,
    PrbBlacklistReport,
    PrbBlockedControl,
    RanFunctionData,
    RanFunctionDefinition,
    ReleaseMessage,
    SetupRequest,
    SetupResponse,
    SubscriptionDelete,
    SubscriptionRequest,
    SubscriptionResponse,
    XAppControlAction,
    decode,
    decode_iq_data,
    decode_structure,
    encode,
    encode_iq_data,
    encode_structure,
    grammar,
)

FUNCTION = RanFunctionDefinition(
    1, (1,), (1, 2), encode_structure(RanFunctionData(b"spectrum", 1, b"I/Q and PRB block"))
)
PDUS: list[Pdu] = [
    SetupRequest(1, "1.0.0", "a dApp", "1.2.3", "a vendor"),
    SetupResponse(2, 1, "positive", "gnb", "1.0.0", 100, (FUNCTION, FUNCTION)),
    SetupResponse(2, 1, "negative", "gnb"),
    SubscriptionRequest(3, 100, 1, (1,), (1,), 0, 1000),
    SubscriptionRequest(3, 100, 1, (), ()),
    SubscriptionDelete(4, 1, 100),
    SubscriptionResponse(5, 3, 1, "positive", 7, (1,), ()),
    SubscriptionResponse(5, 3, 1, "negative"),
    IndicationMessage(1000, 1, 1, encode_iq_data(IqDataIndication(bytes(6144), 1536, 0))),
    DAppControlAction(6, 1, 1, 1, encode_structure(PrbBlacklistControl((0, 5, 272), 5, 3600))),
    DAppReport(7, 1, 1, encode_structure(PrbBlacklistReport(()))),
    XAppControlAction(8, 1, 1, encode_structure(PrbBlockedControl((1, 2)))),
    ReleaseMessage(9, 1),
    MessageAck(10, 6, "negative"),
]


@pytest.mark.parametrize("pdu", PDUS, ids=lambda pdu: type(pdu).__name__)
def test_every_pdu_survives_the_round_trip(pdu: Pdu) -> None:
    assert decode(encode(pdu)) == pdu


@pytest.mark.parametrize("pdu", PDUS, ids=lambda pdu: type(pdu).__name__)
def test_a_truncated_pdu_is_malformed_wherever_it_ends(pdu: Pdu) -> None:
    octets = encode(pdu)
    for length in {*range(min(len(octets), 40)), len(octets) - 1}:
        with pytest.raises(MalformedPdu):
            decode(octets[:length])


@given(st.binary(max_size=80))
def test_garbage_decodes_or_is_malformed(octets: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [decode, decode_iq_data]
    readers += [partial(decode_structure, kind) for kind in STRUCTURES]
    for read in readers:
        try:
            read(octets)
        except MalformedPdu as error:
            assert str(error)  # noqa: PT017 - any other exception fails the test


STRUCTURES: tuple[type[Any], ...] = (RanFunctionData, PrbBlacklistControl, PrbBlacklistReport, PrbBlockedControl)


@pytest.mark.parametrize(
    "pdu",
    [
        ReleaseMessage(0, 1),
        ReleaseMessage(1001, 1),
        ReleaseMessage(1, 101),
        MessageAck(1, 1, "maybe"),  # type: ignore[arg-type]
        SetupRequest(1, "1.0.0", "", "1.0.0", "v"),
        SetupRequest(1, "1.0.0", "a", "1.0.0", None),  # type: ignore[arg-type]
        IndicationMessage(1, 1, 1, b""),
        IndicationMessage(1, 1, 1, bytes(32769)),
        IndicationMessage(1, 0, 1, b"x"),
    ],
)
def test_a_pdu_the_grammar_forbids_is_not_encoded(pdu: Pdu) -> None:
    with pytest.raises(InvalidPdu):
        encode(pdu)


def test_a_block_list_beyond_the_grammar_is_not_encoded() -> None:
    with pytest.raises(InvalidPdu):
        encode_structure(PrbBlacklistControl((273,)))


def test_message_ids_go_round_within_their_range() -> None:
    ids = MessageIds()
    seen = [ids() for _ in range(1001)]
    assert (seen[0], seen[999], seen[1000]) == (1, 1000, 1)


def test_a_missing_compiler_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asn1tools", None)
    grammar.spectrum.cache_clear()
    with pytest.raises(GrammarMissing, match=r"pip install 'twinlink\[e3\]'"):
        grammar.spectrum()
