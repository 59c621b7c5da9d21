"""I/Q as SigMF, read with the package sigmf."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sigmf
from twinlink_export.decisions import Label
from twinlink_export.request import Request
from twinlink_export.sigmf_export import export
from twinlink_ran_emulator import recording as emulator

from tests.export import scene
from tests.export.scene import BLOCKED, CENTRE_HZ, DECIDED, EPOCH, N_PRBS, ROUNDS, SCS_HZ, T0_NS, Scene
from twinlink.errors import ConfigurationError
from twinlink.protocol.rangeset import RangeSet
from twinlink.recording.writer import RecordingWriter
from twinlink.slots import ALL_SYMBOLS

BINS = N_PRBS * 12


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene.record(tmp_path_factory.mktemp("recorded") / "twin.mcap")


def read(path: Path) -> Any:
    """As sigmf has it: the hash is compared, the metadata validated."""
    found = sigmf.fromfile(str(path))
    found.validate()
    return found


def samples(path: Path) -> Any:
    """All of them, as they are in the file."""
    return sigmf.fromfile(str(path), autoscale=False).read_samples()


def test_a_recording_of_sigmf_for_each_flow(recorded: Scene, tmp_path: Path) -> None:
    outcome = export(Request([recorded.path], tmp_path / "run.sigmf-meta"))
    spectrum, slots = (tmp_path / f"run.{flow}.gnb.sigmf-meta" for flow in ("spectrum", "slots"))
    assert outcome.written == {spectrum: ROUNDS, slots: 2 * ROUNDS}
    assert outcome.problems == []

    found = read(spectrum)
    general = found.get_global_info()
    assert (general["core:datatype"], general["dapp:n_prbs"], general["twinlink:flow"]) == ("ci16_le", 24, "spectrum")
    assert general["core:sample_rate"] == BINS * SCS_HZ
    expected = np.concatenate([one.samples for one in recorded.spectra]).astype(np.float32).view(np.complex64)[:, 0]
    np.testing.assert_array_equal(samples(spectrum), expected)
    (capture,) = found.get_captures()
    assert capture["core:frequency"] == CENTRE_HZ
    assert capture["twinlink:lost_messages"] == 0
    records = [one for one in found.get_annotations() if one["core:label"] == "record"]
    assert [one["dapp:timestamp_ns"] for one in records] == [one.observed_ns for one in recorded.spectra]
    assert [one["twinlink:sequence"] for one in records] == list(range(ROUNDS))

    found = read(slots)
    general = found.get_global_info()
    assert (general["core:datatype"], general["dapp:n_ants"], general["dapp:n_symbols"]) == ("cf32_le", 2, 14)
    assert general["dapp:samples_per_slot"] == 2 * 14 * BINS
    values = samples(slots).reshape(-1, 2, 14, BINS)
    sent = [(message, slot) for message in recorded.slots for slot in message.slots]
    for (message, slot), got in zip(sent, values, strict=True):
        symbols = [symbol for symbol in range(14) if slot.symbols >> symbol & 1]
        np.testing.assert_array_equal(got[:, symbols], message.in_lsb(slot).view(np.complex64)[..., 0])
        assert not np.delete(got, symbols, axis=1).any()
    # PRBs 20 to 43 of 106: their centre is lower than the carrier's
    assert found.get_captures()[0]["core:frequency"] == CENTRE_HZ + (32 - 53) * 12 * SCS_HZ
    masks = [one["dapp:valid_symbol_mask"] for one in found.get_annotations() if one["core:label"] == "slot"]
    assert masks == [slot.symbols for _, slot in sent]


def test_what_is_asked_and_blocked_is_annotated(recorded: Scene, tmp_path: Path) -> None:
    out = tmp_path / "run.sigmf-meta"
    assert export(Request([recorded.path], out, ["spectrum"])).written == {out: ROUNDS}
    for label in ("detected", "blocked"):
        found = [one for one in read(out).get_annotations() if one["core:label"] == label]
        edges = [(one["core:freq_lower_edge"], one["core:freq_upper_edge"]) for one in found]
        prbs = [tuple((edge - CENTRE_HZ) / (12 * SCS_HZ) + N_PRBS / 2 for edge in pair) for pair in edges]
        assert prbs == [(3, 5), (9, 10)]
        assert {one["core:sample_start"] for one in found} == {(DECIDED + 1) * BINS}
        assert {one["core:sample_count"] for one in found} == {(ROUNDS - DECIDED - 1) * BINS}
    assert set(BLOCKED) == {3, 4, 9}


def test_a_gap_begins_a_capture_and_what_came_late_is_in_its_place(tmp_path: Path) -> None:
    order = [0, 1, 4, 5, 3, 9]
    messages = [(number, scene.spectrum(number).encode()) for number in order]
    path = scene.write(tmp_path / "x.mcap", messages, RangeSet([(2, 3), (6, 9), (10, 12)]))
    out = tmp_path / "x.sigmf-meta"
    outcome = export(Request([path], out))
    found = read(out)
    assert [one["twinlink:sequence"] for one in found.get_annotations()] == [0, 1, 3, 4, 5, 9]
    captures = found.get_captures()
    assert [one["core:sample_start"] // BINS for one in captures] == [0, 2, 5]
    assert [one["twinlink:lost_messages"] for one in captures] == [0, 1, 3]
    assert [one["core:global_index"] // BINS for one in captures] == [0, 3, 9]
    at = datetime.fromisoformat(captures[1]["core:datetime"]).timestamp()
    assert at == pytest.approx((T0_NS + 30_000_000) / 1e9, abs=1e-6)
    assert captures[1]["core:datetime"].endswith(f".{(T0_NS + 30_000_000) % 10**9:09d}Z")
    (missing,) = found.get_global_info()["twinlink:missing"]
    assert (missing["reason"], missing["ranges"]) == ("source", [[2, 3], [6, 9], [10, 12]])
    assert outcome.problems == []


def test_a_retuned_carrier_begins_a_capture_and_moves_what_is_annotated(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "x.mcap", {}, "00000000000000aa", {EPOCH: "gnb"}) as writer:
        label = Label("tone", T0_NS, T0_NS + 10**9, 2, 3)
        writer.add("labels", EPOCH, 0, T0_NS, T0_NS, label.encode())
        for number, centre_hz in enumerate((CENTRE_HZ, CENTRE_HZ, CENTRE_HZ + 1e6)):
            one = replace(scene.spectrum(number), centre_hz=centre_hz)
            writer.add("spectrum", EPOCH, number, T0_NS, T0_NS, one.encode())
    out = tmp_path / "x.sigmf-meta"
    export(Request([tmp_path / "x.mcap"], out))
    found = read(out)
    assert [(one["core:sample_start"], one["core:frequency"]) for one in found.get_captures()] == [
        (0, CENTRE_HZ), (2 * BINS, CENTRE_HZ + 1e6)
    ]  # fmt: skip
    tones = [one for one in found.get_annotations() if one["core:label"] == "tone"]
    assert [(one["core:sample_start"], one["core:sample_count"]) for one in tones] == [(0, 2 * BINS), (2 * BINS, BINS)]
    assert tones[1]["core:freq_lower_edge"] - tones[0]["core:freq_lower_edge"] == 1e6


def test_the_emulator_plays_it(recorded: Scene, tmp_path: Path) -> None:
    out = tmp_path / "run.sigmf-meta"
    export(Request([recorded.path], out, ["spectrum"]))
    found = emulator.read(out)
    np.testing.assert_array_equal(found.samples, np.stack([one.samples for one in recorded.spectra]))
    assert found.period_ns == 10_000_000
    assert (found.grid.n_prbs, found.grid.centre_hz) == (N_PRBS, CENTRE_HZ)


def test_another_layout_is_another_recording(tmp_path: Path) -> None:
    payloads = [scene.spectrum(0), scene.spectrum(1, n_prbs=12), scene.spectrum(2)]
    path = scene.write(tmp_path / "x.mcap", [(n, one.encode()) for n, one in enumerate(payloads)])
    outcome = export(Request([path], tmp_path / "x.sigmf-data"))
    names = "x.spectrum.gnb-1.sigmf-meta", "x.spectrum.gnb-1.2.sigmf-meta"
    assert {one.name: count for one, count in outcome.written.items()} == dict(zip(names, (2, 1), strict=True))
    captures = read(tmp_path / names[0]).get_captures()
    assert [one["twinlink:lost_messages"] for one in captures] == [0, 0]


def test_slots_of_int16_stay_so(tmp_path: Path) -> None:
    one = scene.slot(0, ALL_SYMBOLS, np.int16)
    path = scene.write(tmp_path / "x.mcap", [(0, scene.slots(one).encode())])
    out = tmp_path / "x.sigmf-meta"
    export(Request([path], out))
    assert read(out).get_global_info()["core:datatype"] == "ci16_le"
    octets = out.with_suffix(".sigmf-data").read_bytes()
    np.testing.assert_array_equal(np.frombuffer(octets, "<i2"), one.data.reshape(-1))


def test_slots_that_the_sender_missed_are_a_gap_and_compressed_ones_are_read(tmp_path: Path) -> None:
    parts = [scene.slot(0), replace(scene.slot(4), missing=3), scene.slot(5)]
    path = scene.write(tmp_path / "x.mcap", [(0, scene.slots(*parts).encode(compress=True))])
    out = tmp_path / "x.sigmf-meta"
    export(Request([path], out))
    found = read(out)
    captures = found.get_captures()
    assert [one["twinlink:lost_slots"] for one in captures] == [0, 3]
    assert captures[1]["core:sample_start"] == found.get_global_info()["dapp:samples_per_slot"]
    assert [one.get("twinlink:part", 0) for one in found.get_annotations()] == [0, 1, 2]
    values = [scene.slots(one).in_lsb(one).view(np.complex64).reshape(-1) for one in parts]
    np.testing.assert_array_equal(samples(out), np.concatenate(values))


def test_files_that_exist_are_kept(recorded: Scene, tmp_path: Path) -> None:
    out = tmp_path / "run.sigmf-meta"
    out.with_suffix(".sigmf-data").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"run\.sigmf-data exists"):
        export(Request([recorded.path], out, ["spectrum"]))
    with pytest.raises(ConfigurationError, match="no I/Q on flows samples"):
        export(Request([recorded.path], out, ["samples"]))
    assert [one.name for one in tmp_path.iterdir()] == ["run.sigmf-data"]
    export(Request([recorded.path], out, ["spectrum"], overwrite=True))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.sigmf-data", "run.sigmf-meta"]


def test_a_payload_that_is_none_is_named(tmp_path: Path) -> None:
    good = scene.spectrum(0).encode()
    path = scene.write(tmp_path / "x.mcap", [(0, good), (1, good[:-4]), (2, good)])
    outcome = export(Request([path], tmp_path / "x.sigmf-meta"))
    assert list(outcome.written.values()) == [2]
    (problem,) = outcome.problems
    assert "1 messages cannot be read as spectrum; the first: message 1 of flow spectrum" in problem
