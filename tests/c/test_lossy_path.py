"""Between a C node and a Python node each message arrives once and in order, or the C node's ledger names it."""

import ctypes as ct

import pytest

from tests.c.building import SEEDS, needs_compiler
from tests.c.lossy import World

pytestmark = needs_compiler


def judge(world: World) -> None:
    arrived, lost = world.arrived, world.lost_by_c()
    assert arrived == sorted(set(arrived)), "twice, or out of order"
    assert set(range(world.given)) - set(arrived) - lost == set(), "neither delivered nor named"
    stats = world.c.flow_stats(0)
    assert stats.sent == world.given
    assert stats.acknowledged + stats.lost == world.given
    assert world.decisions == sorted(set(world.decisions)), "twice, or out of order"
    assert set(range(world.asked)) - set(world.decisions) == world.lost_by_python()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_message_arrives_over_a_path_that_loses(library: ct.CDLL, seed: int) -> None:
    world = World(library, seed, loss=0.1, delay_ms=20, ring_octets=1 << 20)
    for _ in range(3000):
        if world.ms > 300 and world.ms % 4 == 0:
            world.send(world.chance.randint(0, 2000))
        if world.ms > 300 and world.ms % 50 == 0:
            world.ask()
        world.step()
    world.settle(20_000)
    judge(world)
    assert not world.lost_by_c()
    assert world.arrived == list(range(world.given))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_cut_costs_is_named(library: ct.CDLL, seed: int) -> None:
    """The ring holds less than is sent while the path is cut for seconds: the oldest make room."""
    world = World(library, seed, loss=0.02, delay_ms=10, ring_octets=64 * 1024)
    for _ in range(8_000):
        if world.ms > 300 and world.ms % 5 == 0:
            world.send(world.chance.randint(100, 2000))
        if world.ms % 1000 == 0:
            world.cut(world.chance.random() < 0.5)
        world.step()
    world.settle(20_000)
    judge(world)
    assert world.lost_by_c()


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_what_a_peer_that_stays_away_has_not_acknowledged_is_named(library: ct.CDLL, seed: int) -> None:
    """Some of it was evicted, some announced as abandoned when the peer was back for a moment, some is kept."""
    world = World(library, seed, loss=0.05, delay_ms=10, ring_octets=48 * 1024)
    away = ((2_000, 4_000), (4_080 + 40 * seed, 130_000))
    while world.ms < away[1][1]:
        if 300 < world.ms < 5_000 and world.ms % 3 == 0:
            world.send(world.chance.randint(100, 2000))
        world.cut(any(first <= world.ms < end for first, end in away))
        world.step()
    stats, lost = world.c.flow_stats(0), world.lost_by_c()
    assert not stats.outstanding
    assert not stats.unconfirmed
    assert stats.acknowledged + stats.lost == world.given
    assert set(range(world.given)) - set(world.arrived) - lost == set()
    assert any(one["reason"] == "the peer's session ended before it was acknowledged" for one in world.c.events)
