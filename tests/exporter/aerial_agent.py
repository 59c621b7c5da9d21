"""A stand-in for the E3 agent of NVIDIA's Aerial SDK 26-1.2: its order of events, its JSON, its shared memory.

It shares nothing with the exporter: neither codecs nor layouts.  JSON has sorted keys and no timestamp in the envelope.
"""

import itertools
import json
import mmap
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Self

import numpy as np
import zmq
from numpy.typing import NDArray
from twinlink_e3 import Endpoints

HEADER_WORDS = 50
ROW = (4, 14, 273 * 12, 2)  # antennas, symbols, subcarriers, I and Q: 16 bits each
READ_S = 0.01  # between two looks at what dApps sent
STREAMS = {1: "iq_samples", 4: "timestamp", 5: "sfn", 6: "slot", 7: "cell_id", 8: "n_rx_ant", 10: "n_cells"}
N_STREAMS = 78
FIRST_CELL = 41

Message = dict[str, Any]


def dump(message: Message) -> bytes:
    return json.dumps(message, sort_keys=True, separators=(",", ":")).encode()


class AerialAgent:
    """Serves until `stop`; `slot` writes and indicates a slot.

    Args:
        endpoints: where to bind.
        rows: of each of the two buffers of I/Q.
        cells: number of them: 41, 42 and so on, each with a row of its own.
        grouped: whether an indication names each in ``cells``, as in the state after 26-1.2; else the first alone.
        copy_delay_s: time between an indication and the copy of its slot; None: the copy precedes, as after 26-1.2.
        version: the only one of E3AP that it accepts.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        rows: int = 15,
        *,
        cells: int = 1,
        grouped: bool = False,
        copy_delay_s: float | None = None,
        version: str = "1.0.0",
    ) -> None:
        self.setups: list[bytes] = []  # messages on the setup channel
        self.requests: list[Message] = []  # other messages of dApps
        self.dapps: set[int] = set()
        self.subscriptions: dict[int, Message] = {}  # the requests, by subscription
        self.written: dict[tuple[int, int, int], NDArray[np.int16]] = {}  # of antenna 0, by frame, slot and cell
        self.ended = False  # by an exception that it does not catch
        self._version, self._cells, self._grouped, self._copy_delay_s = version, cells, grouped, copy_delay_s
        self._message_ids, self._dapp_ids, self._subscription_ids = (itertools.count(1) for _ in range(3))
        self._indicated_s: dict[int, float] = {}
        self._numbers = itertools.count()
        self._make_memory(rows)
        self._context = zmq.Context()
        self._rep, self._pub, self._sub = map(self._context.socket, (zmq.REP, zmq.PUB, zmq.SUB))
        self._sub.subscribe(b"")
        for socket, endpoint in (
            (self._rep, endpoints.setup), (self._pub, endpoints.to_dapp), (self._sub, endpoints.from_dapp),
        ):  # fmt: skip
            socket.bind(endpoint)
        self._lock = threading.RLock()  # of the subscriptions, and of the PUB socket
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=serve) for serve in (self._serve_setups, self._serve_requests)]
        for thread in self._threads:
            thread.start()

    def slot(self) -> None:
        """Receive the next slot: copy it to the next row, and indicate it, in its order."""
        number = next(self._numbers)
        rows = [divmod((number * self._cells + k) % (2 * self._rows), self._rows) for k in range(self._cells)]
        sfn, slot = number // 10 % 1024, number % 10
        samples = (np.arange(14 * ROW[2] * 2) * 7 + number * 1009).astype(np.int16).reshape(ROW[1:]) & 0x7BFF
        for k in range(self._cells):
            self.written[sfn, slot, FIRST_CELL + k] = samples ^ k
        if self._copy_delay_s is not None:
            self._indicate(rows, sfn, slot)
            time.sleep(self._copy_delay_s)
        for k, row in enumerate(rows):
            self._iq[(*row, 0)] = samples ^ k
        if self._copy_delay_s is None:
            self._indicate(rows, sfn, slot)

    def release(self, dapp: int) -> None:
        """End a dApp, as after half an hour without a subscription."""
        self._send({"type": "releaseMessage", "id": next(self._message_ids), "dAppIdentifier": dapp})
        self._forget(dapp)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._context.destroy(linger=0)
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_memory(self, rows: int) -> None:
        self._rows = rows
        self._name = f"/twinlink-aerial-{uuid.uuid4().hex[:12]}"
        self.path = Path("/dev/shm" + self._name)
        values = int(np.prod(ROW))
        buffer, pusch, hest = rows * values * 2, 3 * 1024, 3 * 4096
        header = np.zeros(HEADER_WORDS, np.uint32)
        header[:9] = (0x010100, buffer, pusch, hest, values, rows, 3, 3, 512)
        header[9:18] = (2 * values, values, 1, 4096, 2048, 2, 128, 64, 2)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        octets = header.nbytes + 2 * (buffer + pusch + hest + 2 * values + 4096 + 128)
        os.ftruncate(descriptor, octets)
        memory = mmap.mmap(descriptor, octets)
        os.close(descriptor)
        memory[: header.nbytes] = header.tobytes()
        iq = np.frombuffer(memory, np.int16, 2 * rows * values, header.nbytes)
        self._iq: NDArray[np.int16] = iq.reshape(2, rows, *ROW)

    def _serve_setups(self) -> None:
        while not self._stopping.is_set() and not self.ended:
            if not self._rep.poll(20):
                continue
            octets = self._rep.recv()
            self.setups.append(octets)
            try:
                request = json.loads(octets)
            except ValueError:
                self._rep.send(dump({"responseCode": "negative", "message": "invalid JSON format"}))
                continue
            if not isinstance(request, dict):
                self.ended = True
                return
            self._rep.send(dump(self._set_up(request)))

    def _set_up(self, request: Message) -> Message:
        answer = {"id": next(self._message_ids), "requestId": request.get("id", 0)}
        if request.get("type") != "setupRequest":
            refusal = {"type": request.get("type", ""), "message": "unknown request type"}
            return {**answer, **refusal, "responseCode": "negative"}
        answer |= {"type": "setupResponse", "e3apProtocolVersion": self._version}
        if request.get("e3apProtocolVersion") != self._version:
            return {**answer, "responseCode": "negative", "message": "protocol version mismatch"}
        dapp = next(self._dapp_ids)
        self.dapps.add(dapp)
        function = {
            "ranFunctionIdentifier": 2,
            "telemetryIdentifierList": list(range(1, N_STREAMS + 1)),
            "controlIdentifierList": [],
            "ranFunctionData": [_stream(number) for number in range(1, N_STREAMS + 1)],
        }
        return {
            **answer, "responseCode": "positive", "dAppIdentifier": dapp, "ranIdentifier": "NVIDIA_L1",
            "ranFunctionList": [function],
        }  # fmt: skip

    def _serve_requests(self) -> None:
        while not self._stopping.wait(READ_S):
            while self._sub.poll(0):
                request = json.loads(self._sub.recv())
                self.requests.append(request)
                dapp = request.get("dAppIdentifier", 0)
                if request["type"] == "releaseMessage":
                    self._forget(dapp)
                elif dapp in self.dapps:
                    answer = {"id": next(self._message_ids), "requestId": request.get("id", 0), "dAppIdentifier": dapp}
                    self._send({**answer, **self._answer(request, dapp)})

    def _answer(self, request: Message, dapp: int) -> Message:
        if request["type"] == "dAppControlAction":
            refusal = {"type": "messageAck", "responseCode": "negative"}
            return {**refusal, "message": "control actions not implemented"}
        answer: Message = {"type": "subscriptionResponse", "responseCode": "negative"}
        if request["type"] == "subscriptionDelete":
            subscription = request["subscriptionId"]
            with self._lock:
                known = self.subscriptions.get(subscription, {}).get("dAppIdentifier") == dapp
                if known:
                    del self.subscriptions[subscription]
            code = "positive" if known else "negative"
            return {**answer, "responseCode": code, "subscriptionId": subscription}
        if request["ranFunctionIdentifier"] != 2:
            return {**answer, "message": "unsupported ranFunctionIdentifier"}
        telemetry = request.get("telemetryIdentifierList", [])
        if not telemetry:
            return {**answer, "message": "telemetryIdentifierList must not be empty"}
        if not set(telemetry) <= set(range(1, N_STREAMS + 1)):
            return {**answer, "message": "invalid telemetry identifier"}
        subscription = next(self._subscription_ids)
        with self._lock:
            self.subscriptions[subscription] = request
        return {
            **answer, "responseCode": "positive", "subscriptionId": subscription, "ranFunctionIdentifier": 2,
            "telemetryGrantedList": telemetry, "controlGrantedList": [],
            "periodicity": request.get("periodicity", 100_000),
        }  # fmt: skip

    def _forget(self, dapp: int) -> None:
        self.dapps.discard(dapp)
        with self._lock:
            for number in [n for n, each in self.subscriptions.items() if each["dAppIdentifier"] == dapp]:
                del self.subscriptions[number]

    def _indicate(self, rows: list[tuple[int, int]], sfn: int, slot: int) -> None:
        of_slot: Message = {"timestamp": time.time_ns(), "sfn": sfn, "slot": slot, "n_cells": self._cells}
        of_cells: list[Message] = [
            {
                "iq_samples": {"shm_name": self._name, "fh_buffer_index": buffer, "fh_write_index": row},
                "cell_id": FIRST_CELL + k, "n_rx_ant": 1,
            }
            for k, (buffer, row) in enumerate(rows)
        ]  # fmt: skip
        with self._lock:
            for number, request in self.subscriptions.items():
                now_s, period_s = time.monotonic(), request.get("periodicity", 100_000) / 1e6
                if now_s - self._indicated_s.get(number, -period_s) < period_s:
                    continue
                self._indicated_s[number] = now_s
                wanted = {STREAMS.get(stream) for stream in request["telemetryIdentifierList"]}
                data, *cells = ({name: part[name] for name in part if name in wanted} for part in (of_slot, *of_cells))
                self._send({
                    "type": "indicationMessage", "id": next(self._message_ids), "ranFunctionIdentifier": 2,
                    "dAppIdentifier": request["dAppIdentifier"], "subscriptionId": number,
                    "protocolData": {**data, "cells": cells} if self._grouped else data | cells[0],
                })  # fmt: skip

    def _send(self, message: Message) -> None:
        with self._lock:
            self._pub.send(dump(message), zmq.DONTWAIT)


def _stream(number: int) -> Message:
    name = STREAMS.get(number, f"stream_{number}")
    delivery: Message = {"transport_type": "protocolData", "keyword": name, "encoding": "json"}
    if number <= 3:
        memory = {"memory_key": "/e3_ran_buffers", "memory_size_bytes": 88058880, "access_pattern": "double_buffer"}
        delivery = {"transport_type": "shared_memory", "shared_memory_info": {**memory, "max_elements": 120}}
    return {
        "telemetryIdentifier": number, "stream_id": name, "data_type": "uint16", "status": "available",
        "description": f"{name}: what is known of it in this slot, in its own unit [per-UE, per-group]",
        "delivery_method": delivery,
    }  # fmt: skip
