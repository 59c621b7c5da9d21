"""str, dict and list as payloads: what comes out is what went in, octets stay as they are, and errors lead on."""

import asyncio
import contextlib
import dataclasses
import math
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import twinlink
from twinlink import npy
from twinlink.message import Message
from twinlink.runtime.payload import octets_of
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def message_of(payload: bytes) -> Message:
    return Message(memoryview(payload), "telemetry", 0, 1, "gnb", 0, 0)


@given(st.dictionaries(st.text(), VALUES) | st.lists(VALUES))
def test_any_dict_or_list_comes_out_as_it_went_in(value: Any) -> None:
    assert message_of(bytes(octets_of(value))).json() == value


@given(st.text())
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    assert message_of(bytes(octets_of(text))).text() == text
    assert octets_of(text) == text.encode()


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_text_and_json_pass_from_threads_and_coroutines(transport: TransportName) -> None:
    at, telemetry = free_endpoint(), {"cell": "n78 ü", "snr_db": 21.5, "prbs": [50, 51], "ue": None}

    async def send() -> None:
        async with twinlink.open_async(transport, connect=at) as gnb:
            await gnb.wait_ready(patience())
            sender = gnb.sender("telemetry")
            for payload in (telemetry, [1, "two"], "drei €"):
                await sender.send(payload)
            await sender.flush(patience())

    with twinlink.open(transport, listen=at) as twin:
        receiver, answers = twin.receiver("telemetry"), twin.sender("answers")
        asyncio.run(send())
        first, second, third = (message for _ in range(3) if (message := receiver.receive(patience())))
        assert first.payload == b'{"cell":"n78 \xc3\xbc","snr_db":21.5,"prbs":[50,51],"ue":null}'
        assert (first.json(), second.json(), third.text()) == (telemetry, [1, "two"], "drei €")
        said: list[Any] = ["text", {}, []]
        assert [answers.send(payload) for payload in said] == [0, 1, 2]


def test_what_is_bytes_like_is_sent_as_its_octets() -> None:
    samples = np.arange(6, dtype=">i2").reshape(2, 3)
    payloads: list[Any] = [bytearray(b'{"a"'), memoryview(b"[1]")[1:], samples, samples.data, np.array(["a"])]
    for payload in payloads:
        assert bytes(octets_of(payload)) == memoryview(payload).tobytes()
    assert octets_of(np.str_("ab")) == b"ab"  # a str, though it is bytes-like


def test_numbers_and_arrays_of_numpy_in_a_dict_are_plain_in_json() -> None:
    value = {"power": np.float32(0.5), "prb": np.int64(7), "state": np.bool_(True), "row": np.arange(3)}
    assert message_of(bytes(octets_of(value))).json() == {"power": 0.5, "prb": 7, "state": True, "row": [0, 1, 2]}


@dataclasses.dataclass
class Cell:
    name: str


class Foreign:
    """An array of another library, as numpy sees it."""

    def __array__(self) -> npy.Array:
        return np.zeros(3)


@pytest.mark.parametrize(
    ("wrong", "right_call"),
    [
        (7, r"send\(\[payload\]\)"),
        (1 + 2j, r"send_array\(numpy\.asarray\(payload\)\)"),
        (None, r"send\(\[payload\]\)"),
        ((1, 2), r"send\(list\(payload\)\)"),
        ({1, 2}, r"send\(list\(payload\)\)"),
        (MappingProxyType({"a": 1}), r"send\(dict\(payload\)\)"),
        (Cell("n78"), r"dataclasses\.asdict\(payload\)"),
        (Spectrum(np.zeros((12, 2), np.int16), 1, 30_000, 3.6e9, 1), r"send\(payload\.encode\(\)\)"),
        (np.zeros(2, "datetime64[s]"), r"send_array\("),
        (Foreign(), r"send_array\(numpy\.asarray\(payload\)\)"),
        (np.array([{"a": 1}], dtype=object), r"send\(payload\.tolist\(\)\)"),
        (object(), "send takes octets .* send_array takes a numpy array"),
        ({"when": object()}, "a value of type object has no form in JSON; give a str"),
        ([b"octets"], "type bytes has no form in JSON"),
        ([1 + 2j], "type complex has no form in JSON"),
    ],
)
def test_a_wrong_type_is_refused_with_the_call_that_sends_it(wrong: Any, right_call: str) -> None:
    with twinlink.open("memory", listen=free_endpoint()) as link:
        sender = link.sender("telemetry")
        with pytest.raises(TypeError, match=right_call):
            sender.send(wrong)
        assert sender.stats()["sent"] == 0


def test_a_view_that_was_released_says_so() -> None:
    view = memoryview(b"octets")
    view.release()
    with pytest.raises(TypeError, match="released memoryview"):
        octets_of(view)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"snr": math.nan}, "send None"),
        ([math.inf], "send None"),
        ([np.float32("nan")], "send None"),
        (nested(200_000), "JSON"),
        ("\ud800", "UTF-8"),
        (["\ud800"], "UTF-8"),
        (np.zeros((4, 4))[:, ::2], r"send_array\(payload\)"),
    ],
    ids=["NaN", "infinity", "numpy's NaN", "deep", "surrogate", "surrogate in a list", "strided"],
)
def test_a_value_that_cannot_be_written_is_refused(wrong: Any, reason: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=reason):
        octets_of(wrong)


@pytest.mark.parametrize(
    ("payload", "call", "advice"),
    [
        (npy.encode(np.zeros(3)), "json", r"message\.array\(\)"),
        (npy.encode(np.zeros(3)), "text", r"message\.array\(\)"),
        (b'{"prbs":[50]}', "array", r"message\.json\(\)"),
        (np.zeros(3).tobytes(), "array", r"numpy\.frombuffer\(message\.payload, dtype\).*send_array\(\)"),
        (b"\xff\xfe", "text", r"message\.payload"),
        (b"", "json", "it has 0 octets"),
        (b"text", "json", r"message\.text\(\)"),
        (b"[NaN]", "json", "NaN is no number in JSON"),
        (b"[" * 200_000, "json", "not JSON"),
        (b"[" + b"9" * 10_000 + b"]", "json", "not JSON"),
    ],
)
def test_a_payload_of_another_kind_says_how_to_read_it(payload: bytes, call: str, advice: str) -> None:
    with pytest.raises(twinlink.MalformedPayload, match=advice):
        getattr(message_of(payload), call)()


@given(st.binary(max_size=200))
def test_any_octets_are_read_or_malformed(payload: bytes) -> None:
    for call in ("json", "text"):
        with contextlib.suppress(twinlink.MalformedPayload):
            getattr(message_of(payload), call)()
