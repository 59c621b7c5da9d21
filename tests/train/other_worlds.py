"""A model on recordings of another world than its own: ``python -m tests.train.other_worlds MODEL``.

The scenes are those of `tests.replay.holdout`, a scene for each kind of UEs and of interferers.  The signature of the
model is not verified.
"""

import sys
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from examples.train import evaluate, report
from examples.train.evaluate import Counts
from examples.train.labelled import CLASSES, Run
from examples.train.model import Model
from examples.train.signed_model import HEAD_OCTETS
from tests.replay.holdout import INTERFERERS, MOVING, UES, plain

RESAMPLES = 2000
GROUPS = {
    "moving UEs of QPSK to 64QAM": MOVING,
    "static QPSK UEs": [name for name in UES if "never" in name],
    "Gaussian UEs": [name for name in UES if name.startswith("Gaussian")],
}
Scored = tuple[str, Counts, Counts]


def score(model: Model, scene: tuple[int, str, str]) -> Scored:
    heard = plain(*scene)
    classes = heard.ue.astype(np.int8)
    classes[heard.interfered] = CLASSES.index("noise")
    counts = evaluate.score(Run(scene[0], heard.samples, classes, heard.ue, 0), model).counts
    return scene[1], counts["model"], counts["rule"]


def main(path: Path) -> None:
    model = Model.decode(path.read_bytes()[HEAD_OCTETS:])
    scenes = [(9000 + 100 * i + j, ues, kind) for i, ues in enumerate(UES) for j, kind in enumerate(INTERFERERS)]
    with Pool(2) as pool:
        scored = pool.map(partial(score, model), scenes, chunksize=1)
    for name, kinds in GROUPS.items():
        models, rules = zip(*[one[1:] for one in scored if one[0] in kinds], strict=True)
        rng, margins = np.random.default_rng(1), []
        for _ in range(RESAMPLES):
            drawn = rng.integers(len(models), size=len(models))
            margins.append(report.f1([models[k] for k in drawn]) - report.f1([rules[k] for k in drawn]))
        low, high = np.percentile(margins, [2.5, 97.5])
        margin = report.f1(models) - report.f1(rules)
        found = f"model {report.f1(models):.3f}, rule {report.f1(rules):.3f}, margin {margin:+.3f}"
        print(f"{name}, {len(models)} scenes: F1 of {found} ({low:+.3f} to {high:+.3f})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
