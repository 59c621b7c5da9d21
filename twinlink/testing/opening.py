"""Errors of opening name their cause."""

# ruff: noqa: D102  (a test's name is its sentence)

import subprocess
import sys
from typing import Any

import pytest

import twinlink
from twinlink.transports import names, transport_class, transport_name

from .base import Conformance, Open, patience

WITHOUT_DRIVER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == sys.argv[2]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import twinlink  # needs no driver

try:
    twinlink.open(sys.argv[1], listen="tcp/127.0.0.1:7447")
except twinlink.TransportMissing as error:
    assert isinstance(error, ImportError)
    print(error)
"""


class Opening(Conformance):
    """Wrong arguments, endpoints in use, a missing driver."""

    def test_its_name_is_known(self) -> None:
        assert self.transport in names()

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({}, "exactly one of listen= and connect="),
            ({"listen": "tcp/127.0.0.1:7447", "connect": "tcp/127.0.0.1:7447"}, "exactly one"),
            ({"listen": ":7447"}, "the host is missing"),
            ({"connect": "tcp://127.0.0.1:7447"}, "write 127.0.0.1:7447"),
            ({"connect": "tcp/0.0.0.0:7447"}, "every address"),
            ({"listen": "tcp/127.0.0.1:0"}, "from 1 to 65535"),
            ({"connect": "tcp/127.0.0.1:65536"}, "from 1 to 65535"),
            ({"connect": "udp/127.0.0.1:7447"}, "host:port"),
            ({"connect": "tcp/127.0.0.1:7447\n"}, "host:port"),
            ({"connect": 7447}, "host:port"),
            ({"connect": "tcp/host..name:7447"}, "1 to 63 characters"),
            ({"listen": f"tcp/{'x' * 64}.name:7447"}, "1 to 63 characters"),
            ({"connect": "tcp/127.0.0.1:7447", "no_such_option": 1}, "no_such_option"),
            ({"connect": "tcp/127.0.0.1:7447", "node": ""}, "node"),
            ({"connect": "tcp/127.0.0.1:7447", "node": "x" * 256}, "node"),
            ({"connect": "tcp/127.0.0.1:7447", "node": "two\nlines"}, "node"),
            ({"connect": "tcp/127.0.0.1:7447", "window": 1000}, "window"),
            ({"connect": "tcp/127.0.0.1:7447", "send_timeout": -1}, "send_timeout"),
            ({"connect": "tcp/127.0.0.1:7447", "max_payload": 2**24 + 1}, "max_payload"),
            ({"connect": "tcp/127.0.0.1:7447", "max_payload": -1}, "max_payload"),
        ],
    )
    def test_wrong_arguments_say_what_is_right(self, arguments: dict[str, Any], says: str) -> None:
        with pytest.raises(twinlink.ConfigurationError, match=says):
            twinlink.open(transport_name(self.transport), **arguments)

    def test_the_last_port_must_exist(self) -> None:
        ports = transport_class(self.transport).ports
        if ports > 1:
            with pytest.raises(twinlink.ConfigurationError, match=f"{ports} ports"):
                twinlink.open(
                    transport_name(self.transport), connect=f"tcp/127.0.0.1:{65536 - ports + 1}", **self.options
                )

    def test_flow_names_that_cannot_be(self, opening: Open) -> None:
        link = opening("listen")
        flows: list[Any] = ["", "_link", "a/b", "a*", ".a", "-a", "a b", "ä", "x" * 64, "a\n", b"a", None]
        for flow in flows:
            for make in (link.sender, link.receiver):
                with pytest.raises(twinlink.ConfigurationError, match="flow"):
                    make(flow)

    @pytest.mark.parametrize(
        "limits", [{"stale_after": "1"}, {"out_after": None}, {"stale_after": 3.0}, {"completeness": 2}]
    )
    def test_thresholds_of_sync_that_cannot_be(self, opening: Open, limits: dict[str, Any]) -> None:
        with pytest.raises(twinlink.ConfigurationError, match="0 < stale_after <= out_after"):
            opening("listen").sync("flow", **limits)

    def test_an_endpoint_in_use_is_an_error_that_names_it(self, opening: Open, endpoint: str) -> None:
        if self.shares_endpoint:
            pytest.skip("this transport lets listeners share an endpoint")
        opening("listen")
        with pytest.raises(twinlink.TransportError, match=endpoint) as caught:
            opening("listen")
        assert isinstance(caught.value, OSError)

    def test_a_missing_driver_is_named(self) -> None:
        if self.driver is None:
            pytest.skip("this transport needs no driver")
        command = [sys.executable, "-c", WITHOUT_DRIVER, self.transport, self.driver]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
        assert done.returncode == 0, done.stderr
        assert "pip install" in done.stdout
        assert (self.package or self.driver) in done.stdout
