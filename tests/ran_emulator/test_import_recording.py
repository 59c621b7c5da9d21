"""Recordings of whole slots by the dApp library, made playable."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_ran_emulator.import_recording import main
from twinlink_ran_emulator.recording import read

RNG = np.random.default_rng(9)
N_PRBS, ANTENNAS = 24, 2


def slots(count: int) -> NDArray[np.int16]:
    """Whole slots, ``(count, antennas, 14, 273 * 12, 2)``, zeros above the carrier."""
    values = np.zeros((count, ANTENNAS, 14, 273 * 12, 2), np.int16)
    values[:, :, :, : N_PRBS * 12] = RNG.integers(-2000, 2000, (count, ANTENNAS, 14, N_PRBS * 12, 2))
    return values


def write(path: Path, values: NDArray[Any], masks: list[int], **changed: Any) -> Path:
    """As the library writes them; returns the metadata file."""
    path.with_suffix(".sigmf-data").write_bytes(values.astype(np.float32).tobytes())
    free = {"start_symbol": 10, "num_symbols": 4, "rb_start": 5, "rb_size": 19}
    annotations = [
        {
            "core:sample_start": k * ANTENNAS * 14 * 3276, "core:label": "slot", "dapp:timestamp_ns": k * 2_500_000,
            "dapp:sfn": 0, "dapp:slot": k, "dapp:n_ants": ANTENNAS, "dapp:valid_symbol_mask": mask,
            "dapp:sensing_ranges": [free],
        }
        for k, mask in enumerate(masks)
    ]  # fmt: skip
    general = {
        "core:datatype": "cf32_le", "core:sample_rate": 98.28e6, "core:version": "1.2.0", "dapp:domain": "frequency",
        "dapp:n_sc_per_prb": 12, "dapp:n_prbs": 273, "dapp:n_symbols": 14, "dapp:subcarrier_spacing_khz": 30,
        "dapp:fp16_beta": 1 / 2048, "dapp:all_antennas": True, **changed,
    }  # fmt: skip
    captures = [{"core:sample_start": 0, "core:frequency": 3.6192e9}]
    meta = path.with_suffix(".sigmf-meta")
    meta.write_text(json.dumps({"global": general, "captures": captures, "annotations": annotations}))
    return meta


def test_a_symbol_of_each_uplink_slot_becomes_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = slots(4)
    meta = write(tmp_path / "slots", values, [0x3FFF, 0, 0x3C00, 0x3FFF])
    assert main([str(meta), "--out", str(tmp_path / "made"), "--antenna", "1", "--symbol", "11"]) == 0
    assert "3 records of 24 PRBs, every 3.75 ms; 1 slots without" in capsys.readouterr().out
    made = read(tmp_path / "made.sigmf-meta")
    assert np.array_equal(made.samples, values[[0, 2, 3], 1, 11, : N_PRBS * 12])
    assert (made.grid.n_prbs, made.grid.scs_hz, made.grid.centre_hz) == (N_PRBS, 30_000, 3.6192e9)
    assert made.ue.tolist() == [[True] * 5 + [False] * 19] * 3


def test_values_that_are_no_int16_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = slots(1).astype(np.float32)
    values[0, 0, 13, 0] = 0.25, 40_000
    meta = write(tmp_path / "slots", values, [0x3FFF])
    assert main([str(meta), "--out", str(tmp_path / "made"), "--n-prbs", "20"]) == 0
    assert "1 records of 20 PRBs" in (said := capsys.readouterr().out)
    assert "2 values rounded or limited" in said
    assert read(tmp_path / "made.sigmf-meta").samples[0, 0].tolist() == [0, 32767]


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"core:datatype": "ci16_le"}, "core:datatype"), ({"dapp:n_symbols": 1}, "dapp:n_symbols"),
     ({"dapp:subcarrier_spacing_khz": None}, "no recording of slots"), ({"core:num_channels": 2}, "core:num_channels"),
     ({"core:trailing_bytes": 8}, "core:trailing_bytes"), ({"core:offset": 7}, "core:sample_start is 0, not 7"),
     ({"core:sha512": "0" * 128}, "core:sha512"), ({"core:dataset": "other"}, "other"),
     ({"core:extensions": [{"name": "secret", "version": "9.0.0", "optional": False}]}, "secret")],
)  # fmt: skip
def test_other_recordings_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], said: str
) -> None:
    meta = write(tmp_path / "slots", slots(1), [0x3FFF], **changed)
    assert main([str(meta), "--out", str(tmp_path / "made")]) == (2 if "core:dataset" in changed else 3)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("3619200000.0}", '3.6e9}, {"core:sample_start": 91728, "core:frequency": 3.7e9}', "is 3700000000 Hz"),
        ('"core:frequency"', '"core:header_bytes": 8, "core:frequency"', "core:header_bytes"),
        ('"core:frequency"', '"core:frequency": 3.7e9, "core:frequency"', "the key 'core:frequency' twice"),
        ('"dapp:sfn"', '"x": ' + "[" * 200_000 + "]" * 200_000 + ', "dapp:sfn"', "recursion"),
        ('"dapp:valid_symbol_mask": 16383', '"dapp:valid_symbol_mask": "all"', "dapp:valid_symbol_mask"),
        ('"rb_start": 5, ', "", "'rb_start' is a required property"),
    ],
)  # fmt: skip
def test_metadata_that_says_more_than_slots_of_one_carrier_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    meta = write(tmp_path / "slots", slots(2), [0x3FFF, 0x3FFF])
    text = meta.read_text()
    assert old in text
    meta.write_text(text.replace(old, new))
    assert main([str(meta), "--out", str(tmp_path / "made")]) == 3
    assert said in capsys.readouterr().err


def test_a_short_file_and_no_such_symbol_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = write(tmp_path / "slots", slots(1), [0x3FFF, 0x3FFF])
    assert main([str(meta), "--out", str(tmp_path / "made")]) == 3
    assert "ends within the slot" in capsys.readouterr().err
    meta = write(tmp_path / "slots", slots(1), [1])
    assert main([str(meta), "--out", str(tmp_path / "made"), "--symbol", "5"]) == 3
    assert "none of 1 slots" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.sigmf-meta"), "--out", str(tmp_path / "made")]) == 2
