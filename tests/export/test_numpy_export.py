"""Arrays as an .npz, read with numpy and without pickles."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_export import parquet_export
from twinlink_export.numpy_export import export
from twinlink_export.request import Request

from tests.export import scene
from tests.export.scene import N_PRBS, ROUNDS, T0_NS
from tests.recording.recordings import rows
from twinlink import npy
from twinlink.errors import ConfigurationError
from twinlink.protocol.rangeset import RangeSet


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def test_what_was_sent_is_there(tmp_path: Path) -> None:
    recorded, out = scene.record(tmp_path / "x.mcap"), tmp_path / "x.npz"
    assert export(Request([recorded.path], out)).written == {out: 4 * ROUNDS}
    found = arrays(out)
    np.testing.assert_array_equal(found["samples.array"], np.stack(recorded.arrays))
    assert found["samples.array"].dtype == np.complex64
    sent = rows(recorded.path, "received", "samples")
    for name in ("sequence", "epoch", "sent_ns"):
        assert found[f"samples.{name}"].tolist() == [getattr(one, name) for one in sent]
    assert found["samples.received_ns"].tolist() == [one.log_ns for one in sent]
    assert set(found["samples.node"]) == {"gnb"}
    assert "samples.observed_ns" not in found

    iq = np.stack([one.samples for one in recorded.spectra]).astype(np.float32).view(np.complex64)[..., 0]
    np.testing.assert_array_equal(found["spectrum.array"], iq)
    assert found["spectrum.array"].shape == (ROUNDS, N_PRBS * 12)
    assert found["spectrum.observed_ns"].tolist() == [one.observed_ns for one in recorded.spectra]
    slots = [(message, slot) for message in recorded.slots for slot in message.slots]
    shapes = {slot.data.shape[1] for _, slot in slots}
    assert shapes == {14, 2}  # symbols: one stack each
    for name, count in (("slots", 14), ("slots~1", 2)):
        values = [one.in_lsb(slot).view(np.complex64)[..., 0] for one, slot in slots if slot.data.shape[1] == count]
        np.testing.assert_array_equal(found[f"{name}.array"], np.stack(values))


def test_types_shapes_and_order(tmp_path: Path) -> None:
    first = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", ">f8")])
    sent = [first, np.array(3.5), np.zeros((0, 3)), first[::-1].copy(), np.asfortranarray(np.eye(3, 2))]
    messages = [(number, npy.encode(one)) for number, one in enumerate(sent)]
    messages[0], messages[3] = messages[3], messages[0]  # the first came late
    path, out = scene.write(tmp_path / "x.mcap", messages, flow="x"), tmp_path / "x.npz"
    export(Request([path], out))
    found = arrays(out)
    np.testing.assert_array_equal(found["x.array"], np.stack([sent[0], sent[3]]))
    assert found["x.array"].dtype == first.dtype
    assert found["x.sequence"].tolist() == [0, 3]
    assert found["x.sent_ns"].tolist() == [T0_NS, T0_NS + 3]
    for number, name in ((1, "x~1"), (2, "x~2"), (4, "x~3")):
        np.testing.assert_array_equal(found[f"{name}.array"], sent[number][np.newaxis])
    again = tmp_path / "again.npz"
    export(Request([path], again))
    assert again.read_bytes() == out.read_bytes()


def test_a_payload_that_is_no_array_is_named(tmp_path: Path) -> None:
    good = npy.encode(np.arange(4))
    path = scene.write(tmp_path / "x.mcap", [(0, good), (1, good[:-1]), (2, b"text")], flow="x")
    outcome = export(Request([path], tmp_path / "x.npz"))
    assert outcome.written == {tmp_path / "x.npz": 1}
    assert "the first: message 1 of flow x" in outcome.problems[0]
    with pytest.raises(ConfigurationError, match="no arrays on flows y"):
        export(Request([path], tmp_path / "y.npz", ["y"]))
    assert not list(tmp_path.glob("y.npz*"))


def test_memory_holds_no_more_than_a_part_of_them(tmp_path: Path) -> None:
    payload = npy.encode(np.zeros(250_000, np.float64))  # 2 MB
    path = scene.write(tmp_path / "x.mcap", [(number, payload) for number in range(20)], flow="x")
    tracemalloc.start()
    try:
        export(Request([path], tmp_path / "x.npz"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6
    assert arrays(tmp_path / "x.npz")["x.array"].shape == (20, 250_000)


@pytest.mark.parametrize("flow", ["../x", "/tmp/x", "a/b"])
def test_a_flow_whose_name_is_a_path_is_left_out(flow: str, tmp_path: Path) -> None:
    path = scene.write(tmp_path / "x.mcap", [(0, npy.encode(np.arange(4)))], RangeSet([(1, 2)]), flow=flow)
    with pytest.raises(ConfigurationError, match="no arrays"):
        export(Request([path], tmp_path / "x.npz"))
    outcome = parquet_export.export(Request([path], tmp_path / "x.parquet"))
    assert outcome.written == {tmp_path / "x.parquet": 0}
    assert "flows that no link can have" in outcome.problems[0]
