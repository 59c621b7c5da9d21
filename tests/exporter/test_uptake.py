"""How long a twin has been behind, on a manual clock."""

from twinlink_exporter.uptake import Uptake


def test_it_counts_from_what_the_twin_has() -> None:
    uptake = Uptake()
    assert uptake.behind_ns(50) == 0
    for sequence in range(5):
        uptake.sent(sequence, 100 + sequence)
    assert uptake.behind_ns(200) == 100  # of the first: nothing is there yet
    uptake.acknowledged(2, 102)
    uptake.acknowledged(0, 100)  # late
    assert uptake.behind_ns(200) == 98
    uptake.acknowledged(4, 104)
    assert uptake.behind_ns(10_000) == 0


def test_a_pause_in_sending_does_not_count() -> None:
    uptake = Uptake()
    uptake.sent(0, 100)
    uptake.acknowledged(0, 100)
    uptake.sent(1, 5000)
    assert uptake.behind_ns(5010) == 10


def test_a_twin_that_comes_owes_nothing_from_before() -> None:
    uptake = Uptake()
    uptake.sent(0, 100)
    uptake.twin_up(5000)
    uptake.sent(1, 5005)
    assert uptake.behind_ns(5010) == 10
