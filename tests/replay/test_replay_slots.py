"""Whole slots in the flowgraph: samples, tags, gaps, and what the twin makes of them."""

from typing import Any

import numpy as np
import pytest
from gnuradio import gr
from numpy.typing import NDArray
from twinlink_replay.blocks import Source
from twinlink_replay.blocks.observer import Observer, Record
from twinlink_replay.blocks.source import OUTPUT_SAMPLES
from twinlink_replay.twin.controller import Controller

import twinlink
from twinlink.control import PrbBlock
from twinlink.slots import Clock, Content, Slot, SlotSpectrum, db_octets
from twinlink.testing import free_endpoint, patience, wait_until

from .test_replay_source import Probe, flowgraph

RNG = np.random.default_rng(8)
BETA = 1 / 2048
OBSERVED_NS = 1_700_000_000_123_456_789
Values = NDArray[np.int16]


def message(values: Values, first: int = 10, missing: int = 0, **options: Any) -> SlotSpectrum:
    """A slot of these values, ``(antennas, symbols, subcarriers, 2)``, of a carrier of 51 PRBs."""
    data = (values.astype(np.float32) * np.float32(BETA)).astype(np.float16)
    slot = Slot(data, 7, 3, (1 << values.shape[1]) - 1, OBSERVED_NS, 55, Clock.MONOTONIC, missing)
    antennas = tuple(range(values.shape[0]))
    return SlotSpectrum(51, first, values.shape[2] // 12, antennas, 30_000, 3.6e9, BETA, slots=(slot,), **options)


def samples(antennas: int = 2, symbols: int = 3, n_prbs: int = 4) -> Values:
    return RNG.integers(-2000, 2000, (antennas, symbols, n_prbs * 12, 2)).astype(np.int16)


class Stream:
    """A source with a probe and an observer behind it, and the exporter's end of its link."""

    def __init__(self) -> None:
        endpoint = free_endpoint()
        self.records: list[Record] = []
        self.source = Source("zeromq", listen=endpoint)
        self.probe, self._observer = Probe(), Observer(self.records.extend)
        self._top: gr.top_block = flowgraph(self.source, self.probe)
        self._top.connect(self.source, self._observer)
        self._top.start()
        self._link = twinlink.open("zeromq", connect=endpoint, node="gnb-1")
        self._link.wait_ready(patience())
        self._sender = self._link.sender("spectrum")

    def send(self, payload: bytes) -> None:
        self._sender.send(payload)

    def wait_for(self, count: int, records: int) -> None:
        self.probe.wait_for(count)
        wait_until(lambda: len(self.records) >= records)
        assert len(self.records) == records
        assert self._observer.error is None

    def close(self) -> None:
        self._link.close()
        self._top.stop()
        self._top.wait()


@pytest.fixture
def stream() -> Any:
    made = Stream()
    yield made
    made.close()


@pytest.mark.parametrize("compress", [False, True])
def test_iq_of_slots_is_bit_for_bit_that_of_the_gnb(stream: Stream, compress: bool) -> None:
    values = [samples(), samples()]
    stream.send(message(values[0]).encode(compress=compress))
    stream.send(message(values[1], missing=4).encode(compress=compress))
    stream.wait_for(2 * 2 * 3 * 48, records=6)
    assert np.array_equal(stream.probe.int16(), np.concatenate([value.reshape(-1, 2) for value in values]))
    first, second = (stream.probe.tags[offset] for offset in sorted(stream.probe.tags))
    assert first["packet_len"] == 288
    assert first["rx_rate"] == 4 * 12 * 30_000
    assert first["rx_freq"] == 3.6e9 + (12 - 25.5) * 12 * 30_000  # the middle of PRBs 10 to 13
    slot = first["slot"]
    assert (slot["sfn"], slot["slot"], slot["timestamp"], slot["clock"]) == (7, 3, 55, Clock.MONOTONIC)
    assert (slot["symbols"], slot["antennas"], slot["first_prb"], slot["n_prbs"]) == (7, 3, 10, 4)
    assert (first["gap"], second["gap"]) == (0, 4)
    assert stream.source.stats()["missing"] == 4
    records = stream.records
    assert [record.samples.tolist() for record in records[:3]] == values[0][0].tolist()  # of the first antenna
    assert (records[0].first_prb, records[0].n_prbs, records[0].observed_ns) == (10, 4, OBSERVED_NS)
    assert (records[0].scs_hz, records[0].e3_timestamp) == (30_000, 55)


def test_several_slots_of_a_message_are_packets_of_their_own(stream: Stream) -> None:
    values = [samples(1, 2), samples(1, 2), samples(1, 2)]
    messages = [message(value, missing=k) for k, value in enumerate(values)]
    whole = SlotSpectrum(
        51, 10, 4, (0,), 30_000, 3.6e9, BETA, slots=tuple(slot for one in messages for slot in one.slots)
    )
    stream.send(whole.encode())
    stream.wait_for(3 * 96, records=6)
    assert np.array_equal(stream.probe.int16(), np.concatenate([value.reshape(-1, 2) for value in values]))
    assert [stream.probe.tags[offset]["gap"] for offset in sorted(stream.probe.tags)] == [0, 1, 2]


def test_a_slot_may_be_longer_than_the_buffer_of_the_flowgraph(stream: Stream) -> None:
    values = samples(16, 14, 51)
    assert values.size // 2 > OUTPUT_SAMPLES
    stream.send(message(values, first=0).encode())
    stream.wait_for(values.size // 2, records=14)
    assert np.array_equal(stream.probe.int16(), values.reshape(-1, 2))
    assert [tags["packet_len"] for tags in stream.probe.tags.values()] == [values.size // 2]


@pytest.mark.parametrize("content", [Content.POWER, Content.POWER_DB])
def test_power_is_the_real_part(stream: Stream, content: Content) -> None:
    power = (10 ** RNG.uniform(0, 6, (1, 1, 51))).astype(np.float32)
    data = db_octets(power) if content is Content.POWER_DB else power
    slot = Slot(data, 7, 3, 0x3FFF, OBSERVED_NS)
    whole = SlotSpectrum(51, 0, 51, (0,), 30_000, 3.6e9, BETA, content, slot_mean=True, slots=(slot,))
    stream.send(whole.encode())
    stream.wait_for(51, records=1)
    got = np.concatenate(stream.probe.samples)
    assert np.array_equal(got.real, whole.power(slot).ravel())
    assert not got.imag.any()
    record = stream.records[0]
    assert record.power is not None
    assert np.array_equal(record.power, got.real)
    assert (record.n_prbs, len(record.samples)) == (51, 0)


def test_blocks_name_the_prbs_of_the_carrier() -> None:
    controller = Controller(4, "s", 2000, frozenset({11}), first_prb=10)
    interfered = np.array([False, True, True, False])
    todo = controller.observe(interfered, 0, 0, 10**12)
    assert [item.prbs for item in todo] == [(11, 12), (12,)]
    assert isinstance(todo[1], PrbBlock)
