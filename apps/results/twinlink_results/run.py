"""The folder of a sweep: run.json and the record of every message (docs/results-format.md).

Everything else in it is computed from these (`twinlink report`).
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from twinlink.appkit import records
from twinlink.appkit.records import RECEIVED, SENT, Table
from twinlink.errors import ConfigurationError
from twinlink.process.text import to_json

FORMAT, VERSION = "twinlink-run", 1
RUN, RECORDS, MGEN = "run.json", "records", "mgen"
_SENT_ROWS = np.dtype([("scheduled_ns", "<i8"), ("sent_ns", "<i8"), ("mono_ns", "<i8")])
_ANSWER_ROWS = np.dtype([(name, "<i8") for name in ("mono_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")])
_ARRIVAL_ROWS = np.dtype([(name, "<i8") for name in ("sequence", "octets", "sent_ns", "received_ns")])


class Run:
    """A run that is being recorded.

    Args:
        folder: created if necessary.
        content: run.json without its cells.

    Raises:
        ConfigurationError: another run is in the folder.
        OSError: it cannot be created.
    """

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        if (folder / RUN).exists():
            raise ConfigurationError(f"{folder} holds a run already: give another --out, or remove it")
        if any(True for name in (RECORDS, MGEN) for _ in (folder / name).glob("*")):
            raise ConfigurationError(
                f"{folder} holds files of a run that did not end: give another --out, or remove it"
            )
        self.folder = folder
        self.content = {"format": FORMAT, "version": VERSION, **content, "cells": []}
        self._tables: dict[str, dict[str, list[Table]]] = {}
        (folder / RECORDS).mkdir(parents=True, exist_ok=True)

    def add_cell(self, cell: dict[str, Any]) -> None:
        """Add a cell; the caller updates the same object as it is measured."""
        self.content["cells"].append(cell)
        self._tables[cell["id"]] = {"sent": [], "received": []}

    def add_round(self, cell: dict[str, Any], entry: dict[str, Any] | None, sent: Table, received: Table) -> None:
        """Add one round of a cell; ``entry`` is that of run.json, None if nothing was sent."""
        self._tables[cell["id"]]["sent"].append(sent)
        self._tables[cell["id"]]["received"].append(received)
        if entry is not None:
            cell["rounds"].append({**entry, "arrivals": len(received)})

    def add_mgen(self, cell_id: str, files: dict[str, bytes]) -> None:
        """Append one round's MGEN logs and bridge records to those of the rounds before."""
        (self.folder / MGEN).mkdir(exist_ok=True)
        names = {}
        for end, octets in files.items():
            path = self.folder / MGEN / f"{cell_id}.{end}"
            again = path.suffix == ".csv" and path.exists()  # then the file has its line of column names
            with path.open("ab") as file:
                file.write(octets.partition(b"\n")[2] if again else octets)
            names[end.partition(".")[0]] = f"{MGEN}/{path.name}"
        self.content["mgen"] = self.content.get("mgen") or {}
        self.content["mgen"][cell_id] = names

    def save(self) -> None:
        """Save the run, run.json last; if that fails, what was saved before is unchanged."""
        parts: dict[Path, Path] = {}  # temporary path -> final path
        try:
            for cell_id, sides in self._tables.items():
                for side, dtype in records.TABLES.items():
                    tables = [table for table in sides[side] if len(table)]
                    if tables:
                        path = records.file(self.folder / RECORDS, cell_id, side)
                        part = path.with_name(f"{path.name}.{os.getpid()}.part")
                        parts[part] = path
                        records.write(part, np.concatenate(tables).astype(dtype))
            part = self.folder / f"{RUN}.{os.getpid()}.part"
            parts[part] = self.folder / RUN
            part.write_text(to_json(self.content, indent=1) + "\n")
        except OSError:  # such as a full disk
            for part in parts:
                part.unlink(missing_ok=True)
            raise
        for part, path in parts.items():
            part.replace(path)


def sent_table(number: int, octets: int, sent: bytes, answers: bytes) -> Table:
    """Rows of the sender, of one round, as a table."""
    went, came = np.frombuffer(sent, _SENT_ROWS), np.frombuffer(answers, _ANSWER_ROWS)
    table = np.zeros(len(went), SENT)
    acknowledged = came["mono_ns"] != 0
    table["round"], table["octets"] = number, octets
    table["sequence"] = np.arange(len(went))
    table["sent_ns"] = np.where(acknowledged, came["t1_ns"], went["sent_ns"])
    table["scheduled_ns"] = np.where(went["scheduled_ns"] != 0, went["scheduled_ns"], table["sent_ns"])
    table["acknowledged"] = acknowledged
    for name, column in (("peer_received_ns", "t2_ns"), ("peer_sent_ns", "t3_ns"), ("received_ns", "t4_ns")):
        table[name] = came[column]
    table["rtt_ns"] = np.where(acknowledged, came["mono_ns"] - went["mono_ns"], 0)
    return table


def received_table(number: int, rows: bytes, first: int, sent: int) -> Table:
    """Rows of the reflector, of one round, as a table, without those of the warm-up or earlier messages."""
    came = np.frombuffer(rows, _ARRIVAL_ROWS)
    came = came[(came["sequence"] >= first) & (came["sequence"] < first + sent)]
    table = np.zeros(len(came), RECEIVED)
    table["round"] = number
    table["sequence"] = came["sequence"] - first
    for name in ("octets", "sent_ns", "received_ns"):
        table[name] = came[name]
    return table
