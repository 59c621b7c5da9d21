"""What another block or a peer makes does not end a block: it is counted, and the next is taken."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pmt
import pytest
from gnuradio import blocks, gr
from twinlink_replay.blocks import Analyser, PduSink, PduSource, Source, StreamSink
from twinlink_replay.blocks.observer import Observer, Record
from twinlink_replay.detection.detector import Detector

import twinlink
from tests.replay.test_replay_pdu import Catch, Emit
from twinlink.process import internal_errors
from twinlink.spectrum import Spectrum
from twinlink.testing import patience, wait_until
from twinlink.testing.base import wait_for_event

NO_UTF8 = pmt.deserialize_str(b"\x02\x00\x02\xff\xfe")
VECTORS: dict[str, list[Any]] = {
    "u1": [1, 2, 255], "i1": [-1, 2], "u2": [1, 65535], "i2": [-1, 258], "u4": [1, 1 << 31], "i4": [-1, 1 << 30],
    "u8": [1, 1 << 63], "i8": [-1, 1 << 40], "f4": [-1.5, 0.25], "f8": [0.1, 0.2], "c8": [1 + 2j], "c16": [3 - 4j],
}  # fmt: skip
KINDS = dict(
    zip(VECTORS, ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "c32", "c64"), strict=True)
)
UNUSABLE = {
    "a number": pmt.from_long(5),
    "nil": pmt.PMT_NIL,
    "a dict": pmt.dict_add(pmt.make_dict(), pmt.intern("a"), pmt.from_long(1)),
    "a tuple": pmt.make_tuple(pmt.from_long(1)),
    "a vector of anything": pmt.make_vector(2, pmt.from_long(1)),
    "a symbol that is no UTF-8": NO_UTF8,
    "a symbol that is no UTF-8, with metadata": pmt.cons(pmt.make_dict(), NO_UTF8),
}


@pytest.fixture
def link(endpoint: str) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """Two ends that know each other: of the blocks, and of the other side."""
    with (
        twinlink.open("zeromq", listen=endpoint, node="dt") as ours,
        twinlink.open("zeromq", connect=endpoint, node="rw") as theirs,
    ):
        ours.wait_ready(patience())
        theirs.wait_ready(patience())
        yield ours, theirs


def test_the_pdu_sink_sends_vectors_of_every_type_and_refuses_the_rest(
    link: tuple[twinlink.Link, twinlink.Link],
) -> None:
    emit, sink, top = Emit(), PduSink(flow="pdus", link=link[0]), gr.top_block()
    top.msg_connect(emit, "pdus", sink, "pdus")
    received = link[1].receiver("pdus")
    top.start()
    try:
        for failed, value in enumerate(UNUSABLE.values(), 1):
            emit.emit(value)
            wait_until(lambda failed=failed: sink.stats()["failed"] == failed)  # type: ignore[misc]
        for name, values in VECTORS.items():
            for elements in (values, []):
                emit.emit(getattr(pmt, f"init_{KINDS[name]}vector")(len(elements), elements))
                message = received.receive(patience())
                assert message is not None, name
                assert bytes(message.payload) == np.array(elements, f"<{name}").tobytes(), name
    finally:
        top.stop()
        top.wait()
    assert sink.stats() == {"sent": 2 * len(VECTORS), "failed": len(UNUSABLE)}


@pytest.mark.usefixtures("may_raise")
def test_a_handler_that_raises_is_counted_and_an_event(
    link: tuple[twinlink.Link, twinlink.Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, sink, top = Emit(), PduSink(flow="pdus", link=link[0]), gr.top_block()
    top.msg_connect(emit, "pdus", sink, "pdus")
    received = link[1].receiver("pdus")
    top.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(sink._sending, "send", lambda payload: payload.unknown)
            emit.emit(pmt.init_u8vector(1, [1]))
            wait_until(lambda: sink.stats()["failed"] == 1)
        emit.emit(pmt.init_u8vector(1, [2]))
        message = received.receive(patience())
        assert message is not None
        assert bytes(message.payload) == b"\2"
    finally:
        top.stop()
        top.wait()
    event = wait_for_event(link[0], twinlink.InternalError)
    assert link[0].stats()["internal_errors"] == 1
    assert event.where.startswith("GNU Radio block Twinlink PDU Sink")
    assert internal_errors.recent()[0].startswith(f"{event.where} raised {event.error}")


def _tag(offset: int, value: Any, key: Any = None) -> Any:
    made = gr.tag_t()
    made.offset, made.key, made.value = offset, pmt.intern("packet_len") if key is None else key, value
    return made


def test_the_stream_sink_takes_no_length_of_another_kind(link: tuple[twinlink.Link, twinlink.Link]) -> None:
    lengths = [
        pmt.from_double(4.0), pmt.intern("4"), pmt.PMT_NIL, pmt.PMT_T, pmt.from_long(0), pmt.from_long(-4),
        pmt.from_long(1 << 40), pmt.from_uint64(1 << 63), pmt.make_dict(), pmt.init_u8vector(1, [4]),
    ]  # fmt: skip
    tags = [_tag(8 * k, length) for k, length in enumerate(lengths)]
    end = 8 * len(lengths)
    tags += [_tag(2, NO_UTF8, NO_UTF8), _tag(end, pmt.from_uint64(4))]
    top, sink = gr.top_block(), StreamSink(flow="twin", payload="cf32", link=link[0])
    top.connect(blocks.vector_source_c([*range(end + 4)], False, 1, tags), sink)
    received = link[1].receiver("twin")
    top.start()
    message = received.receive(patience())
    top.wait()
    assert message is not None
    np.testing.assert_array_equal(np.frombuffer(message.payload, "<c8").real, [end, end + 1, end + 2, end + 3])
    assert sink.stats() == {"sent": 1, "failed": len(lengths), "untagged_samples": end}


@pytest.mark.usefixtures("may_raise")
def test_the_observer_leaves_a_packet_out_whose_tags_another_block_made() -> None:
    good = {
        "rx_rate": pmt.from_double(360_000.0), "rx_freq": pmt.from_double(3.6e9), "sequence": pmt.from_uint64(7),
        "epoch": pmt.from_uint64(1), "sent_ns": pmt.from_uint64(2), "received_ns": pmt.from_uint64(3),
        "rx_time": pmt.make_tuple(pmt.from_uint64(1), pmt.from_double(0.5)),
    }  # fmt: skip
    packets = [
        {}, {**good, "sequence": pmt.from_double(1.0)}, {**good, "epoch": NO_UTF8}, {**good, "rx_time": pmt.PMT_NIL},
        {**good, "e3": NO_UTF8}, {**good, "slot": pmt.from_long(1)}, {**good, "rx_rate": NO_UTF8}, good,
    ]  # fmt: skip
    tags = []
    for k, packet in enumerate(packets):
        tags += [_tag(12 * k, pmt.from_long(12))]
        tags += [_tag(12 * k, value, pmt.intern(name)) for name, value in packet.items()]
    records: list[Record] = []
    top, observer = gr.top_block(), Observer(records.extend)
    top.connect(blocks.vector_source_c([1.0] * 12 * len(packets), False, 1, tags), observer)
    top.start()
    top.wait()
    assert [record.sequence for record in records] == [7]
    assert observer.raised == len(packets) - 1
    assert observer.error is None


def _with(**members: Any) -> bytes:
    """A message of flow ``spectrum`` with other members than `Spectrum.encode` makes."""
    good = Spectrum(np.ones((12, 2), np.int16), 1, 30_000, 3.6e9, 5, e3={"timestamp": 7}).encode()
    length = int.from_bytes(good[:2])
    head = json.dumps({**json.loads(good[2 : 2 + length]), **members}).encode()
    return len(head).to_bytes(2) + head + good[2 + length :]


WRONG = [
    _with(observed_ns=-1), _with(observed_ns=1 << 63), _with(observed_ns=10**300), _with(scs_hz=10**400),
    _with(scs_hz=0), _with(centre_hz=float("nan")), _with(centre_hz=10**400), _with(e3={"timestamp": 1 << 63}),
    _with(e3={"timestamp": -(1 << 70)}), _with(symbol=-1), _with(fft_size=1 << 64), _with(e3={"a": float("inf")}),
]  # fmt: skip


def test_numbers_of_a_peer_that_gnuradio_cannot_hold_are_malformed(link: tuple[twinlink.Link, twinlink.Link]) -> None:
    source, sink = Source(link=link[0]), blocks.vector_sink_c()
    pdus, catch = PduSource(link=link[0], flow="pdus"), Catch()
    top, other = gr.top_block(), gr.top_block()
    top.connect(source, sink)
    other.msg_connect(pdus, "pdus", catch, "pdus")
    top.start()
    other.start()
    for flow in ("spectrum", "pdus"):
        for payload in (_with(), *WRONG, _with()):
            link[1].sender(flow).send(payload)
    wait_until(lambda: len(sink.data()) == 24 and len(catch.pdus) == 2)
    for one in (top, other):
        one.stop()
        one.wait()
    gaps = [pmt.to_long(tag.value) for tag in sink.tags() if pmt.symbol_to_string(tag.key) == "gap"]
    assert gaps == [0, len(WRONG)]
    assert source.stats()["malformed"] == pdus.stats()["malformed"] == len(WRONG)
    assert link[0].stats()["handler_errors"] == 0


@pytest.mark.usefixtures("may_raise")
def test_work_that_raises_leaves_its_input_out_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    add, left = Detector.add, [True]

    def fail_once(self: Detector, features: Any) -> Any:
        if left:
            left.clear()
            raise ZeroDivisionError
        return add(self, features)

    monkeypatch.setattr(Detector, "add", fail_once)
    symbols = 4000
    top, analyser = gr.top_block(), Analyser(n_prbs=1)
    sinks = [blocks.vector_sink_f(width) for width in (12, 12, 1, 1)]
    samples = np.tile(np.arange(1, 13) * 1000, symbols)
    top.connect(blocks.vector_source_c(samples.tolist()), analyser)
    for port, sink in enumerate(sinks):
        top.connect((analyser, port), sink)
    top.start()
    top.wait()
    assert analyser.raised == 1
    peak = np.reshape(sinks[1].data(), (-1, 12))
    assert 0 < len(peak) < symbols
    assert (np.diff(peak, axis=1) > 0).all()  # whole symbols were left out
