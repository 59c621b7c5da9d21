"""Zenoh in mode client passes the suite through a router, but for what only a listener has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.link.routers import Router, routers
from twinlink.testing import TransportConformance
from twinlink.transports import Transport


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    with routers(1) as row:
        yield row[0]


class TestZenohClient(TransportConformance):
    transport = "zenoh"
    driver, package = "zenoh", "eclipse-zenoh"

    # Every node of a namespace hears every other one, and none has an endpoint of its own.
    test_an_endpoint_in_use_is_an_error_that_names_it = None  # type: ignore[assignment]
    test_an_interpreter_that_leaves_without_close_does_not_hang = None  # type: ignore[assignment]  # its peer listens
    test_nothing_is_left_behind = None  # type: ignore[assignment]  # by a listener that is refused
    test_opening_without_a_peer_is_no_error_but_waiting_is = None  # type: ignore[assignment]  # what it says: tests/link/test_router_network.py
    test_several_connectors_on_one_listener = None  # type: ignore[assignment]

    @pytest.fixture
    def endpoint(self, router: Router, request: pytest.FixtureRequest) -> str:
        """The router's; a namespace for each test, because one that ends may still be saying goodbye."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60]
        self.options = {"mode": "client", "namespace": f"twinlink/{name}"}  # type: ignore[misc]
        return router.endpoint

    def open(self, role: str, endpoint: str, **options: Any) -> twinlink.Link:
        return super().open("connect", endpoint, **options)

    def bare_transport(self, endpoint: str, role: str, identity: Path | None = None) -> Transport:
        return super().bare_transport(endpoint, "connect", identity)
