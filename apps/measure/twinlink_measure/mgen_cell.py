"""One cell in one round in which MGEN sends and receives: its tables and logs."""

import datetime
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from twinlink_results.mgen import log
from twinlink_results.mgen.records import Row, parse

from twinlink.appkit.records import RECEIVED, SENT, Table

from .cell_run import SEND_S, CellRun, RoundResult, cell_entry
from .mgen import session
from .worker_handle import Stopped, watching


@dataclass(frozen=True)
class MgenTaken(RoundResult):
    """The link's records, with MGEN's logs and the bridge's records by file name suffix."""

    files: dict[str, bytes] = field(default_factory=dict)


class MgenCell(CellRun):
    """One cell, one round, on a pair of workers with an open link; its messages are MGEN's."""

    def run(self, stopped: Stopped) -> MgenTaken:
        """Measure it.  Raises WorkerLost, WorkerFailed, Interrupted."""
        plan, octets, sender, reflector = self._plan, self._cell["octets"], self._sender, self._reflector
        count, rate_hz = plan.share("open", self._number), self._cell["rate_hz"]
        self.warm_up(stopped, self.warm_up_s)
        reflector.ask("mgen-listen", octets=octets)
        reflector.ask("mark")
        said = sender.ask(
            "mgen-send", 2 * count / rate_hz + plan.timeout_s + SEND_S, watching(reflector, stopped),
            octets=octets, count=count, rate_hz=rate_hz, timeout_s=plan.timeout_s,
        )  # fmt: skip
        heard = reflector.ask("mgen-finish", SEND_S, expected=said["counted"]["sent"], quiet_s=session.QUIET_S)
        taken = self._taken(said, heard)
        problem = said["problem"]
        if problem is None and len(taken.sent) < count:
            problem = f"mgen sent {len(taken.sent)} of {count} messages"
        return taken if problem is None else replace(taken, status="failed", reason=problem)

    def _taken(self, said: dict[str, Any], heard: dict[str, Any]) -> MgenTaken:
        noted = [each.get("notes_rows", b"") for each in (said, heard)]
        taken_in, given_out = (parse(octets, "what the bridge noted") if octets else [] for octets in noted)
        began = datetime.datetime.fromtimestamp(said["started_ns"] / 1e9, datetime.UTC).date()
        sent = sent_rows(self._number, taken_in, said.get("log_rows", b""), began)
        received = np.zeros(len(given_out), RECEIVED)
        for index, row in enumerate(given_out):
            received[index] = (self._number, row.mgen_sequence, row.octets, row.sent_ns, row.peer_received_ns)
        said = {**said, "sent": len(sent), "dropped": 0}
        entry = cell_entry(self._number, said, heard, self._counts_wire, self._warmed_up)
        files = {"tx.drc": said.get("log_rows", b""), "rx.drc": heard.get("log_rows", b"")}
        notes = noted[0] + noted[1].partition(b"\n")[2]
        return MgenTaken(sent, received, entry, files={**files, "bridge.csv": notes})


def sent_rows(number: int, taken_in: list[Row], sender_log: bytes, began: datetime.date) -> Table:
    """A row for each message that MGEN sent; one that never reached the bridge is not acknowledged.

    ``began`` is the day (UTC) of the log's first line: MGEN logs the time of day.
    """
    table: list[tuple[int, ...]] = []
    seen = set()
    for row in taken_in:
        seen.add(row.mgen_sequence)
        known = row.received_ns is not None
        table.append(
            (
                number, row.mgen_sequence, row.octets, row.mgen_sent_ns, row.sent_ns or row.mgen_sent_ns, known,
                *((row.peer_received_ns or 0, row.peer_sent_ns or 0, row.received_ns or 0, row.rtt_ns or 0)
                  if known else (0, 0, 0, 0)),
            )
        )  # fmt: skip
    for event in log.parse_text(sender_log.decode(errors="replace"), began).of("SEND"):
        if event.sequence is not None and event.sequence not in seen:
            at = event.time_ns
            table.append((number, event.sequence, event.octets or 0, at, at, False, 0, 0, 0, 0))
    return np.array(sorted(table), SENT)
