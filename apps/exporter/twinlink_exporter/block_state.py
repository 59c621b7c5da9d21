"""The PRB block as a state of the link (docs/state.md): what is desired, what is installed, what the gNB acknowledged.

State ``prb-block`` has a key for each exporter, its node's name, with three columns:

- ``desired``, set by the twin: a decision, as on flow ``control``;
- ``installed``, by the exporter: JSON with ``id`` of the decision or null, ``prbs`` that stand as far as it knows, and
  ``sent_ns``, when they were first sent to the RAN;
- ``on-air``, by the exporter: JSON with ``id`` and ``prbs`` that the gNB acknowledged last, ``acknowledged_ns``, when
  it first did, and ``ran_ns`` by its clock or null; absent while that is not known.

The latter two answer the desired value with the same decision.  While PRBs are blocked they expire, so that no block of
an exporter that died stands there.  A desired value counts only if its author knew of this exporter's session: what an
earlier one was told is not obeyed.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import twinlink
from twinlink.block_state import FLOW, INSTALLED, ON_AIR, STATE
from twinlink.signed_payload import MAX_SIGNED_OCTETS, body_of

from .block import Blocks
from .decision_guard import identifier

EXPIRES_S, RENEW_NS = 5.0, 1_500_000_000


class BlockState:
    """For the exporter's thread.

    Args:
        link: to the twin.
        take: takes a desired value as a message, whose sequence is the version; called on the link's thread.
    """

    def __init__(self, link: twinlink.Link, take: Callable[[twinlink.Message], None]) -> None:
        self._key, self._take = link.node, take
        self._desired: tuple[int, bytes] = (0, b"")  # version and payload; replaced by the link's thread
        self._shown: tuple[Any, ...] | None = None
        self._first: dict[str, tuple[Any, int | None]] = {}  # what a column shows, and since when
        self._stands, self._renewal_mono_ns = False, 0
        self._state: twinlink.State | None = link.state(STATE)
        try:
            self._since = self._report(INSTALLED, {"id": None, "prbs": [], "sent_ns": None}, 0)
        except twinlink.ConfigurationError:  # a name too long for a key, or a role that reports nothing
            self._state = None
        else:
            link.state(STATE, on_change=self._on_change)

    def _on_change(self, change: twinlink.Change) -> None:
        value = change.value
        if change.key != self._key or change.column != "desired" or value is None or value.version <= self._since:
            return
        if len(value.payload) > MAX_SIGNED_OCTETS:  # as on flow control, nothing longer is read
            return
        self._desired = value.version, value.payload
        of, received_ns = (value.version, value.session, value.set_by, value.set_at_ns), time.time_ns()
        self._take(twinlink.Message(value.payload, FLOW, *of, received_ns))

    def show(self, blocks: Blocks, mono_ns: int) -> None:
        """Report what stands, where that has changed or its time is to be renewed."""
        on_air = blocks.on_air
        now = blocks.id, blocks.prbs, on_air and on_air[:3], self._desired
        is_renewed = self._stands and mono_ns >= self._renewal_mono_ns
        if self._state is None or (now == self._shown and not is_renewed):
            return
        self._shown, self._renewal_mono_ns = now, mono_ns + RENEW_NS
        id, prbs, _, (version, payload) = now
        self._stands = bool(prbs or (on_air and on_air.prbs))
        wanted = identifier(body_of(payload)) if payload else None
        with suppress(twinlink.TwinlinkError):  # the link was closed, or the state is full of what others set
            sent_ns = self._first_ns(INSTALLED, (id, prbs), blocks.sent_ns)
            installed = {"id": id, "prbs": prbs, "sent_ns": sent_ns}
            self._report(INSTALLED, installed, version if id is not None and id == wanted else 0)
            acknowledged = None
            if on_air is not None:
                since_ns = self._first_ns(ON_AIR, on_air[:2], on_air.acknowledged_ns)
                acknowledged = on_air._asdict() | {"acknowledged_ns": since_ns}
            answers = on_air is not None and on_air.id is not None and on_air.id == wanted
            self._report(ON_AIR, acknowledged, version if answers else 0)

    def _first_ns(self, column: str, what: object, time_ns: int | None) -> int | None:
        """When a column first showed this: a renewal is nothing new."""
        if column not in self._first or self._first[column][0] != what:
            self._first[column] = what, time_ns
        return self._first[column][1]

    def _report(self, column: str, value: dict[str, Any] | None, answers: int) -> int:
        assert self._state is not None
        expires_s = EXPIRES_S if self._stands else None  # twins that do not read the state hold each renewal
        payload = None if value is None else json.dumps(value, separators=(",", ":"))
        return self._state.report(self._key, payload, column=column, answers=answers, expires_s=expires_s)
