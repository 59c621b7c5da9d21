import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twinlink_results.mgen import log
from twinlink_results.mgen.log import Log, Received

from twinlink.testing.base import free_endpoint, patience, wait_until


def free_ports(count: int) -> list[int]:
    """Ports that are free for UDP and TCP."""
    return [int(free_endpoint(1).rpartition(":")[2]) for _ in range(count)]


class Mgen:
    """A real mgen, which twinlink did not start."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self.path = path
        command = ["mgen", "flush", *arguments, "output", str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )

    def log(self) -> Log:
        return log.read(self.path) if self.path.exists() else Log()

    def received(self) -> list[Received]:
        return list(log.join(self.log().events))

    def wait(self) -> None:
        self.process.wait(patience())

    def wait_for(self, messages: int) -> None:
        """Return when it has taken so many, whole."""
        wait_until(lambda: sum(one.complete for one in self.received()) >= messages)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(patience())
            except subprocess.TimeoutExpired:
                self.kill()


Listen = Callable[[str, int], Mgen]
Send = Callable[..., Mgen]


@pytest.fixture
def mgens() -> Iterator[list[Mgen]]:
    if shutil.which("mgen") is None:
        pytest.skip("mgen is not installed (apt install mgen): nothing is tried against the real one")
    found: list[Mgen] = []
    yield found
    for mgen in found:
        mgen.stop()


@pytest.fixture
def listen(mgens: list[Mgen], tmp_path: Path) -> Listen:
    """Starts an mgen that listens: listen("TCP", port); it does when this returns."""

    def _listen(protocol: str, port: int) -> Mgen:
        mgen = Mgen(tmp_path / f"rx-{len(mgens)}.drc", "rxbuffer", "4194304", "event", f"LISTEN {protocol} {port}")
        mgens.append(mgen)
        wait_until(lambda: mgen.log().of("LISTEN"))
        return mgen

    return _listen


@pytest.fixture
def send(mgens: list[Mgen], tmp_path: Path) -> Send:
    """Starts an mgen that sends: send("UDP", port, octets, count, rate_hz)."""

    def _send(protocol: str, port: int, octets: int, count: int = 100, rate_hz: float = 200, number: int = 1) -> Mgen:
        event = f"ON {number} {protocol} DST 127.0.0.1/{port} PERIODIC [{rate_hz} {octets}] COUNT {count} TTL 64"
        mgens.append(Mgen(tmp_path / f"tx-{len(mgens)}.drc", "txlog", "event", event))
        return mgens[-1]

    return _send
