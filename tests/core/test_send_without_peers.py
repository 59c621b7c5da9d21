"""What is sent while no peer is up: it is lost at once, wherever Ctrl-C comes."""

import itertools

from tests.core.interrupting import interrupted
from tests.core.sending import RETENTION, TRANSIT, WINDOW, send
from twinlink.protocol import rangeset
from twinlink.protocol.send import flow as send_flow
from twinlink.protocol.send import loss
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow

FILES = [str(module.__file__) for module in (loss, send_flow, rangeset)]


def test_wherever_ctrl_c_comes_every_number_is_counted_and_named_once() -> None:
    for moment in itertools.count(1):
        core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT))
        send(core, 10)

        def send_one(core: SendFlow = core) -> None:
            try:
                send(core, 10)
            except BaseException:  # as `Sender.send` does
                core.recover_after_interrupt()
                raise

        if not interrupted(moment, send_one, *FILES):
            break
        send(core, 10)
        stats = core.stats()
        assert (stats["sent"], stats["lost"], stats["outstanding"]) in [(2, 2, 0), (3, 3, 0)]
        assert core.losses.take_unreported(9) == [(0, stats["sent"], "no peer was up", frozenset())]
    assert moment > 20
