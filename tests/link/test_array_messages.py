"""numpy arrays as payloads: what comes out is what went in, and nothing is pickled."""

import asyncio
import contextlib
import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import twinlink
from twinlink import npy
from twinlink.message import Message
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName


def message_of(payload: bytes) -> Message:
    return Message(memoryview(payload), "spectrum", 0, 1, "gnb", 0, 0)


@given(
    arrays_of.arrays(
        arrays_of.scalar_dtypes() | arrays_of.array_dtypes(), arrays_of.array_shapes(min_dims=0, min_side=0)
    ),
    st.sampled_from(["C", "F", "strided"]),
)
def test_any_array_comes_out_as_it_went_in_and_numpy_reads_the_payload(made: npy.Array, order: str) -> None:
    array = made[::2] if order == "strided" and made.ndim else np.asarray(made, order="F" if order == "F" else "C")
    assume(str(array.dtype.descr).isascii())
    payload = npy.encode(array)
    for received in (message_of(payload).array(), np.load(io.BytesIO(payload), allow_pickle=False)):
        assert (received.dtype, received.shape) == (array.dtype, array.shape)
        assert received.tobytes() == array.tobytes()


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_arrays_are_sent_and_received_without_a_copy(transport: TransportName) -> None:
    at, samples = free_endpoint(), np.arange(4096, dtype=np.complex64).reshape(16, 256)
    with twinlink.open(transport, listen=at) as twin, twinlink.open(transport, connect=at) as gnb:
        receiver = twin.receiver("spectrum")
        gnb.wait_ready(patience())
        gnb.sender("spectrum").send_array(samples)
        message = receiver.receive(patience())
        assert message is not None
        array = message.array()
        assert array.dtype == samples.dtype
        assert (array == samples).all()
        assert np.shares_memory(array, np.frombuffer(message.payload, np.uint8))
        assert not array.flags.writeable


class Unpickled:
    """Reports when it is made again from a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("unpickled",)


masked: Any = np.ma.masked_all  # it is not annotated


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([{"a": 1}, None], dtype=object),
        np.zeros(2, dtype=[("a", "O"), ("b", "i4")]),
        masked(2),
        [1, 2, 3],
        "text",
        b"octets",
    ],
    ids=["objects", "a field of objects", "masked", "list", "text", "octets"],
)
def test_what_has_no_octets_of_its_own_is_refused(wrong: Any) -> None:
    with twinlink.open("memory", listen=free_endpoint()) as link:
        sender = link.sender("spectrum")
        with pytest.raises(TypeError, match=r"astype|its mask|numpy\.asarray|send\(\) takes"):
            sender.send_array(wrong)
        assert sender.stats()["sent"] == 0


@pytest.mark.parametrize("array", [np.zeros(2**28, np.uint8), np.broadcast_to(np.float64(0), 2**40)])
def test_an_array_that_is_too_long_is_refused_before_it_is_copied(array: npy.Array) -> None:
    async def send() -> None:
        async with twinlink.open_async("memory", listen=free_endpoint()) as link:
            await link.sender("spectrum").send_array(array)

    with twinlink.open("memory", listen=free_endpoint()) as link:
        tracemalloc.start()
        try:
            with pytest.raises(twinlink.PayloadTooLarge, match=f"a payload of {array.nbytes} octets"):
                link.sender("spectrum").send_array(array)
            with pytest.raises(twinlink.PayloadTooLarge, match=f"a payload of {array.nbytes} octets"):
                asyncio.run(send())
            assert tracemalloc.get_traced_memory()[1] < array.nbytes / 100
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5 * 2**20, dtype=np.float64),
        np.arange(2**23, dtype=np.float32).reshape(1, -1),
        np.zeros(2**24 - 8, np.uint8),
    ],
    ids=["rows", "one row", "longer by its header"],
)
def test_the_error_says_how_to_send_a_longer_array(array: npy.Array) -> None:
    at = free_endpoint()
    options: Any = {"send_timeout": patience(), "node": "node"}
    with twinlink.open("memory", listen=at, **options) as twin, twinlink.open("memory", connect=at, **options) as gnb:
        receiver, sender = twin.receiver("samples"), gnb.sender("samples")
        gnb.wait_ready(patience())
        with pytest.raises(twinlink.PayloadTooLarge, match="in parts, which arrive in order: for part in ") as raised:
            sender.send_array(array)
        line = "for part" + str(raised.value).split("for part")[1]
        exec(line, {"numpy": np, "array": array, "sender": sender})
        parts = [message.array() for _ in range(sender.stats()["sent"]) if (message := receiver.receive(patience()))]
        assert len(parts) > 1
        assert np.array_equal(np.concatenate(parts).ravel(), array.ravel())


def test_the_error_says_how_to_send_more_octets() -> None:
    at, octets = free_endpoint(), bytes(range(256)) * 2**17
    with twinlink.open("memory", listen=at) as twin, twinlink.open("memory", connect=at) as gnb:
        receiver, sender = twin.receiver("samples"), gnb.sender("samples")
        gnb.wait_ready(patience())
        with pytest.raises(twinlink.PayloadTooLarge, match="in parts, which arrive in order: for at in ") as raised:
            sender.send(octets)
        exec("for at" + str(raised.value).split("for at")[1], {"octets": octets, "sender": sender})
        parts = [message.payload for _ in range(2) if (message := receiver.receive(patience()))]
        assert b"".join(parts) == octets


def header(descr: str, shape: tuple[int, ...]) -> bytes:
    into = io.BytesIO()
    npy.npy.write_array_header_1_0(into, {"descr": descr, "fortran_order": False, "shape": shape})
    return into.getvalue()


def test_field_names_that_the_header_cannot_hold_are_refused() -> None:
    with pytest.raises(twinlink.ConfigurationError, match="latin-1"):
        npy.encode(np.zeros(1, dtype=[("\u03c3", "i4")]))


def pickled() -> bytes:
    into = io.BytesIO()
    np.save(into, np.array([Unpickled()], dtype=object), allow_pickle=True)
    return into.getvalue()


GOOD = npy.encode(np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"text",
        GOOD[:-1],
        GOOD + b"\0",
        GOOD[:20],
        GOOD.replace(b"(2, 3)", b"(2,-3)"),
        GOOD.replace(b"(2, 3)", b"(2, 3"),
        GOOD.replace(b"<i8", b"|O8"),
        GOOD.replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09"),
        header("<f8", (0, 2**62, 2**62)),
        header("|V0", (1,) * 70),
        b"\x93NUMPY\x01\0" + (9000).to_bytes(2, "little") + b"(" * 9000,
        b"\x93NUMPY\x02\0" + (2**32 - 1).to_bytes(4, "little") + b"{",
        pickled(),
    ],
)
def test_what_is_no_array_is_malformed(payload: bytes) -> None:
    with pytest.raises(twinlink.MalformedPayload):
        message_of(payload).array()


@given(st.binary(max_size=200))
def test_any_octets_give_an_array_or_are_malformed(tail: bytes) -> None:
    for payload in (tail, GOOD[:12] + tail):
        with contextlib.suppress(twinlink.MalformedPayload):
            message_of(payload).array()
