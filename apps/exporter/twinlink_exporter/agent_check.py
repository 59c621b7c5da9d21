"""For ``twinlink doctor --ask-e3``: asks the E3 agent of this host what it speaks, and takes back what that changed."""

import time
from collections.abc import Iterator
from pathlib import Path

import twinlink_e3 as e3

import twinlink

from .leave import STEP_MS, leave
from .session import OtherGeneration, Refused, Session, SetUp
from .sockets import E3Sockets, listens, open_sockets, setup_problem

# For all answers, and for the connection over which the identifier is given back: an agent of libe3 that waits for
# another dApp's setup request does so for 2 s, and is then asked again.
PATIENCE_S = 5.0
NAME = "twinlink-e3-doctor"  # with "twinlink-doctor", a request in G0 is one in G2b, too, of another dApp

Finding = tuple[str, str, str]  # status, what was found, what to do


def ask(directory: Path, link: str) -> Finding:
    """What the agent at the sockets of this folder speaks, as ``(status, seen, next)``.

    Args:
        directory: of the sockets ``setup``, ``e3_socket`` and ``dapp_socket``.
        link: one of `twinlink_e3.LINKS`, or `twinlink_e3.ANY_LINK`.
    """
    setup, to_dapp, from_dapp = (f"ipc://{directory / name}" for name in ("setup", "e3_socket", "dapp_socket"))
    sockets = open_sockets(e3.Endpoints(setup, to_dapp, from_dapp, link))
    session = Session(NAME, twinlink.__version__, "twinlink", e3.MessageIds())
    try:
        return _finding(session, sockets)
    except e3.E3Error as error:
        advice = "ask over auto; at the exporter, omit --e3-link, --e3-generation and --e3-encoding"
        return "warn", f"the E3 agent's answer cannot be read: {error}", advice
    finally:
        sockets.close()


def _finding(session: Session, sockets: E3Sockets) -> Finding:
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
            over = f" over {sockets.link}" if sockets.endpoints.link == e3.ANY_LINK else ""
            seen = f"{event.ran} speaks {event.generation}{over} ({way}){where}{control}"
            if given_back:
                return "ok", seen, ""
            return "warn", f"{seen}; dApp identifier {event.dapp_id} could not be given back", "look at dapp_socket"
    advice = "start the gNB, or its E3 agent"
    if listens(sockets.endpoints.setup):
        advice = (
            "look whether the gNB hangs: it accepts connections and does not answer; an agent in JSON of libe3 up to "
            "0.0.7 needs --e3-encoding json at the exporter"
        )
    return "warn", f"no E3 agent answers a setup over {sockets.link} within {PATIENCE_S:g} s", advice


def _turns(sockets: E3Sockets) -> Iterator[None]:
    """Turns of a loop, for `PATIENCE_S`, each after something happened at the sockets or a moment passed."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        sockets.poller.poll(STEP_MS)
        sockets.tick(time.monotonic_ns())
        yield
