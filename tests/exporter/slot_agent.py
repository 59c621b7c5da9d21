"""An E3 agent with slots in shared memory, in a thread of this process, which may indicate a row before writing it."""

import random
import threading
import time
from dataclasses import replace
from typing import Self

import pytest
import twinlink_e3 as e3
from twinlink_ran_emulator import agent
from twinlink_ran_emulator.sockets import bind_sockets

from .gnb_memory import GnbMemory

FIRST_CELL = 41


class SlotAgent:
    """Indicates slots from the subscription on, until `stop`; the PDUs are those of the emulator's agent.

    Args:
        endpoints: where to bind.
        memory: where it writes; the rows are those of `GnbMemory.row`.
        burst: slots one right after the other; if it writes first, all are written before they are indicated.
        period_s: from one burst to the next.
        late_s: it indicates a row before it writes it, and takes up to so long in between; None: it writes first.
        emulated: its PDUs; None: of OpenAirInterface upstream, in G2a.
        cells: number of them, each with a row of its own in each slot; from `FIRST_CELL` on.
    """

    def __init__(
        self,
        endpoints: e3.Endpoints,
        memory: GnbMemory,
        burst: int,
        period_s: float,
        late_s: float | None = None,
        emulated: agent.Agent | None = None,
        cells: int = 1,
    ) -> None:
        self._memory, self._burst, self._period_s, self._late_s = memory, burst, period_s, late_s
        self._random = random.Random(7)
        self._cells = cells
        self.agent = emulated or agent.Agent(106, e3.ASN1_CODECS["G2a"], controls=False, by_reference=True)
        self._sockets = bind_sockets(endpoints)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        """End, as a gNB does."""
        self._stopping.set()
        self._thread.join()
        self._sockets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._sockets.wait(round(self._period_s * 1000))
            while (request := self._sockets.setup_request()) is not None:
                if (reply := self.agent.setup(request)) is not None:
                    self._sockets.answer_setup(reply)
            while (pdu := self._sockets.from_dapp()) is not None:
                for answer in self.agent.receive(pdu, time.monotonic_ns()):
                    self._sockets.send(answer)
            if self.agent.subscribers(time.monotonic_ns()):
                self._write_late() if self._late_s is not None else self._write_first()

    def _write_first(self) -> None:
        end, rows = self._memory.written + self._burst * self._cells, 2 * self._memory.layout.rows
        for number in range(max(self._memory.written, end - rows), end):  # those before are overwritten
            self._memory.put(number)
        for _ in range(self._burst):
            self._indicate(self._next())

    def _write_late(self) -> None:
        for _ in range(self._burst):
            number = self._memory.written
            self._indicate(self._next())
            time.sleep(self._random.uniform(0, self._late_s or 0))
            for cell in range(self._cells):
                self._memory.put(number + cell)

    def _next(self) -> e3.SlotIndication:
        """The indication of the next slot, with a row for each cell."""
        if self._cells == 1:
            return self._memory.indicate()
        rows = [self._memory.indicate(slot=self._memory.written // self._cells) for _ in range(self._cells)]
        slots = [
            replace(row, timestamp=rows[0].timestamp, cell_id=FIRST_CELL + cell, n_cells=self._cells)
            for cell, row in enumerate(rows)
        ]
        return replace(slots[0], others=tuple(slots[1:]), names_cells=True)

    def _indicate(self, slot: e3.SlotIndication) -> None:
        data = self.agent.codec.encode_structure(slot)
        for indication in self.agent.indications(data, time.monotonic_ns(), e3.L1_KPM_FUNCTION):
            self._sockets.send(indication)


@pytest.fixture
def no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents indicate at once after a subscription."""
    monkeypatch.setattr(agent, "FIRST_INDICATION_GAP_NS", 0)
