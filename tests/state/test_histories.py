"""Random histories of a state, with partitions, restarts and late joiners: all nodes end equal, nothing older wins.

A few hundred here; ``TWINLINK_STATE_HISTORIES=10000`` has all of them.
"""

import os
from random import Random

import pytest

from tests.state.simulated import MS, RETURN_NS, Network, S
from twinlink.state.record import Slot

HISTORIES = int(os.environ.get("TWINLINK_STATE_HISTORIES", "320"))
PARTS = 8
COLUMNS = ("desired", "reported", "on-air")
MAX_LIFETIME_S = 3


def history(seed: int) -> Network:
    """Many things happen to some nodes; at the end all of them are up."""
    random = Random(seed)
    network = Network(random, random.choice((2, 2, 3, 4)), mesh=random.random() < 0.3)
    for pair in network.pairs:
        if random.random() < 0.7:
            network.meet(*pair)
    keys = [f"cell-{number}" for number in range(random.choice((1, 3, 12)))]
    newest: dict[Slot, int] = {}
    for step in range(random.randrange(10, 60)):
        number = random.randrange(len(network.nodes))
        what = random.random()
        if what < 0.6:
            slot = Slot(random.choice(keys), random.choice(COLUMNS))
            payload = None if random.random() < 0.1 else b"%d" % step + bytes(random.choice((0, 10, 5000, 30_000)))
            lifetime_s = random.choice((None, None, None, 1, MAX_LIFETIME_S))
            known = network.nodes[number].replica._entries.get(slot)
            version = network.write(number, slot, payload, None if lifetime_s is None else lifetime_s * S)
            assert known is None or version > known.stamp.version
            newest[slot] = max(newest.get(slot, 0), version)
        elif what < 0.75:
            network.part(*random.choice(network.pairs))
        elif what < 0.85:
            network.meet(*random.choice(network.pairs))
        elif what < 0.9:
            network.restart(number)
        elif what < 0.95:
            network.nodes[number].offset_ns += random.randrange(-1000, 1000) * S  # a step of its wall clock
        network.run(
            random.choice((0, 3 * MS, 40 * MS, 900 * MS, 30 * S, RETURN_NS + S)) if random.random() < 0.6 else 0
        )
    for pair in network.pairs:
        network.meet(*pair)
    return network


@pytest.mark.parametrize("part", range(PARTS))
def test_all_nodes_end_equal_and_nothing_older_wins(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        network = history(seed)
        known = [node.replica._entries for node in network.nodes]
        newest = {slot: max(one[slot].stamp for one in known if slot in one) for one in known for slot in one}
        network.run((2 + MAX_LIFETIME_S) * S)
        first = network.values(0)
        for number, node in enumerate(network.nodes):
            assert network.values(number) == first, f"seed {seed}: {node.name} ends with something else"
            assert node.replica.is_acknowledged(), f"seed {seed}: {node.name} still owes something"
            stamps = {slot: entry.stamp for slot, entry in node.replica._entries.items()}
            assert stamps == newest, f"seed {seed}: {node.name} does not have the newest values"
        quiet = network.sent
        network.run(60 * S)
        assert network.sent == quiet, f"seed {seed}: it does not come to rest"
