"""Which decisions of the twins count, by all rules: of the decision, of its sender, and of what it is sent to."""

from twinlink_e3 import CONTROL_PRB_BLOCK, CONTROL_SENSING_POLICY

import twinlink
from twinlink.control import Decision, PrbBlock, SensingPolicy, unread_id

from .authentication import Authentication
from .block import Instant
from .decision_guard import Limits, Rejection, check
from .session import Session, State
from .twins import Twins

_CONTROLS = {
    PrbBlock: (CONTROL_PRB_BLOCK, "PRB blocks"),
    SensingPolicy: (CONTROL_SENSING_POLICY, "the sensing policy"),
}


class DecisionCheck:
    """The rules, in their order; see `decision_guard.Rule`."""

    def __init__(self, limits: Limits, authentication: Authentication, session: Session, twins: Twins) -> None:
        self._limits, self._authentication = limits, authentication
        self._session, self._twins = session, twins

    def __call__(self, message: twinlink.Message, now: Instant) -> Decision | Rejection:
        """The decision, whose sender then holds the controls; or why it is rejected."""
        if (twin := self._twins.get(message.epoch)) is None:
            text = f"peer: {message.node or 'the sender'} is not up, so its decisions do not count"
            # A sender without a name has not said hello and gets no answer: only the twins would receive it.
            return Rejection(unread_id(message.epoch, message.sequence) if message.node else None, text)
        decision = self._authentication.check(message)
        if isinstance(decision, Rejection):
            return decision
        verdict = check(decision, self._limits, now.wall_ns)
        if isinstance(verdict, Rejection):
            return verdict
        if self._session.state is not State.SUBSCRIBED:
            return Rejection(verdict.id, "e3: there is no session with the E3 agent")
        control, name = _CONTROLS[type(verdict)]
        if control not in self._session.controls:
            return Rejection(verdict.id, f"e3: the E3 agent offers no control of {name}")
        reason = self._twins.accept(twin, message.sequence, not verdict.content, now.monotonic_ns)
        return Rejection(verdict.id, reason) if reason else verdict
