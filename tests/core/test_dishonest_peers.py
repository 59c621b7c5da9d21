"""Peers that acknowledge nothing, little or wrongly, beside honest ones: sessions on a simulated path and clock."""

from random import Random

import pytest

from tests.core.dishonest import MODES
from tests.core.pair import MS, pair
from twinlink.protocol.liveness import HELLO_INTERVAL_NS

SECONDS = 4


def honest_ages(seed: int, modes: list[str], octets: int, every_ms: int, loss: float = 0.0) -> list[int]:
    """How old the messages are, in ns and ascending, that two honest peers get; all of them arrive, in order."""
    random = Random(seed)
    made = pair(seed=seed)
    got = [end.receive("flow") for end in (made.far, made.add("honest"))]
    for number, mode in enumerate(modes):
        end = made.add(f"{mode} {number}")
        end.receive("flow")
        made.tampering[end.epoch] = MODES[mode](random)
    made.path.loss = loss
    sender, count = made.near.sender("flow"), SECONDS * 1000 // every_ms
    for number in range(count):
        assert sender.fits(octets)
        sender.send(number.to_bytes(8) + bytes(octets - 8))
        made.run(every_ms * MS)
    made.path.loss = 0.0
    made.run(1000 * MS)
    for messages in got:
        assert [message.sequence for message in messages] == list(range(count))
    return sorted(message.received_ns - message.sent_ns for messages in got for message in messages)


@pytest.mark.parametrize(("octets", "every_ms"), [(2000, 3), (100_000, 160)], ids=["2 KB", "in fragments"])
@pytest.mark.parametrize("mode", MODES)
def test_a_dishonest_peer_costs_the_others_nothing(mode: str, octets: int, every_ms: int) -> None:
    ages = honest_ages(1, [mode], octets, every_ms)
    assert ages[len(ages) * 99 // 100] < 50 * MS


@pytest.mark.parametrize("mode", MODES)
def test_at_full_rate_a_dishonest_peer_holds_up_the_others_once_until_its_hello_shows_it(mode: str) -> None:
    ages = honest_ages(1, [mode], 2000, 1)
    assert ages[-1] <= HELLO_INTERVAL_NS
    assert ages[len(ages) * 95 // 100] < 50 * MS


@pytest.mark.parametrize("seed", range(4))
def test_a_random_crowd(seed: int) -> None:
    random = Random(seed)
    modes = random.choices(list(MODES), k=random.randrange(1, 5))
    loss = random.choice([0.0, 0.0, 0.02])
    octets, every_ms = random.choice([(500, 2), (2000, 4), (20_000, 40)])
    ages = honest_ages(seed, modes, octets, every_ms, loss)
    assert ages[len(ages) * 99 // 100] < 50 * MS
