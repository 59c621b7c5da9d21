"""What the E3 agent that has set this dApp up cannot do, each in a sentence for the log."""

from typing import NamedTuple

from .reduction import Reduction
from .session import SetUp


class Limit(NamedTuple):
    """One limit; ``name`` for programs."""

    name: str
    text: str


def limits_of(setup: SetUp, reduction: Reduction, *, sensing: bool, sequenced: bool) -> list[Limit]:
    """What the agent lacks of all that this exporter can use; ``sequenced`` is that of the session."""
    found = []
    if setup.by_reference:
        text = "hands I/Q over in shared memory alone: this exporter must see /dev/shm of the gNB's host"
        found.append(Limit("shared-memory-only", text))
    else:
        text = "hands I/Q over in PDUs alone: a symbol of one antenna in each, and no whole slots"
        if reduction != Reduction():
            text += ", so the options of what is sent of a slot have no effect"
        found.append(Limit("inline-only", text))
    if setup.by_reference and not setup.names_symbols:
        text = "does not tell which symbols of a slot are uplink, so all count as uplink"
        found.append(Limit("no-symbol-mask", text))
    if sensing and not setup.offers_sensing:
        found.append(Limit("no-sensing", "offers no sensing ranges, so flow sensing stays empty"))
    if not setup.offers_kpms:
        found.append(Limit("no-kpm", "reports no KPMs, so flow kpm stays empty, and the fidelity lacks this part"))
    if not setup.offers_block:
        found.append(Limit("no-control", "offers no control of PRB blocks, so decisions are rejected"))
    else:
        if not setup.offers_policy:
            found.append(Limit("no-policy", "offers no sensing policies, so decisions that set one are rejected"))
        if not sequenced:
            text = "takes controls without a sequence id, so results do not have its time of a block"
            found.append(Limit("no-sequence-ids", text))
    return [Limit(name, f"the E3 agent {text}") for name, text in found]
