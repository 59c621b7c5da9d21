"""The twin whose policy is a signed model: ``python -m examples.train.dapp --model model.tlm --identity twin-1.id``.

It is `twinlink-replay`, with all its options, files and limits, whose detector has a model beside it: first in shadow,
then live, and back to the rule by itself (docs/train.md).
"""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlink_replay.__main__ import make_parser as replay_parser
from twinlink_replay.__main__ import run

import twinlink
from twinlink.appkit import convert, options, signing
from twinlink.appkit.console import ending_signals, guarded
from twinlink.appkit.journal import Journal
from twinlink.cli import all_keys
from twinlink.identity import Identity

from . import signed_model
from .judged_detector import Policy
from .model_process import ModelProcess
from .probation import Change

if TYPE_CHECKING:
    from twinlink_replay.twin.twin import Twin

PROGRAM = "examples.train.dapp"
EXAMPLE = f"python -m {PROGRAM} --model train-out/model.tlm --identity train-out/twin-1.id --log twin.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; exit codes as of `twinlink-replay`, and 2 where the model is refused."""
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv))


def make_parser() -> options.Parser:
    """The parser: options of `twinlink-replay`, and the model's."""
    parser = replay_parser()
    parser.prog = f"python -m {PROGRAM}"
    parser.description = "A twin whose policy is a signed model: in shadow, live, and back to the rule by itself."
    parser.epilog = f"example:\n\n  {EXAMPLE}"
    model = parser.group("model")
    model.add_argument(
        "--model", type=Path, required=True, metavar="FILE",
        help="signed model; its signer is trusted by --identity, or --sign, with the role twin",
    )  # fmt: skip
    model.add_argument(
        "--live-after", type=convert.whole(0), default=1000, metavar="N",
        help="records in shadow beside the rule before the model decides, if nothing speaks against it",
    )  # fmt: skip
    model.add_argument("--shadow", action="store_true", help="stay in shadow: the rule decides")
    model.add_argument(
        "--model-limit-ms", type=convert.whole(1, 1000), default=50, metavar="MS",
        help="time for an answer of the model, beyond which the rule decides for the record",
    )  # fmt: skip
    return parser


def _main(argv: Sequence[str]) -> int:
    given = options.parse(make_parser(), "replay", argv, all_keys)
    if given.check or given.grc_path or given.companion is not None:
        raise twinlink.ConfigurationError("--check, --grc-path and --companion are of twinlink-replay: start that")
    if not signing.signs(given):
        raise twinlink.ConfigurationError(
            "a model counts only if it is signed by a trusted key: give --identity DIR, or --sign DIR over a link "
            "without one (`twinlink key new` makes an identity)"
        )
    signed = signed_model.read(given.model, Identity.load(given.sign or given.identity))
    stop = threading.Event()
    for number in ending_signals():
        signal.signal(number, lambda *_: stop.set())
    with Journal(PROGRAM, given.log) as journal, ModelProcess(signed.body) as process:
        text = f"{given.model} is signed by {signed.signer}; it runs in process {process.pid}"
        journal.event("model", text, signer=signed.signer, octets=len(signed.body), pid=process.pid)
        policies = list[Policy]()
        code = run(given, stop, journal, partial(_attach, given, journal, process, policies))
        for policy in policies:
            _summarise(journal, policy)
    return code


def _attach(
    given: argparse.Namespace, journal: Journal, process: ModelProcess, policies: list[Policy], twin: "Twin"
) -> None:
    """Give the twin its policy."""
    live_after = None if given.shadow else given.live_after
    tell = partial(_tell, journal, twin)
    policy = Policy(
        process, given.model_limit_ms / 1000, live_after, lambda: twin.fidelity.low, tell, lambda: twin.follows_replay
    )
    twin.make_detector = policy.make_detector
    policies.append(policy)


def _tell(journal: Journal, twin: "Twin", change: Change) -> None:
    if change.stage == "live":
        journal.event("policy-live", f"the model decides from now on: {change.text}", why=change.text)
        return
    text = f"the rule decides, and the model does not any more ({change.reason}): {change.text}"
    journal.event("policy-rolled-back", text, reason=change.reason, why=change.text)
    if change.was_live:
        twin.decisions.take_back(f"the model is rolled back ({change.reason})")


def _summarise(journal: Journal, policy: Policy) -> None:
    probation = policy.probation
    if probation is None:
        return
    counts: dict[str, Any] = dict(probation.counts)
    text = (
        f"the model is {probation.stage}: {counts.get('live_records', 0)} of {counts['records']} records were decided "
        f"by it; both reported {counts.get('both', 0)} PRBs, the model alone {counts.get('model', 0)}, the rule alone "
        f"{counts.get('rule', 0)}; of {counts.get('judged', 0)} judged, the model was wrong in "
        f"{counts.get('model_wrong', 0)}, the rule in {counts.get('rule_wrong', 0)}; {counts.get('late', 0)} late"
    )
    kinds = {name: count for name, count in policy.kinds.items() if count}
    journal.event("policy", text, stage=probation.stage, kinds=kinds, **counts)


if __name__ == "__main__":
    sys.exit(main())
