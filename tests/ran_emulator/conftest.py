import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from twinlink_e3 import Endpoints
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.interferer import Episode
from twinlink_ran_emulator.recording import Recording, read

SMALL = make_recording.Settings(
    n_prbs=24,
    seconds=2.0,
    n_ues=3,
    episodes=(Episode(0.5, 0.8, 6, 4, 20), Episode(1.5, 0.3, 18, 3, 12)),
    seed=7,
)


@pytest.fixture(scope="session")
def small_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of 200 records of 24 PRBs, with interference in records 50-129 (PRBs 6-9) and 150-179 (18-20)."""
    path = tmp_path_factory.mktemp("recordings") / "small"
    make_recording.write(path, SMALL)
    return path.with_name("small.sigmf-meta")


@pytest.fixture(scope="session")
def small(small_path: Path) -> Recording:
    return read(small_path)


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory with a name that is short enough for the path of a UNIX socket (107 octets)."""
    directory = Path(tempfile.mkdtemp(prefix="e3-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def ipc(short_directory: Path) -> Endpoints:
    return Endpoints(*(f"ipc://{short_directory}/{name}" for name in ("setup", "e3_socket", "dapp_socket")))
