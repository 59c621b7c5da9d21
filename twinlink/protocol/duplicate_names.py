"""Detection of two nodes with the same name, which are taken for each other's restart.  No I/O, no clock."""

from collections.abc import Callable

BOTH_UP_NS = 3_000_000_000  # a session that is heard for so long beside its successor has not been restarted
MAX_REPORTED = 2048


class DuplicateNames:
    """The names that several sessions have; each is reported once.

    Attributes:
        to_report: names that are to be reported to a person.
    """

    def __init__(self) -> None:
        self.to_report: list[str] = []
        self._suspects: dict[str, int] = {}  # names under which two sessions are up -> monotonic ns
        self._reported: set[str] = set()

    def suspect(self, node: str, now_mono_ns: int) -> None:
        """Two sessions of this name are up at once."""
        self._suspects.setdefault(node, now_mono_ns)

    def on_stale_hello(self, node: str, since_ns: int) -> None:
        """A session says hello so long after another one of its name took its place."""
        if since_ns > BOTH_UP_NS:
            self._report(node)

    def on_tick(self, now_mono_ns: int, up_count: Callable[[str], int]) -> None:
        """Look again at names whose sessions have been up at once for long."""
        for node, since_ns in list(self._suspects.items()):
            if now_mono_ns - since_ns > BOTH_UP_NS:
                del self._suspects[node]
                if up_count(node) > 1:
                    self._report(node)

    def _report(self, node: str) -> None:
        if node not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(node)
            self.to_report.append(node)
