"""A new demo replaces an earlier one; other files stay."""

from pathlib import Path

import pytest
from twinlink_demo.folder import Folder

from twinlink.errors import ConfigurationError


def prepared(path: Path, transports: list[str]) -> Folder:
    folder = Folder(path)
    folder.prepare(transports, overwrite=True)
    return folder


def test_an_earlier_run_gives_way_and_other_files_stay(tmp_path: Path) -> None:
    first = prepared(tmp_path / "out", ["zeromq", "zenoh"])
    first.release()
    zenoh = first.transport("zenoh")
    ours = [first.path / name for name in ("run.json", "results.json", "table.md", "table.csv")]
    ours += [first.path / "records" / f"zenoh-{name}.csv.gz" for name in ("control.sent", "control-result.received")]
    ours += [first.report, first.summary, zenoh.log("replay"), zenoh.figure("prbs.png")]
    ours += [zenoh.recording("replay"), zenoh.path / "exporter.0001.mcap"]
    (first.path / "records").mkdir()
    for file in ours:
        file.write_text("old")
    foreign = (first.path / "notes.txt", first.path / "records" / "mine.csv", zenoh.path / "mine.png")
    for file in foreign:
        file.write_text("mine")

    prepared(tmp_path / "out", ["zeromq"]).release()
    assert not [file for file in ours if file.exists()]
    assert [file.read_text() for file in foreign] == ["mine"] * 3


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("of another program")
    with pytest.raises(ConfigurationError, match="--out"):
        prepared(tmp_path, ["zeromq"])
    assert (tmp_path / "report.html").read_text() == "of another program"


def test_names_in_the_mark_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    prepared(tmp_path / "out", ["zeromq"]).release()
    victim = tmp_path / "replay.txt"
    victim.write_text("mine")
    (tmp_path / "out" / ".twinlink-demo").write_text('{"transports": ["..", "../out/..", 7]}')
    prepared(tmp_path / "out", ["zeromq"]).release()
    assert victim.exists()


def test_two_demos_do_not_write_to_one_folder(tmp_path: Path) -> None:
    first = prepared(tmp_path / "out", ["zeromq"])
    with pytest.raises(ConfigurationError, match="another demo"):
        prepared(tmp_path / "out", ["zeromq"])
    first.release()
    prepared(tmp_path / "out", ["zeromq"]).release()
