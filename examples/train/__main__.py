"""From nothing to a model on air: ``python -m examples.train --out train-out`` (docs/train.md).

Recordings of the emulator, a labelled set, a model with its report, a signed file; then the model as the policy of a
twin over the link, and the same with a file that was altered and with a model that was poisoned.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twinlink.appkit.console import DONE, NOT_MET, guarded, log
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError
from twinlink.identity import Identity, trust

from . import fit, loop, poisoned, report, signed_model, training
from .model import Model

PROGRAM = "examples.train"
LOOP_SEED = 200_000  # of the scene over the link, beyond those of training and test runs
SHADOW_RECORDS = 1000
LOOP = "loop.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Run it.

    Returns:
        0 done, and the model beats the rule; 1 it does not, or a step of the loop did not end as it must; 2 failed; 3
        bad arguments.
    """
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv))


def _parser() -> Parser:
    parser = Parser(prog=f"python -m {PROGRAM}", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder that is not there yet")
    parser.add_argument("--seed", type=int, default=1, help="of scenes, cells, weights and intervals (%(default)s)")
    parser.add_argument("--thin", action="store_true", help="a small set: shows the path, and no margin")
    parser.add_argument("--no-loop", dest="loop", action="store_false", help="end with the report")
    parser.add_argument("--keep-recordings", action="store_true", help="keep what was recorded: 1.1 GB")
    return parser


def _main(argv: Sequence[str]) -> int:
    given = _parser().parse_args(argv)
    if not 0 <= given.seed <= 1000:
        raise ConfigurationError("--seed goes from 0 to 1000")
    if given.out.exists() and any(given.out.iterdir()):
        raise ConfigurationError(f"{given.out} is there, and not empty: name another --out")
    fit.check_installed()  # before anything is written
    begun = time.monotonic()
    sides = _identities(given.out)
    plan = training.plan(given.seed, given.thin)
    found = training.train(given.out, plan, Identity.load(sides.twin), lambda text: log(PROGRAM, text))
    if not given.keep_recordings:
        training.discard_recordings(given.out)
    met = found["compared"][report.ANSWERS]["beats"]
    print(report.verdict(found))
    if given.loop:
        met = _loops(given, sides) and met
    print(f"{given.out / training.REPORT} has the report; SHA-256 of the figures {report.digest(found)}")
    log(PROGRAM, f"{time.monotonic() - begun:.0f} s in all")
    return DONE if met else NOT_MET


def _identities(folder: Path) -> loop.Sides:
    """A twin, which signs the model, too, and a gNB, which trust each other."""
    twin = Identity.create(folder / "twin-1.id", "twin-1", "twin")
    gnb = Identity.create(folder / "gnb-1.id", "gnb-1", "gnb")
    trust.trust(twin.folder, gnb.line, "gnb")
    trust.trust(gnb.folder, twin.line, "twin")
    return loop.Sides(twin.folder, gnb.folder)


def _loops(given: argparse.Namespace, sides: loop.Sides) -> bool:
    """The model over the link, and what must not get there; whether each ended as it must."""
    folder, identity = given.out / "loop", Identity.load(sides.twin)
    model, seed = given.out / training.MODEL, given.seed * 1_000_000 + LOOP_SEED
    seconds, shadow = (12.0, 400) if given.thin else (35.0, SHADOW_RECORDS)
    after = f"--live-after={shadow}"
    good = loop.run(folder / "good", model, sides, seed, seconds, [after])
    print(_told("the model", good))
    if any(one["reason"] == "late" for one in good["changes"]):
        print("the machine was too busy for the model's answers to come in time: repeat it with nothing beside")
    bad = folder / "poisoned.tlm"
    signed_model.write(bad, poisoned.poisoned(Model.decode(signed_model.read(model, identity).body)).encode(), identity)
    in_shadow = loop.run(folder / "poisoned-shadow", bad, sides, seed, 12.0, [f"--live-after={shadow}"])
    print(_told("a poisoned model", in_shadow))
    on_air = loop.run(folder / "poisoned-live", bad, sides, seed, 12.0, ["--live-after=0", "--no-trial"])
    print(_told("a poisoned model that decides at once, untried", on_air))
    altered = _altered(model, folder / "altered.tlm", identity)
    print(f"an altered file: {altered}")
    results = {"good": good, "poisoned in shadow": in_shadow, "poisoned on air": on_air, "altered": altered}
    (given.out / LOOP).write_text(json.dumps(results, indent=1) + "\n")
    stays = [one["policy"].get("stage") for one in (in_shadow, on_air)] == ["rolled back"] * 2
    return stays and good["policy"].get("stage") == "live" and altered.find("(signature)") >= 0


def _told(what: str, found: dict[str, Any]) -> str:
    """A loop, in a sentence."""
    policy, back_ms = found["policy"], found["taken_back_ms"]
    changes = "; ".join(f"{one['event']} {one['reason']}".strip() for one in found["changes"]) or "no change"
    text = (
        f"{what}: {changes}; it decided {policy.get('live_records', 0)} of {found['records']} records, "
        f"{policy.get('stage')} at the end; PRBs of records blocked: {found['blocked_interfered']} with an interferer, "
        f"{found['blocked_clean']} without; {found['refused_in_the_twin']} lists were refused in the twin"
    )
    return text if back_ms is None else f"{text}; its block was taken back {back_ms} ms after the roll-back"


def _altered(model: Path, path: Path, identity: Identity) -> str:
    """Why a file of which one bit was changed is refused."""
    octets = bytearray(model.read_bytes())
    octets[-1] ^= 1
    path.write_bytes(octets)
    try:
        signed_model.read(path, identity)
    except signed_model.ModelRefused as error:
        return str(error)
    return "was taken"


if __name__ == "__main__":
    sys.exit(main())
