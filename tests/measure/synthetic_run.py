"""A synthetic run folder in the format of a sweep, with known figures."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinlink.appkit import records

SUBJECTS = ("zeromq", "zenoh", "raw-tcp", "raw-zeromq", "raw-zenoh", "mqtt-qos0")
PAYLOADS = (100, 1024, 10240, 102400, 1048576)
DIRECTIONS = ("rw-dt", "dt-rw")
STARTED_NS = 1_760_000_000_000_000_000
COUNTERS = {"lost": 0, "duplicates": 0, "reordered": 0, "malformed": 0}
# One-way delay at 100 octets, and per further octet.
_DELAY_US = {"raw-tcp": 20, "raw-zeromq": 55, "zeromq": 57, "raw-zenoh": 60, "zenoh": 61, "raw-mqtt": 240}
_PER_OCTET_NS = {"raw-tcp": 0.35, "mqtt-qos0": 4.0, "mqtt-qos1": 4.2, "raw-mqtt": 3.8}
_NODES = {"real_world": "gnb-host", "digital_twin": "twin-host"}


def write(
    folder: Path,
    *,
    subjects: Sequence[str] = SUBJECTS,
    payloads: Sequence[int] = PAYLOADS,
    directions: Sequence[str] = DIRECTIONS,
    mode: str = "closed",
    rounds: int = 5,
    count: int = 20,
    seed: int = 1,
    slower: Callable[[str, int], float] = lambda subject, octets: 1.0,
    round_noise: float = 0.02,
    lost: int = 0,
    setting: str = "netns",
    rate_hz: float | None = None,
    offset_ns: int = 0,
    broken_off: bool = False,
) -> dict[str, Any]:
    """Write it; returns the content of run.json.

    Args:
        count: messages of each round.
        slower: factor on the delays of a cell.
        round_noise: standard deviation of a factor that all messages of a round share.
        lost: messages at the end of each round of the first cell that never arrive.
        offset_ns: of the Digital Twin's clock.
        broken_off: the last cell was interrupted in its second round, and the one before was skipped.
    """
    random = np.random.default_rng(seed)
    (folder / "records").mkdir(parents=True)
    cells = []
    now_ns = STARTED_NS
    every = [(subject, octets, direction) for subject in subjects for octets in payloads for direction in directions]
    for index, (subject, octets, direction) in enumerate(every):
        cell = _cell(subject, octets, direction, mode, rate_hz)
        cells.append(cell)
        number = rounds
        if broken_off and index == len(every) - 2:
            cell |= {"status": "skipped", "reason": "the run was interrupted before"}
            continue
        if broken_off and index == len(every) - 1:
            cell |= {"status": "interrupted", "reason": "the run was interrupted"}
            number = 1
        parts = [
            _round(
                random, each, octets, count, now_ns + each * 60_000_000_000,
                _delay_ns(subject, octets) * slower(subject, octets) * np.exp(random.normal(0, round_noise)),
                lost if index == 0 else 0, offset_ns if direction == "rw-dt" else -offset_ns,
                None if rate_hz is None else round(1e9 / rate_hz),
            )
            for each in range(number)
        ]  # fmt: skip
        cell["rounds"] += [_about(each, *tables, octets, subject) for each, tables in enumerate(parts)]
        _save(folder, cell, parts)
        now_ns += 500_000_000
    ended_ns = None if broken_off else STARTED_NS + 280_000_000_000
    run = _run(setting, _used(seed, count, rounds, subjects), cells, ended_ns)
    (folder / "run.json").write_text(json.dumps(run, indent=1))
    return run


def without_receiver(folder: Path, run: dict[str, Any], index: int) -> None:
    """Remove the record and the counters of a cell's receiver, as if it had died."""
    cell = run["cells"][index]
    cell |= {"status": "peer lost", "reason": "round 2 of 2: the worker at the Digital Twin was ended by signal 9"}
    for entry in cell["rounds"]:
        entry |= {"arrivals": 0, "receiver_cpu_ns": None, "receiver_peak_rss_octets": None, "wire_octets": None}
        entry["counters"] |= dict.fromkeys(("received", "duplicates", "reordered", "malformed"))
    records.file(folder / "records", cell["id"], "received").unlink()
    (folder / "run.json").write_text(json.dumps(run, indent=1))


def _save(folder: Path, cell: dict[str, Any], parts: Sequence[tuple[records.Table, records.Table]]) -> None:
    for side, tables in zip(records.TABLES, zip(*parts, strict=True), strict=True):
        records.write(records.file(folder / "records", cell["id"], side), np.concatenate(tables))


def _used(seed: int, count: int, rounds: int, subjects: Sequence[str]) -> dict[str, Any]:
    return {
        "seed": seed,
        "count": count * rounds,
        "rounds": rounds,
        "subjects": list(subjects),
        "subject_options": {subject: {"send_timeout": 5.0} for subject in subjects},
    }


def _cell(subject: str, octets: int, direction: str, mode: str, rate_hz: float | None) -> dict[str, Any]:
    return {
        "id": f"{subject}-{octets}-{direction}-{mode}",
        "subject": subject,
        "octets": octets,
        "direction": direction,
        "mode": mode,
        "rate_hz": rate_hz,
        "status": "done",
        "reason": None,
        "rounds": [],
        "search": None,
    }


def _run(setting: str, used: dict[str, Any], cells: list[dict[str, Any]], ended_ns: int | None) -> dict[str, Any]:
    return {
        "format": "twinlink-run",
        "version": 1,
        "started_ns": STARTED_NS,
        "ended_ns": ended_ns,
        "complete": ended_ns is not None,
        "configuration": {"given": {"setting": setting}, "used": used},
        "setting": setting,
        "rate_limit": None,
        "source": "twinlink",
        "system": {side: _system(name) for side, name in _NODES.items()},
        "ntp": {side: {"error": "no server was named"} for side in _NODES},
        "cells": cells,
        "mgen": None,
    }


def _delay_ns(subject: str, octets: int) -> float:
    return 1000 * _DELAY_US.get(subject, 250) + _PER_OCTET_NS.get(subject, 0.8) * octets


def _round(
    random: np.random.Generator,
    number: int,
    octets: int,
    count: int,
    start_ns: int,
    delay_ns: float,
    lost: int,
    offset_ns: int,
    period_ns: int | None,
) -> tuple[records.Table, records.Table]:
    forward = (delay_ns * random.gamma(40, 1 / 40, count)).astype(np.int64)
    back = (0.9 * delay_ns * random.gamma(40, 1 / 40, count)).astype(np.int64)
    residence = random.integers(4_000, 9_000, count)
    rtt = forward + residence + back
    gaps = rtt + random.integers(20_000, 40_000, count)
    scheduled = start_ns + (np.concatenate(([0], np.cumsum(gaps)[:-1])) if period_ns is None else
                            period_ns * np.arange(count))  # fmt: skip
    sent_ns = scheduled + (0 if period_ns is None else random.integers(1_000, 30_000, count))
    sent = np.zeros(count, records.SENT)
    sent["round"], sent["sequence"], sent["octets"] = number, np.arange(count), octets
    sent["scheduled_ns"], sent["sent_ns"] = scheduled, sent_ns
    arrived = np.arange(count) < count - lost
    sent["acknowledged"] = arrived
    for name, values in (
        ("peer_received_ns", sent_ns + forward + offset_ns),
        ("peer_sent_ns", sent_ns + forward + residence + offset_ns),
        ("received_ns", sent_ns + rtt),
        ("rtt_ns", rtt),
    ):
        sent[name][arrived] = values[arrived]
    received = np.zeros(int(arrived.sum()), records.RECEIVED)
    for name in ("round", "sequence", "octets", "sent_ns"):
        received[name] = sent[name][arrived]
    received["received_ns"] = sent["peer_received_ns"][arrived]
    return sent, received


def _about(number: int, sent: records.Table, received: records.Table, octets: int, subject: str) -> dict[str, Any]:
    count = len(sent)
    broker = subject.startswith(("mqtt", "raw-mqtt"))
    lost = int(count - sent["acknowledged"].sum())
    return {
        "round": number,
        "started_ns": int(sent["sent_ns"][0]),
        "elapsed_ns": int(sent["received_ns"].max() - sent["sent_ns"][0]),
        "warm_up": 5,
        "sent": count,
        "arrivals": len(received),
        "sender_cpu_ns": 60_000 * count,
        "receiver_cpu_ns": 55_000 * count,
        "broker_cpu_ns": 30_000 * count if broker else None,
        "sender_peak_rss_octets": 60 << 20,
        "receiver_peak_rss_octets": 58 << 20,
        "broker_peak_rss_octets": 8 << 20 if broker else None,
        "wire_octets": {"forward": (octets + 98) * count, "back": 154 * count},
        "wire_packets": {"forward": (1 + octets // 65536) * count, "back": count},
        "counters": COUNTERS | {"lost": lost},
    }


def _system(hostname: str) -> dict[str, Any]:
    return {
        "hostname": hostname,
        "kernel": "6.1.0",
        "python": "3.11.2",
        "cpu_model": "a processor",
        "cpus": 2,
        "load_1min": 0.4,
        "clocksource": "tsc",
        "versions": {
            "twinlink": "0.1.0",
            "pyzmq": "27.1.0",
            "libzmq": "4.3.5",
            "eclipse-zenoh": "1.10.0",
            "paho-mqtt": "2.2.0",
            "mosquitto": "2.0.11",
            "numpy": "1.26.4",
        },
    }
