import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sigmf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from twinlink_ran_emulator.recording import read
from twinlink_ran_emulator.schema import RecordingError
from twinlink_ran_emulator.truth import Area, Grid, areas_of, mark


def foreign(directory: Path, n_prbs: int, n_records: int = 4) -> tuple[Path, np.ndarray[Any, Any]]:
    """A recording written with the sigmf library alone, as by a third party."""
    bins = n_prbs * 12
    samples = np.random.default_rng(n_prbs).integers(-100, 100, (n_records, bins, 2), np.int16)
    (directory / "foreign.sigmf-data").write_bytes(samples.tobytes())
    meta = sigmf.SigMFFile(
        data_file=str(directory / "foreign.sigmf-data"),
        global_info={
            "core:datatype": "ci16_le",
            "core:sample_rate": bins * 30e3,
            "core:extensions": [{"name": "dapp", "version": "1.0.0", "optional": False}],
            "dapp:domain": "frequency",
            "dapp:n_prbs": n_prbs,
            "dapp:n_sc_per_prb": 12,
            "dapp:n_ants": 1,
            "dapp:n_symbols": 1,
            "dapp:samples_per_slot": bins,
            "dapp:subcarrier_spacing_khz": 30,
        },
    )
    meta.add_capture(0, metadata={"core:frequency": 3.6192e9})
    low = 3.6192e9 - bins / 2 * 30e3
    edges = {"core:freq_lower_edge": low + 2 * 360e3, "core:freq_upper_edge": low + 5 * 360e3}
    meta.add_annotation(bins, 2 * bins, metadata={"core:label": "interferer", **edges})
    meta.add_annotation(0, bins, metadata={"core:label": "ue"})
    meta.add_annotation(0, bins, metadata={"core:label": "something else", **edges})
    path = directory / "foreign.sigmf-meta"
    meta.tofile(str(path))
    return path, samples


@pytest.mark.parametrize("n_prbs", [51, 106, 273])
def test_reads_what_others_made(tmp_path: Path, n_prbs: int) -> None:
    path, samples = foreign(tmp_path, n_prbs)
    for name in (path, path.with_suffix(".sigmf-data"), path.with_suffix("")):
        recording = read(name)
        assert np.array_equal(recording.samples, samples)
    assert recording.grid == Grid(4, n_prbs, 30e3, 3.6192e9)
    assert recording.period_ns == 10_000_000
    expected = np.zeros((4, n_prbs), int)
    expected[1:3, 2:5] = 1
    assert np.array_equal(recording.interferer, expected)
    assert recording.ue[0].all()
    assert not recording.ue[1:].any()


def spoil(path: Path, change: dict[str, Any]) -> None:
    metadata = json.loads(path.read_text())
    for where, value in change.items():
        part = metadata
        *parents, last = where.split("/")
        for name in parents:
            part = part[int(name) if name.isdigit() else name]
        if value is None:
            del part[last]
        else:
            part[last] = value
    path.write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"global/core:datatype": "cf32_le"}, "core:datatype"),
        ({"global/dapp:domain": "time"}, "dapp:domain"),
        ({"global/dapp:n_prbs": None}, "dapp:n_prbs"),
        ({"global/dapp:n_prbs": 50}, "dapp:samples_per_slot"),
        ({"global/dapp:n_prbs": 0}, "dapp:n_prbs"),
        ({"global/dapp:n_prbs": 300}, "dapp:n_prbs"),
        ({"global/dapp:n_ants": 4}, "dapp:n_ants"),
        ({"global/dapp:n_symbols": 14}, "dapp:n_symbols"),
        ({"global/dapp:samples_per_slot": 600}, "dapp:samples_per_slot"),
        ({"global/dapp:n_prbs": 50, "global/dapp:samples_per_slot": 600}, "truncated"),
        ({"global/core:sample_rate": 1e6}, "core:sample_rate"),
        ({"global/core:sha512": "0" * 128}, "core:sha512"),
        ({"global": []}, "global"),
        ({"captures": []}, "captures"),
        ({"captures/0/core:frequency": None}, "core:frequency"),
        ({"captures/0/core:sample_start": 612}, "core:sample_start"),
        ({"captures/0/core:header_bytes": 8}, "core:header_bytes"),
        ({"annotations/0/core:sample_start": 1}, "annotations[0].core:sample_start"),
        ({"annotations/2/core:sample_count": 613}, "annotations[2].core:sample_count"),
        ({"annotations/2/core:sample_count": 612 * 40}, "annotations[2]"),
        ({"annotations/2/core:freq_lower_edge": 3.6e9}, "annotations[2].core:freq_lower_edge"),
        ({"annotations/2/core:freq_upper_edge": 3.6192e9}, "annotations[2].core:freq_upper_edge"),
        (
            {"annotations/2/core:freq_lower_edge": 3.61182e9, "annotations/2/core:freq_upper_edge": 3.61074e9},
            "lies above",
        ),
        ({"global/core:sample_rate": float("nan")}, "NaN"),
        ({"global/core:sample_rate": 10**400}, "core:sample_rate"),
        ({"global/core:dataset": "\ud800"}, "cannot be read"),
        ({"global/twinlink:record_period_ms": 1e-320}, "twinlink:record_period_ms"),
        ({"annotations/2/core:freq_lower_edge": 10**400}, "annotations[2].core:freq_lower_edge"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    path, _ = foreign(tmp_path, 51)
    read(path)
    spoil(path, change)
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)


def segment(record: int, **others: Any) -> dict[str, Any]:
    """A capture from a record of ``foreign(51)`` on."""
    return {
        "core:sample_start": record * 612,
        "core:frequency": 3.6192e9,
        **{f"core:{k}": v for k, v in others.items()},
    }


@pytest.mark.parametrize(
    ("captures", "named"),
    [
        ([segment(0), segment(2, frequency=3.7e9)], "captures[1].core:frequency is 3700000000 Hz"),
        ([segment(0), segment(2), segment(3, frequency=3.7e9)], "captures[2].core:frequency"),
        ([segment(0), {"core:sample_start": 1224}], "captures[1].core:frequency is missing"),
        ([segment(0), segment(2, sample_start=1225)], "captures[1].core:sample_start is 1225, inside a record"),
        ([segment(0), segment(4)], "captures[1].core:sample_start is 2448, past the end of the data"),
        ([segment(0), segment(0)], "not behind that of the capture before"),
        ([segment(0), segment(3), segment(2)], "captures[2].core:sample_start is 1224, not behind"),
        ([segment(0), segment(2, global_index=1300)], "captures[1].core:global_index says that 76 samples are missing"),
        ([segment(0, global_index=99), segment(2)], "99 samples overlap"),
        ([segment(0), segment(2, header_bytes=64)], "captures[1].core:header_bytes: 0 was expected; cut them out"),
        ([segment(0, datetime="yesterday")], "captures[0].core:datetime is 'yesterday'"),
        ([segment(0, datetime="2026-11-27T16:00:00+01:00")], "captures[0].core:datetime"),
        (
            [segment(0, datetime="2026-11-27T16:00:00Z"), segment(2, datetime="2026-11-27T15:59:59.999Z")],
            "captures[1].core:datetime is earlier",
        ),
        (
            [segment(0, datetime="2016-12-31T23:59:60.1Z"), segment(2, datetime="2016-12-31T23:59:59.9Z")],
            "captures[1].core:datetime is earlier",
        ),
        ([segment(0, datetime="2016-12-31T23:58:60Z")], "captures[0].core:datetime is '2016-12-31T23:58:60Z'"),
    ],
)
def test_captures_of_more_than_one_carrier_without_gaps_are_refused(
    tmp_path: Path, captures: list[dict[str, Any]], named: str
) -> None:
    path, _ = foreign(tmp_path, 51)
    spoil(path, {"captures": captures})
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("2026-11-27T16:00:00Z", "2026-11-27T16:00:00.020123456Z"),
        ("2016-12-31T23:59:59.99Z", "2016-12-31T23:59:60.01Z"),  # a leap second (RFC 3339 section 5.7)
        ("2016-12-31T23:59:60.99Z", "2017-01-01T00:00:00.01Z"),
    ],
)
def test_captures_of_one_carrier_are_one_recording(first: str, later: str, tmp_path: Path) -> None:
    path, samples = foreign(tmp_path, 51)
    spoil(
        path, {"captures": [segment(0, global_index=5, datetime=first), segment(2, global_index=1229, datetime=later)]}
    )
    assert np.array_equal(read(path).samples, samples)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("core:version", "2.0.0", "this program reads SigMF 1"),
        ("core:num_channels", 2, "interleaved channels are not separated"),
        ("core:trailing_bytes", 8, "cut them off"),
        ("core:metadata_only", True, "a recording without data cannot be played"),
        ("core:dataset", "../foreign.sigmf-data", "core:dataset"),
        ("core:dataset", "a\0b", "core:dataset"),
        ("core:offset", 612, "captures[0].core:sample_start is 0, not 612"),
        ("core:offset", -612, "core:offset"),
        ("core:extensions", [{"name": "secret", "version": "9.0.0", "optional": False}], "extension 'secret' 9.0.0"),
        ("core:extensions", [{"name": "dapp", "version": "2.0.0", "optional": False}], "extension 'dapp' 2.0.0"),
        ("core:extensions", [{"name": "secret", "version": "9.0.0"}], "'optional' is a required property"),
        ("core:extensions", {"secret": "9.0.0"}, "core:extensions"),
    ],
)
def test_a_recording_of_another_form_is_refused(tmp_path: Path, key: str, value: object, named: str) -> None:
    path, _ = foreign(tmp_path, 51)
    spoil(path, {f"global/{key}": value})
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert named in str(caught.value)


def test_an_optional_extension_is_ignored(tmp_path: Path) -> None:
    path, _ = foreign(tmp_path, 51)
    spoil(path, {"global/core:extensions": [{"name": "antenna", "version": "1.0.0", "optional": True}]})
    read(path)


def test_the_offset_of_a_recording_that_was_split(tmp_path: Path) -> None:
    path, samples = foreign(tmp_path, 51)
    whole = read(path)
    spoil(path, {"global/core:offset": 7, "captures/0/core:sample_start": 7})
    with pytest.raises(RecordingError, match=r"annotations\[\d\]\.core:sample_start is 0, before the data"):
        read(path)
    spoil(path, {f"annotations/{index}/core:sample_start": 7 + (index == 2) * 612 for index in range(3)})
    found = read(path)
    assert np.array_equal(found.samples, samples)
    assert (found.areas, found.grid) == (whole.areas, whole.grid)


@pytest.mark.parametrize("suffix", [".sigmf", ".sigmf.gz", ".sigmf.xz", ".sigmf.zip", ".SIGMF"])
def test_an_archive_is_refused_as_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    path.write_bytes(b"")
    with pytest.raises(RecordingError, match="is a SigMF archive, which is not read: unpack it"):
        read(path)
    if suffix.islower():
        with pytest.raises(RecordingError, match=rf"run{suffix} is a SigMF archive"):
            read(tmp_path / "run")


def test_a_collection_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.sigmf-collection"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole
    with pytest.raises(RecordingError, match=r"give one of them$"):
        read(path)


def test_a_collection_is_refused_with_the_names_of_its_recordings(tmp_path: Path) -> None:
    path = tmp_path / "run.sigmf-collection"
    streams = [{"name": name, "hash": "0" * 128} for name in ("first", "second")]
    for content, named in (
        (json.dumps({"collection": {"core:version": "1.2.0", "core:streams": streams}}), ": first, second$"),
        ("[]", "give one of them$"),
    ):
        path.write_text(content)
        for name in (path, tmp_path / "run"):
            with pytest.raises(RecordingError, match=f"run.sigmf-collection is a SigMF collection .*{named}"):
                read(name)


def test_the_page_has_every_key_of_the_standard() -> None:
    """`sigmf` brings the standard's schema."""
    page = (Path(__file__).parents[2] / "docs/ran-emulator.md").read_text(encoding="utf-8")
    table = page.partition("| `global` |")[2].partition("`python -m")[0]
    parts = dict(zip(("global", "captures", "annotations"), table.split("| `captures` |"), strict=False))
    parts["captures"], _, parts["annotations"] = parts["captures"].partition("| `annotations` |")
    standard = sigmf.schema.get_schema()["properties"]
    for name, part in parts.items():
        properties = standard[name].get("items", standard[name])["properties"]
        assert {key for key in properties if f"`{key}`" not in part} == set(), name


def test_missing_truncated_and_empty_data_are_named(tmp_path: Path) -> None:
    path, _ = foreign(tmp_path, 51)
    data = path.with_suffix(".sigmf-data")
    for content, named in ((data.read_bytes()[:-4], "truncated"), (b"", "holds 0 bytes")):
        data.write_bytes(content)
        with pytest.raises(RecordingError, match=named):
            read(path)
    data.unlink()
    with pytest.raises(RecordingError, match=r"data file .* cannot be read"):
        read(path)
    path.unlink()
    with pytest.raises(RecordingError, match="cannot be read"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"nonsense", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_metadata_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sigmf-meta"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"x\.sigmf-meta"):
        read(path)


@settings(max_examples=100)
@given(rows=hnp.arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 12))))
def test_rectangles_cover_exactly_what_they_should(rows: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    areas = areas_of("ue", rows)
    covered = np.zeros(rows.shape, int)
    for area in areas:
        covered[area.first_record : area.end_record, area.first_prb : area.end_prb] += 1
    assert np.array_equal(covered, rows.astype(int))
    assert np.array_equal(mark(areas, "ue", *rows.shape) > 0, rows)


def test_edges_are_where_the_contract_puts_them() -> None:
    annotation = Area("ue", 2, 5, 0, 106).annotation(Grid(10, 106, 30e3, 3.6192e9))
    assert annotation["core:freq_lower_edge"] == 3.6192e9 - 53 * 360e3
    assert annotation["core:freq_upper_edge"] == 3.6192e9 + 53 * 360e3
    assert (annotation["core:sample_start"], annotation["core:sample_count"]) == (2 * 1272, 3 * 1272)
