"""A transport from another distribution: found by its entry point, and held to the public suite in ten lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from twinlink.testing import patience

MODULE = """
from dataclasses import dataclass
from twinlink.transports import Transport
from twinlink.transports.base import Options
from twinlink.transports.memory import MemoryTransport

@dataclass(frozen=True)
class PigeonOptions(Options):
    flock: int = 1  # birds

class PigeonTransport(MemoryTransport):
    options_class = PigeonOptions
"""
SUITE = """
from twinlink.testing import TransportConformance

class TestPigeon(TransportConformance):
    transport = "pigeon"
    options = {"flock": 3}
"""
ENTRY_POINTS = """
[twinlink.transports]
pigeon = twinlink_pigeon:PigeonTransport
seagull = twinlink_seagull:SeagullTransport [fish]
"""
METADATA = "Metadata-Version: 2.1\nName: twinlink-pigeon\nVersion: 1.0\nProvides-Extra: fish\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with what pip would have put there."""
    information = tmp_path / "twinlink_pigeon-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA)
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "twinlink_pigeon.py").write_text(MODULE)
    (tmp_path / "twinlink_seagull.py").write_text("import a_driver_that_is_not_installed\n")
    (tmp_path / "test_pigeon.py").write_text(SUITE)
    return tmp_path


def run(directory: Path, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(directory), "PATH": ""}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found_by_name_and_named_among_the_known(installed: Path) -> None:
    script = """
import twinlink
from twinlink.transports import names
print(names())
with twinlink.open("pigeon", listen="tcp/here:1", flock=2) as one, twinlink.open("pigeon", connect="tcp/here:1") as two:
    two.wait_ready(60)
    print(one.stats()["transport"])
for name in ("seagull", "raven"):
    try:
        twinlink.open(name, listen="tcp/here:1")
    except twinlink.TwinlinkError as error:
        print(type(error).__name__, error)
"""
    known, name, missing, unknown = run(installed, "-c", script).splitlines()
    assert known == str(["memory", "mqtt", "pigeon", "seagull", "tcp", "websocket", "zenoh", "zeromq"])
    assert name == "pigeon"
    assert missing.startswith("TransportMissing")
    assert "pip install 'twinlink-pigeon[fish]'" in missing
    assert unknown.startswith("ConfigurationError")
    assert "memory, mqtt, pigeon, seagull" in unknown


def test_it_passes_the_public_suite(installed: Path) -> None:
    chosen = "types or never_mix or garbage or arguments or late or twice"  # here it is the way in that counts
    out = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "test_pigeon.py")
    assert " passed" in out
    assert "failed" not in out
