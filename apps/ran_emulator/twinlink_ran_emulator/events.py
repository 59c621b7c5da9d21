"""Events of the emulated E3 agent."""

from dataclasses import dataclass

import twinlink_e3 as e3


@dataclass(frozen=True, slots=True)
class SetUp:
    """A dApp was given an identifier."""

    dapp: int
    name: str
    vendor: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A dApp subscribed; ``telemetry``: whether it asks for some.  ``function``: the RAN function."""

    dapp: int
    subscription: int
    telemetry: bool
    function: int = e3.RAN_FUNCTION


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription ended; ``reason`` is ``deleted``, ``expired`` or ``released``."""

    dapp: int
    subscription: int
    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """A dApp replaced the PRB block; an empty list clears it."""

    dapp: int
    prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PolicySet:
    """A dApp replaced the sensing policy; without masks it cleared it."""

    dapp: int
    mask_per_slot: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """A dApp reported the PRBs that it found occupied."""

    dapp: int
    prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A dApp left."""

    dapp: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A PDU was refused, with a negative response where the protocol has one."""

    reason: str


Event = SetUp | Subscribed | Unsubscribed | Blocked | PolicySet | Reported | Released | Refused
