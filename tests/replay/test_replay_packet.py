import numpy as np
import pytest
from twinlink_replay.blocks.packet import OVERHEAD, PacketQueue, complex_of, int16_of

from twinlink import Message, npy
from twinlink.spectrum import Spectrum


def message(sequence: int, payload: bytes = bytes(8), epoch: int = 1) -> Message:
    return Message(payload, "spectrum", sequence, epoch, "gnb-1", 10, 20)


def sequences(queue: PacketQueue) -> list[tuple[int, int, int, bool]]:
    found = []
    while (packet := queue.take()) is not None:
        found.append((packet.sequence, packet.gap, packet.dropped, packet.filled))
    return found


def test_int16_survives_complex64() -> None:
    every = np.arange(-32768, 32768, dtype=np.int16)
    samples = np.stack([every, every[::-1]], axis=1)
    np.testing.assert_array_equal(int16_of(complex_of(samples)), samples)


def test_int16_of_rounds_and_clips() -> None:
    np.testing.assert_array_equal(int16_of(np.array([1.6 - 1e9j], np.complex64)), [[2, -32768]])


def test_gaps_are_counted_per_session_and_late_messages_do_not_count_twice() -> None:
    queue = PacketQueue("ci16", 10**6)
    for sequence, epoch in ((5, 1), (6, 1), (9, 1), (7, 1), (10, 1), (3, 2), (4, 2), (11, 1)):
        queue.put(message(sequence, epoch=epoch))
    assert [gap for _, gap, _, _ in sequences(queue)] == [0, 0, 2, 0, 0, 0, 0, 0]
    assert queue.missing == 2


def test_zero_fill_has_the_length_of_the_last_packet() -> None:
    queue = PacketQueue("ci16", 10**6, zero_fill=True)
    queue.put(message(0, bytes(range(12))))
    queue.put(message(3, bytes(4)))
    packets = [queue.take() for _ in range(4)]
    assert queue.take() is None
    assert [p.sequence for p in packets if p] == [0, 1, 2, 3]
    assert [p.filled for p in packets if p] == [False, True, True, False]
    assert [len(p.samples) for p in packets if p] == [3, 3, 3, 1]
    assert not packets[1].samples.any()  # type: ignore[union-attr]
    assert packets[3].gap == 2  # type: ignore[union-attr]


def test_a_full_queue_drops_the_oldest_and_reports_it() -> None:
    queue = PacketQueue("ci16", 3 * (8 + OVERHEAD))
    for sequence in range(10):
        queue.put(message(sequence))
    assert sequences(queue) == [(7, 7, 7, False), (8, 0, 0, False), (9, 0, 0, False)]
    assert queue.dropped == 7
    for sequence in range(10, 15):
        queue.put(message(sequence))
    assert sequences(queue)[0] == (12, 2, 2, False)


def test_malformed_payloads_are_counted_and_skipped() -> None:
    told: list[str] = []
    queue = PacketQueue("spectrum", 10**6, warn=told.append)
    good = Spectrum(np.ones((12, 2), np.int16), 1, 30_000, 3.6e9, 123, e3={"timestamp": 7})
    for sequence, payload in enumerate((b"", b"\x00\x02{}", good.encode())):
        queue.put(message(sequence, payload))
    packet = queue.take()
    assert packet is not None
    assert (packet.sequence, packet.time_ns, packet.freq_hz, packet.rate_hz) == (2, 123, 3.6e9, 360_000.0)
    assert packet.e3 == {"timestamp": 7}
    np.testing.assert_array_equal(packet.samples, np.full(12, 1 + 1j))
    assert queue.malformed == 2
    assert len(told) == 1  # only the first, so that a wrong format does not flood the log


def test_a_gap_before_a_malformed_payload_is_reported_with_the_next_packet() -> None:
    queue = PacketQueue("ci16", 10**6, zero_fill=True)
    for sequence, octets in ((0, 8), (3, 7), (4, 8), (9, 8), (7, 7), (10, 8)):
        queue.put(message(sequence, bytes(octets)))
    queue.put(message(11, bytes(7), epoch=2))
    queue.put(message(11))
    assert [each for each in sequences(queue) if not each[3]] == [
        (0, 0, 0, False), (4, 3, 0, False), (9, 4, 0, False), (10, 0, 0, False), (11, 0, 0, False),
    ]  # fmt: skip
    assert (queue.missing, queue.malformed) == (6, 3)


@pytest.mark.parametrize(
    ("order", "unreadable", "filled"), [((0, 2, 1, 3), 2, [1, 2]), ((0, 4, 5, 2, 6), 5, [1, 2, 3, 5])]
)
def test_malformed_messages_are_filled_with_zeros_despite_a_late_message(
    order: tuple[int, ...], unreadable: int, filled: list[int]
) -> None:
    queue = PacketQueue("ci16", 10**6, zero_fill=True)
    for sequence in order:
        queue.put(message(sequence, bytes(7 if sequence == unreadable else 8)))
    assert [sequence for sequence, _, _, zeros in sequences(queue) if zeros] == filled


def test_drops_before_a_malformed_payload_are_reported_with_the_next_packet() -> None:
    queue = PacketQueue("ci16", 2 * (8 + OVERHEAD))
    for sequence, octets in ((0, 8), (1, 8), (2, 7), (3, 8)):
        queue.put(message(sequence, bytes(octets)))
    assert sequences(queue) == [(3, 3, 2, False)]


@pytest.mark.parametrize(("payload", "octets"), [("ci16", 6), ("cf32", 12)])
def test_half_a_sample_is_malformed(payload: str, octets: int) -> None:
    queue = PacketQueue(payload, 10**6)
    queue.put(message(0, bytes(octets)))
    assert queue.take() is None
    assert queue.malformed == 1


COMPLEX = (np.arange(100) * (1 - 2j)).astype(np.complex64)


@pytest.mark.parametrize("payload", ["ci16", "cf32"])
@pytest.mark.parametrize(
    "array",
    [
        COMPLEX,
        COMPLEX.astype(">c8"),
        COMPLEX.astype(complex),
        COMPLEX.reshape(4, 25),
        np.asfortranarray(COMPLEX.reshape(4, 25)),
        int16_of(COMPLEX),
        int16_of(COMPLEX).astype(">i2").reshape(4, 25, 2),
    ],
    ids=["complex64", "big-endian", "complex128", "antennas", "Fortran order", "pairs", "antennas of pairs"],
)
def test_an_array_is_its_samples_and_no_more(payload: str, array: npy.Array) -> None:
    queue = PacketQueue(payload, 10**6)
    queue.put(message(0, npy.encode(array)))
    packet = queue.take()
    assert packet is not None
    assert packet.samples.dtype == np.complex64
    np.testing.assert_array_equal(packet.samples, COMPLEX)


@pytest.mark.parametrize(
    "array",
    [np.zeros(100), np.zeros(4, np.int16), np.zeros((4, 3), np.int16), np.zeros((4, 2), np.uint16), np.int16(7)],
    ids=["real", "a row", "triples", "unsigned", "a number"],
)
def test_an_array_without_complex_samples_is_malformed(array: npy.Array) -> None:
    told: list[str] = []
    queue = PacketQueue("cf32", 10**6, warn=told.append)
    queue.put(message(0, npy.encode(np.asarray(array))))
    queue.put(message(1, npy.encode(COMPLEX)[:-8]))
    assert queue.take() is None
    assert queue.malformed == 2
    assert "send a complex one, or int16 of shape (n, 2)" in told[0]


def test_an_array_where_a_spectrum_is_expected_is_named() -> None:
    told: list[str] = []
    queue = PacketQueue("spectrum", 10**6, warn=told.append)
    queue.put(message(0, npy.encode(COMPLEX)))
    assert queue.take() is None
    assert "'cf32' for a numpy array" in told[0]
