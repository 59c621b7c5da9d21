"""``twinlink whatif``, with a recording that a twin has made of a link."""

import re
import time
from pathlib import Path

import pytest

from tests.cli.calling import Called, call
from tests.cli.running import Start
from tests.recording.recordings import pair
from tests.replay.uplink_scenes import Interferer, Scene, hear
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience, wait_until

RECORDS, N_PRBS = 180, 51
HEARD = hear(Scene(n_prbs=N_PRBS, n_records=RECORDS, interferers=(Interferer(160, RECORDS, 30, 36, 20),)), 31)


def record(path: Path, then_s: float = 0) -> Path:
    """A recording of the twin's side, which goes on for so long without a record."""
    with pair("zeromq", free_endpoint()) as (twin, gnb):
        arrived: list[int] = []
        twin.receiver("spectrum", handler=lambda message: arrived.append(message.sequence))
        with twin.record(path):
            sender = gnb.sender("spectrum")
            for number, samples in enumerate(HEARD.samples):
                sender.send(Spectrum(samples, N_PRBS, 30_000, 3.6192e9, 10**18 + number * 10_000_000).encode())
            sender.flush(patience())
            wait_until(lambda: len(arrived) == RECORDS)
            if then_s:
                time.sleep(then_s)
                gnb.sender("telemetry").send(b"later")
                assert twin.receiver("telemetry").receive(patience()) is not None
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("whatif") / "twin.mcap")


def whatif(*arguments: str) -> Called:
    return call("whatif", *arguments)


def test_a_time_before_the_first_record_and_a_block_of_no_prb_are_refused(tmp_path: Path) -> None:
    with pair("zeromq", free_endpoint()) as (twin, gnb):
        twin.receiver("spectrum", handler=lambda message: None)
        with twin.record(tmp_path / "late.mcap"):
            time.sleep(0.1)
            sender = gnb.sender("spectrum")
            sender.send(Spectrum(HEARD.samples[0], N_PRBS, 30_000, 3.6192e9, 10**18).encode())
            sender.flush(patience())
    early = whatif(str(tmp_path / "late.mcap"), "--at", "0.001")
    assert early.code() == 3
    assert re.search(r"before 0.001 s: the first is at 0\.\d+ s: choose a later time with --at", early.err)
    for block in "", ":100":
        refused = whatif(str(tmp_path / "late.mcap"), "--block", block)
        assert refused.code() == 3
        assert "names no PRB" in refused.err


def test_the_interference_of_that_time_is_tried_and_its_block_leaves(recorded: Path, start: Start) -> None:
    done = start("whatif", str(recorded), "--json")
    assert done.code() == 0
    nothing, block, summary = done.records()
    assert (nothing["policy"], block["leaves"], block["refusal"]) == ("nothing", True, None)
    assert block["spans"][0]["prbs"] == summary["interfered"]
    assert set(range(31, 35)) <= set(summary["interfered"]) <= set(range(29, 37))
    assert (summary["records"], summary["heard_s"], summary["n_prbs"]) == (RECORDS, RECORDS / 100, N_PRBS)
    assert summary["best"] == block["policy"]


def test_blocks_are_compared_in_a_table_and_refusals_say_why(recorded: Path) -> None:
    done = whatif(str(recorded), "--block", "30-35", "--block", "5-9:800", "--block", "0-40")
    assert done.code() == 0
    rows = {line.split()[0]: line for line in done.out if "is refused" not in line}
    assert rows["30-35"].endswith("yes, the best")
    assert rows["5-9:800"].endswith("no: worse")
    assert rows["0-40"].endswith("no: capacity")
    assert "0-40 is refused: capacity: it leaves 10 of 51 PRBs" in "\n".join(done.out)


def test_without_a_block_that_leaves_the_exit_code_is_1_and_bad_arguments_are_3(recorded: Path) -> None:
    assert whatif(str(recorded), "--block", "5-9").code() == 1
    for arguments in (("--horizon", "11"), ("--at", "100000")):
        done = whatif(str(recorded), *arguments)
        assert done.code() == 3
        assert arguments[0] in done.err
    assert whatif("/nowhere.mcap").code() == 2


def test_what_was_not_heard_any_more_is_not_tried_as_if_it_were_now(tmp_path: Path) -> None:
    path = str(record(tmp_path / "twin.mcap", then_s=1.0))
    done = whatif(path, "--json")
    at_s = done.records()[-1]["at_s"]
    assert done.code() == 0  # the end of the records, not of the recording
    late = whatif(path, "--at", f"{at_s + 0.8:.4f}")
    assert late.code() == 3
    assert "the newest record is 0.8 s older" in late.err
