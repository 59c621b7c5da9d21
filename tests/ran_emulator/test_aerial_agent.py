"""The emulator as NVIDIA's agent, seen by a dApp that reads its JSON and its memory as that SDK's dApps do."""

import json
import shutil
import struct
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import twinlink_e3 as e3
import zmq
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.recording import read
from twinlink_ran_emulator.slot_writer import turned

from twinlink.testing import patience, wait_until

from .running import Process

N_PRBS = 24
ROW_VALUES = 4 * 14 * 273 * 12 * 2
HEADER = struct.Struct("<50I")
Message = dict[str, Any]


class Emulator(NamedTuple):
    process: Process
    endpoints: e3.Endpoints
    recording: Path
    memory: str


class SampleDApp:
    """A dApp of that SDK."""

    def __init__(self, endpoints: e3.Endpoints) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._setup, self._inward, self._outward = map(self._context.socket, (zmq.REQ, zmq.SUB, zmq.PUB))
        self._inward.subscribe(b"")
        self._setup.connect(endpoints.setup)
        self._inward.connect(endpoints.to_dapp)
        self._outward.connect(endpoints.from_dapp)
        self._ids = iter(range(1, 1_000_000))
        self.dapp = 0

    def ask_setup(self, octets: bytes) -> Message:
        self._setup.send(octets)
        assert self._setup.poll(int(patience() * 1000))
        answer: Message = json.loads(self._setup.recv())
        return answer

    def set_up(self, version: str = "1.0.0") -> Message:
        names = {"dAppName": "sample", "dAppVersion": "1", "vendor": "v"}
        request = {"type": "setupRequest", "id": next(self._ids), "e3apProtocolVersion": version, **names}
        answer = self.ask_setup(json.dumps(request).encode())
        assert answer["requestId"] == request["id"]
        self.dapp = answer.get("dAppIdentifier", 0)
        return answer

    def ask(self, kind: str, **body: object) -> Message:
        """The answer; sends again as long as none comes, as PUB and SUB join late."""
        numbers = set()
        for _ in range(int(patience() * 5)):
            numbers.add(number := next(self._ids))
            self.send(kind, id=number, **body)
            again = time.monotonic() + 0.2  # indications of other dApps' subscriptions come all the while
            while self._inward.poll(max(0, int((again - time.monotonic()) * 1000))):
                message: Message = json.loads(self._inward.recv())
                if message.get("requestId") in numbers:
                    return message
        raise AssertionError(f"no answer to {kind}")

    def send(self, kind: str, **body: object) -> None:
        self._outward.send(json.dumps({"type": kind, "dAppIdentifier": self.dapp, **body}).encode())

    def next(self, seconds: float) -> Message | None:
        return json.loads(self._inward.recv()) if self._inward.poll(int(seconds * 1000)) else None

    def close(self) -> None:
        """Its indications would come to the next one, too."""
        if self.dapp:
            self.send("releaseMessage", id=next(self._ids))
        self._context.destroy(linger=1000)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    folder = Path(tempfile.mkdtemp(prefix="e3-"))  # short: a socket's path has at most 107 octets
    endpoints = e3.Endpoints(*(f"ipc://{folder}/{name}" for name in ("setup", "to", "from")))
    settings = make_recording.Settings(n_prbs=N_PRBS, scs_khz=15, seconds=0.5, n_ues=6, episodes=())
    make_recording.write(folder / "short", settings)
    suffix, recording = f".{uuid.uuid4().hex[:8]}", folder / "short.sigmf-meta"
    options = ("--aerial", "--loop", "0", f"--shm-suffix={suffix}")
    with Process(recording, endpoints, folder / "log.jsonl", *options) as process:
        yield Emulator(process, endpoints, recording, f"/e3_ran_buffers{suffix}")
        process.stop()
    shutil.rmtree(folder)


@pytest.fixture
def dapp(emulator: Emulator) -> Iterator[SampleDApp]:
    made = SampleDApp(emulator.endpoints)
    yield made
    made.close()


def test_what_is_asked_is_answered_as_there(emulator: Emulator, dapp: SampleDApp) -> None:
    assert dapp.ask_setup(b"\x00\x17no JSON") == {"responseCode": "negative", "message": "invalid JSON format"}
    assert dapp.set_up("2.0.0")["responseCode"] == "negative"
    answer = dapp.set_up()
    (function,) = answer["ranFunctionList"]
    assert (answer["ranIdentifier"], answer["e3apProtocolVersion"]) == ("NVIDIA_L1", "1.0.0")
    assert "timestamp" not in answer
    assert (function["ranFunctionIdentifier"], function["controlIdentifierList"]) == (2, [])
    names = {stream["telemetryIdentifier"]: stream["stream_id"] for stream in function["ranFunctionData"]}
    of_slot = {4: "timestamp", 5: "sfn", 6: "slot", 10: "n_cells"}
    assert names == {1: "iq_samples", 7: "cell_id", 8: "n_rx_ant", 25: "rb_start", 26: "rb_size", **of_slot}
    assert sorted(names) == function["telemetryIdentifierList"]

    assert dapp.ask("subscriptionRequest", ranFunctionIdentifier=1, **_lists([1]))["responseCode"] == "negative"
    assert dapp.ask("subscriptionRequest", ranFunctionIdentifier=2, **_lists([]))["responseCode"] == "negative"
    granted = dapp.ask("subscriptionRequest", ranFunctionIdentifier=2, **_lists([1, 5]))
    expected = {"telemetryGrantedList": [1, 5], "controlGrantedList": [], "periodicity": 100_000}
    assert expected.items() <= granted.items()
    action = {"ranFunctionIdentifier": 2, "controlIdentifier": 0, "actionData": {"sfn": 1, "slot": 2}}
    ack = dapp.ask("dAppControlAction", **action)
    assert (ack["type"], ack["responseCode"], ack["dAppIdentifier"]) == ("messageAck", "negative", dapp.dapp)
    for code in ("positive", "negative"):
        ended = dapp.ask("subscriptionDelete", subscriptionId=granted["subscriptionId"])
        assert (ended["type"], ended["responseCode"]) == ("subscriptionResponse", code)
        assert ended["subscriptionId"] == granted["subscriptionId"]

    dapp.send("releaseMessage", id=77)
    emulator.process.wait_event("release")
    dapp.send("subscriptionDelete", id=78, subscriptionId=1)  # it is not set up any more
    message = dapp.next(0.3)
    while message is not None:
        assert message.get("requestId") not in (77, 78)
        message = dapp.next(0.3)


def test_rows_are_where_the_header_of_200_octets_says(emulator: Emulator, dapp: SampleDApp) -> None:
    name = emulator.memory
    dapp.set_up()
    dapp.ask("subscriptionRequest", ranFunctionIdentifier=2, periodicity=0, **_lists([1, 4, 5, 6, 7, 8]))
    symbols = {row.tobytes() for record in read(emulator.recording).samples for row in turned(record, 1 / 2048)}
    while (message := dapp.next(patience())) is not None and message["type"] != "indicationMessage":
        pass
    assert message
    data = message["protocolData"]
    assert message["ranFunctionIdentifier"] == 2
    assert message["subscriptionId"] >= 1
    assert set(data) == {"iq_samples", "timestamp", "sfn", "slot", "cell_id", "n_rx_ant"}
    assert abs(data["timestamp"] / 1e9 - 1.8e9) < 1e9  # Unix time
    reference = data["iq_samples"]
    assert reference["shm_name"] == name
    path = e3.shared_memory_path(name)
    with path.open("rb") as file:
        version, buffer_octets, _, _, values, rows, *_ = HEADER.unpack(file.read(HEADER.size))
    assert (version, values, rows) == (0x010100, ROW_VALUES, 120)
    start = HEADER.size + reference["fh_buffer_index"] * buffer_octets + reference["fh_write_index"] * values * 2

    def read_row() -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(values * 2)

    wait_until(lambda: any(read_row()))  # the agent writes it when it has indicated it
    octets = read_row()
    row = np.frombuffer(octets, np.float16).reshape(4, 14, 273 * 12, 2)
    # As this file is read long after the indication, the row may hold a later slot, but it is one of the recording.
    whole = [row[0, symbol, : N_PRBS * 12].tobytes() in symbols for symbol in range(14)]
    assert sum(whole) >= 13
    assert not row[0, :, N_PRBS * 12 :].any()


def test_grants_of_ues_are_told_where_they_are_asked_for(emulator: Emulator, dapp: SampleDApp) -> None:
    dapp.set_up()
    dapp.ask("subscriptionRequest", ranFunctionIdentifier=2, periodicity=0, **_lists([1, 25, 26]))
    known = {tuple(np.flatnonzero(row).tolist()) for row in read(emulator.recording).ue}
    told = set()
    for _ in range(3000):
        message = dapp.next(patience())
        assert message
        if message["type"] == "indicationMessage" and message["dAppIdentifier"] == dapp.dapp:
            ues = message["protocolData"]["ue_metrics"]
            told.add(tuple(prb for ue in ues for prb in range(ue["rb_start"], ue["rb_start"] + ue["rb_size"])))
        if len(told) > 1:
            break
    assert told <= known
    assert any(told)


def _lists(telemetry: list[int]) -> dict[str, list[int]]:
    return {"telemetryIdentifierList": telemetry, "controlIdentifierList": []}
