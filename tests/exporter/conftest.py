"""A gNB's E3 agent, an exporter and a twin, each with private endpoints."""

import io
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twinlink_e3 import Endpoints
from twinlink_exporter.authentication import Authentication
from twinlink_exporter.decision_guard import Limits
from twinlink_exporter.exporter import Exporter
from twinlink_exporter.generation_search import GenerationSearch
from twinlink_exporter.observation import Carrier
from twinlink_exporter.reduction import Reduction
from twinlink_exporter.sockets import open_sockets
from twinlink_exporter.twin_sync import SyncLimits

import twinlink
from twinlink.appkit.journal import Journal
from twinlink.identity import Identity, trust
from twinlink.sync import State
from twinlink.testing import free_endpoint, patience, wait_until

from .agent import Agent, encode_indication


@pytest.fixture
def endpoints() -> Iterator[Endpoints]:
    directory = tempfile.mkdtemp(prefix="e3-")  # short: a socket's path has at most 107 octets
    yield Endpoints(*(f"ipc://{directory}/{name}" for name in ("setup", "to", "from")))
    shutil.rmtree(directory)


@pytest.fixture
def tcp_endpoints() -> Endpoints:
    host, _, first = free_endpoint(3).removeprefix("tcp/").rpartition(":")
    return Endpoints(*(f"tcp://{host}:{int(first) + i}" for i in range(3)))


def trusting_pair(folder: Path) -> tuple[Path, Path]:
    """The identities of a twin and of a gNB that trust each other."""
    twin = Identity.create(folder / "twin-1", "twin-1", "twin")
    gnb = Identity.create(folder / "gnb-1", "gnb-1", "gnb")
    trust.trust(gnb.folder, twin.line, "twin")
    trust.trust(twin.folder, gnb.line, "gnb")
    return twin.folder, gnb.folder


LONG_MS = 200_000  # a decision may come as late, and stand as long, as this machine makes it
ALWAYS_IN_SYNC = SyncLimits(LONG_MS / 1000, 0.0)  # from the first acknowledged observation on


class RunningExporter:
    """An exporter in a thread of this process, and what it has said."""

    def __init__(
        self,
        link: twinlink.Link,
        endpoints: Endpoints,
        log: Path,
        carrier: Carrier | None = None,
        limits: Limits | None = None,
        sync_limits: SyncLimits = ALWAYS_IN_SYNC,
        clear_at_start: bool = False,
        search: GenerationSearch | None = None,
        authentication: Authentication | None = None,
        reduction: Reduction | None = None,
        sensing: bool = False,
    ) -> None:
        carrier = carrier or Carrier()
        self.log = log
        self._stream = io.StringIO()
        self.journal = Journal("test", log, stream=self._stream)
        limits = limits or Limits(carrier.n_prbs, max_age_ms=LONG_MS, max_validity_ms=LONG_MS)
        self.exporter = Exporter(
            link, open_sockets(endpoints), carrier, limits, self.journal,
            search=search, reduction=reduction, sensing=sensing, sync_limits=sync_limits, clear_at_start=clear_at_start,
            authentication=authentication or Authentication(None, link.epoch, insecure_control=True),
        )  # fmt: skip
        self.counters = self.exporter.counters
        self.stopped = False
        self.thread = threading.Thread(target=self.exporter.run)
        self.thread.start()

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if name in (None, line["event"])]

    def said(self) -> str:
        """What it has told people."""
        return self._stream.getvalue()

    def wait_for(self, event: str, count: int = 1) -> None:
        """Wait until it has reported this so often; fails the test when it never does."""
        wait_until(lambda: len(self.events(event)) >= count)

    def wait_in_sync(self, agent: Agent, twins: int = 1) -> None:
        """Send indications until so many twins are in sync; they must have subscribed to flow ``spectrum``."""
        self.wait_for("subscribed")

        def in_sync() -> bool:
            agent.send(encode_indication(agent.subscribed[-1], bytes(6144)))
            return self.exporter.twins_by_state()[State.IN_SYNC] >= twins

        wait_until(in_sync)

    def stop(self) -> None:
        """End it; a second call does nothing."""
        if self.stopped:
            return
        self.stopped = True
        self.exporter.stop()
        self.thread.join(patience())
        assert not self.thread.is_alive()
        self.journal.__exit__(None, None, None)


Twin = tuple[twinlink.Link, str]
StartExporter = Callable[..., RunningExporter]


@pytest.fixture
def twin() -> Iterator[Twin]:
    """The twin's end of a link, and how to reach it."""
    endpoint = free_endpoint()
    with twinlink.open("zeromq", listen=endpoint, node="twin-1") as link:
        link.receiver("spectrum")  # as a twin does
        yield link, endpoint


@pytest.fixture
def start_exporter(twin: Twin, tmp_path: Path) -> Iterator[StartExporter]:
    """Start an exporter connected to the twin."""
    running: list[RunningExporter] = []
    links: list[twinlink.Link] = []

    def start(endpoints: Endpoints, window: int = 64 * 1024 * 1024, **options: Any) -> RunningExporter:
        link = twinlink.open("zeromq", connect=twin[1], node="gnb-1", window=window, retention=window)
        links.append(link)
        link.wait_ready(patience())
        running.append(RunningExporter(link, endpoints, tmp_path / f"log-{len(running)}.jsonl", **options))
        return running[-1]

    yield start
    for exporter in running:
        exporter.stop()
    for link in links:
        link.close()
