import ctypes as ct
from pathlib import Path

import pytest

from tests.c.building import SOURCES, build
from tests.c.library import load


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ct.CDLL:
    """`twinlink.c` and `twinlink_websocket.c`, for ctypes."""
    return load(Path(tmp_path_factory.mktemp("library")))


@pytest.fixture(scope="session")
def slots_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built."""
    names = ("example.c", "twinlink_websocket.c", "twinlink.c")
    target = Path(tmp_path_factory.mktemp("example")) / "twinlink-slots"
    return build(target, *(SOURCES / one for one in names), options=("-O1", "-pthread"))
