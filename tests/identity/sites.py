"""A site for tests: a Zenoh router with an identity, and nodes that trust it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import twinlink
from tests.identity.nodes import Node, make, make_pair
from tests.link.routers import Router
from twinlink.testing import free_endpoint
from twinlink.transports import Endpoint
from twinlink.transports.zenoh_router import write_router

NAMESPACE, OTHER = "twinlink/cell-7", "twinlink/cell-8"
GRANTED = {NAMESPACE: ("gnb-1", "twin-1")}


class Site:
    """A router that runs until the end of `running`, and a pair of nodes in its namespace.

    Attributes:
        router: its identity.
        twin, gnb: they trust each other and the router, and it them.
        endpoint: of the router.
    """

    def __init__(self, folder: Path) -> None:
        self.router = make(folder, "router-1", "router")
        self.twin, self.gnb = make_pair(folder)
        for node in (self.twin, self.gnb):
            self.router.trust(node)
            node.trust(self.router)
        self.endpoint = free_endpoint(1)
        self._process: Router | None = None

    def configure(self, granted: Mapping[str, Sequence[str]] = GRANTED) -> Path:
        """Write the router's configuration; returns its file."""
        return write_router(self.router.identity, granted, [Endpoint.parse(self.endpoint)])

    def start(self, granted: Mapping[str, Sequence[str]] = GRANTED) -> None:
        """Write the router's configuration and start it; one that runs ends before."""
        configuration = self.configure(granted)
        self.stop()
        self._process = Router(endpoint=self.endpoint, configuration=configuration)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def open(self, node: Node | None, namespace: str = NAMESPACE) -> twinlink.Link:
        folder = node.folder if node is not None else None
        return twinlink.open("zenoh", connect=self.endpoint, identity=folder, mode="client", namespace=namespace)


@contextmanager
def running(site: Site, granted: Mapping[str, Sequence[str]] = GRANTED) -> Iterator[Site]:
    """Its router runs."""
    try:
        site.start(granted)
        yield site
    finally:
        site.stop()
