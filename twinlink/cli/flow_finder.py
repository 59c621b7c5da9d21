"""Finds the flows of a link's peers: those that their hellos name when they are first heard, and those that arrive."""

import re
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from twinlink import ConfigurationError, Link, LinkClosed
from twinlink.mirror import MIRROR_FLOW
from twinlink.process.guarded_thread import GuardedThread

from ..appkit import convert
from ..appkit.options import Container

LOOK_S = 0.1
_WILDCARDS = frozenset("*?[")


def is_pattern(text: str) -> bool:
    """Whether it stands for several flows, as in a shell: ``*``, ``?`` and ``[...]``."""
    return not _WILDCARDS.isdisjoint(text)


def add_option(parser: Container) -> None:
    """Declare ``--flows``, of names and patterns."""
    parser.add_argument(
        "--flows",
        type=convert.parts,
        default=("*",),
        metavar="FLOW,...",
        help="only these flows: names, or patterns such as '*', which the shell takes in quotes",
    )


def check(text: str) -> None:
    """Raises ConfigurationError if no flow can match, as with the topics of other tools."""
    if found := re.search(r"[/#+\s]", text):
        raise ConfigurationError(
            f"flow {text!r}: no name of a flow has {found[0]!r}, as flows have no levels; '*' stands for all flows"
        )


class FlowFinder:
    """Calls ``found`` with each flow that matches, on a thread of its own, ten times a second.

    The link holds the messages of a flow until ``found`` subscribes to it, so none is missed.  It has a thread because
    a terminal may hold up that of the command, and what the link does not hold any more is lost at its sender.  A name
    without wildcards is found at once, before any peer sends on it.  The flow of a mirror is found whatever the
    patterns: other flows are in it.
    """

    def __init__(self, link: Link, patterns: Iterable[str], found: Callable[[str], object]) -> None:
        self._link, self._patterns, self._found = link, tuple(patterns), found
        self._seen: set[str] = set()
        for name in self._patterns:
            if not is_pattern(name) and name not in self._seen:
                self._seen.add(name)
                found(name)
        errors = link._transport.internal_errors
        GuardedThread(self._run, f"{link.node}-flows", errors, again=lambda: not link.closed).start()

    def _run(self) -> None:
        while not self._link.closed:
            try:
                self._look()
            except LinkClosed:
                return
            time.sleep(LOOK_S)

    def _look(self) -> None:
        for flow in self._flows():
            if flow not in self._seen:
                self._seen.add(flow)
                if flow == MIRROR_FLOW or self.matches(flow):
                    self._found(flow)

    def others(self) -> list[str]:
        """The flows of the peers that do not match."""
        return sorted({flow for flow in self._flows() if flow != MIRROR_FLOW and not self.matches(flow)})

    def _flows(self) -> list[str]:
        session = self._link._session
        received, announced = session.receiving, [flow for peer in session.known_peers() for flow in list(peer.flows)]
        return [*announced, *list(received)]

    def matches(self, flow: str) -> bool:
        """Whether one of the patterns stands for this flow."""
        return any(fnmatchcase(flow, pattern) for pattern in self._patterns)
