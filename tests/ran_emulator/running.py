"""The emulator as a process, and a small dApp of our own to talk to it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import twinlink_e3 as e3
import zmq

from twinlink.testing import patience, wait_until

PATIENCE_S = patience()


class Process:
    """`twinlink-ran-emulator` in a process of its own."""

    def __init__(self, recording: Path, endpoints: e3.Endpoints, log: Path, *arguments: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "twinlink_ran_emulator", "--recording", str(recording), "--log", str(log)]
        command += ["--setup", endpoints.setup, "--to-dapp", endpoints.to_dapp, "--from-dapp", endpoints.from_dapp]
        self.process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
        wait_until(lambda: self.events("listening") or self.process.poll() is not None)

    def events(self, name: str) -> list[dict[str, Any]]:
        if not self._log.exists():
            return []
        lines = [line for line in self._log.read_text().split("\n")[:-1] if line]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def wait_event(self, name: str) -> dict[str, Any]:
        wait_until(lambda: self.events(name))
        return self.events(name)[-1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal it, and return its exit code and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stderr and not self.process.stderr.closed:
            self.process.communicate(timeout=PATIENCE_S)


class DApp:
    """A dApp: set up and subscribed."""

    def __init__(self, endpoints: e3.Endpoints, *, subscribe: bool = True) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.request = self._context.socket(zmq.REQ)
        self.request.connect(endpoints.setup)
        self._inward = self._context.socket(zmq.SUB)
        self._inward.set_hwm(0)
        self._inward.subscribe(b"")
        self._inward.connect(endpoints.to_dapp)
        self.outward = self._context.socket(zmq.PUB)
        self.outward.connect(endpoints.from_dapp)
        response = self.setup(e3.encode(e3.SetupRequest(1, "1.0.0", "test", "1", "twinlink")))
        assert response.response_code == "positive"
        assert response.dapp_identifier is not None
        self.identifier: int = response.dapp_identifier
        # PUB and SUB join late, and E3 has no way to tell when: report nothing blocked until there is an answer.
        report = e3.encode_structure(e3.PrbBlacklistReport(()))
        self.ask(e3.DAppReport(3, self.identifier, 1, report), again_s=0.2)
        if subscribe:
            self.subscribe()

    def setup(self, octets: bytes) -> e3.SetupResponse:
        self.request.send(octets)
        assert self.request.poll(int(PATIENCE_S * 1000)), "no answer on the setup channel"
        response = e3.decode(self.request.recv())
        assert isinstance(response, e3.SetupResponse)
        return response

    def subscribe(self) -> None:
        """Once: with another request the emulator would begin anew, and leave out what it played meanwhile."""
        assert self.ask(e3.SubscriptionRequest(2, self.identifier, 1, (1,), (1,))).response_code == "positive"

    def ask(self, pdu: e3.Pdu, again_s: float = PATIENCE_S) -> Any:
        """The answer; passes over indications.  Sends again as long as none comes."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.outward.send(e3.encode(pdu))
            if (answer := self.receive(again_s, wanted=pdu.message_id)) is not None:
                return answer
        raise AssertionError(f"no answer to {pdu}")

    def receive(self, seconds: float, wanted: int | None = None) -> Any:
        """The next PDU for this dApp, or, if wanted, the next answer to that message id; None when none comes."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if not self._inward.poll(int(remaining * 1000) + 1):
                return None
            pdu = e3.decode(self._inward.recv())
            if wanted is not None and getattr(pdu, "request_id", None) != wanted:
                continue
            if getattr(pdu, "dapp_identifier", self.identifier) == self.identifier:
                return pdu
        return None

    def indications(self, count: int) -> list[e3.IqDataIndication]:
        """The I/Q of the next indications for this dApp."""
        taken: list[e3.IqDataIndication] = []
        while len(taken) < count:
            pdu = self.receive(PATIENCE_S)
            assert pdu is not None, f"{len(taken)} of {count} indications came"
            if isinstance(pdu, e3.IndicationMessage):
                taken.append(e3.decode_iq_data(bytes(pdu.protocol_data)))
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)
