"""The source block in real flowgraphs over the real link."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pmt
import pytest
from gnuradio import blocks, gr
from numpy.typing import NDArray
from twinlink_replay.blocks import Source
from twinlink_replay.blocks import source as source_module
from twinlink_replay.blocks.gnuradio_compat import keep
from twinlink_replay.twin.flowgraph import DRAIN_S, Flowgraph

import twinlink
from tests.identity.nodes import make_pair
from twinlink.spectrum import Spectrum
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

RNG = np.random.default_rng(6)


class Probe(gr.sync_block):  # type: ignore[misc]
    """Records the stream, its tags, and their times of arrival."""

    def __init__(self, pause_s: float = 0) -> None:
        gr.sync_block.__init__(self, "probe", [np.complex64], None)
        keep(self)
        self.samples: list[Any] = []
        self.tags: dict[int, dict[str, Any]] = {}
        self.waited_ns: list[int] = []
        self.pause_s = pause_s

    def work(self, input_items: list[Any], output_items: list[Any]) -> int:
        now = time.time_ns()
        time.sleep(self.pause_s)
        for tag in self.get_tags_in_window(0, 0, len(input_items[0])):
            self.tags.setdefault(tag.offset, {})[pmt.symbol_to_string(tag.key)] = pmt.to_python(tag.value)
            if pmt.eq(tag.key, pmt.intern("received_ns")):
                self.waited_ns.append(now - pmt.to_uint64(tag.value))
        self.samples.append(input_items[0].copy())
        return len(input_items[0])

    def count(self) -> int:
        return sum(map(len, self.samples))

    def int16(self) -> NDArray[np.int16]:
        return np.asarray(np.concatenate(self.samples).view(np.float32).astype(np.int16).reshape(-1, 2))

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.count() >= count)
        assert self.count() == count


def flowgraph(source: Source, probe: Probe) -> gr.top_block:
    top = gr.top_block()
    top.connect(source, probe)
    return top


def spectra(count: int, n_prbs: int = 51) -> list[Spectrum]:
    values = RNG.integers(-32768, 32768, (count, n_prbs * 12, 2)).astype(np.int16)
    return [
        Spectrum(value, n_prbs, 30_000, 3.6192e9, 1_700_000_000_123_456_789 + k, e3={"timestamp": k + 1})
        for k, value in enumerate(values)
    ]


@pytest.mark.parametrize("role", ["listen", "connect"])
def test_samples_and_tags_arrive_as_sent(transport: TransportName, endpoint: str, role: str) -> None:
    sent = spectra(50)
    probe = Probe()
    here: dict[str, Any] = {role: endpoint}
    there: dict[str, Any] = {"connect" if role == "listen" else "listen": endpoint}
    top = flowgraph(Source(transport, **here), probe)
    top.start()
    with twinlink.open(transport, **there, node="gnb-1") as gnb:
        gnb.wait_ready(patience())
        sender = gnb.sender("spectrum")
        for one in sent:
            sender.send(one.encode())
        probe.wait_for(50 * 612)
        epoch = gnb.epoch
    top.stop()
    top.wait()
    np.testing.assert_array_equal(probe.int16(), np.concatenate([one.samples for one in sent]))
    assert sorted(probe.tags) == [k * 612 for k in range(50)]
    tags = probe.tags[612 * 7]
    assert tags["rx_time"] == (1_700_000_000, pytest.approx(0.123456796, abs=1e-12))
    expected = {
        "packet_len": 612, "rx_freq": 3.6192e9, "rx_rate": 612 * 30e3, "sequence": 7, "epoch": epoch,
        "gap": 0, "dropped": 0, "e3": {"timestamp": 8},
    }  # fmt: skip
    assert {name: tags[name] for name in expected} == expected
    assert tags["sent_ns"] <= tags["received_ns"]


def test_wake_ends_the_schedulers_wait(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if GNU Radio changes the private `_post`: without it, an idle source sleeps up to 250 ms."""

    def median_wait_ns() -> float:
        probe = Probe()
        top = flowgraph(Source("zeromq", listen=endpoint), probe)
        top.start()
        with twinlink.open("zeromq", connect=endpoint) as gnb:
            gnb.wait_ready(patience())
            for k, one in enumerate(spectra(9)):
                gnb.sender("spectrum").send(one.encode())
                probe.wait_for((k + 1) * 612)
        top.stop()
        top.wait()
        return float(np.median(probe.waited_ns))

    with_wake = median_wait_ns()
    monkeypatch.setattr(source_module, "wake", lambda block: None)
    assert with_wake < median_wait_ns() / 3


@pytest.mark.parametrize(("transport", "times"), [("zeromq", 40), ("zenoh", 20)])
def test_stop_and_restart(transport: TransportName, times: int, endpoint: str) -> None:
    top = flowgraph(Source(transport, listen=endpoint), Probe())
    for _ in range(times):
        top.start()
        top.stop()
        top.wait()


def test_a_restarted_flowgraph_receives_again(transport: TransportName, endpoint: str) -> None:
    probe = Probe()
    top = flowgraph(Source(transport, listen=endpoint), probe)
    for turn in range(1, 4):
        top.start()
        with twinlink.open(transport, connect=endpoint) as gnb:
            gnb.wait_ready(patience())
            gnb.sender("spectrum").send(spectra(1)[0].encode())
            probe.wait_for(turn * 612)
        top.stop()
        top.wait()


def test_stop_while_messages_arrive(endpoint: str) -> None:
    top = flowgraph(Source("zeromq", listen=endpoint), Probe())
    one = spectra(1)[0].encode()
    with twinlink.open("zeromq", connect=endpoint, send_timeout=0) as gnb:
        for _ in range(3):
            top.start()
            gnb.wait_ready(patience())
            for _ in range(200):
                gnb.sender("spectrum").send(one)
            top.stop()
            top.wait()


def test_the_stream_ends_after_end(endpoint: str) -> None:
    source, sink = Source("zeromq", listen=endpoint), blocks.vector_sink_c()
    top = gr.top_block()
    top.connect(source, sink)
    top.start()
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        for one in spectra(5):
            gnb.sender("spectrum").send(one.encode())
        gnb.sender("spectrum").flush(patience())
        source.end()
        top.wait()  # returns because work() said -1
    assert len(sink.data()) == 5 * 612


def test_acknowledged_messages_belong_to_the_stream_after_end(endpoint: str) -> None:
    """The receive thread has a message that is not yet in the queue when the stream ends."""
    reached, go_on = threading.Event(), threading.Event()

    def hesitate(message: twinlink.Message) -> None:
        reached.set()
        go_on.wait(patience())

    one = spectra(1)[0].encode()
    with twinlink.open("zeromq", listen=endpoint) as twin, twinlink.open("zeromq", connect=endpoint) as gnb:
        source, sink = Source(link=twin, on_message=hesitate), blocks.vector_sink_c()
        top = gr.top_block()
        top.connect(source, sink)
        top.start()
        gnb.wait_ready(patience())
        gnb.sender("spectrum").send(one)
        assert reached.wait(patience())
        ending = threading.Thread(target=source.end)
        ending.start()
        ending.join(0.1)
        go_on.set()
        ending.join()
        gnb.sender("spectrum").flush(patience())  # only now: beside other frames, acks go out after handlers
        top.wait()
        assert len(sink.data()) == 612
        gnb.sender("spectrum").send(one)
        wait_until(lambda: source.stats()["after_end"] == 1)
    assert len(sink.data()) == 612


def test_a_slow_flowgraph_drops_the_oldest_and_counts_them(endpoint: str) -> None:
    probe = Probe(pause_s=0.05)
    source = Source("zeromq", listen=endpoint, buffer_octets=20_000)
    top = flowgraph(source, probe)
    top.start()
    sent = spectra(400)
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        sender = gnb.sender("spectrum")
        for one in sent:
            sender.send(one.encode())
        sender.flush(patience())
        while source.stats()["waiting"]:
            time.sleep(0.01)
        probe.pause_s = 0
        source.end()
        top.wait()
    dropped = sum(tags["dropped"] for tags in probe.tags.values())
    assert dropped == source.stats()["dropped"] == source.stats()["missing"] > 0
    assert len(probe.tags) + dropped == 400
    assert sum(tags["gap"] for tags in probe.tags.values()) == dropped
    assert max(tags["sequence"] for tags in probe.tags.values()) == 399


def test_plain_payloads(endpoint: str) -> None:
    probe = Probe()
    top = flowgraph(Source("zeromq", listen=endpoint, flow="iq", payload="cf32"), probe)
    top.start()
    samples = (RNG.normal(size=20000) + 1j * RNG.normal(size=20000)).astype(np.complex64)
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        gnb.sender("iq").send(samples)
        gnb.sender("iq").send_array(samples.reshape(4, 5000))
        probe.wait_for(40000)
    top.stop()
    top.wait()
    np.testing.assert_array_equal(np.concatenate(probe.samples), np.tile(samples, 2))
    assert list(probe.tags) == [0, 20000]
    assert "rx_freq" not in probe.tags[0]


def test_a_payload_of_another_format_is_logged_once(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a message, a block left at ``spectrum`` would look like a silent sender of plain samples."""
    source = Source("zeromq", listen=endpoint, flow="iq")
    top = flowgraph(source, Probe())
    top.start()
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        for _ in range(3):
            gnb.sender("iq").send(np.zeros(100, np.complex64))
        wait_until(lambda: source.stats()["malformed"] == 3)
    top.stop()
    top.wait()
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Twinlink Source")]
    assert len(told) == 1
    for part in ("flow 'iq'", "800 octets", "'spectrum'", "payload format"):
        assert part in told[0]


def test_a_port_in_use_ends_the_flowgraph_with_a_message(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    with twinlink.open("zeromq", listen=endpoint):
        source = Source("zeromq", listen=endpoint, node="other")
        top = flowgraph(source, Probe())
        top.start()
        top.wait()
    assert isinstance(source.error, twinlink.TwinlinkError)
    assert endpoint.rpartition(":")[2] in capfd.readouterr().err


def test_an_absent_peer_is_logged(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = ""

    def told() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return f"connecting to {endpoint} over zeromq: TCP says: Connection refused; check" in said

    top = flowgraph(Source("zeromq", connect=endpoint), Probe())
    top.start()
    wait_until(told)
    top.stop()
    top.wait()


def test_a_flow_has_one_reader_and_the_second_one_logs_an_error(
    transport: TransportName, endpoint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, probes = [Source(transport, listen=endpoint) for _ in range(2)], [Probe(), Probe()]
    top = gr.top_block()
    for source, probe in zip(sources, probes, strict=True):
        top.connect(source, probe)
    for turn in (1, 2):  # a stopped source reads no longer; GNU Radio decides which one starts first
        top.start()
        with twinlink.open(transport, connect=endpoint) as gnb:
            gnb.wait_ready(patience())
            gnb.sender("spectrum").send(spectra(1)[0].encode())
            gnb.sender("spectrum").flush(patience())
            wait_until(lambda turn=turn: sum(probe.count() for probe in probes) >= turn * 612)  # type: ignore[misc]
        top.stop()
        top.wait()
        assert sum(probe.count() for probe in probes) == turn * 612
        assert [type(source.error) for source in sources].count(twinlink.ConfigurationError) == 1
    assert "reads flow 'spectrum'" in capfd.readouterr().err


def test_the_link_of_blocks_has_an_identity(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    probe = Probe()
    top = flowgraph(Source("zeromq", listen=endpoint, identity=twin.folder), probe)
    top.start()
    with twinlink.open("zeromq", connect=endpoint, identity=gnb.folder) as link:
        link.wait_ready(patience())
        assert link.peers() == ["twin-1"]
        link.sender("spectrum").send(spectra(1)[0].encode())
        probe.wait_for(612)
    top.stop()
    top.wait()


def test_gaps_beside_a_message_without_samples_are_reported_and_filled(endpoint: str) -> None:
    probe = Probe()
    top = flowgraph(Source("zeromq", listen=endpoint, payload="ci16", zero_fill=True), probe)
    top.start()
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        for payload in (b"\1\0\1\0" * 5, b"", b"odd", b"", b"\2\0\2\0" * 5):
            gnb.sender("spectrum").send(payload)
        probe.wait_for(15)
    top.stop()
    top.wait()
    told = [(at, tags["sequence"], tags["gap"], tags.get("filled", False)) for at, tags in sorted(probe.tags.items())]
    assert told == [(0, 0, 0, False), (5, 2, 0, True), (10, 4, 1, False)]


def test_a_flowgraph_ends_when_the_analysis_in_progress_has(endpoint: str) -> None:
    """A busy machine may take longer for it than for what waits: its recording is closed next."""
    began, ended = threading.Event(), threading.Event()

    def analyse(_: object) -> None:
        began.set()
        time.sleep(2.5 * DRAIN_S)
        ended.set()

    with twinlink.open("zeromq", listen=endpoint) as link, twinlink.open("zeromq", connect=endpoint) as gnb:
        with Flowgraph(link, analyse, 2**20):
            gnb.wait_ready(patience())
            gnb.sender("spectrum").send(spectra(1)[0].encode())
            assert began.wait(patience())
        assert ended.is_set()
