"""``twinlink-replay``: the Digital Twin's side without a display."""

import argparse
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink_live import serving

import twinlink
from twinlink.appkit import convert, linking, options, outputs, recorded_link, service, signing
from twinlink.appkit.console import DONE, NOT_MET, ending_signals, guarded, log
from twinlink.appkit.journal import Journal
from twinlink.appkit.pulse import Pulse
from twinlink.block_state import FLOW as BLOCK_STATE
from twinlink.cli import all_keys
from twinlink.digest import FLOW as DIGEST
from twinlink.digest import REQUEST_FLOW
from twinlink.kpm import FLOW as KPM
from twinlink.prbs import format_prbs
from twinlink.signed_payload import MAX_SIGNED_OCTETS
from twinlink.sync import State

from . import companion, grc
from .twin.decision_path import DecisionPath

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from .twin.flowgraph import Flowgraph
    from .twin.recording import Recording
    from .twin.twin import Twin

PROGRAM = "twinlink-replay"
LOOK_S = 0.05
SENDS = "control", REQUEST_FLOW, KPM, BLOCK_STATE
RECEIVES = "spectrum", "control-result", BLOCK_STATE
SENSING = "sensing"  # comes if the exporter is told to send it
SPECTRUM_ADVICE = "have their sender send twinlink.spectrum.Spectrum(...).encode()"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 done; 1 messages are missing or cannot be decoded; 2 failed; 3 invalid arguments.
    """
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    given = options.parse(make_parser(), "replay", argv, all_keys)
    if given.grc_path:
        print(grc.PATH)
        return DONE
    if given.companion is not None:
        companion.start(given.companion)
    if given.check:
        return service.check(lambda: _plan(given))
    stop = threading.Event()
    for number in ending_signals():
        signal.signal(number, lambda *_: stop.set())
    with Journal(PROGRAM, given.log) as journal:
        return run(given, stop, journal)


def _plan(given: argparse.Namespace) -> list[str]:
    from .blocks import gnuradio_compat  # noqa: F401  (raises where GNU Radio is missing)

    _check_outputs(given)
    signed = "signed " if signing.signs(given) else ""
    tried = " once the model of the cell has accepted them" if given.trial else ""
    decides = (
        f"{signed}blocks of {given.validity_ms} ms are proposed{tried}" if given.control else "nothing is proposed"
    )
    ends = [f"{name} {value:g}" for name, value in (("count", given.count), ("idle", given.idle)) if value is not None]
    return [
        *service.plan_of_link(given, SENDS, (*RECEIVES, SENSING, DIGEST, KPM), "exporter"),
        f"queue to the flowgraph: at most {given.buffer_mb} MiB of records",
        f"control loop: {decides}; protected PRBs: {format_prbs(given.protect_prbs or ()) or 'none'}",
        f"end: {' or '.join([*ends, 'a signal'])}",
        *service.plan_of_http(given),
        *serving.plan(given.live),
        *service.plan_of_files(("out/", given.out), ("log", given.log), ("record", given.record)),
    ]


def _check_outputs(given: argparse.Namespace) -> None:
    """Raises ConfigurationError if an earlier run's files would be replaced; OSError."""
    from .twin import recording

    if given.out:
        outputs.refuse_existing("--out", recording.existing(given.out), given.overwrite)
    recorded_link.check(given)


def run(
    given: argparse.Namespace,
    stop: threading.Event,
    journal: Journal,
    prepare: "Callable[[Twin], object]" = lambda twin: None,
) -> int:
    """Be a twin until there is a reason to end, and return the exit code; ``prepare`` gets the twin before its link.

    Raises TwinlinkError, OSError.
    """
    os.environ.setdefault("GR_CONF_LOG_LOG_FILE", "stderr")  # GNU Radio reads it on import; its default is stdout
    from .blocks.gnuradio_compat import do_without_home
    from .showing import Showing
    from .twin.flowgraph import Flowgraph  # needs GNU Radio
    from .twin.recording import Recording

    _check_outputs(given)
    if why := do_without_home():
        journal.event("no-home", f"GNU Radio keeps its settings in $TMP, or /tmp ({why})", reason=why)
    recording = Recording(given.out) if given.out else None
    with recorded_link.open_link(given, partial(journal.event, "recorded")) as link:
        sync = link.sync("spectrum")
        twin = _make_twin(given, journal, link, sync, recording)
        prepare(twin)
        _report_start(journal, link, given.transport)
        linking.tell_if_no_peer(link, partial(journal.event, "no-peer"))
        _connect(link, twin)
        octets = given.buffer_mb * 1024 * 1024
        with Flowgraph(link, twin.add, octets, lambda: twin.follows_replay) as flowgraph:
            pulse = Pulse()
            collectors = partial(_collectors, link, twin, sync, flowgraph)
            with (
                service.serving(
                    given.http, pulse, lambda: _not_ready(link, sync), collectors, service.told_by(journal)
                ),
                serving.serving(given.live, link, partial(log, PROGRAM)) as view,
            ):
                if view is not None:
                    twin.watcher = Showing(view)
                    view.fidelity = twin.fidelity.described
                # To visit what exists now takes longer than records are apart: later collections leave it out.
                gc.collect()
                gc.freeze()
                why = _wait(given, stop, twin, flowgraph, pulse)
            freshness = sync.stats()
        counted = flowgraph.source.stats()
    twin.finish()
    twin.decisions.finish()
    counted["waiting"] += twin.left_out
    if flowgraph.observer.error:
        raise OSError(f"the analysis failed: {flowgraph.observer.error!r}")
    _summarise(journal, twin, why, freshness, counted)
    return NOT_MET if counted["malformed"] or (counted["missing"] and why != "signal") else DONE


def _make_twin(
    given: argparse.Namespace,
    journal: Journal,
    link: twinlink.Link,
    sync: twinlink.Sync,
    recording: "Recording | None",
) -> "Twin":
    from .twin.authentication import Authentication
    from .twin.decisions import Decisions
    from .twin.fidelity import Fidelity
    from .twin.trials import Trials
    from .twin.twin import Twin

    identity = signing.signing_identity(given, link)
    path = DecisionPath(link)
    asks = link.sender(REQUEST_FLOW, overflow="latest")
    kpms = link.sender(KPM, overflow="drop-oldest")
    fidelity = Fidelity(journal, asks.send, kpms.send, given.fidelity_limit, path.clock_offset)
    decisions = Decisions(
        journal,
        path,
        sync,
        fidelity,
        node=link.node,
        session=f"{link.epoch:016x}"[:8],
        validity_ms=given.validity_ms,
        protected=given.protect_prbs or frozenset(),
        control=given.control,
        trials=Trials(journal, given.trial and given.control),
        authentication=Authentication(identity, link.epoch),
    )
    return Twin(journal, decisions, recording, given.count, fidelity)


def _connect(link: twinlink.Link, twin: "Twin") -> None:
    decisions = twin.decisions
    link.events(handler=twin.link_event)
    link.receiver("control-result", handler=decisions.result, max_payload=MAX_SIGNED_OCTETS)
    link.receiver(SENSING, handler=twin.sensing)
    link.receiver(DIGEST, handler=twin.digest)
    link.receiver(KPM, handler=twin.fidelity.kpm)
    decisions.path.follow(decisions.reported)


def _collectors(link: twinlink.Link, twin: "Twin", sync: twinlink.Sync, flowgraph: "Flowgraph") -> "list[Collector]":
    """Collectors of the metrics; prometheus_client is imported only where they are asked for."""
    from twinlink.metrics import collector

    from .metrics import ReplayCollector

    return [collector(link), ReplayCollector(twin, sync, flowgraph.source.stats)]


def _report_start(journal: Journal, link: twinlink.Link, transport: str) -> None:
    text = f"{transport} {'listening on' if link.listening else 'connecting to'} {link.endpoint}"
    journal.event("started", text, transport=transport, endpoint=link.endpoint, node=link.node)


def _not_ready(link: twinlink.Link, sync: twinlink.Sync) -> list[str]:
    """The reasons why the twin does not show the current spectrum."""
    if not link.peers():
        return ["no exporter is up"]
    return [] if sync.state is State.IN_SYNC else [f"flow spectrum is {sync.state.value}"]


def _summarise(journal: Journal, twin: "Twin", why: str, freshness: dict[str, object], counted: dict[str, int]) -> None:
    text = f"{twin.records} records, {counted['missing']} missing, {counted['dropped']} of them dropped here"
    if counted["malformed"]:
        text += f", {counted['malformed']} that cannot be decoded: {SPECTRUM_ADVICE}"
    if counted["waiting"]:
        text += f", at least {counted['waiting']} that had arrived when it ended and were not analysed"
    decisions = twin.decisions
    text += f"; {decisions.proposed} proposals, {decisions.installed} installed, {decisions.rejected} rejected"
    text += f", {decisions.trials.refused.total()} refused by the twin itself"
    text += f", {decisions.stories.taken_back} blocks taken back"
    text += f"; out of sync {twin.out_of_sync} times; {twin.fidelity.summary()}"
    journal.event(
        "summary",
        f"ended ({why}): {text}",
        reason=why,
        records=twin.records,
        foreign=twin.foreign,
        proposed=decisions.proposed,
        installed=decisions.installed,
        rejected=decisions.rejected,
        refused_results=decisions.refused_results,
        taken_back=decisions.stories.taken_back,
        decisions=decisions.stories.ended,
        seen_to_on_air_ns=decisions.stories.seen_to_on_air_ns,
        out_of_sync=twin.out_of_sync,
        sensing=twin.free_ranges.slots,
        sensing_missing=twin.free_ranges.missing,
        sync=freshness,
        held_back=decisions.held_back,
        trials=decisions.trials.described(),
        fidelity=twin.fidelity.described(),
        **counted,
    )


def _wait(given: argparse.Namespace, stop: threading.Event, twin: "Twin", flowgraph: "Flowgraph", pulse: Pulse) -> str:
    """Wait until there is a reason to end; returns it."""
    before: tuple[int | None, int] = None, 0
    arrived_ns: int | None = None  # monotonic time of the last message
    while not stop.wait(LOOK_S):
        twin.look()
        counted = flowgraph.source.stats()
        progress = twin.last_ns, counted["malformed"]
        # This loop always runs; the analysis may hang, which shows as records that wait without progress.
        if progress != before or not counted["waiting"]:
            pulse.turn()
        if progress != before:
            before, arrived_ns = progress, time.monotonic_ns()
        if flowgraph.observer.error:
            return "failure"
        if twin.done.is_set() or (given.count and twin.records + counted["malformed"] >= given.count):
            return "count"
        silent_s = 0.0 if arrived_ns is None or counted["waiting"] or twin.analysing else _seconds_since(arrived_ns)
        if given.idle and silent_s > given.idle:
            return "idle"
    return "signal"


def _seconds_since(mono_ns: int) -> float:
    return (time.monotonic_ns() - mono_ns) / 1e9


EXAMPLES = """
twinlink-replay              # listens at tcp/0.0.0.0:7447
twinlink-replay --protect-prbs 0-12,43-62 --out run1 --http 127.0.0.1:9464
twinlink-replay --no-control --count 100 --out run1
twinlink-replay --companion  # a desktop with displays
"""


def make_parser() -> options.Parser:
    """The parser of the command's options."""
    parser = options.Parser(
        prog=PROGRAM,
        description="Rebuild the uplink spectrum in a GNU Radio flowgraph, find interference, propose PRB blocks.",
        examples=EXAMPLES,
    )
    link = parser.group("link to the gNB's exporter")
    linking.add_link_options(link, listens=True, other="the exporter", node="twin-1")
    linking.add_mirror_option(link)
    link.add_argument("--buffer-mb", type=convert.whole(1, 65536), default=256, help="queue to the flowgraph, in MiB")
    control = parser.group("control loop")
    signing.add_option(control, "decisions")
    control.add_argument(
        "--no-control", dest="control", action="store_false", help="observe only, propose no PRB block"
    )
    control.add_argument(
        "--validity-ms",
        type=convert.whole(100, 3_600_000),
        default=2000,
        help="validity of a block, which is renewed before it ends",
    )
    control.add_argument(
        "--fidelity-limit", type=convert.fraction, default=0.9, metavar="SCORE",
        help="below this score, from 0 to 1, no decision leaves (0: all do)",
    )  # fmt: skip
    control.add_argument(
        "--no-trial", dest="trial", action="store_false",
        help="do not try a block in the twin's model of the cell before it is proposed",
    )  # fmt: skip
    control.add_argument("--protect-prbs", type=convert.prbs, metavar="0-3,50", help="never propose to block these")
    end = parser.group("end (without these: on SIGINT or SIGTERM)")
    end.add_argument("--count", type=convert.whole(1, 2**62), metavar="N", help="after N records, decoded or not")
    end.add_argument(
        "--idle", type=convert.seconds, metavar="SECONDS", help="after this time without a record, once one has arrived"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write rebuilt.sigmf-{data,meta} and observations.npz")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append events as JSON Lines")
    recorded_link.add_option(parser)
    outputs.add_option(parser)
    desktop = parser.group("gnuradio-companion")
    desktop.add_argument("--grc-path", action="store_true", help="print the folder for GRC_BLOCKS_PATH, and exit")
    desktop.add_argument(
        "--companion",
        nargs="?",
        const=str(grc.PATH / "uplink_desktop.grc"),
        metavar="FILE.grc",
        help="start gnuradio-companion with these blocks, and the desktop flowgraph unless another is named",
    )
    service.add_options(parser)
    serving.add_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
