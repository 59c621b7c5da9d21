"""The dApp library's own SpectrumSharingDApp, unmodified, against the emulator: it finds the interferer and blocks it.

Its endpoints are fixed below /tmp/dapps.  A private directory is mounted there for the dApp's process alone, so that
the test neither disturbs nor meets a gNB on this machine.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twinlink_e3 as e3
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.interferer import Episode
from twinlink_ran_emulator.recording import read

from twinlink.testing import wait_until

from .running import Process

HERE = Path(__file__).parent
FIXED = Path("/tmp/dapps")
THRESHOLD_DB = 36  # between what UEs (32 dB and fading) and the interferer (41 dB) show, averaged over 62 records
RECORDS_AVERAGED = 62
RECORDS = 400
INTERFERER = Episode(1.0, 2.0, 90, 6, 30)
INTERFERED = set(range(INTERFERER.first_prb, INTERFERER.first_prb + INTERFERER.n_prbs))


@pytest.fixture
def mounted(short_directory: Path) -> list[str]:
    """Command words that run what follows with the private directory at /tmp/dapps."""
    FIXED.mkdir(exist_ok=True)
    mount = f"mount --bind '{short_directory}' {FIXED}"
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            if subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, check=False).returncode == 0:
                return [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"]
        except FileNotFoundError:
            break
    pytest.skip("SKIPPED: no private mount namespace here (unshare -m, needs root or user namespaces)")


@pytest.fixture
def log(mounted: list[str], ipc: e3.Endpoints, tmp_path: Path) -> list[dict[str, Any]]:
    """What the emulator logged: it played its recording again and again, until the dApp had blocked the interferer and
    had ended the block, however many rounds that takes on this machine."""
    recording = tmp_path / "uplink"
    make_recording.write(recording, make_recording.Settings(seconds=4.0, episodes=(INTERFERER,), seed=11))
    arguments = ("--loop", "0", "--heard", str(tmp_path / "heard"))
    with Process(recording, ipc, tmp_path / "log", *arguments) as emulator:
        command = [*mounted, sys.executable, str(HERE / "start_spectrum_dapp.py"), str(THRESHOLD_DB)]
        with (tmp_path / "dapp.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, str(tmp_path / "given")], stdout=output, stderr=output, start_new_session=True
            )

        def spoken() -> bool:
            assert process.poll() is None, (tmp_path / "dapp.txt").read_text()
            controls = [set(event["prbs"]) for event in emulator.events("control")]
            return INTERFERED in controls and set() in controls[controls.index(INTERFERED) :]

        try:
            wait_until(spoken, 180)  # a block of the whole interferer, and its end
            assert emulator.stop()[0] == 0
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # on SIGINT it waits for ever in its own receive thread
            process.wait()
        return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def test_it_blocks_the_interferer_and_the_emulator_obeys(log: list[dict[str, Any]], tmp_path: Path) -> None:
    controls = [(event["record"], set(event["prbs"])) for event in log if event["event"] == "control"]
    given = [int(line) - 1 for line in (tmp_path / "given").read_text().splitlines()]
    windows = list(zip(*[iter(given)] * RECORDS_AVERAGED, strict=False))  # it speaks once for each
    assert len(windows) >= len(controls)
    for window, (record, prbs) in zip(windows, controls, strict=False):
        interfered = sum(number % RECORDS in INTERFERER.records(10.0, RECORDS) for number in window)
        assert record > window[-1], "it spoke before it was given the records"
        assert prbs <= INTERFERED, "it blocked PRBs without interference"
        assert prbs == set() or interfered, "it blocked without interference, or the block did not end with it"
        assert prbs == INTERFERED or interfered < RECORDS_AVERAGED, "it did not block all of the interferer"

    heard = read(tmp_path / "heard" / "heard")
    source = read(tmp_path / "uplink")
    with np.load(tmp_path / "heard" / "heard.npz") as times:
        blocked = times["blocked"]
    expected = np.zeros_like(blocked)
    for record, prbs in controls:
        expected[record:] = np.isin(np.arange(106), list(prbs))
    assert np.array_equal(blocked, expected)
    played = np.arange(len(blocked)) % RECORDS
    ue, interferer = source.ue[played], source.interferer[played]
    emptied = blocked & ue
    assert emptied.any(), "no UE was ever on a blocked PRB: the recording shows nothing"
    power = 2 * np.square(heard.samples, dtype=float).reshape(-1, 106, 24).mean(axis=2)
    floor = power[~ue & (interferer == 0)].mean()
    after = emptied & (interferer == 0)
    assert after.any(), "no UE was on a blocked PRB after the interference: the recording shows nothing"
    assert power[after].max() < 5 * floor
    assert not (heard.ue & blocked).any()
