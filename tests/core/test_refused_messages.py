"""What a peer refused takes room in flight while the sender does not know it, and must not stop the flow."""

import pytest

from tests.core.sending import acknowledge, send, taken
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.session import FlowOptions, Pace

PLENTY = 2**30
LIMIT = 400_000
FALLEN = 50_000


@pytest.mark.parametrize(("size", "count"), [(100, 2000), (10_000, 39), (60_000, 6), (90_000, 4)])
@pytest.mark.parametrize("pace", ["fastest", "slowest"])
@pytest.mark.parametrize("waiting", [0, 40])
def test_what_is_requested_leaves_though_what_was_refused_takes_all_the_room(
    size: int, count: int, pace: Pace, waiting: int
) -> None:
    budget = InFlightBudget(LIMIT)
    core = SendFlow("flow", PLENTY, PLENTY, budget, FlowOptions(pace=pace))
    core.on_peer_up(1, repairs=True)
    if pace == "slowest":
        core.on_peer_up(2, repairs=True)
    for _ in range(count):
        send(core, size)
    assert taken(core) or core.queue.next_to_send == count
    for _ in range(waiting):
        send(core, size)
    acknowledge(core, 2, list(range(count)))
    budget.divide(FALLEN, FALLEN, FALLEN, 1, 0)  # nothing gets through for long, so the path is taken for slow
    arrived: set[int] = set()
    while len(arrived) < count + waiting:
        end = min(count, len(arrived) + max(1, FALLEN // size))
        core.on_nak(1, end, [(len(arrived), end)] if len(arrived) < end else [], 1, 1, 1)
        before = len(arrived)
        while new := taken(core):
            for number in new:
                assert isinstance(number, int)
                for epoch in core.receivers.up:
                    acknowledge(core, epoch, [number])
                arrived.add(number)
        assert len(arrived) > before, "nothing leaves"
    assert not core.unacked.entries
