"""A sweep whose pong is at a name with several addresses, or listens on all of both families."""

from pathlib import Path

import pytest

from tests.link import named_host

SUBJECTS = "raw-tcp,raw-http,raw-websocket"
_SWEEP = """
from pathlib import Path
from tests.measure.sweeping import measure
from twinlink_measure.cells import Plan
from twinlink_measure.hosts import Hosts

listens, peer, subjects, folder = arguments
stands_for("::1", "127.0.0.2")
pong = subprocess.Popen([sys.executable, "-m", "twinlink", "pong", "--listen", f"tcp/{listens}:7447"], stdout=2)
plan = Plan(subjects=tuple(subjects.split(",")), payloads=(100,), directions=("rw-dt",), count=3, rounds=1, warm_up=1)
run = measure(Path(folder), plan, Hosts(f"tcp/{peer}:7447", "zeromq", patience(10), lambda: False))
pong.terminate()
pong.wait()
print(*(f"{cell['subject']} {cell['status']}: {cell['reason']}" for cell in run["cells"]), sep="\\n")
"""


@pytest.mark.parametrize(("listens", "peer"), [("twin.example", "[::1]"), ("[::]", "127.0.0.2")])
def test_every_subject_meets_the_other_side(listens: str, peer: str, tmp_path: Path) -> None:
    told = named_host.run(tmp_path, _SWEEP, listens, peer, SUBJECTS, str(tmp_path / "out"))
    assert told.splitlines() == [f"{one} done: None" for one in SUBJECTS.split(",")]
