"""``twinlink-exporter``: runs beside the gNB until a signal ends it."""

import argparse
import gc
import math
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink_e3 import FFT_SIZES, GENERATIONS, N_PRBS_MAX, add_endpoint_arguments, endpoints_of, first_bin, grammar
from twinlink_live import serving

import twinlink
from twinlink.appkit import convert, linking, options, outputs, recorded_link, service, signing
from twinlink.appkit.console import DONE, FAILED, ending_signals, guarded, log, writing
from twinlink.appkit.journal import Journal
from twinlink.cli import all_keys
from twinlink.errors import ConfigurationError
from twinlink.prbs import format_prbs
from twinlink.process.text import to_json

from .authentication import Authentication
from .decision_guard import Limits
from .exporter import RECEIVES, SENDS, SENSING, Exporter
from .generation_search import ANY, ENCODINGS, GenerationSearch
from .observation import Carrier
from .reduction import add_reduction_arguments, plan_of_reduction, reduction_of
from .sockets import open_sockets
from .twin_sync import SyncLimits

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

PROGRAM = "twinlink-exporter"
EXAMPLES = """
twinlink-exporter --connect tcp/10.0.0.5:7447 --protect-prbs 0-12 --check
twinlink-exporter --config twinlink.toml --http 127.0.0.1:9464 --log run.jsonl
twinlink-exporter --e3 aerial --connect tcp/10.0.0.5:7447 --log run.jsonl
"""
UNPROTECTED = "none (SSB, CORESET0, PRACH: see --protect-prbs)"
SPACINGS_KHZ = (15, 30, 60, 120, 240, 480, 960)  # 3GPP TS 38.211 table 4.2-1


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0 done, 2 failed, 3 bad arguments."""
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    _on_signal(lambda: sys.exit(DONE))
    given = options.parse(make_parser(), "exporter", argv, all_keys)
    if given.check:
        return service.check(lambda: _plan(given))
    carrier, limits, sync_limits = _settings(given)
    with Journal(PROGRAM, given.log) as journal:
        try:
            return _run(given, carrier, limits, sync_limits, journal)
        except (twinlink.TwinlinkError, OSError):
            raise  # `guarded` reports it
        except Exception as error:
            text = f"a defect of the exporter: {error!r}; please report it with the file that --log writes"
            journal.event("failed", text, traceback=traceback.format_exc())
            return FAILED


def _settings(given: argparse.Namespace) -> tuple[Carrier, Limits, SyncLimits]:
    """Raises ConfigurationError, or GrammarMissing without the E3 grammar."""
    try:
        carrier = Carrier(given.n_prbs, given.scs_khz * 1000, given.centre_hz, given.fft_size, given.cell_id)
        if carrier.fft_size is not None:
            first_bin(carrier.n_prbs, carrier.fft_size)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    protected = given.protect_prbs or frozenset()
    if protected and max(protected) >= carrier.n_prbs:
        raise ConfigurationError(f"--protect-prbs: the carrier has PRBs 0-{carrier.n_prbs - 1}")
    if given.out_after == 0:
        raise ConfigurationError("--out-after must be above 0: no twin would ever be in sync")
    if signing.signs(given) and given.insecure_control:
        raise ConfigurationError(
            "--insecure-control excludes --identity and --sign: with an identity, only signed decisions count"
        )
    # Compiled before an agent is asked: its answer is compared with all generations.
    for generation in GENERATIONS:
        grammar.e3ap(generation)
    grammar.spectrum()
    grammar.l1_kpm()
    sync_limits = SyncLimits(given.out_after, given.completeness)
    slots_per_frame = 10 * given.scs_khz // 15  # 3GPP TS 38.211 table 4.3.2-1
    limits = Limits(carrier.n_prbs, protected, given.max_age_ms, given.max_validity_ms, slots_per_frame)
    return carrier, limits, sync_limits


def _plan(given: argparse.Namespace) -> list[str]:
    carrier, limits, sync_limits = _settings(given)
    _check_outputs(given)
    return [
        *service.plan_of_link(given, _sends(given), RECEIVES, "twin"),
        f"E3: {endpoints_of(given)}; generation {given.e3_generation}, encoding {given.e3_encoding}",
        f"carrier: PRBs 0-{carrier.n_prbs - 1} of {given.scs_khz} kHz around {carrier.centre_hz / 1e6:g} MHz; "
        f"of several cells {'the first' if carrier.cell_id is None else carrier.cell_id}",
        plan_of_reduction(reduction_of(given)),
        f"protected PRBs: {format_prbs(limits.protected) or UNPROTECTED}",
        f"decisions: {_deciders(given)}, at most {limits.max_age_ms} ms old, for at most {limits.max_validity_ms} ms",
        f"a twin is out of sync after {sync_limits.out_after:g} s without an acknowledgement of a new observation, "
        f"or with less than {sync_limits.completeness:.1%} of the observations",
        f"at the start: {'a block of before is cleared' if given.clear_at_start else 'nothing is cleared'}",
        *service.plan_of_http(given),
        *serving.plan(given.live),
        *service.plan_of_files(("log", given.log), ("summary", given.summary), ("record", given.record)),
    ]


def _check_outputs(given: argparse.Namespace) -> None:
    """Raises ConfigurationError if an earlier run's files would be replaced; OSError."""
    if given.summary:
        outputs.refuse_existing("--summary", [given.summary], given.overwrite)
    recorded_link.check(given)


def _run(given: argparse.Namespace, carrier: Carrier, limits: Limits, sync_limits: SyncLimits, journal: Journal) -> int:
    # Files written at the end are checked now, while another path can be chosen.
    _check_outputs(given)
    if given.summary:
        given.summary.open("a").close()
    reduction = reduction_of(given)
    with recorded_link.open_link(given, partial(journal.event, "recorded")) as link:
        identity = signing.signing_identity(given, link)
        sockets = open_sockets(endpoints_of(given))
        exporter = Exporter(
            link, sockets, carrier, limits, journal,
            search=GenerationSearch.of(given.e3_generation, given.e3_encoding), reduction=reduction,
            sensing=given.sensing,
            sync_limits=sync_limits, clear_at_start=given.clear_at_start,
            authentication=Authentication(identity, link.epoch, given.insecure_control),
        )  # fmt: skip
        _on_signal(exporter.stop)
        what = "listening on" if link.listening else "connecting to"
        journal.event(
            "started",
            f"{given.transport} {what} {link.endpoint} as {link.node}; "
            f"decisions: {_deciders(given)}; protected PRBs: {format_prbs(limits.protected) or UNPROTECTED}",
            transport=given.transport,
            endpoint=link.endpoint,
            node=link.node,
            protected=sorted(limits.protected),
        )
        linking.tell_if_no_peer(link, partial(journal.event, "no-peer"))

        def collectors() -> "list[Collector]":
            from twinlink.metrics import collector

            from .metrics import ExporterCollector

            return [collector(link), ExporterCollector(exporter)]

        with (
            service.serving(given.http, exporter.pulse, exporter.not_ready, collectors, service.told_by(journal)),
            serving.serving(given.live, link, partial(log, PROGRAM)),
        ):
            # To visit what exists now takes longer than slots stay in shared memory: later collections leave it out.
            gc.collect()
            gc.freeze()
            exporter.run()
    summary = exporter.summary()
    shown = ("indications", "exported", "without_twin", "undecodable")
    text = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in shown)
    journal.event("summary", f"{text}, {summary['spectrum']['lost']} lost on the way", **summary)
    if given.summary:
        with writing(given.summary):
            given.summary.write_text(to_json(summary, indent=2) + "\n", encoding="utf-8")
    return DONE


def make_parser() -> options.Parser:
    """The command's options."""
    parser = options.Parser(
        prog=PROGRAM,
        description="Export a gNB's uplink spectrum from E3 to its digital twin, and the twin's PRB blocks to the gNB.",
        examples=EXAMPLES,
    )
    link = parser.group("link to the twin")
    linking.add_link_options(link, listens=False, other="the twin", node="gnb-1")
    linking.add_mirror_option(link)
    add_endpoint_arguments(parser, finds_link=True)
    agent = parser.group("E3 agent")
    agent.add_argument(
        "--e3-generation", choices=(ANY, *GENERATIONS), default=ANY, help="of E3AP; auto asks the agent in G0 first"
    )
    agent.add_argument(
        "--e3-encoding", choices=(ANY, *ENCODINGS), default=ANY, help="json for a JSON agent of libe3 up to 0.0.7"
    )
    carrier = parser.group("carrier (not described by E3)")
    carrier.add_argument("--n-prbs", type=convert.whole(1, N_PRBS_MAX), default=106, help="PRBs of the carrier")
    carrier.add_argument("--scs-khz", type=int, choices=SPACINGS_KHZ, default=30, help="subcarrier spacing")
    carrier.add_argument("--centre-hz", type=_frequency, default=3.6192e9, help="centre frequency")
    carrier.add_argument(
        "--fft-size",
        type=convert.whole(1, 4096),
        help=f"bins of a symbol (from its length, {', '.join(map(str, FFT_SIZES))}, if not given)",
    )
    carrier.add_argument(
        "--cell-id",
        type=convert.whole(0, 65535),
        metavar="N",
        help="of the cell to export, where the gNB indicates several (default: the first that it indicates)",
    )
    add_reduction_arguments(parser)
    agent.add_argument(
        "--sensing",
        action="store_true",
        help="send what the MAC leaves free, too, on flow sensing (with RAN function 2)",
    )
    guard = parser.group("what the twin may ask for")
    signing.add_option(guard, "results")
    guard.add_argument(
        "--insecure-control",
        action="store_true",
        help="without an identity, take decisions from any program that reaches it; else from none",
    )
    guard.add_argument(
        "--protect-prbs", type=convert.prbs, metavar="0-3,50", help="never block these (SSB, CORESET0, PRACH)"
    )
    guard.add_argument("--max-age-ms", type=convert.whole(1, 3_600_000), default=500, help="of a decision")
    guard.add_argument("--max-validity-ms", type=convert.whole(1, 3_600_000), default=10_000, help="of a block")
    guard.add_argument(
        "--out-after", type=convert.seconds, default=2.0, metavar="SECONDS",
        help="age of the newest acknowledged observation from which a twin is out of sync",
    )  # fmt: skip
    guard.add_argument(
        "--completeness", type=convert.fraction, default=0.99, metavar="PART",
        help="acknowledged part of ten seconds' observations below which it is, too",
    )  # fmt: skip
    guard.add_argument("--clear-at-start", action="store_true", help="clear what an earlier exporter may have left")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append events as JSON Lines")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="counters as JSON, at the end")
    recorded_link.add_option(parser)
    outputs.add_option(parser)
    service.add_options(parser)
    serving.add_option(parser)
    return parser


def _deciders(given: argparse.Namespace) -> str:
    if signing.signs(given):
        return "signed ones of trusted twins"
    if given.insecure_control:
        return "those of any twin (--insecure-control)"
    return "none, without an identity (see --identity, --sign, --insecure-control)"


def _sends(given: argparse.Namespace) -> tuple[str, ...]:
    return (*SENDS, SENSING) if given.sensing else SENDS


_frequency = convert.number(  # the twin reads it from JSON, which has no infinities
    lambda value: 0 < value < math.inf, "a frequency in Hz is expected, such as 3.6192e9"
)


def _on_signal(act: Callable[[], object]) -> None:
    for number in ending_signals():
        signal.signal(number, lambda *_: act())


if __name__ == "__main__":
    sys.exit(main())
