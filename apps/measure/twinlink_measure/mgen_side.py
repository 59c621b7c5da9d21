"""One side of a cell with MGEN as the source: an end of the bridge, and its mgen process."""

import shutil
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

from twinlink_results.mgen.records import Recorder

from twinlink import Link
from twinlink.appkit.mgen_message import Address, Protocol
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ports import HOST, free_ports

from .mgen import session
from .mgen.egress import Egress
from .mgen.ingress import Ingress
from .mgen.script import Flow, protocol_for

FLOW = "mgen"
NUMBER = 1  # MGEN's flow number


class MgenSide:
    """Bridge and mgen of one side, for one cell at a time.

    Args:
        link: the bridge's; stays open.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._path = Path(tempfile.mkdtemp(prefix="twinlink-mgen-"))
        self._ending = threading.Event()
        self._listener: session.Listener | None = None
        self._egress: Egress | None = None
        self._recorder: Recorder | None = None
        self._thread: GuardedThread | None = None

    def listen(self, octets: int) -> None:
        """Start a listening mgen, and the bridge's end that delivers to it.  Raises TwinlinkError."""
        self._end()
        protocol = protocol_for(octets)
        at = Address(HOST, free_ports())
        self._listener = session.Listener(at, protocol, self._path / "rx.drc", _mortal())
        self._listener.__enter__()
        self._recorder = Recorder(self._path / "out.csv")
        udp, tcp = _by_protocol(protocol, at)
        self._egress = Egress(self._link, udp=udp, tcp=tcp, flow=FLOW, recorder=self._recorder)
        self._ending.clear()
        self._thread = GuardedThread(partial(self._egress.run, self._ending.is_set), "mgen-out")
        self._thread.start()

    def heard(self, expected: int, quiet_s: float) -> dict[str, Any]:
        """End what `listen` started, when mgen has ``expected`` messages or none came for ``quiet_s``.

        Returns its counters, its log (``log``) and the bridge's records (``notes``), the latter two as octets.
        """
        assert self._listener is not None
        assert self._egress is not None
        self._listener.wait_for(expected, quiet_s)
        counted = self._egress.stats()
        self._end()
        return {"counted": counted, "log": self._read("rx.drc"), "notes": self._read("out.csv")}

    def send(self, octets: int, count: int, rate_hz: float, timeout_s: float) -> dict[str, Any]:
        """Have an mgen send through the bridge; returns as `heard` does, with ``problem`` when it did not end well."""
        protocol = protocol_for(octets)
        recorder = Recorder(self._path / "in.csv")
        ending = threading.Event()
        udp, tcp = _by_protocol(protocol, Address(HOST, 0))
        ingress = Ingress(self._link, udp=udp, tcp=tcp, flow=FLOW, recorder=recorder)
        thread = GuardedThread(partial(ingress.run, ending.is_set), "mgen-in")
        try:
            thread.start()
            flow = Flow(NUMBER, protocol, ingress.addresses[protocol], octets, count, rate_hz)
            problem = session.send(flow, self._path / "tx.drc", _mortal(), timeout_s)
        finally:
            ending.set()
            thread.join()
            counted = ingress.stats()
            ingress.close()
            recorder.close()
        return {"counted": counted, "problem": problem, "log": self._read("tx.drc"), "notes": self._read("in.csv")}

    def _read(self, name: str) -> bytes:
        path = self._path / name
        return path.read_bytes() if path.exists() else b""

    def close(self) -> None:
        """End the listening mgen and remove its files."""
        self._end()
        shutil.rmtree(self._path, ignore_errors=True)

    def _end(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
        if self._listener is not None:
            self._listener.stop()
            self._listener = None


def _mortal() -> list[str]:
    """A command prefix that ends the command with this process, also if that is killed."""
    return ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []


def _by_protocol(protocol: Protocol, at: Address) -> tuple[Address | None, Address | None]:
    return (at, None) if protocol is Protocol.UDP else (None, at)
