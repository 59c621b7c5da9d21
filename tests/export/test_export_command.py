"""The commands `export` and `import`, as a user runs them."""

import json
import re
from functools import partial
from pathlib import Path

import pandas
import pytest
from twinlink_export import sigmf_export
from twinlink_export.parquet_export import export
from twinlink_export.request import Request

from tests.cli.calling import call
from tests.cli.running import Start, no_more_than_1000_octets
from tests.export import scene
from tests.export.scene import ROUNDS
from tests.recording.recordings import pair, rows
from twinlink.recording import Recorder, RecordingError, verify
from twinlink.testing import free_endpoint, patience, wait_until


def test_there_and_back(start: Start, tmp_path: Path) -> None:
    recorded = scene.record(tmp_path / "run.mcap").path
    trace, sigmf, back = tmp_path / "slots", tmp_path / "run.sigmf-meta", tmp_path / "back.mcap"
    to_trace = start("export", str(recorded), "--out", str(trace), "--format", "e3rt", "--json")
    to_sigmf = call("export", str(recorded), "--out", str(sigmf), "--flows", "spectrum")
    assert (to_trace.code(), to_sigmf.code()) == (0, 0)
    (summary,) = to_trace.records()
    assert summary["written"] == {str(trace): 2 * ROUNDS}
    assert to_sigmf.out == [f"{sigmf}: {ROUNDS} records"]

    again = call("export", str(recorded), "--out", str(sigmf), "--flows", "spectrum")
    to_mcap = start("import", str(sigmf), "--out", str(back), "--json")
    assert (again.code(), to_mcap.code()) == (3, 0)
    assert "--overwrite" in again.err
    (summary,) = to_mcap.records()
    assert (summary["number"], summary["what"], summary["notes"]) == (ROUNDS, "records", [])
    assert verify(back).complete
    refused = call("import", str(sigmf), "--out", str(back))
    assert refused.code() == 3
    assert "--overwrite" in refused.err


def begins_another(recorder: Recorder, count: int) -> bool:
    recorder._series._chunk_due_s = 0  # a second for each chunk would be long
    return len(recorder.files) >= count


def test_the_files_of_a_recording_in_any_order(tmp_path: Path) -> None:
    with pair("memory", free_endpoint()) as (twin, gnb):
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        with twin.record(tmp_path / "run.mcap", rotate_octets=1) as recorder:
            for number in range(4):
                sender.send(str(number))
                sender.flush(patience())
                wait_until(partial(begins_another, recorder, number + 2))
    files = [str(path) for path in recorder.files]
    assert len(files) > 3
    run = call("export", *reversed(files), "--out", str(tmp_path / "x.parquet"))
    assert run.code() == 0, run.err
    assert pandas.read_parquet(tmp_path / "x.parquet").sequence.tolist() == [0, 1, 2, 3]

    part = export(Request(recorder.files[:2], tmp_path / "y.parquet"))
    assert part.problems == []
    assert f"goes on in '{Path(files[2]).name}', which is not given" in part.notes[0]
    other = scene.write(tmp_path / "other.mcap", [(0, b"x")])
    for paths, expected in (((files[0], files[0]), "given twice"), ((files[0], other), "of different recordings")):
        with pytest.raises(RecordingError, match=expected):
            export(Request([Path(path) for path in paths], tmp_path / "z.parquet"))


def test_a_recording_that_is_cut(tmp_path: Path) -> None:
    whole = scene.write(tmp_path / "whole.mcap", [(n, bytes(400_000)) for n in range(9)], flow="x")
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[:2_500_000])
    run = call("export", str(cut), "--out", str(tmp_path / "x.parquet"))
    assert run.code() == 1
    assert "cut.mcap: octet" in run.err
    assert "the file was cut" in run.err
    assert pandas.read_parquet(tmp_path / "x.parquet").sequence.tolist() == [
        row.sequence for row in rows_before(whole, 6)
    ]


def rows_before(path: Path, end: int) -> list:  # type: ignore[type-arg]
    return [row for row in rows(path, "received") if row.sequence < end]


def test_what_cannot_be_exported_or_imported(start: Start, tmp_path: Path) -> None:
    recorded = scene.write(tmp_path / "x.mcap", [(0, b"x")])
    meta = tmp_path / "x.sigmf-meta"
    meta.write_text(json.dumps({"global": {"core:datatype": "cf32_le"}}))
    meta.with_suffix(".sigmf-data").write_bytes(bytes(8))
    cases = {
        ("export", str(recorded), "--out", "x.csv"): (3, "its suffix is none of"),
        ("export", str(recorded), "--out", "./x.mcap", "--format", "npz", "--overwrite"): (3, "is what is read"),
        ("export", str(meta), "--out", "x.npz"): (2, "no MCAP file"),
        ("import", "x.sigmf", "--out", "y.mcap"): (3, "unpack the archive"),
        ("import", str(meta), "--out", "y.mcap"): (2, "x.sigmf-meta: global.dapp:domain is missing"),
        ("import", str(tmp_path / "absent.e3rt"), "--out", "y.mcap"): (2, "absent.e3rt"),
    }
    runs = {arguments: start(*arguments, cwd=tmp_path) for arguments in cases}
    for arguments, (code, text) in cases.items():
        assert runs[arguments].code() == code, runs[arguments].err
        assert text in runs[arguments].err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.mcap", "x.sigmf-data", "x.sigmf-meta"]


@pytest.mark.parametrize("name", ["x.parquet", "x.npz", "x.sigmf-meta", "y.mcap"])
def test_a_full_disk_is_named_and_nothing_is_left(name: str, start: Start, tmp_path: Path) -> None:
    spectra = [(number, scene.spectrum(number, n_prbs=100).encode()) for number in range(20)]
    recorded, folder = scene.write(tmp_path / "x.mcap", spectra), tmp_path / "full"
    sigmf_export.export(Request([recorded], tmp_path / "x.sigmf-meta"))
    folder.mkdir()
    read = ("import", str(tmp_path / "x.sigmf-meta")) if name == "y.mcap" else ("export", str(recorded))
    more = ("--table", "prbs") if name == "x.parquet" else ()
    run = start(*read, "--out", str(folder / name), *more, preexec_fn=no_more_than_1000_octets)
    assert run.code() == 2
    assert f"{folder / name}" in run.err
    assert "make room there" in run.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["x.parquet", "x.npz", "x.sigmf-meta", "y.mcap"])
def test_a_folder_that_is_not_there_is_named_with_the_file_that_was_asked_for(
    name: str, start: Start, tmp_path: Path
) -> None:
    recorded = scene.write(tmp_path / "x.mcap", [(0, scene.spectrum(0, n_prbs=4).encode())])
    sigmf_export.export(Request([recorded], tmp_path / "x.sigmf-meta"))
    read = ("import", str(tmp_path / "x.sigmf-meta")) if name == "y.mcap" else ("export", str(recorded))
    run = start(*read, "--out", str(tmp_path / "absent" / name))
    assert run.code() == 2
    stem = name.removesuffix("-meta")
    assert re.search(rf"absent/{stem}(-meta|-data)?: No such file or directory; check the path", run.err)
