"""PDU blocks and sinks in real flowgraphs over the real link."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pmt
import pytest
from gnuradio import blocks, gr
from twinlink_replay.blocks import PduSink, PduSource, Source, StreamSink
from twinlink_replay.blocks.gnuradio_compat import keep
from twinlink_replay.blocks.link_pool import Address
from twinlink_replay.blocks.sink_sender import SinkSender

import twinlink
from twinlink.control import PrbBlock
from twinlink.spectrum import Spectrum
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

RNG = np.random.default_rng(7)


class Catch(gr.basic_block):  # type: ignore[misc]
    def __init__(self) -> None:
        gr.basic_block.__init__(self, "catch", None, None)
        keep(self)
        self.pdus: list[Any] = []
        self.message_port_register_in(pmt.intern("pdus"))
        self.set_msg_handler(pmt.intern("pdus"), self.catch)

    def catch(self, pdu: Any) -> None:
        self.pdus.append(pdu)


class Emit(gr.basic_block):  # type: ignore[misc]
    def __init__(self) -> None:
        gr.basic_block.__init__(self, "emit", None, None)
        keep(self)
        self.message_port_register_out(pmt.intern("pdus"))

    def emit(self, vector: Any) -> None:
        self.message_port_pub(pmt.intern("pdus"), pmt.cons(pmt.PMT_NIL, vector))


def test_pdu_source(transport: TransportName, endpoint: str) -> None:
    samples = RNG.integers(-32768, 32768, (3, 24, 2)).astype(np.int16)
    caught = {vector: Catch() for vector in ("complex", "s16")}
    top = gr.top_block()
    # Two blocks of one flowgraph share the link; each flow has one reader, so they read different flows.
    for flow, (vector, catch) in zip(("a", "b"), caught.items(), strict=True):
        source = PduSource(transport, listen=endpoint, flow=flow, vector=vector)
        top.msg_connect(source, "pdus", catch, "pdus")
    top.start()
    with twinlink.open(transport, connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        for flow in ("a", "b"):
            for value in samples:
                gnb.sender(flow).send(Spectrum(value, 2, 30_000, 3.6e9, 5_000_000_007, e3={"timestamp": 3}).encode())
        wait_until(lambda: all(len(catch.pdus) == 3 for catch in caught.values()))
    top.stop()
    top.wait()
    meta = pmt.to_python(pmt.car(caught["complex"].pdus[2]))
    expected = {"packet_len": 24, "sequence": 2, "gap": 0, "flow": "a", "rx_freq": 3.6e9, "e3": {"timestamp": 3}}
    assert {name: meta[name] for name in expected} == expected
    assert meta["rx_time"] == (5, 7e-9)
    vector = pmt.to_python(pmt.cdr(caught["complex"].pdus[1]))
    np.testing.assert_array_equal(vector, samples[1] @ [1, 1j])
    assert pmt.is_s16vector(pmt.cdr(caught["s16"].pdus[0]))
    np.testing.assert_array_equal(pmt.to_python(pmt.cdr(caught["s16"].pdus[0])), samples[0].ravel())


def test_pdu_sink_sends_vectors_and_text_over_a_shared_link(transport: TransportName, endpoint: str) -> None:
    """A source and a sink with the same endpoint use one port."""
    sink = PduSink(transport, listen=endpoint, flow="control")
    top = gr.top_block()
    top.connect(Source(transport, listen=endpoint), blocks.null_sink(gr.sizeof_gr_complex))
    source = Emit()
    top.msg_connect(source, "pdus", sink, "pdus")
    top.start()
    block = PrbBlock("a-1", (3, 4), 12, 2000)
    with twinlink.open(transport, connect=endpoint) as gnb:
        received = gnb.receiver("control")
        wait_until(lambda: all(link.peers() for link in twinlink.open_links()))  # also the link of the blocks
        source.emit(pmt.init_u8vector(3, [1, 2, 255]))
        source.emit(pmt.init_c32vector(2, [1 + 2j, -3]))
        source.emit(pmt.intern(block.encode().decode()))
        source.emit(pmt.from_long(3))
        payloads = [bytes(message.payload) for message in (received.receive(patience()) for _ in range(3)) if message]
        wait_until(lambda: sink.stats() == {"sent": 3, "failed": 1})
    top.stop()
    top.wait()
    assert payloads[0] == bytes([1, 2, 255])
    np.testing.assert_array_equal(np.frombuffer(payloads[1], np.complex64), [1 + 2j, -3])
    assert PrbBlock.decode(payloads[2]) == block


def test_pdu_source_gives_octets_and_text_as_the_sink_takes_them(endpoint: str) -> None:
    sent = {
        "u8": [pmt.init_u8vector(3, [1, 0, 255]), pmt.init_u8vector(0, [])],
        "text": [pmt.intern("µ {}"), pmt.intern("")],
    }
    sources = {payload: PduSource(listen=endpoint, flow=payload, payload=payload) for payload in sent}
    caught, emit = {payload: Catch() for payload in sent}, {payload: Emit() for payload in sent}
    here, there = gr.top_block(), gr.top_block()
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        for payload, source in sources.items():
            here.msg_connect(source, "pdus", caught[payload], "pdus")
            there.msg_connect(emit[payload], "pdus", PduSink(link=gnb, flow=payload), "pdus")
        here.start()
        there.start()
        try:
            gnb.wait_ready(patience())
            gnb.sender("text").send(b"\xff is not UTF-8")
            for payload, values in sent.items():
                for value in values:
                    emit[payload].emit(value)
            wait_until(lambda: all(len(catch.pdus) == 2 for catch in caught.values()))
        finally:
            for top in (there, here):
                top.stop()
                top.wait()
    for payload, values in sent.items():
        assert all(pmt.equal(pmt.cdr(pdu), value) for pdu, value in zip(caught[payload].pdus, values, strict=True))
    lengths = [[pmt.to_python(pmt.car(pdu))["packet_len"] for pdu in catch.pdus] for catch in caught.values()]
    assert lengths == [[3, 0], [5, 0]]
    assert sources["text"].stats() == {"missing": 0, "malformed": 1}


def test_a_sink_logs_the_first_failure_in_a_row(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    with twinlink.open("zeromq", listen=endpoint, max_payload=10) as link:
        sending = SinkSender(gr.logger("sink"), Address("zeromq", endpoint, None, None), "flow", link)
        sending.open()
        for octets in (11, 12, 1, 13, 14):
            sending.send(bytes(octets))
    assert (sending.sent, sending.failed) == (1, 4)
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("sink")]
    assert [line.partition(" octets")[0].replace(" :", ":") for line in told] == [
        "sink:error: a payload of 11",
        "sink:error: a payload of 13",
    ]


REFUSES = """
from twinlink_replay.blocks import PduSink
sink = PduSink(listen="tcp/127.0.0.1:1")
for _ in range(3):
    sink._sending.error = None
    sink._sending.refuse(ValueError("cannot be sent"))
print(sink.stats()["failed"])
"""


def test_the_reader_of_stderr_may_leave() -> None:
    """As in ``flowgraph.py 2>&1 | head``: an exception in a block's ``work`` would end the flowgraph."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-c", REFUSES]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writes, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["3"])


def test_malformed_payloads_are_counted(endpoint: str) -> None:
    source, catch = PduSource("zeromq", listen=endpoint), Catch()
    top = gr.top_block()
    top.msg_connect(source, "pdus", catch, "pdus")
    top.start()
    try:
        with twinlink.open("zeromq", connect=endpoint) as gnb:
            gnb.wait_ready(patience())
            gnb.sender("spectrum").send(b"no spectrum")
            wait_until(lambda: source.stats() == {"missing": 0, "malformed": 1})
    finally:
        top.stop()
        top.wait()
    assert catch.pdus == []


def test_stream_sink_sends_each_packet(endpoint: str) -> None:
    samples = RNG.integers(-100, 100, 100).astype(np.complex64)

    def tag(offset: int, length: int) -> Any:
        made = gr.tag_t()
        made.offset, made.key, made.value = offset, pmt.intern("packet_len"), pmt.from_long(length)
        return made

    ours = twinlink.open("zeromq", listen=endpoint)  # before the flowgraph: its samples do not wait for a peer
    top = gr.top_block()
    sink = StreamSink(flow="twin", payload="ci16", link=ours)
    source = blocks.vector_source_c(samples.tolist(), False, 1, [tag(5, 20), tag(25, 30), tag(60, 40)])
    hold = blocks.head(gr.sizeof_gr_complex, 10**9)
    top.connect(source, hold, sink)
    with ours, twinlink.open("zeromq", connect=endpoint) as gnb:
        received = gnb.receiver("twin")
        ours.wait_ready(patience())
        top.start()
        packets = []
        for _ in range(3):
            message = received.receive(patience())
            assert message is not None
            packets.append(np.frombuffer(message.payload, "<i2").reshape(-1, 2)[:, 0])
        top.stop()
        top.wait()
    for got, part in zip(packets, (slice(5, 25), slice(25, 55), slice(60, 100)), strict=True):
        np.testing.assert_array_equal(got, samples[part].real)
    assert sink.stats() == {"sent": 3, "failed": 0, "untagged_samples": 10}
