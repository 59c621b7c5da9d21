"""The path as a restricted pod runs it: any uid, gid 0, no capability, a read-only root, no home; no cluster needed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from . import restricted
from .path import walk
from .pod import TOOLS, Pod, Start
from .program import UID

if os.geteuid() != 0:
    pytest.skip("needs root: it makes namespaces and mounts", allow_module_level=True)
if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
    pytest.skip(f"needs {', '.join(missing)}: apt install util-linux iproute2", allow_module_level=True)

# In a chroot, whose root is no mount point, no namespace of mounts can be made.
probe = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, text=True, check=False)
if probe.returncode:
    pytest.skip(f"needs namespaces of mounts and network: {probe.stderr.strip()}", allow_module_level=True)

PROBE = """
import json, os, pwd
def writes(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True
def known(uid):
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False
status = dict(line.rstrip().split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(json.dumps({
    "event": "probe", "pid": os.getpid(), "uid": os.getuid(), "gid": os.getgid(), "known": known(os.getuid()),
    "home": os.environ.get("HOME"), "shm": os.path.exists("/dev/shm"),
    "written": [path for path in ("/x", "/etc/x", "/usr/x", CHECKOUT + "/x", "/tmp/x", "/tmp/dapps/x") if writes(path)],
    "capabilities": sorted({status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}),
    "no_new_privs": status["NoNewPrivs"],
}))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs of this checkout in containers of one pod."""
    with Pod(tmp_path) as pod:
        yield partial(restricted.start, pod)


def test_it_is_restricted(start: Start) -> None:
    probe = start("python", "-c", f"CHECKOUT = {str(restricted.CHECKOUT)!r}\n{PROBE}")
    assert probe.code() == 0, probe.err
    (seen,) = probe.events("probe")
    assert seen == {
        "event": "probe",
        "pid": 1,
        "uid": UID,
        "gid": 0,
        "known": False,
        "home": None,
        "shm": False,
        "written": ["/tmp/x", "/tmp/dapps/x"],
        "capabilities": ["0000000000000000"],
        "no_new_privs": "1",
    }


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_the_path(transport: str, start: Start) -> None:
    walk(start, transport)
