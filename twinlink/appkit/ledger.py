"""Records every message of an application at its end of a link, in the format of `records`.

It is for programs that are measured in operation; the workers of a sweep have row buffers.
"""

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import twinlink

from . import records


def files(folder: Path, sends: Iterable[str], receives: Iterable[str]) -> list[Path]:
    """What `Ledger.write` writes for these flows."""
    sides = [(flow, "sent") for flow in sends] + [(flow, "received") for flow in receives]
    return [records.file(folder, flow, side) for flow, side in sides]


class Ledger:
    """Records the messages of some flows; may be called from any thread.

    Records are held in memory until they are written, about half a kilobyte per message.

    Args:
        sends, receives: the flows, by name.  Another flow is recorded once a message of it is received.
    """

    def __init__(self, sends: Iterable[str], receives: Iterable[str]) -> None:
        self._sent: dict[str, list[tuple[int, int, int]]] = {flow: [] for flow in sends}
        self._acks: dict[tuple[str, int], twinlink.Ack] = {}
        self._received: dict[str, list[tuple[int, int, int, int, int]]] = {flow: [] for flow in receives}
        self._sessions: dict[int, int] = {}

    def send(self, sender: twinlink.Sender, payload: bytes) -> int:
        """Call ``sender.send(payload)`` and record it; raises what that raises."""
        before_ns = time.time_ns()
        sequence = sender.send(payload)
        self._sent[sender.flow].append((sequence, len(payload), before_ns))
        return sequence

    def acknowledged(self, ack: twinlink.Ack) -> None:
        """Record an acknowledgement, as ``on_ack``; with several peers, the first one's counts."""
        self._acks.setdefault((ack.flow, ack.sequence), ack)

    def received(self, message: twinlink.Message) -> None:
        """Record a received message; the sender's sessions are numbered as rounds, in order of appearance."""
        number = self._sessions.setdefault(message.epoch, len(self._sessions))
        self._received.setdefault(message.flow, []).append(
            (number, message.sequence, len(message.payload), message.sent_ns, message.received_ns)
        )

    def write(self, folder: Path) -> None:
        """Write FLOW.sent.csv.gz and FLOW.received.csv.gz for each flow, also without messages.  Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for flow, sent in self._sent.items():
            rows = [self._sent_row(flow, *each) for each in sorted(sent)]
            records.write(records.file(folder, flow, "sent"), np.array(rows, records.SENT))
        for flow, received in self._received.items():
            records.write(records.file(folder, flow, "received"), np.array(received, records.RECEIVED))

    def _sent_row(self, flow: str, sequence: int, octets: int, before_ns: int) -> tuple[int | bool, ...]:
        """A row with T1 from the acknowledgement; without one, with the time of the call of `send`."""
        ack = self._acks.get((flow, sequence))
        if ack is None:
            return (0, sequence, octets, before_ns, before_ns, False, 0, 0, 0, 0)
        return (0, sequence, octets, ack.sent_ns, ack.sent_ns, True,
                ack.peer_received_ns, ack.peer_sent_ns, ack.received_ns, ack.rtt_ns)  # fmt: skip
