"""Plays Colosseum's SRN controller: takes nodes through a batch job by the scripts of their radio API.

By hand, with what is said and how long it took::

    sudo .venv/bin/python -m tests.colosseum.controller --transport zeromq
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from twinlink.testing import patience

from .srn import ROOT, Srn, cable, why_not

LIMIT_S = 5.0  # the API's, for each script
STATES = ("OFF", "BOOTING", "READY", "ACTIVE", "STOPPING", "FINISHED", "ERROR")
SCRIPTS = ("start", "stop", "status", "statistics", "update_environment", "update_outcomes", "scenario_discontinuity")
ENVIRONMENT = {"collab_network_type": "INTERNET", "scenario_center_frequency": 3600000000}
COLOSSEUM_CONFIG = "[RF]\ncenter_frequency = 1000000000\nrf_bandwidth = 20000000\n"


class Called(NamedTuple):
    """What a script of the API returned, and how long it took."""

    code: int
    stdout: str
    seconds: float


def call(node: Srn, script: str, *arguments: str) -> Called:
    """Call a script of the API.  Raises AssertionError when it takes longer than the API allows."""
    began = time.monotonic()
    process = node.start(f"/root/radio_api/{script}.sh", *arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        stdout, _ = process.communicate(timeout=LIMIT_S)  # what goes on holding stdout would hold the controller, too
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{script}.sh of SRN {node.number} has not returned within {LIMIT_S:.0f} s") from None
    return Called(process.returncode, stdout, time.monotonic() - began)


def status(node: Srn) -> dict[str, str]:
    """What status.sh says; checked for its form."""
    called = call(node, "status")
    assert called.code == 0, called
    said: dict[str, str] = json.loads(called.stdout)
    assert list(said) == ["STATUS", "INFO"], said
    assert said["STATUS"] in STATES, said
    assert isinstance(said["INFO"], str), said
    return said


def push(node: Srn, name: str, text: str) -> None:
    """Put a file where Colosseum puts it."""
    node.path(f"/root/radio_api/{name}").write_text(text)


def boot(node: Srn) -> subprocess.Popen[str]:
    """Begin what twinlink-boot.service does when a container starts."""
    push(node, "colosseum_config.ini", COLOSSEUM_CONFIG)
    return node.start("/root/radio_api/boot.sh", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Job:
    """A batch job.  ``tell`` is given each step; one that does not go as the API says raises AssertionError."""

    def __init__(self, nodes: list[Srn], tell: Callable[[str], object] = lambda text: None) -> None:
        self.nodes = nodes
        self._tell = tell

    def ready(self) -> None:
        """From before the boot until every node is READY."""
        for node in self.nodes:
            assert status(node)["STATUS"] == "OFF", status(node)
            boot(node)
        self._all_are("READY", "OFF", "BOOTING")

    def start(self) -> None:
        """The scenario starts."""
        self._call_all("start")
        self._all_are("ACTIVE")

    def update(self) -> None:
        """The calls that may come while a scenario runs."""
        for node in self.nodes:
            push(node, "environment.json", json.dumps(ENVIRONMENT))
            push(node, "mandated_outcomes.json", "[]")
        for script in ("update_environment", "update_outcomes", "scenario_discontinuity"):
            self._call_all(script)

    def statistics(self) -> list[dict[str, float]]:
        """What each node prints."""
        return [json.loads(called.stdout) for called in self._call_all("statistics")]

    def stop(self) -> None:
        """The scenario is over; returns when every node is FINISHED."""
        self._call_all("stop")
        self._all_are("FINISHED", "STOPPING")

    def _call_all(self, script: str) -> list[Called]:
        all_called = []
        for node in self.nodes:
            called = call(node, script)
            self._tell(f"SRN {node.number}: {script}.sh returned {called.code} after {called.seconds:.2f} s")
            assert called.code == 0, f"{script}.sh of SRN {node.number}: {called}"
            all_called.append(called)
        return all_called

    def _all_are(self, wanted: str, *before: str) -> None:
        """Ask until every node is in this state; on the way it may be in these."""
        until = time.monotonic() + patience(60)
        for node in self.nodes:
            while (said := status(node))["STATUS"] != wanted:
                assert said["STATUS"] in before, f"SRN {node.number} should be {wanted}: {said}"
                assert time.monotonic() < until, f"SRN {node.number} does not become {wanted}: {said}"
                time.sleep(0.5)
            self._tell(f"SRN {node.number}: {said['STATUS']}, {said['INFO']}")


def config(name: str, transport: str) -> str:
    """A ModemConfig of ours, over this transport."""
    text = (ROOT / "colosseum" / "config" / name).read_text()
    assert 'transport = "zenoh"' in text
    return text.replace('transport = "zenoh"', f'transport = "{transport}"')


def events(node: Srn, program: str) -> list[dict[str, Any]]:
    """What a program of the node has logged so far; whole lines."""
    path = node.path(f"/logs/{program}.jsonl")
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def play(job: Job, gnb: Srn) -> None:
    """A job from before the boot to FINISHED; plays until the gNB's exporter has installed a block."""
    job.ready()
    job.start()
    job.update()
    until = time.monotonic() + patience(30)
    while not any(event["event"] == "block-installed" for event in events(gnb, "exporter")):
        assert time.monotonic() < until, "no block was installed: see the events above"
        time.sleep(0.2)
    job.stop()


def main() -> int:
    """Play one job; the exit code is 1 when a step did not go as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("zeromq", "zenoh"), default="zenoh")
    given = parser.parse_args()
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 2
    with ExitStack() as stack:
        gnb = stack.enter_context(Srn(7, config("recording.conf", given.transport)))
        twin = stack.enter_context(Srn(21, config("twin.conf", given.transport)))
        cable([gnb, twin])
        began = time.monotonic()
        job = Job([gnb, twin], lambda text: print(f"{time.monotonic() - began:6.2f} {text}", flush=True))
        try:
            play(job, gnb)
        except AssertionError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        finally:
            for node in (gnb, twin):
                print(f"SRN {node.number}:", *sorted(each.name for each in node.path("/logs").iterdir()))
        print((gnb.path("/logs/exporter-summary.json")).read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
