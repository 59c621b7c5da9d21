"""E3RT traces there and back, and traces that lie."""

import struct
from pathlib import Path

import numpy as np
import pytest
from twinlink_export.checked import NotReadable
from twinlink_export.e3rt_export import export
from twinlink_export.e3rt_import import import_file
from twinlink_export.imported import Imported, Radio
from twinlink_export.request import Request

from tests.export import scene
from tests.export.scene import T0_NS
from tests.recording.recordings import rows
from twinlink.errors import ConfigurationError
from twinlink.recording import verify
from twinlink.slots import Clock, SlotSpectrum

HEAD = b"E3RT" + struct.pack("<III", 0x010100, 0x010100, 0)
ROW = 4 * 14 * 273 * 12 * 2
TAI = 37_000_000_000


def row(seed: int, antennas: int = 4) -> bytes:
    values = (np.random.default_rng(seed).integers(-2000, 2000, (4, ROW // 4)) / 2048).astype("<f2")
    values[antennas:] = 0
    return values.tobytes()


def record(
    number: int, iq: bytes, cell: int = 0, antennas: int = 4, ues: int = 0, hest: bytes = b"", cells: int = 1
) -> bytes:
    time_ns = T0_NS + number * 500_000
    body = struct.pack("<QQHHHHHHBBH", time_ns, time_ns + TAI, 7, number, cell, antennas, 0, cells, 0, 0, ues)
    body += bytes(range(73)) * ues + struct.pack("<I", len(iq)) + iq + struct.pack("<I", len(hest)) + hest
    return struct.pack("<HHI", 1, 0, len(body)) + body


def srs() -> bytes:
    return struct.pack("<HHI", 2, 0, 40) + bytes(40)


def imported(trace: bytes, folder: Path) -> Imported:
    path = folder / "t.e3rt"
    path.write_bytes(trace)
    return import_file(path, folder / "t.mcap", Radio(30_000, 3.7e9, 1 / 2048), overwrite=False)


def test_what_overlaps_comes_back_octet_by_octet(tmp_path: Path) -> None:
    trace = HEAD + b"".join(record(n, row(n, 1 + n), antennas=1 + n) for n in range(4))
    assert imported(trace, tmp_path).notes == []
    assert verify(tmp_path / "t.mcap").complete
    out = tmp_path / "again.e3rt"
    assert export(Request([tmp_path / "t.mcap"], out)).written == {out: 4}
    assert out.read_bytes() == trace


def test_a_slot_is_a_message(tmp_path: Path) -> None:
    trace = HEAD + record(0, row(0), cell=3, cells=2) + srs() + record(0, row(1), cell=5, cells=2)
    trace += record(1, row(2), cell=3, ues=2, hest=bytes(8)) + record(2, b"", cell=3)
    found = imported(trace, tmp_path)
    assert found.number == 3
    (note,) = found.notes
    assert note == "left out: 2 UEs, 1 channel estimates, 1 SRS records, 1 slots without I/Q"
    assert {one["node"]: one["messages"] for one in verify(tmp_path / "t.mcap").streams} == {"cell-3": 2, "cell-5": 1}
    (first, *_) = rows(tmp_path / "t.mcap", "received", "spectrum")
    message = SlotSpectrum.decode(first.payload)
    assert (message.scs_hz, message.centre_hz, message.n_prbs, message.antennas) == (30_000, 3.7e9, 273, (0, 1, 2, 3))
    (slot,) = message.slots
    assert slot.data.tobytes() == row(0)
    assert (slot.sfn, slot.slot, slot.observed_ns, slot.gnb_ns) == (7, 0, T0_NS, T0_NS + TAI)
    assert slot.clock is Clock.TAI
    assert first.sent_ns == first.log_ns == T0_NS
    out = tmp_path / "again.e3rt"
    export(Request([tmp_path / "t.mcap"], out))
    parts = record(0, row(0), 3, cells=2), record(0, row(1), 5, cells=2), record(1, row(2), 3, cells=2)
    assert out.read_bytes() == HEAD + b"".join(parts)


def test_slots_of_a_link_become_a_trace(tmp_path: Path) -> None:
    """Of part of the carrier, without a TAI time, late ones in their place; int16 as the float16 that it stands for."""
    sent = [scene.slots(scene.slot(n, 0b101 << n, np.int16 if n == 1 else np.float16)) for n in range(3)]
    path = scene.write(tmp_path / "x.mcap", [(number, sent[number].encode()) for number in (0, 2, 1)])
    out = tmp_path / "x.e3rt"
    assert export(Request([path], out)).problems == []
    octets, size = out.read_bytes(), 8 + 32 + 8 + ROW * 2
    assert len(octets) == 16 + 3 * size
    for number, message in enumerate(sent):
        (slot,) = message.slots
        body = octets[16 + number * size + 8 :]
        time_ns, tai_ns, sfn, slot_number, cell, antennas = struct.unpack_from("<QQHHHH", body)
        assert (time_ns, tai_ns) == (slot.observed_ns, slot.observed_ns + TAI)
        assert (sfn, slot_number, cell, antennas) == (slot.sfn, slot.slot, 0, 2)
        got = np.frombuffer(body, "<f2", ROW, 36).reshape(4, 14, 273 * 12, 2)
        expected = np.zeros_like(got)
        values = (message.in_lsb(slot) / 2048).astype(np.float16)
        expected[:2, [number, number + 2], 240 : 240 + 288] = values
        np.testing.assert_array_equal(got, expected)


def test_a_recording_without_slots(tmp_path: Path) -> None:
    path = scene.write(tmp_path / "x.mcap", [(0, scene.spectrum(0).encode())])
    with pytest.raises(ConfigurationError, match="no slots of I/Q"):
        export(Request([path], tmp_path / "x.e3rt"))


GOOD = record(0, row(0, 1), antennas=1, ues=1)


def patched(offset: int, form: str, *values: int) -> bytes:
    """The record with other values at an offset of its body."""
    octets = bytearray(GOOD)
    struct.pack_into(form, octets, 8 + offset, *values)
    return bytes(octets)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (b"", "no E3RT trace"),
        (b"E3RT", "no E3RT trace"),
        (b"E3RT" + struct.pack("<III", 0x020000, 0x010100, 0), "version 0x20000"),
        (HEAD + b"\x01", "octet 16: the trace ends within the head of a record"),
        (HEAD + GOOD[:-1], "octet 16: a record of"),
        (HEAD + GOOD + struct.pack("<HHI", 1, 0, 2**32 - 1), "a record of 4294967295 octets does not end"),
        (HEAD + struct.pack("<HHI", 1, 0, 4) + bytes(4), "too short"),
        (HEAD + struct.pack("<HHI", 9, 0, 0), "tag 9"),
        (HEAD + patched(22, "<H", 5), "5 antennas"),
        (HEAD + patched(22, "<H", 0), "0 antennas"),
        (HEAD + patched(30, "<H", 65535), "65535 UEs do not fit"),
        (HEAD + patched(32 + 73, "<I", 2**32 - 1), "I/Q of 4294967295 octets"),
        (HEAD + patched(32 + 73, "<I", 8), "I/Q of 8 octets"),
        (HEAD + patched(32 + 77 + ROW * 2, "<I", 4), "channel estimates of 4 octets"),
        (HEAD + patched(0, "<Q", 2**63), "times of 9223372036854775808"),
        (HEAD + record(1, b"") + record(0, b""), "is earlier than that of the record before"),
    ],
)  # fmt: skip
def test_what_lies_is_refused_and_placed(trace: bytes, expected: str, tmp_path: Path) -> None:
    with pytest.raises(NotReadable) as caught:
        imported(trace, tmp_path)
    assert expected in str(caught.value)
    assert "t.e3rt" in str(caught.value)
    assert not list(tmp_path.glob("t.mcap*"))
