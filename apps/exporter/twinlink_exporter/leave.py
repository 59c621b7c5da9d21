"""The end of a session with the E3 agent, which keeps an identifier until it is released."""

import time
from contextlib import suppress

from twinlink_e3 import MalformedPdu

from .session import Session
from .sockets import E3Sockets

STEP_MS = 10


def leave(session: Session, sockets: E3Sockets, patience_s: float) -> bool:
    """Release the identifiers that the agent gave, and one that it is about to give; whether all releases were sent.

    ``patience_s``: for the answer to a setup, and for a connection to the agent.
    """
    until_s = time.monotonic() + patience_s
    releases: list[bytes] = []
    is_asked = not sockets.withdraw_setup()
    while True:
        with suppress(MalformedPdu):  # it gives no identifier
            if session.awaits_setup and (reply := sockets.receive_setup()) is not None:
                session.setup_answered(reply, time.monotonic_ns())
        releases += session.releases()
        if release := session.release():
            releases.append(release)
            session.lost()
        while releases and sockets.can_send:
            sockets.send(releases.pop(0))
        if not releases and not (is_asked and session.awaits_setup):
            return True
        if time.monotonic() >= until_s:
            return not releases
        sockets.poller.poll(STEP_MS)
        sockets.tick(time.monotonic_ns())
