import pytest

from twinlink.testing import free_endpoint


@pytest.fixture
def endpoint() -> str:
    """A free port on loopback; the one behind it is free too, for transports that take two."""
    return free_endpoint()
