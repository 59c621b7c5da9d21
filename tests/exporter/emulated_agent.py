"""The emulator's E3 agent in a thread of this process, with any codec, on either link."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import twinlink_e3 as e3
from numpy.typing import NDArray
from twinlink_ran_emulator.agent import Agent
from twinlink_ran_emulator.posix_sockets import PosixSockets
from twinlink_ran_emulator.sockets import bind_sockets

from twinlink.testing import wait_until

PERIOD_S = 0.005
N_SYMBOLS = 8  # that it sends in turn; their timestamps are 1 to 8


def symbol(number: int) -> NDArray[np.int16]:
    """A symbol in FFT order, shape ``(1536, 2)``."""
    return (np.arange(1536 * 2) * 7 + number * 1009).astype(np.int16).reshape(-1, 2)


class EmulatedAgent:
    """Serves until `stop`, and sends an indication every `PERIOD_S` to each subscribed dApp.

    Args:
        endpoints: where to bind.
        codec: of the agent.
        first_dapp: dApp identifiers below it are taken.
        controls: whether it offers the control of PRB blocks.
    """

    def __init__(self, endpoints: e3.Endpoints, codec: e3.Codec, first_dapp: int = 1, controls: bool = True) -> None:
        self.agent = Agent(106, codec, controls)
        self.agent._dapps.update(range(1, first_dapp))
        self.blocks: list[tuple[int, ...]] = []
        self._endpoints = endpoints
        self._sockets = bind_sockets(endpoints)
        self._symbols = [
            codec.encode_structure(e3.IqDataIndication(symbol(number).tobytes(), 1536, number + 1))
            for number in range(N_SYMBOLS)
        ]
        self._sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def wait_for(self, condition: Callable[[Self], object]) -> None:
        wait_until(lambda: condition(self))

    @property
    def subscribed(self) -> list[int]:
        """dApps with a subscription."""
        return sorted({dapp for dapp, _ in list(self.agent._subscriptions)})

    def stop(self, *, killed: bool = False) -> None:
        """End, as a gNB does; or as one that is killed, which leaves the files of its sockets."""
        self._stopping.set()
        self._thread.join()
        self._sockets.close()
        if killed:
            for endpoint in (self._endpoints.setup, self._endpoints.to_dapp, self._endpoints.from_dapp):
                leave_file(Path(endpoint.removeprefix("ipc://")))

    def garble(self) -> None:
        """Send the dApps of a POSIX link what is no frame."""
        assert isinstance(self._sockets, PosixSockets)
        for dapp in self._sockets._readers:
            dapp.connection.send(b"\xff" * 64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stopping.is_set():
            self.stop()

    def _serve(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.is_set():
            self._sockets.wait(2)
            while (request := self._sockets.setup_request()) is not None:
                if (reply := self.agent.setup(request)) is not None:
                    self._sockets.answer_setup(reply)
            while (pdu := self._sockets.from_dapp()) is not None:
                for answer in self.agent.receive(pdu, time.monotonic_ns()):
                    self._sockets.send(answer)
                if not self.blocks or self.blocks[-1] != self.agent.block:
                    self.blocks.append(self.agent.block)
            if time.monotonic() >= due_s:
                due_s += PERIOD_S
                self._sent += 1
                for indication in self.agent.indications(self._symbols[self._sent % N_SYMBOLS], time.monotonic_ns()):
                    self._sockets.send(indication)


def leave_file(path: Path) -> None:
    """The file of a socket on which no process listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
