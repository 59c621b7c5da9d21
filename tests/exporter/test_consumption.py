"""How long a twin has been behind, on a manual clock."""

from twinlink_exporter.consumption import Consumption


def test_it_counts_from_what_the_twin_has() -> None:
    consumption = Consumption()
    assert consumption.behind_ns(50) == 0
    for sequence in range(5):
        consumption.sent(sequence, 100 + sequence)
    assert consumption.behind_ns(200) == 100  # of the first: nothing is there yet
    consumption.acknowledged(2, 102)
    consumption.acknowledged(0, 100)  # late
    assert consumption.behind_ns(200) == 98
    consumption.acknowledged(4, 104)
    assert consumption.behind_ns(10_000) == 0


def test_a_pause_in_sending_does_not_count() -> None:
    consumption = Consumption()
    consumption.sent(0, 100)
    consumption.acknowledged(0, 100)
    consumption.sent(1, 5000)
    assert consumption.behind_ns(5010) == 10


def test_a_twin_that_comes_owes_nothing_from_before() -> None:
    consumption = Consumption()
    consumption.sent(0, 100)
    consumption.twin_up(5000)
    consumption.sent(1, 5005)
    assert consumption.behind_ns(5010) == 10
