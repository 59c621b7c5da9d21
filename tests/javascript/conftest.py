from collections.abc import Iterator

import pytest

from tests.javascript.traced import Bridge


@pytest.fixture(scope="session")
def bridge() -> Iterator[Bridge]:
    one = Bridge()
    yield one
    one.close()
