"""Precision and recall of the detector over many scenes: ``python -m tests.replay.evaluate --seeds 3 --n-prbs 106``.

Recall is given over all (record, PRB) cells with an interferer of 6 dB or more, and over those without a UE on top.
"""

import argparse
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from twinlink_replay.detection.detector import Detector
from twinlink_replay.detection.features import prb_features, subcarrier_power

from tests.replay.uplink_scenes import Heard, Interferer, Scene, hear

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Found:
    smoothed: Mask
    filtered: Mask


@dataclass(frozen=True)
class Score:
    precision: float
    recall: float
    recall_uncovered: float


def detect(heard: Heard, batch: int = 1) -> Found:
    features = prb_features(subcarrier_power(heard.samples), heard.samples)
    detector = Detector(heard.ue.shape[1])
    smoothed, filtered = np.zeros(heard.ue.shape, bool), np.zeros(heard.ue.shape, bool)
    answers = []
    for k in range(0, len(smoothed), batch):
        filtered[k : k + batch] = detector.add(features.part(slice(k, k + batch))).interfered
        answers += detector.smoothed()
    answers += detector.finish()
    for answer in answers:
        smoothed[answer.first : answer.first + len(answer.interfered)] = answer.interfered
    return Found(smoothed, filtered)


def scores(heard: Heard, found: Mask) -> Score:
    hits, false = int((found & heard.strong).sum()), int((found & ~heard.interfered).sum())
    uncovered = heard.strong & ~heard.ue
    return Score(
        precision=hits / max(hits + false, 1) if heard.interfered.any() else 1.0,
        recall=hits / max(int(heard.strong.sum()), 1),
        recall_uncovered=float((found & uncovered).sum() / max(int(uncovered.sum()), 1)),
    )


def interferers(n_prbs: int, n_records: int) -> dict[str, tuple[Interferer, ...]]:
    def at(share: float) -> int:
        return int(share * n_prbs)

    def one(first: int, end: int, inr_db: float, kind: str = "noise") -> tuple[Interferer, ...]:
        return (Interferer(n_records // 4, n_records * 2 // 3, first, end, inr_db, kind),)

    return {
        "noise 6 dB": one(at(0.6), at(0.6) + 8, 6),
        "noise 10 dB": one(at(0.6), at(0.6) + 8, 10),
        "noise 20 dB": one(at(0.6), at(0.6) + 8, 20),
        "tones 6-10 dB": (
            Interferer(100, 300, at(0.3), at(0.3) + 1, 6, "tone"),
            Interferer(250, 500, at(0.8), at(0.8) + 2, 10, "drift"),
        ),
        "several": (
            Interferer(60, 200, at(0.1), at(0.1) + 3, 7),
            Interferer(150, 420, at(0.5), at(0.5) + 6, 15, "fading"),
            Interferer(300, 560, at(0.8), at(0.8) + 1, 9, "tone"),
        ),
        "third of band 6 dB": one(at(0.3), at(0.63), 6),
        "third of band 20 dB": one(at(0.3), at(0.63), 20),
        "whole time 8 dB": (Interferer(0, n_records, at(0.3), at(0.5), 8),),
        "QPSK 10 dB, on the grid": one(at(0.6), at(0.6) + 8, 10, "qpsk"),
        "16QAM 15 dB, on the grid": one(at(0.6), at(0.6) + 8, 15, "qam16"),
        "sweep 10 dB, third of band": one(at(0.3), at(0.63), 10, "constant"),
        "300 ms bursts": tuple(Interferer(k, k + 30, at(0.4), at(0.4) + 6, 12) for k in (100, 200, 300, 400)),
    }


WORLDS: dict[str, Scene] = {
    "usual": Scene(),
    "no UEs": Scene(n_ues=0),
    "quick grants (80 ms)": Scene(dwell=8, pause=8),
    "long grants (1.5 s)": Scene(dwell=150, pause=60),
    "UEs never move": Scene(static=True, n_ues=3),
    "weak UEs (3-12 dB)": Scene(snr_db=(3, 12)),
    "load 95 %": Scene(max_load=0.95, n_ues=8, pause=5),
    "noise of 1 LSB": Scene(noise_lsb=1.0),
    "noise of 200 LSB": Scene(noise_lsb=200.0),
    "500 ns taps": Scene(delay_spread_ns=500.0, coherence=60.0),
    "flat slow fading": Scene(flat=True, coherence=300.0),
    "64QAM and up": Scene(modulations=(6, 8)),
    "Gaussian UEs": Scene(modulations=(0,)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n-prbs", type=int, default=106)
    parser.add_argument("--world", action="append")
    arguments = parser.parse_args()
    print("| UEs | interferer | precision | recall | recall without a UE on top |\n|---|---|---|---|---|")
    for name, world in WORLDS.items():
        if arguments.world and name not in arguments.world:
            continue
        for kind, which in interferers(arguments.n_prbs, world.n_records).items():
            results = []
            for seed in range(arguments.seeds):
                heard = hear(replace(world, n_prbs=arguments.n_prbs, interferers=which), 100 + seed)
                results.append(scores(heard, detect(heard).smoothed))
            mean = [np.mean([getattr(r, f) for r in results]) for f in ("precision", "recall", "recall_uncovered")]
            print(f"| {name} | {kind} | {mean[0]:.3f} | {mean[1]:.3f} | {mean[2]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
