"""For ``twinlink doctor --ask-e3``: asks the E3 agent of this host what it speaks, and takes back what that changed."""

import time
from collections.abc import Iterator
from pathlib import Path

import twinlink_e3 as e3

import twinlink

from .leave import STEP_MS, leave
from .session import OtherGeneration, Refused, Session, SetUp
from .sockets import E3Sockets, open_sockets, setup_problem

PATIENCE_S = 3.0  # for all answers, and for the connection over which the identifier is given back
NAME = "twinlink-e3-doctor"  # with "twinlink-doctor", a request in G0 is one in G2b, too, of another dApp

Finding = tuple[str, str, str]  # status, what was found, what to do


def ask(directory: Path, link: str) -> Finding:
    """What the agent at the sockets of this folder speaks, as ``(status, seen, next)``.

    Args:
        directory: of the sockets ``setup``, ``e3_socket`` and ``dapp_socket``.
        link: one of `twinlink_e3.LINKS`.
    """
    setup, to_dapp, from_dapp = (f"ipc://{directory / name}" for name in ("setup", "e3_socket", "dapp_socket"))
    sockets = open_sockets(e3.Endpoints(setup, to_dapp, from_dapp, link))
    session = Session(NAME, twinlink.__version__, "twinlink", e3.MessageIds())
    try:
        return _finding(session, sockets, link)
    except e3.E3Error as error:
        return "warn", f"the E3 agent's answer cannot be read: {error}", "set --e3-generation and --e3-encoding"
    finally:
        sockets.close()


def _finding(session: Session, sockets: E3Sockets, link: str) -> Finding:
    if problem := setup_problem(sockets.endpoints):
        return "warn", f"the E3 agent at {sockets.endpoints.setup} was not asked", problem
    way = "asked in G0"
    for _ in _turns(sockets):
        if request := session.request(time.monotonic_ns()):
            sockets.send_setup(request)
        if (reply := sockets.receive_setup()) is None:
            continue
        event = session.setup_answered(reply, time.monotonic_ns())
        if isinstance(event, OtherGeneration):
            way = f"asked in {event.asked}, it answered in {event.answered}"
        elif isinstance(event, Refused):
            leave(session, sockets, PATIENCE_S)
            return "warn", f"{event.reason} ({way})", "look at the gNB's E3 configuration"
        elif isinstance(event, SetUp):
            given_back = leave(session, sockets, PATIENCE_S)
            where = ", hands I/Q over in shared memory" if event.by_reference else ""
            control = "" if event.offers_block else ", and offers no control of PRB blocks"
            seen = f"{event.ran} speaks {event.generation} ({way}){where}{control}"
            if given_back:
                return "ok", seen, ""
            return "warn", f"{seen}; dApp identifier {event.dapp_id} could not be given back", "look at dapp_socket"
    advice = f"start the gNB, ask over the other link than {link}, or set --e3-encoding json at the exporter"
    return "warn", f"no E3 agent answers a setup over {link} within {PATIENCE_S:g} s", advice


def _turns(sockets: E3Sockets) -> Iterator[None]:
    """Turns of a loop, for `PATIENCE_S`, each after something happened at the sockets or a moment passed."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        sockets.poller.poll(STEP_MS)
        sockets.tick(time.monotonic_ns())
        yield
