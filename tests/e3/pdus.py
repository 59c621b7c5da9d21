"""Random PDUs of every generation, and of JSON."""

import json
from typing import Any

import twinlink_e3 as e3
from hypothesis import strategies as st

CODECS: list[e3.Codec] = [*e3.ASN1_CODECS.values(), *e3.JSON_CODECS.values()]
PRINTABLE = st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=("Cc", "Cf", "Zl", "Zp", "Zs"))


@st.composite
def pdus(draw: st.DrawFn, codec: e3.Codec, kinds: tuple[str, ...] = ()) -> Any:
    """A PDU that the codec can express."""
    is_json, order = codec.encoding == "json", e3.GENERATIONS.index(codec.generation)
    wide = order >= 2
    identifier = st.integers(1, 65535 if wide else 100) | st.integers(1, 5)
    message_id = st.integers(1, 2**32 - 1 if wide else 1000) | st.sampled_from([1, 255, 256, 257, 1000])
    identifiers = st.lists(identifier, max_size=6).map(tuple)
    name = st.text(PRINTABLE, min_size=1, max_size=20)
    version = st.text(PRINTABLE, min_size=1, max_size=11) | st.just("1.0.0")
    if codec is e3.ASN1_CODECS["G2b"]:  # sizes are in octets
        name = name.filter(lambda text: len(text.encode()) <= 64)
        version = version.filter(lambda text: len(text.encode()) <= 32)
    payload = octets = st.binary(min_size=1, max_size=40)
    document = st.dictionaries(st.text(max_size=4), st.integers(), max_size=3).map(
        lambda value: json.dumps(value, separators=(",", ":")).encode()
    )
    if codec is e3.JSON_CODECS["nested"]:
        payload = document
    sequence_id: st.SearchStrategy[int | None] = message_id if wide and not is_json else st.none()
    optional_sequence_id = st.none() | message_id if wide else st.none()
    code = st.sampled_from(["positive", "negative"])
    function = st.builds(e3.RanFunctionDefinition, identifier, identifiers, identifiers, payload)
    functions = st.none() | st.lists(function, max_size=3).map(tuple)
    newest = codec is e3.ASN1_CODECS["G2b"]
    protocol_data = document if is_json else payload
    timestamp: st.SearchStrategy[int | None] = st.none()
    if is_json:
        timestamp = st.integers(10**15, 2**63) if wide else st.integers(1, 10**14)
    elif order >= 1:
        timestamp = st.none() | st.integers(-(2**63), 2**63)
    subscription = (message_id, identifier, code, st.none() | identifier, st.none() | identifiers)
    builds = {
        "SetupRequest": st.builds(e3.SetupRequest, message_id, version, name, version, name, timestamp=timestamp),
        "SetupResponse": st.builds(
            e3.SetupResponse, message_id, message_id, code, name, st.none() | version, st.none() | identifier,
            functions, timestamp=timestamp,
        ),
        "SubscriptionRequest": st.builds(
            e3.SubscriptionRequest, message_id, identifier, identifier, identifiers, identifiers,
            st.none() | st.integers(0, 3600), st.none() | st.integers(0, 1000), timestamp=timestamp,
        ),
        "SubscriptionDelete": st.builds(
            e3.SubscriptionDelete, message_id, identifier, identifier, timestamp=timestamp
        ),
        "SubscriptionResponse": st.builds(
            e3.SubscriptionResponse, message_id, *subscription, st.none() | identifiers,
            st.none() | identifier if newest else st.none(),
            st.none() | st.integers(0, 60_000_000) if newest else st.none(), timestamp=timestamp,
        ),
        "IndicationMessage": st.builds(
            e3.IndicationMessage, message_id, identifier, identifier, protocol_data, timestamp=timestamp
        ),
        "DAppControlAction": st.builds(
            e3.DAppControlAction, message_id, identifier, identifier, identifier, payload, optional_sequence_id,
            timestamp=timestamp,
        ),
        "DAppReport": st.builds(
            e3.DAppReport, message_id, identifier, identifier, payload, sequence_id, timestamp=timestamp
        ),
        "XAppControlAction": st.builds(
            e3.XAppControlAction, message_id, identifier, identifier, octets, sequence_id, timestamp=timestamp
        ),
        "ReleaseMessage": st.builds(e3.ReleaseMessage, message_id, identifier, timestamp=timestamp),
        "MessageAck": st.builds(e3.MessageAck, message_id, message_id, code, timestamp=timestamp),
    }  # fmt: skip
    return draw(st.one_of([build for kind, build in builds.items() if not kinds or kind in kinds]))
