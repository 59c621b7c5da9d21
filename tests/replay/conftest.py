import pytest

from twinlink.testing import free_endpoint

TRANSPORTS = ("zeromq", "zenoh")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def endpoint() -> str:
    """A loopback endpoint whose port and the next one are free."""
    return free_endpoint()
