import pytest

TRANSPORTS = ("zeromq", "zenoh")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)
