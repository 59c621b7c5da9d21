"""Programs for which the name ``twin.example`` stands for the addresses that they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from twinlink.testing import patience

_BEGINS = """
import subprocess, sys
import twinlink
from twinlink.testing import patience, wait_until

hosts, *arguments = sys.argv[1:]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)

def stands_for(*addresses):
    with open(hosts, "w") as file:
        file.writelines(f"{address} twin.example\\n" for address in addresses)

"""


def run(tmp_path: Path, program: str, *arguments: str) -> str:
    """What the program prints, in namespaces of its own; what it writes to stderr is passed on."""
    unshare = ["unshare", "--net", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here (root is needed): no name was given addresses")
    hosts = tmp_path / "hosts"
    hosts.touch()
    command = [*unshare, sys.executable, "-c", _BEGINS + program, str(hosts), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * patience(), check=False)
    sys.stderr.write(done.stderr)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout
