"""Whole slots from an emulated gNB's shared memory over E3 and the exporter to a twin."""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_e3 import ANY_LINK, Endpoints, shared_memory_path
from twinlink_exporter.decision_guard import Limits
from twinlink_exporter.observation import Carrier
from twinlink_exporter.reduction import Reduction
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.recording import Recording, read
from twinlink_ran_emulator.slot_writer import LEAKAGE, MIXED_SYMBOLS, turned

import twinlink
from twinlink.control import SensingPolicy
from twinlink.sensing import SensingRanges
from twinlink.slots import ALL_SYMBOLS, Clock, Content, Slot, SlotSpectrum
from twinlink.sync import State
from twinlink.testing import patience, wait_until

from .conftest import LONG_MS, RunningExporter, StartExporter, Twin
from .twin_side import propose, receive, results, say

N_PRBS, SCS_HZ = 24, 15_000  # a slot of 1 ms: a busy machine keeps up
CARRIER = Carrier(N_PRBS, SCS_HZ)
StartGnb = Callable[..., "Gnb"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("recordings") / "slots"
    settings = make_recording.Settings(n_prbs=N_PRBS, scs_khz=SCS_HZ // 1000, seconds=1.0, n_ues=2, episodes=(), seed=5)
    make_recording.write(path, settings)
    return read(path.with_name("slots.sigmf-meta"))


class Gnb:
    """`twinlink-ran-emulator` as a process, with shared memory of its own."""

    def __init__(self, recording: Recording, endpoints: Endpoints, log: Path, *options: str) -> None:
        self.suffix = f".{uuid.uuid4().hex[:8]}"
        self._log = log
        self.process = subprocess.Popen([
            sys.executable, "-m", "twinlink_ran_emulator", "--recording", str(recording.path), "--loop", "0",
            "--setup", endpoints.setup, "--to-dapp", endpoints.to_dapp, "--from-dapp", endpoints.from_dapp,
            "--slots", f"--shm-suffix={self.suffix}", "--log", str(log), *options,
        ])  # fmt: skip

    def events(self, name: str) -> list[dict[str, object]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def stop(self) -> None:
        """End it; its shared memory is gone."""
        if self.process.poll() is None:
            self.process.terminate()
        assert self.process.wait(patience()) == 0
        assert not shared_memory_path(f"/e3_ran_buffers{self.suffix}").exists()
        assert not shared_memory_path(f"/e3_l2_sensing{self.suffix}").exists()


@pytest.fixture
def start_gnb(recording: Recording, endpoints: Endpoints, tmp_path: Path) -> Iterator[StartGnb]:
    started: list[Gnb] = []

    def start(*options: str) -> Gnb:
        started.append(Gnb(recording, endpoints, tmp_path / f"gnb-{len(started)}.jsonl", *options))
        return started[-1]

    yield start
    for gnb in started:
        if gnb.process.poll() is None:
            gnb.process.kill()
            gnb.process.wait()
        for name in ("/e3_ran_buffers", "/e3_l2_sensing"):
            shared_memory_path(name + gnb.suffix).unlink(missing_ok=True)


def posix(endpoints: Endpoints) -> Endpoints:
    return Endpoints(endpoints.setup, endpoints.to_dapp, endpoints.from_dapp, "posix")


def take(receiver: twinlink.Receiver, count: int) -> list[tuple[SlotSpectrum, Slot]]:
    """So many slots that came, each with its message."""
    taken: list[tuple[SlotSpectrum, Slot]] = []
    while len(taken) < count:
        message = SlotSpectrum.decode(receive(receiver, 1)[0].payload)
        taken += [(message, slot) for slot in message.slots]
    return taken


def heard(recording: Recording, first: NDArray[np.float16]) -> NDArray[np.float16]:
    """The record, turned as this symbol of it is, and further, ``(4, subcarriers, 2)``."""
    for samples in recording.samples:
        rows = turned(samples, 1 / 2048)
        for turn in range(4):
            if rows[turn].tobytes() == first.tobytes():
                return np.roll(rows, -turn, axis=0)
    raise AssertionError("a symbol is none of the recording, bit for bit")


def said_or_missing(exporter: RunningExporter) -> int:
    counters = exporter.counters
    return (
        counters.exported + counters.slots_late + counters.slots_unreadable + counters.left_out + counters.without_twin
    )


@pytest.mark.parametrize(("link", "generation"), [("posix", "G2b"), ("zmq", "G2a")])
def test_every_slot_comes_bit_for_bit_or_is_in_a_gap(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints, recording: Recording,
    link: str, generation: str,
) -> None:  # fmt: skip
    gnb = start_gnb("--e3-link", link, "--e3-generation", generation)
    exporter = start_exporter(posix(endpoints) if link == "posix" else endpoints, carrier=CARRIER)
    receiver = twin[0].receiver("spectrum")
    taken = take(receiver, 300)
    numbers = [slot.sfn * 10 + slot.slot for _, slot in taken]
    steps = np.diff(numbers) % 10240
    assert steps.tolist() == [(1 + slot.missing) % 10240 for _, slot in taken[1:]]
    for message, slot in taken[::60]:
        assert (message.n_prbs, message.antennas, message.scs_hz, slot.symbols) == (N_PRBS, (0,), SCS_HZ, ALL_SYMBOLS)
        assert slot.clock is Clock.MONOTONIC
        data = np.asarray(slot.data, np.float16)
        rows = heard(recording, data[0, 0])
        assert all(data[0, symbol].tobytes() == rows[symbol % 4].tobytes() for symbol in range(14))
    exporter.stop()
    assert exporter.counters.indications == said_or_missing(exporter)
    gnb.stop()


def test_rows_are_not_late_because_the_exporter_was_not_scheduled(
    twin: Twin, start_gnb: StartGnb, endpoints: Endpoints, tmp_path: Path
) -> None:
    """100 slots a second, of which a row lasts 320 ms, and an exporter that runs half of the time."""
    start_gnb("--e3-generation", "G2b", "--tdd", "DDDDDDDDDU")
    summary = tmp_path / "summary"
    exporter = subprocess.Popen([
        sys.executable, "-m", "twinlink_exporter", "--connect", twin[1], "--n-prbs", str(N_PRBS), "--scs-khz", "15",
        "--setup", endpoints.setup, "--to-dapp", endpoints.to_dapp, "--from-dapp", endpoints.from_dapp,
        "--summary", str(summary),
    ])  # fmt: skip
    try:
        receiver = twin[0].receiver("spectrum")
        take(receiver, 1)
        for _ in range(20):
            exporter.send_signal(signal.SIGSTOP)
            time.sleep(0.06)
            exporter.send_signal(signal.SIGCONT)
            time.sleep(0.06)
        exporter.terminate()
        assert exporter.wait(patience()) == 0
    finally:
        exporter.kill()
        exporter.wait()
    counters = json.loads(summary.read_text())
    assert counters["slots_late"] * 10 <= counters["indications"]  # a quarter, by the time that has passed


def test_a_block_goes_over_the_second_subscription(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints
) -> None:
    gnb = start_gnb("--e3-link", "posix", "--e3-generation", "G2b")
    exporter = start_exporter(posix(endpoints), carrier=CARRIER)
    receiver = twin[0].receiver("spectrum")
    take(receiver, 1)
    wait_until(lambda: exporter.exporter.twins_by_state()[State.IN_SYNC])
    propose(twin[0], prbs=(4, 5))
    result = results(twin[0], 1)[0]
    assert say(result) == ("b-1", "installed", (4, 5))
    assert result.e3 is not None
    assert result.e3.sequence_id == 1
    # On a busy machine, the answer is that of 250 ms without an acknowledgement, by the time of sending.
    assert result.e3.received_ns <= result.e3.sent_ns <= (result.e3.acknowledged_ns or result.time_ns) == result.time_ns
    exporter.wait_for("block-installed")
    assert exporter.events("block-installed")[0]["e3"]["sequence_id"] == 1
    wait_until(lambda: gnb.events("control"))
    exporter.stop()
    wait_until(lambda: len(gnb.events("control")) > 1)
    assert [event["prbs"] for event in gnb.events("control")][:2] == [[4, 5], []]


def test_the_emulator_as_nvidias_agent(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints, recording: Recording
) -> None:
    gnb = start_gnb("--aerial", "--rx-antennas", "2")
    exporter = start_exporter(replace(endpoints, link=ANY_LINK), carrier=CARRIER)
    for _, slot in take(twin[0].receiver("spectrum"), 50)[::10]:
        assert (slot.clock, slot.symbols) == (Clock.UNIX, ALL_SYMBOLS)
        data = np.asarray(slot.data, np.float16)
        rows = heard(recording, data[0, 0])
        assert all(data[0, symbol].tobytes() == rows[symbol % 4].tobytes() for symbol in range(14))
    (event,) = exporter.events("e3-setup")
    assert (event["ran"], event["generation"], event["link"]) == ("NVIDIA_L1", "JSON-nested", "zmq")
    exporter.stop()
    wait_until(lambda: gnb.events("release"))
    gnb.stop()


@pytest.mark.parametrize("encoding", ["asn1", "json-nested"])
def test_a_sensing_policy_is_set_and_ends_with_its_validity(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints, encoding: str
) -> None:
    gnb = start_gnb("--e3-generation", "G2b", "--e3-encoding", encoding)
    limits = Limits(N_PRBS, max_age_ms=LONG_MS, max_validity_ms=LONG_MS, slots_per_frame=10)
    exporter = start_exporter(endpoints, carrier=CARRIER, limits=limits)
    take(twin[0].receiver("spectrum"), 1)
    wait_until(lambda: exporter.exporter.twins_by_state()[State.IN_SYNC])
    propose(twin[0], prbs=(4, 5))
    assert say(results(twin[0], 1)[0]) == ("b-1", "installed", (4, 5))
    masks = (0x3F80, *(0,) * 9)
    for identifier, mask_per_slot, validity_ms in (("p-1", masks[1:], LONG_MS), ("p-2", masks, 500)):
        policy = SensingPolicy(identifier, mask_per_slot, time.time_ns(), validity_ms, "test")
        twin[0].sender("control").send(policy.encode())
    rejected, installed, cleared = results(twin[0], 3)
    assert rejected.reason == "range: 9 masks; a frame of the carrier has 10 slots"
    assert say(installed) == ("p-2", "installed", (4, 5))
    assert say(cleared) == ("p-2", "cleared", (4, 5))
    assert installed.e3
    assert installed.e3.sequence_id == 2  # of the controls of this dApp
    wait_until(lambda: len(gnb.events("policy")) == 2)
    assert [event["mask_per_slot"] for event in gnb.events("policy")] == [list(masks), []]
    exporter.wait_for("policy-cleared")
    assert [event["id"] for name in ("installed", "cleared") for event in exporter.events(f"policy-{name}")] == [
        "p-2"
    ] * 2
    assert (exporter.counters.policies_installed, exporter.counters.blocks_installed) == (1, 1)
    exporter.stop()
    assert not exporter.exporter.block_unknown


def test_a_gnb_without_control_and_with_mixed_slots(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints
) -> None:
    start_gnb("--no-control", "--tdd", "DSU", "--rx-antennas", "2")
    reduction = Reduction(antennas=(1, 3), symbols=0b110000000011, first_prb=3, n_prbs=5)
    exporter = start_exporter(endpoints, carrier=CARRIER, reduction=reduction)
    taken = take(twin[0].receiver("spectrum"), 20)
    assert {slot.symbols for _, slot in taken} == {0b110000000011, 0b110000000000 & MIXED_SYMBOLS}
    for message, slot in taken:
        assert message.antennas == (1,)
        assert slot.data.shape == (1, slot.symbols.bit_count(), 60, 2)
        assert not (np.asarray(slot.data, np.float16) == np.float16(LEAKAGE / 2048)).any()
    propose(twin[0], prbs=(4,))
    assert results(twin[0], 1)[0].reason == "e3: the E3 agent offers no control of PRB blocks"
    twin[0].sender("control").send(SensingPolicy("p-1", (), time.time_ns(), LONG_MS).encode())
    assert results(twin[0], 1)[0].reason == "e3: the E3 agent offers no control of the sensing policy"
    assert exporter.events("e3-setup")


def test_what_the_mac_leaves_free_is_a_flow_of_its_own(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints, recording: Recording
) -> None:
    start_gnb("--e3-generation", "G2b")
    exporter = start_exporter(endpoints, carrier=CARRIER, sensing=True)
    taken = [SensingRanges.decode(message.payload) for message in receive(twin[0].receiver("sensing"), 50)]
    assert np.diff([ranges.number for ranges in taken]).tolist() == [1 + ranges.missing for ranges in taken[1:]]
    free = [(~row).tolist() for row in recording.ue]
    for ranges in taken:
        prbs = np.zeros(N_PRBS, np.bool_)
        for rectangle in ranges.ranges:
            assert (rectangle.first_symbol, rectangle.symbols) == (0, 14)
            prbs[rectangle.first_prb : rectangle.first_prb + rectangle.prbs] = True
        assert prbs.tolist() in free
    exporter.stop()
    assert exporter.counters.sensing >= 50


def test_reductions_are_what_the_whole_gives(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints, recording: Recording
) -> None:
    start_gnb()
    reduction = Reduction(every=5, content=Content.POWER, slot_mean=True, slots_per_message=3)
    start_exporter(endpoints, carrier=CARRIER, reduction=reduction)
    taken = take(twin[0].receiver("spectrum"), 12)
    powers = (recording.samples.astype(np.float64) ** 2).sum(axis=2).reshape(-1, N_PRBS, 12).mean(axis=2)
    for message, slot in taken:
        assert (message.every, message.content, message.slot_mean) == (5, Content.POWER, True)
        assert slot.symbols == ALL_SYMBOLS
        assert np.isclose(powers, message.power(slot)[0, 0], rtol=1e-3).all(axis=1).any()
    numbers = [slot.sfn * 10 + slot.slot for _, slot in taken]
    steps = np.diff(numbers) % 10240
    assert steps.tolist() == [5 * (1 + slot.missing) % 10240 for _, slot in taken[1:]]


def test_a_gnb_that_restarts_is_read_again(
    twin: Twin, start_exporter: StartExporter, start_gnb: StartGnb, endpoints: Endpoints
) -> None:
    gnb = start_gnb("--e3-link", "posix", "--e3-generation", "G2b")
    exporter = start_exporter(posix(endpoints), carrier=CARRIER)
    receiver = twin[0].receiver("spectrum")
    take(receiver, 3)
    gnb.process.kill()
    gnb.process.wait()
    exporter.wait_for("e3-lost")
    wait_until(lambda: not shared_memory_path(f"/e3_ran_buffers{gnb.suffix}").exists())
    start_gnb("--e3-link", "posix", "--e3-generation", "G2b", "--rx-antennas", "2")
    exporter.wait_for("slots", 2)
    take(receiver, 3)
