"""A synthetic run with known answers."""

import numpy as np
from twinlink_demo.evidence import Evidence, Playout, Rebuilt

N, PRBS = 400, 12
MS = 1_000_000
PERIOD_NS = 10 * MS


def playout() -> Playout:
    """A UE in PRBs 0-5 all the time; an interferer in PRBs 3-4 of records 100-249; a block there from 110 to 289."""
    rng = np.random.default_rng(1)
    ue = np.zeros((N, PRBS), bool)
    ue[:, :6] = True
    interferer = np.zeros((N, PRBS), bool)
    interferer[100:250, 3:5] = True
    blocked = np.zeros((N, PRBS), bool)
    blocked[110:290, 3:5] = True
    level = np.where(interferer & blocked, 400, np.where(ue & ~blocked, 40, 4)).repeat(12, axis=1)
    samples = np.round(rng.normal(size=(N, PRBS * 12, 2)) * level[..., None]).astype(np.int16)
    played_ns = np.arange(N) * PERIOD_NS
    return Playout(samples, ue & ~blocked, interferer, blocked, ue & blocked, played_ns, PERIOD_NS)


def rebuilt(truth: Playout, rows: list[int] | None = None) -> Rebuilt:
    """All that was heard, or these records of it, found out without a fault 2 ms after it was played."""
    record = np.array(range(N) if rows is None else rows)
    at_ns = truth.played_ns[record]
    return Rebuilt(
        samples=truth.samples[record].copy(),
        record=record,
        sequence=record.copy(),
        epoch=np.ones(len(record), np.uint64),
        sent_ns=at_ns + MS,
        received_ns=at_ns + MS + MS // 2,
        analysed_ns=at_ns + 2 * MS,
        occupied=(truth.ue | truth.interferer)[record],
        interfered=truth.interferer[record].copy(),
        prompt=truth.interferer[record].copy(),
    )


def evidence(truth: Playout, found: Rebuilt) -> Evidence:
    prbs = [3, 4]
    events: dict[str, list[dict[str, object]]] = {
        "emulator": [],
        "exporter": [{"event": "block-installed", "time_ns": 0, "prbs": prbs, "installed_ns": 1095 * MS}],
        "replay": [
            {"event": "proposed", "time_ns": 1090 * MS, "id": "1", "prbs": prbs},
            {"event": "block-result", "time_ns": 1096 * MS, "id": "1", "status": "installed"},
            {"event": "interference-ended", "time_ns": 2900 * MS},
        ],
    }
    return Evidence(truth, found, events, {"spectrum": {"sent": N, "acknowledged": N}}, PRBS)
