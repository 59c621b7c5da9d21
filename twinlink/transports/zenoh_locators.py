"""Endpoints as Zenoh takes them: it reads no name of an interface, and listens on one address of a name only."""

from collections.abc import Sequence

from ..process.ip_address import bracketed, is_address, is_v6_only, with_zone_index
from ..process.resolver import RepeatedLookup, listen_addresses
from .base import Endpoint

RESOLVE_S = 0.2  # time-out of the resolver for the name of another host; without an answer Zenoh is given the name


class Locators:
    """What a session is given: each address of the host to listen on, or one address of each host to connect to.

    Zenoh would connect to all that it is given, and stay at an address of a name that does not answer.
    """

    def __init__(self, endpoints: Sequence[Endpoint], listening: bool) -> None:
        self._listens_on = endpoints[0] if listening else None
        self._remotes = [] if listening else [_Remote(endpoint) for endpoint in endpoints]

    def current(self) -> list[str]:
        """The locators.  Raises OSError: the name of the host to listen on is not resolved."""
        if self._listens_on is None:
            return [remote.locator() for remote in self._remotes]
        hosts = listen_addresses(self._listens_on.host)
        if hosts == ["::"] and is_v6_only():
            hosts.append("0.0.0.0")
        return [_locator(host, self._listens_on.port) for host in hosts]

    def move(self) -> bool:
        """No peer is there: whether the resolver gives another address of a host to connect to."""
        moved = [remote.move() for remote in self._remotes]
        return any(moved)


class _Remote:
    def __init__(self, endpoint: Endpoint) -> None:
        self._host, self._port = endpoint.host, endpoint.port
        self._lookup = None if is_address(endpoint.host) else RepeatedLookup(endpoint.host, endpoint.port)

    def locator(self) -> str:
        if not is_address(self._host):
            self.move()
        return _locator(self._host, self._port)

    def move(self) -> bool:
        if self._lookup is None:
            return False
        self._lookup.next_address()
        found = self._lookup.poll(RESOLVE_S)
        self._host = found or self._host
        return found is not None


def _locator(host: str, port: int) -> str:
    return f"tcp/{bracketed(with_zone_index(host.strip('[]')))}:{port}"
