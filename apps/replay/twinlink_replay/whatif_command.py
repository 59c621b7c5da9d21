"""Try blocks of PRBs in a model of the recorded cell: what each would have avoided, and taken.

The recording is heard until a time, as the twin hears it; then the cell is run ahead in many futures, with each of the
blocks and without any.  A block of PRBs is let go 400 ms after the interferer has left, as the twin does it; with
:MS behind its PRBs it stands for so many ms.  Without --block it is that of the interference found at that time.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink.appkit import convert
from twinlink.appkit.console import DONE, NOT_MET, Output, log, rendered
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError

if TYPE_CHECKING:
    from .trial.policy import Policy
    from .trial.trying import Outcome, Trial

_NAME = "twinlink whatif"
EXAMPLES = """
twinlink whatif twin.mcap
twinlink whatif twin.mcap --at 3.1 --block 82-89 --block 82-89:1000
twinlink whatif twin.mcap --block 0-52 --horizon 5 --json
"""
_FIGURES = "gain", "harm", "taken", "kept", "used"


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the files of a recording")
    parser.add_argument(
        "--block", action="append", type=_block, metavar="PRBS[:MS]", help="a block to try; repeat for more"
    )
    parser.add_argument(
        "--at", type=convert.above_0, metavar="SECONDS", help="when, from the recording's begin (last record)"
    )
    parser.add_argument("--horizon", type=convert.above_0, default=2.0, metavar="SECONDS", help="how far to look ahead")
    parser.add_argument("--seeds", type=convert.whole(2, 1000), default=32, help="futures to try in")
    parser.add_argument("--seed", type=convert.whole(0, 2**32 - 1), default=0, help="of the futures")
    parser.add_argument("--json", action="store_true", help="JSON Lines on stdout: one a policy, and a summary")


def _block(text: str) -> tuple[str, frozenset[int], int | None]:
    prbs, _, length = text.partition(":")
    if not prbs:
        raise argparse.ArgumentTypeError(f"{text!r} names no PRB: write PRBS or PRBS:MS, as in 82-89:1500")
    return text, convert.prbs(prbs), convert.whole(1, 10_000)(length) if length else None


def run(given: argparse.Namespace) -> int:
    """Try; returns 1 if no block leaves."""
    from .trial.cell import fit
    from .trial.futures import MAX_STEPS
    from .trial.heard import STEP_MS
    from .trial.recorded import hear
    from .trial.trying import as_dict, try_policies

    longest_s = MAX_STEPS * STEP_MS / 1000
    if not STEP_MS / 1000 <= given.horizon <= longest_s:
        raise ConfigurationError(f"--horizon {given.horizon:g}: {STEP_MS / 1000:g} to {longest_s:g} s can be foreseen")
    recorded = hear(given.files, given.at)
    for problem in recorded.problems:
        log(_NAME, problem)
    if recorded.others:
        log(_NAME, f"{recorded.others} records of another carrier than the first are left out")
    policies = _policies(given, recorded.interfered)
    trial = try_policies(fit(recorded.heard), policies, given.horizon, given.seeds, given.seed)
    output = Output(given.json)
    heard_s = recorded.heard.steps * STEP_MS / 1000
    for outcome in (trial.nothing, *trial.outcomes):
        output.emit({"type": "policy", **as_dict(outcome)})
    summary = {
        "at_s": recorded.at_s, "heard_s": heard_s, "records": recorded.records, "n_prbs": recorded.heard.n_prbs,
        "interfered": recorded.interfered, "horizon_ms": trial.horizon_ms, "seeds": trial.seeds,
        "best": trial.best.policy.name, "problems": recorded.problems,
    }  # fmt: skip
    output.emit(summary, _text(trial, heard_s, recorded.at_s))
    return DONE if trial.best is not trial.nothing or not policies else NOT_MET


def _policies(given: argparse.Namespace, interfered: tuple[int, ...]) -> "list[Policy]":
    from twinlink.prbs import format_prbs

    from .trial.policy import Policy, Span
    from .twin.controller import HOLD_NS, MS

    end_ms = round(given.horizon * 1000)
    blocks = given.block or ([(format_prbs(interfered), frozenset(interfered), None)] if interfered else [])
    return [
        Policy(name, (Span(0, min(length or end_ms, end_ms), tuple(sorted(prbs)), None if length else HOLD_NS // MS),))
        for name, prbs, length in blocks
    ]


def _text(trial: "Trial", heard_s: float, at_s: float) -> str:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("PRB-ms", no_wrap=True)
    for name in (*_FIGURES, "leaves"):
        table.add_column(name, justify="left" if name == "leaves" else "right", no_wrap=True)
    for outcome in (trial.nothing, *trial.outcomes):
        table.add_row(outcome.policy.name, *(_figure(outcome, name) for name in _FIGURES), _leaves(outcome, trial))
    lines = [f"heard {heard_s:g} s until {at_s:.3f} s; {trial.seeds} futures of {trial.horizon_ms} ms", rendered(table)]
    lines += [f"{one.policy.name} is refused: {one.refusal}" for one in trial.outcomes if one.refusal]
    if not trial.outcomes:
        lines.append("no interference was found then: name a block to try with --block")
    return "\n".join(lines)


def _figure(outcome: "Outcome", name: str) -> str:
    one = outcome.figures.get(name)
    if one is None:
        return "-"
    half = max(one.high - one.mean, one.mean - one.low)
    return f"{one.mean:.0f} ± {half:.0f}"


def _leaves(outcome: "Outcome", trial: "Trial") -> str:
    if outcome is trial.nothing:
        return ""
    if outcome.refusal:
        return f"no: {outcome.refusal.rule}"
    return "yes, the best" if outcome is trial.best else "yes"
