"""The dApp library's own SpectrumSharingDApp, unmodified, against the emulator: it finds the interferer and blocks it.

Its endpoints are fixed below /tmp/dapps.  A private directory is mounted there for the dApp's process alone, so that
the test neither disturbs nor meets a gNB on this machine.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import twinlink_e3 as e3
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.interferer import Episode
from twinlink_ran_emulator.recording import read

from .running import Process

HERE = Path(__file__).parent
FIXED = Path("/tmp/dapps")
THRESHOLD_DB = 36  # between what UEs (32 dB and fading) and the interferer (41 dB) show, averaged over 62 records
RECORDS_AVERAGED = 62
INTERFERER = Episode(1.0, 2.0, 90, 6, 30)


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
def dapp(mounted: list[str], ipc: e3.Endpoints, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    recording = tmp_path / "uplink"
    make_recording.write(recording, make_recording.Settings(seconds=4.0, episodes=(INTERFERER,), seed=11))
    arguments = ("--hold", "0", "--heard", str(tmp_path / "heard"))
    with Process(recording, ipc, tmp_path / "log", *arguments) as emulator:
        command = [*mounted, sys.executable, str(HERE / "start_spectrum_dapp.py"), str(THRESHOLD_DB)]
        with (tmp_path / "dapp.txt").open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            assert emulator.process.wait(timeout=60) == 0, (tmp_path / "dapp.txt").read_text()
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # on SIGINT it waits for ever in its own receive thread
            process.wait()


@pytest.mark.usefixtures("dapp")
def test_it_blocks_the_interferer_and_the_emulator_obeys(tmp_path: Path) -> None:
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    controls = [(event["record"], set(event["prbs"])) for event in log if event["event"] == "control"]
    interfered = set(range(INTERFERER.first_prb, INTERFERER.first_prb + INTERFERER.n_prbs))
    records = INTERFERER.records(10.0, 400)

    blocks = [(record, prbs) for record, prbs in controls if prbs]
    assert blocks, "it never blocked anything"
    assert all(prbs <= interfered for _, prbs in blocks), "it blocked PRBs without interference"
    assert any(prbs == interfered for _, prbs in blocks), "it never blocked all of the interferer"
    assert all(record >= records.start for record, _ in blocks)
    assert all(record <= records.stop + 2 * RECORDS_AVERAGED for record, _ in blocks)
    assert controls[-1][1] == set(), "the block did not end with the interference"

    heard = read(tmp_path / "heard" / "heard")
    source = read(tmp_path / "uplink")
    with np.load(tmp_path / "heard" / "heard.npz") as times:
        blocked = times["blocked"]
    expected = np.zeros_like(blocked)
    for record, prbs in controls:
        expected[record:] = np.isin(np.arange(106), list(prbs))
    assert np.array_equal(blocked, expected)
    emptied = blocked & source.ue
    assert emptied.any(), "no UE was ever on a blocked PRB: the recording shows nothing"
    power = 2 * np.square(heard.samples, dtype=float).reshape(400, 106, 24).mean(axis=2)
    floor = power[~source.ue & (source.interferer == 0)].mean()
    after = emptied & (source.interferer == 0)
    assert after.any(), "no UE was on a blocked PRB after the interference: the recording shows nothing"
    assert power[after].max() < 5 * floor
    assert not (heard.ue & blocked).any()
