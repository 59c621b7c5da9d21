"""Memory of a sender with a stopped peer: G11."""

import os
import signal
import time
from typing import Any

from twinlink_measure.channels import PORTS
from twinlink_measure.setting import DIGITAL_TWIN
from twinlink_measure.worker_handle import Interrupted, LocalWorker

from twinlink.process.ports import free_ports

from .bench import TRANSPORTS, Bench, Measurement
from .contest import FAILURES, OPEN_S
from .sender import MB, SenderProcess
from .verdict import Part


class Stall(Measurement):
    """The receiver gets SIGSTOP, and the sender goes on; after SIGCONT every message must be accounted for."""

    goals = ("G11",)
    seconds = 35.0

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Any]] = {}

    def run(self, bench: Bench) -> None:
        """Measure each transport once."""
        for number, transport in enumerate(TRANSPORTS):
            bench.step(f"{transport} with a stopped peer", number / len(TRANSPORTS))
            try:
                self._seen[transport] = self._stall(transport, bench)
            except FAILURES as error:
                bench.missing("G11", f"{transport}: {error}")

    @staticmethod
    def _stall(transport: str, bench: Bench) -> dict[str, Any]:
        host, port = "127.0.0.1", free_ports(PORTS)
        receiver = LocalWorker(DIGITAL_TWIN)
        sender = None
        try:
            receiver.ask("open", OPEN_S, subject=transport, listening=True, host=host, port=port, node="receiver")
            receiver.ask("reflect", octets=MB, count=0)
            sender = SenderProcess("stalled", transport, f"tcp/{host}:{port}")
            sender.answer()
            pid = receiver.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                sender.tell(f"send {bench.stall_s}")
                end = time.monotonic() + bench.stall_s
                while time.monotonic() < end:
                    if bench.stopped():
                        raise Interrupted
                    time.sleep(0.1)
                seen = sender.answer()
            finally:
                os.kill(pid, signal.SIGCONT)
            sender.tell("settle")
            return seen | sender.answer()
        finally:
            if sender is not None:
                sender.end()
            receiver.end()

    def parts(self, bench: Bench) -> list[Part | None]:
        """Growth of memory, and messages that are unaccounted for."""
        found: list[Part | None] = []
        for transport, seen in self._seen.items():
            growth = (seen["peak"] - seen["before"]) / MB
            name = f"{transport}, {bench.stall_s:g} s, growth"
            found.append(Part("G11", name, growth, most=64, unit=" MiB"))
            unknown = seen["offered"] - seen["refused"] - seen["acknowledged"] - seen["lost"]
            name = f"{transport}, of {seen['offered']} neither refused, acknowledged nor lost"
            found.append(Part("G11", name, unknown, most=0, least=0))
        return found
