import os

import pytest

# GNU Radio reads it when it is imported.  twinlink-replay sets it, too; in a flowgraph it is the user's choice.
os.environ["GR_CONF_LOG_LOG_FILE"] = "stderr"

TRANSPORTS = ("zeromq", "zenoh")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)
