"""SigMF made a recording: round trips, what the dApp framework writes, and files that lie."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_export.checked import NotReadable
from twinlink_export.imported import Imported, Radio
from twinlink_export.request import Request
from twinlink_export.sigmf_export import export
from twinlink_export.sigmf_import import import_file
from twinlink_ran_emulator.recording import example

from tests.export import scene
from tests.export.scene import CENTRE_HZ, N_PRBS, T0_NS
from tests.recording.recordings import only, rows
from twinlink.protocol.rangeset import RangeSet
from twinlink.recording import Playback, verify
from twinlink.sensing import SensingRanges
from twinlink.slots import ALL_SYMBOLS, SlotSpectrum
from twinlink.spectrum import Spectrum

Meta = dict[str, Any]


def imported(path: Path, out: Path) -> Imported:
    return import_file(path, out, Radio(), overwrite=False)


@pytest.mark.parametrize("by", ["twin", "gnb"])
def test_there_and_back_are_the_same_messages_and_times(by: str, tmp_path: Path) -> None:
    recorded = scene.record(tmp_path / "run.mcap", by)
    export(Request([recorded.path], tmp_path / "run.sigmf-meta"))
    direction = "received" if by == "twin" else "sent"
    for flow in ("spectrum", "slots"):
        out = tmp_path / f"{flow}.mcap"
        imported(tmp_path / f"run.{flow}.gnb.sigmf-meta", out)
        assert verify(out).complete
        before = rows(recorded.path, direction, flow)
        assert [one._replace(direction="received") for one in before] == rows(out, "received", flow)
        assert only(verify(out).streams, "received", flow)["node"] == "gnb"
    labels = [json.loads(row.payload) for row in rows(tmp_path / "spectrum.mcap", "received", "labels")]
    assert {(one["label"], one["first_prb"], one["end_prb"]) for one in labels} == {
        (label, *prbs) for label in ("detected", "blocked") for prbs in ((3, 5), (9, 10))
    }

    again = tmp_path / "again.sigmf-meta"
    export(Request([tmp_path / "spectrum.mcap"], again, ["spectrum"]))
    octets = (tmp_path / "run.spectrum.gnb.sigmf-data").read_bytes()
    assert again.with_suffix(".sigmf-data").read_bytes() == octets


def test_what_is_missing_stays_missing(tmp_path: Path) -> None:
    messages = [(number, scene.spectrum(number).encode()) for number in (7, 8, 12, 11, 20)]
    lacking = RangeSet([(5, 7), (9, 11), (13, 20), (21, 24)])
    path, out = scene.write(tmp_path / "x.mcap", messages, lacking), tmp_path / "y.mcap"
    export(Request([path], tmp_path / "x.sigmf-meta"))
    found = imported(tmp_path / "x.sigmf-meta", out)
    report = verify(out)
    assert (report.sound, report.complete) == (True, False)
    stream = only(report.streams, "received", "spectrum")
    assert stream["recorded"] == [[7, 9], [11, 13], [20, 21]]
    assert stream["left_out"] == {"source": [list(one) for one in lacking]}
    assert stream["missing"] == {}
    assert "14 messages are missing" in found.notes[0]

    playback = Playback([out])  # the times are those of the messages, so that it can be replayed
    assert playback.begin_ns == min(row.log_ns for row in rows(out, "received"))
    assert playback.end_ns == max(row.log_ns for row in rows(out, "received"))
    played = list(playback.items())
    assert [one.payload is None for one in played] == [False] * 5 + [True]
    assert sum(one.skipped for one in played) == 14


def test_values_that_float16_has_beside_numbers(tmp_path: Path) -> None:
    """Infinities, and a beta that is no power of two: the same bits come back."""
    one = scene.slot(0)
    one.data[0, 0, 0] = (np.inf, -0.0)
    message = SlotSpectrum(106, 20, N_PRBS, (0, 1), 30_000, CENTRE_HZ, 1 / 3000, slots=(one,))
    path = scene.write(tmp_path / "x.mcap", [(0, message.encode())])
    export(Request([path], tmp_path / "x.sigmf-meta"))
    imported(tmp_path / "x.sigmf-meta", tmp_path / "y.mcap")
    (row,) = rows(tmp_path / "y.mcap", "received")
    assert row.payload == message.encode()


def test_the_recording_of_the_emulator(tmp_path: Path) -> None:
    out = tmp_path / "x.mcap"
    found = imported(example(), out)
    assert verify(out).complete
    assert (found.number, len(found.notes)) == (550, 1)
    assert "they begin at 1970" in found.notes[0]
    spectra = [Spectrum.decode(row.payload) for row in rows(out, "received", "spectrum")]
    samples = np.frombuffer(example().with_suffix(".sigmf-data").read_bytes(), "<i2").reshape(550, 1272, 2)
    np.testing.assert_array_equal(np.stack([one.samples for one in spectra]), samples)
    assert [one.observed_ns for one in spectra[:3]] == [0, 10_000_000, 20_000_000]
    labels = [json.loads(row.payload) for row in rows(out, "received", "labels")]
    interferers = [one for one in labels if one["label"] == "interferer"]
    assert (interferers[0]["first_prb"], interferers[0]["end_prb"], interferers[0]["first_ns"]) == (82, 90, 10**9)


# Whole slots, as the dApp framework writes them

WHOLE = 14 * 273 * 12
MASKS = (ALL_SYMBOLS, 0b1111 << 10)


def whole_slots(folder: Path, dtype: str = "cf32_le", change: Callable[[Meta], None] = lambda meta: None) -> Path:
    """Two slots, of one antenna and of two."""
    values = np.random.default_rng(1).integers(-32768 if dtype == "ci16_le" else -2000, 2000, (3 * WHOLE, 2))
    octets = values.astype("<f4" if dtype == "cf32_le" else "<i2").tobytes()
    slots = [
        {
            "core:sample_start": start * WHOLE,
            "core:sample_count": (1 + start) * WHOLE,
            "core:label": "slot",
            "dapp:n_ants": 1 + start,
            "dapp:valid_symbol_mask": MASKS[start],
            "dapp:timestamp_ns": T0_NS + start * 500_000,
            "dapp:sensing_ranges": [{"start_symbol": 10, "num_symbols": 4, "rb_start": 5, "rb_size": 9}],
        }
        for start in (0, 1)
    ]
    meta: Meta = {
        "global": {
            "core:datatype": dtype, "core:sample_rate": 122.88e6, "core:version": "1.0.0",
            "core:extensions": [{"name": "dapp", "version": "1.0.0", "optional": False}],
            "dapp:domain": "frequency", "dapp:n_prbs": 273, "dapp:n_sc_per_prb": 12, "dapp:n_ants": 4,
            "dapp:n_symbols": 14, "dapp:samples_per_slot": WHOLE, "dapp:subcarrier_spacing_khz": 30,
            "core:sha512": hashlib.sha512(octets).hexdigest(),
        },
        "captures": [{"core:sample_start": 0, "core:frequency": CENTRE_HZ}],
        "annotations": [*slots, {"core:sample_start": WHOLE, "core:label": "jammer", "core:sample_count": 2 * WHOLE}],
    }  # fmt: skip
    change(meta)
    path = folder / "iq.sigmf-meta"
    path.write_text(json.dumps(meta))
    path.with_suffix(".sigmf-data").write_bytes(octets)
    return path


@pytest.mark.parametrize("dtype", ["cf32_le", "ci16_le"])
def test_whole_slots_of_the_dapp_framework(dtype: str, tmp_path: Path) -> None:
    path, out = whole_slots(tmp_path, dtype), tmp_path / "x.mcap"
    assert imported(path, out).notes == []
    assert verify(out).complete
    samples = np.frombuffer(path.with_suffix(".sigmf-data").read_bytes(), "<f4" if dtype == "cf32_le" else "<i2")
    sent = samples.reshape(3, 14, 273 * 12, 2)
    messages = [SlotSpectrum.decode(row.payload) for row in rows(out, "received", "spectrum")]
    assert [one.antennas for one in messages] == [(0,), (0, 1)]
    for message, values, mask in zip(messages, (sent[:1], sent[1:]), MASKS, strict=True):
        (one,) = message.slots
        symbols = [symbol for symbol in range(14) if mask >> symbol & 1]
        np.testing.assert_array_equal(one.data, values[:, symbols])
        assert (message.scs_hz, message.centre_hz, message.n_prbs) == (30_000, CENTRE_HZ, 273)
    assert [message.slots[0].observed_ns for message in messages] == [T0_NS, T0_NS + 500_000]
    (first, _) = [SensingRanges.decode(row.payload) for row in rows(out, "received", "sensing")]
    assert (first.ranges, first.observed_ns) == (((10, 4, 5, 9),), T0_NS)
    (label,) = [json.loads(row.payload) for row in rows(out, "received", "labels")]
    assert (label["label"], label["first_prb"], label["end_prb"]) == ("jammer", 0, 273)


def test_the_manifest_says_where_it_is_from(tmp_path: Path) -> None:
    from contextlib import closing

    from twinlink.recording.reader import RecordingFile

    path, out = whole_slots(tmp_path), tmp_path / "x.mcap"
    imported(path, out)
    with closing(RecordingFile(out)) as file:
        found = file.manifest()
    assert found is not None
    source = found[0]["imported"]
    assert source["format"] == "sigmf"
    assert [(one["name"], one["sha256"]) for one in source["files"]] == [
        (one.name, hashlib.sha256(one.read_bytes()).hexdigest()) for one in (path, path.with_suffix(".sigmf-data"))
    ]


# What is wrong is named, with its place


def put(part: str, key: str, value: Any) -> Callable[[Meta], None]:
    def change(meta: Meta) -> None:
        place: Any = meta
        for step in part.split("."):
            place = place[int(step) if step.isdecimal() else step]
        place[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (put("global", "core:dataset", "../other"), "global.core:dataset is '../other', not the name of a file"),
        (put("global", "core:dataset", ".."), "global.core:dataset"),
        (put("global", "core:datatype", "cu8"), "global.core:datatype is 'cu8', not cf32_le or ci16_le"),
        (put("global", "core:datatype", None), "global.core:datatype is missing"),
        (put("global", "core:sha512", "0" * 128), "global.core:sha512 is not that of"),
        (put("global", "dapp:domain", "time"), "global.dapp:domain is 'time'"),
        (put("global", "dapp:n_prbs", 10**30), "global.dapp:n_prbs is 10"),
        (put("global", "dapp:n_prbs", True), "global.dapp:n_prbs is True"),
        (put("global", "dapp:n_symbols", 15), "global.dapp:n_symbols is 15, not a whole number from 1 to 14"),
        (put("global", "twinlink:symbols", 7), "global.twinlink:symbols is 7, not a mask of 14 symbols"),
        (put("global", "twinlink:antennas", [0, 0, 1, 2]), "global.twinlink:antennas"),
        (put("global", "twinlink:antennas", [[]] * 4), "global.twinlink:antennas"),
        (put("global", "twinlink:flow", "../x"), "global.twinlink:flow"),
        (put("global", "twinlink:missing", [{"epoch": "x"}]), "global.twinlink:missing[0].epoch"),
        (put("global", "core:extensions", [{"name": "odd", "optional": False}]), "core:extensions[0].name is 'odd'"),
        (put("captures.0", "core:sample_start", 1), "captures: none begins with the first sample"),
        (put("captures.0", "core:datetime", "yesterday"), "captures[0].core:datetime: 'yesterday' is not a time"),
        (put("captures.0", "twinlink:epoch", "-1"), "captures[0].twinlink:epoch"),
        (put("annotations.1", "core:sample_start", 5), "annotations[1].core:sample_start is 5"),
        (put("annotations.1", "core:sample_start", 2 * WHOLE), f"annotations[1].core:sample_start is {2 * WHOLE}"),
        (put("annotations.1", "core:sample_start", 2**62), "annotations[1].core:sample_start is 4611686018427387904"),
        (put("annotations.1", "dapp:n_ants", 9), "annotations[1].dapp:n_ants is 9"),
        (put("annotations.1", "dapp:timestamp_ns", -1), "annotations[1].dapp:timestamp_ns is -1"),
        (put("annotations.1", "dapp:sensing_ranges", [1]), "annotations[1].dapp:sensing_ranges[0] is no object"),
        (put("annotations.1", "twinlink:format", 7), "annotations[1].twinlink:format is 7"),
        (
            lambda meta: meta.update(
                captures=[{"core:sample_start": n, "twinlink:epoch": f"{n + 1:x}"} for n in range(0, 3 * WHOLE, 12)],
                annotations=[{"core:sample_start": n, "core:label": "slot", "dapp:timestamp_ns": 0}
                             for n in range(0, 3 * WHOLE, 12)],
            ) or meta["global"].update({"dapp:n_ants": 1, "dapp:n_symbols": 1, "dapp:n_prbs": 1}),
            "captures have more than 1024 different twinlink:epoch",
        ),
        (lambda meta: meta.update(annotations=[]), "are no records of"),
        (lambda meta: meta.update(annotations=[None]), "annotations[0] is no object"),
        (lambda meta: meta.update(captures={"x": 1}), "captures is a dict, not a list"),
        (lambda meta: [put(f"annotations.{n}", "twinlink:sequence", 1 - n)(meta) for n in (0, 1)], None),
        (lambda meta: [put(f"annotations.{n}", "twinlink:sequence", 4)(meta) for n in (0, 1)], "twinlink:sequence"),
    ],
)  # fmt: skip
def test_what_lies_is_refused_and_placed(change: Callable[[Meta], None], expected: str | None, tmp_path: Path) -> None:
    path, out = whole_slots(tmp_path, change=change), tmp_path / "x.mcap"
    if expected is None:
        imported(path, out)
        return
    with pytest.raises(NotReadable) as caught:
        imported(path, out)
    assert expected in str(caught.value)
    assert path.name in str(caught.value)
    assert not list(tmp_path.glob("x.mcap*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"global": {}, "global": {}}', "has the key 'global' twice"),
        ('{"global": {"core:sample_rate": NaN}}', "NaN is no number of JSON"),
        ("[]", "is no object"),
        ("{}", "global is no object"),
    ],
)
def test_what_is_no_metadata_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sigmf-meta"
    path.write_text(text)
    path.with_suffix(".sigmf-data").write_bytes(bytes(8))
    with pytest.raises(NotReadable) as caught:
        imported(path, tmp_path / "x.mcap")
    assert expected in str(caught.value)
    assert path.name in str(caught.value)


def test_a_gigabyte_of_metadata_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.sigmf-meta"
    with path.open("wb") as file:
        file.truncate(1024**3)
    with pytest.raises(OSError, match="more than 134,217,728 octets"):
        imported(path, tmp_path / "x.mcap")


def test_samples_that_are_not_there(tmp_path: Path) -> None:
    path = whole_slots(tmp_path, change=lambda meta: meta["global"].pop("core:sha512"))
    data = path.with_suffix(".sigmf-data")
    whole = data.read_bytes()
    data.write_bytes(whole[:-8])
    with pytest.raises(NotReadable, match=r"annotations\[1\].core:sample_start"):
        imported(path, tmp_path / "x.mcap")
    data.write_bytes(whole[:-3])
    with pytest.raises(NotReadable, match="are no samples of 8 octets"):
        imported(path, tmp_path / "x.mcap")
    data.unlink()
    with pytest.raises(FileNotFoundError):
        imported(path, tmp_path / "x.mcap")
