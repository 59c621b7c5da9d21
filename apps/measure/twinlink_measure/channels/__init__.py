"""The subjects of a sweep, by name.

A subject is twinlink over one of its transports, or the same frames over a bare library: the difference is the cost of
twinlink.  Modules are imported when their subject is measured.
"""

import os
import shutil
from importlib import import_module
from typing import Any

from twinlink_results.labels import TOO_LONG

from twinlink import options as link_options
from twinlink.errors import ConfigurationError, TransportMissing
from twinlink.spelling import near
from twinlink.transports import Endpoint, names
from twinlink.transports.mosquitto import SBIN

from .base import Channel, PeerLost
from .subjects import OWN_SUBSCRIPTION, RANGES_MS, SUBJECTS, SWITCHES, SYSTEMS, Subject, over

__all__ = [
    "SUBJECTS",
    "SYSTEMS",
    "Channel",
    "PeerLost",
    "Subject",
    "beyond",
    "channel",
    "check",
    "find",
    "round_trips",
    "too_slow",
    "without_cable",
]

PORTS = 2  # consecutive ports of a subject
RELIABILITIES = ("repair", "detect")  # of `Link.sender`


def find(subject: str) -> Subject:
    """The subject of this name, or a transport of another package.  Raises ConfigurationError."""
    known = SUBJECTS.get(subject) or OWN_SUBSCRIPTION.get(subject)
    if known is not None:
        return known
    if subject in names() and subject not in ("memory", "mqtt"):
        return over(subject)
    suggestion = near(subject, SUBJECTS)
    raise ConfigurationError(f"no subject is called {subject!r}; known: {', '.join(SUBJECTS)}{suggestion}")


def beyond(subject: str, octets: int) -> str | None:
    """Why a subject cannot carry a payload of this size; None if it can."""
    known = SUBJECTS.get(subject)
    greatest = known and known.greatest
    if not greatest or octets <= greatest[0]:
        return None
    return f"{TOO_LONG} {greatest[0]:,} octets: {greatest[1]}"


def without_cable(subject: str, cable: bool) -> str | None:
    """Why a subject cannot be measured in a setting with or without a ``cable``; None if it can."""
    known = SUBJECTS.get(subject)
    if cable or not known or not known.cable:
        return None
    return "it needs Ethernet: the cable between two network namespaces (--setting netns, without --delay)"


def round_trips(subject: str, octets: int, direction: str) -> int | None:
    """Round trips of one exchange in a closed loop (`Subject.round_trips`); None if that is not stated."""
    known = find(subject).round_trips
    return known and known(octets, direction)


def too_slow(subject: str, octets: int, direction: str, options: dict[str, Any], timeout_s: float) -> str | None:
    """Why an exchange waits longer than ``timeout_s`` for the server's sweeps and the polls; None if it does not."""
    known = find(subject)
    given = {**known.options, **options}
    sweeps_ms = given.get("sweep_ms", 0) * (round_trips(subject, octets, direction) or 0)
    wait_s = (sweeps_ms + max(given.get("poll_ms", 0), given.get("publishing_ms", 0))) / 1000
    if wait_s <= timeout_s:
        return None
    return f"an exchange takes up to {wait_s:g} s of sweeps and polls: give a --timeout above that, not {timeout_s:g}"


def check(subject: str, options: dict[str, Any]) -> None:
    """Check a subject's options without opening it.

    Raises:
        ConfigurationError: the subject is unknown, or does not take them.
        TransportMissing: its driver is not installed.
    """
    known = find(subject)
    transport = known.options.get("transport")
    if transport is None:
        _check_raw(subject, known, options)
        return
    given = dict(options)
    link_options.check_choice("reliability", given.pop("reliability", None), RELIABILITIES)
    link_options.check(transport, given)


def _check_raw(subject: str, known: Subject, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in known.settable:
            takes = f"it takes {', '.join(known.settable)}" if known.settable else "it takes none"
            raise ConfigurationError(f"subject {subject!r} has no option {name}; {takes}{near(name, known.settable)}")
        if name in SWITCHES:
            if type(value) is not bool:
                raise ConfigurationError(f"{name} must be true or false, not {value!r}")
            continue
        low, high = RANGES_MS[name]
        if type(value) not in (int, float) or not low <= value <= high:
            raise ConfigurationError(f"{name} must be a number of ms from {low:,} to {high:,}, not {value!r}")


def channel(
    subject: str, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any] | None = None
) -> Channel:
    """One end of a subject, not open yet; ``options`` are added to the subject's own.

    Raises:
        ConfigurationError: the subject is unknown.
        TransportMissing: its library or a program is not installed.
    """
    known = find(subject)
    for program in known.programs if listening else ():
        if shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}") is None:
            raise TransportMissing(f"subject {subject!r} needs the program {program}, which is not installed")
    try:
        module = import_module(f"{__name__}.{known.module}")
    except ModuleNotFoundError as error:
        if not known.extra:
            raise
        raise TransportMissing(
            f"the library of subject {subject!r} is not installed ({error}); "
            f"install it with: pip install 'twinlink[{known.extra}]'"
        ) from error
    made: type[Channel] = getattr(module, known.attribute)
    return made(endpoint, listening, node, {**known.options, **(options or {})})
