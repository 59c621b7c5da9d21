"""``twinlink-ran-emulator``: the E3 side of a gNB without a gNB."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import twinlink_e3 as e3

from twinlink.appkit import convert, outputs, service
from twinlink.appkit import options as command_line
from twinlink.appkit.console import DONE, ending_signals, guarded
from twinlink.appkit.journal import Journal
from twinlink.cli import all_keys
from twinlink.errors import ConfigurationError

from . import playout_log
from .aerial_agent import RELEASES, ROWS
from .emulator import Emulator, Options, choose_fft_size
from .recording import EXAMPLE, Recording, example, read
from .schedule import Pace
from .slot_process import SlotProcess
from .slot_writer import SlotPattern
from .sockets import bind_sockets

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

PROGRAM = "twinlink-ran-emulator"


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0 done or stopped, 2 failed, 3 bad arguments."""
    return guarded(PROGRAM, lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    given = command_line.parse(make_parser(), "ran-emulator", argv, all_keys)
    if given.check:
        return service.check(lambda: _plan(given))
    stop = threading.Event()
    for number in ending_signals():
        signal.signal(number, lambda *_: stop.set())
    _run(given, stop)
    return DONE


def _plan(given: argparse.Namespace) -> list[str]:
    recording, fft_size = _recording(given)
    _check_outputs(given)
    grid = recording.grid
    times = f"{given.loop} time(s)" if given.loop else "until stopped"
    return [
        f"recording: {recording.path}, {grid.n_records} records of {grid.n_prbs} PRBs, FFT of {fft_size} bins",
        f"plays: {times}, at pace {given.pace}, from when {given.wait_subscribers} dApp(s) have subscribed",
        f"E3: {e3.endpoints_of(given)}; {_codec(given).name}; I/Q: {_where(_pattern(given), fft_size)}",
        *service.plan_of_http(given),
        *service.plan_of_files(("heard/", given.heard), ("log", given.log)),
    ]


def _recording(given: argparse.Namespace) -> tuple[Recording, int]:
    """The recording, and the bins of an indication.  Raises TwinlinkError, also without the E3 grammar."""
    recording = read(given.recording or example())
    fft_size = choose_fft_size(recording.grid.n_prbs, given.fft_size)
    codec = _codec(given)
    codec.decode(codec.encode(e3.MessageAck(1, 1, "positive")))  # reports a missing grammar before the first dApp
    return recording, fft_size


def _pattern(given: argparse.Namespace) -> SlotPattern | None:
    """What is written to shared memory, if I/Q is to be there.  Raises ConfigurationError."""
    if given.aerial and given.e3_link != "zmq":
        raise ConfigurationError("--aerial: NVIDIA's agent has ZeroMQ alone; omit --e3-link")
    if given.aerial and given.kpm:
        raise ConfigurationError("--kpm: NVIDIA's agent reports the grants of UEs, always; omit --kpm")
    if given.cells > 1 and not given.aerial:
        raise ConfigurationError("--cells: only NVIDIA's agent indicates several; add --aerial")
    if not given.slots and not given.aerial:
        return None
    if given.pace.factor is None:
        raise ConfigurationError("--slots: a gNB writes slots in real time, so --pace max cannot be")
    pattern = SlotPattern(given.tdd, given.rx_antennas, given.beta, given.shm_suffix)
    if given.aerial:
        release = RELEASES[given.aerial_release]
        return replace(
            pattern, version=release.version, rows=ROWS, cells=given.cells, indicates_first=release.indicates_first
        )
    return pattern


def _where(pattern: SlotPattern | None, fft_size: int) -> str:
    if pattern is None:
        return f"FFT of {fft_size} bins"
    where = f"slots {pattern.tdd} in shared memory {pattern.iq_name}"
    return f"{where}, {pattern.antennas} antenna(s), {pattern.cells} cell(s)"


def _codec(given: argparse.Namespace) -> e3.Codec:
    return e3.JSON_CODECS["nested"] if given.aerial else e3.codec_of(given.e3_generation, given.e3_encoding)


def _check_outputs(given: argparse.Namespace) -> None:
    """Raises ConfigurationError if an earlier run's files would be replaced; OSError."""
    if given.heard:
        outputs.refuse_existing("--heard", playout_log.existing(given.heard), given.overwrite)


def _run(given: argparse.Namespace, stop: threading.Event) -> None:
    options = Options(
        pace=given.pace,
        loops=given.loop,
        fft_size=given.fft_size,
        wait_subscribers=given.wait_subscribers,
        hold_s=given.hold,
        codec=_codec(given),
        controls=not given.no_control,
        answers_unreadable=not given.stuck,
        free_ids=given.free_ids,
        aerial=RELEASES[given.aerial_release] if given.aerial else None,
        kpms=given.kpm,
    )
    recording, fft_size = _recording(given)
    pattern = _pattern(given)
    endpoints = e3.endpoints_of(given)
    _check_outputs(given)
    if given.heard:
        given.heard.mkdir(parents=True, exist_ok=True)  # the log may go there, too
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(PROGRAM, given.log))
        heard = stack.enter_context(closing(playout_log.PlayoutLog(given.heard, recording))) if given.heard else None
        sockets = stack.enter_context(closing(bind_sockets(endpoints, lossless=options.pace.factor is None)))
        # After the sockets: shared memory may be made anew only if no other gNB runs here.
        slots = stack.enter_context(closing(SlotProcess(pattern, recording.grid.scs_hz))) if pattern else None
        emulator = Emulator(recording, sockets, options, journal, heard, slots)
        if not recording.interferer.any():
            journal.event(
                "no_interferer", f"{recording.path} has no annotation labelled 'interferer': none is expected"
            )
        if not recording.ue.any():
            journal.event("no_ue", f"{recording.path} has no annotation labelled 'ue': a PRB block will change nothing")
        elif emulator.made_up_cells:
            text = (
                f"{emulator.made_up_cells} PRB-records never appear without a UE: a block fills them with made-up noise"
            )
            journal.event("made_up", text, cells=emulator.made_up_cells)
        journal.event(
            "listening",
            f"waiting for {given.wait_subscribers} dApp(s) at {endpoints.setup}, {endpoints.to_dapp}, "
            f"{endpoints.from_dapp} ({endpoints.link}, {_codec(given).name}); "
            f"{recording.grid.n_prbs} PRBs, {_where(pattern, fft_size)}",
            setup=endpoints.setup,
            to_dapp=endpoints.to_dapp,
            from_dapp=endpoints.from_dapp,
            recording=str(recording.path),
            records=recording.grid.n_records,
            n_prbs=recording.grid.n_prbs,
            fft_size=fft_size,
            generation=_codec(given).name,
            shm_name=pattern.iq_name if pattern else None,
        )

        def collectors() -> "list[Collector]":
            from .metrics import EmulatorCollector

            return [EmulatorCollector(emulator)]

        with service.serving(given.http, emulator.pulse, emulator.not_ready, collectors, service.told_by(journal)):
            emulator.run(stop)


EXAMPLES = """
twinlink-ran-emulator                    # its recording; E3 in /tmp/dapps
twinlink-ran-emulator --e3 tcp --loop 0  # again and again
twinlink-ran-emulator --pace max --hold 0 --http 127.0.0.1:9465
"""


def make_parser() -> command_line.Parser:
    """The command's options."""
    parser = command_line.Parser(
        prog=PROGRAM,
        description="The E3 side of a gNB without a gNB: plays recorded uplink spectrum to dApps that subscribe, and "
        "takes the UEs out of the PRBs that they block (docs/ran-emulator.md).",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "--recording", type=Path, help=f"SigMF recording to play (default: {EXAMPLE}, which comes with twinlink)"
    )
    parser.add_argument(
        "--pace",
        type=_pace,
        default=Pace(),
        metavar="recorded|max|FACTOR",
        help="as recorded, flat out (as fast as the slowest dApp reads), or a factor of the recorded pace",
    )
    parser.add_argument(
        "--loop", type=convert.whole(0), default=1, metavar="N", help="play it N times; 0: until stopped"
    )
    parser.add_argument(
        "--fft-size", type=convert.whole(1), metavar="N", help="bins of an indication (default: what holds the PRBs)"
    )
    parser.add_argument(
        "--wait-subscribers", type=convert.whole(0), default=1, metavar="N", help="begin when N dApps have subscribed"
    )
    parser.add_argument(
        "--hold", type=convert.seconds, metavar="SECONDS", help="stay that long after the end (default: until stopped)"
    )
    parser.add_argument(
        "--heard", type=Path, metavar="DIR", help="keep what was played: DIR/heard.sigmf-* and heard.npz"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="append events as JSON Lines")
    outputs.add_option(parser)
    e3.add_endpoint_arguments(parser)
    agent = parser.group("E3 agent")
    agent.add_argument("--e3-generation", choices=e3.GENERATIONS, default="G0", help="of E3AP")
    agent.add_argument("--e3-encoding", choices=("asn1", "json", "json-nested"), default="asn1", help="of E3AP")
    agent.add_argument(
        "--aerial",
        action="store_true",
        help="be as the agent of NVIDIA's Aerial SDK, for its dApps: in JSON, with --slots, without control "
        "(--e3 aerial: at its ports)",
    )
    agent.add_argument(
        "--aerial-release", choices=tuple(RELEASES), default="26-1.2", help="with --aerial; next: after 26-1.2"
    )
    agent.add_argument("--cells", type=convert.whole(1, 16), default=1, metavar="N", help="of the gNB, with --aerial")
    agent.add_argument(
        "--kpm", action="store_true", help="report the uplink's PRB usage once a second, in a RAN function of its own"
    )
    agent.add_argument("--no-control", action="store_true", help="offer no control of PRB blocks")
    agent.add_argument(
        "--stuck", action="store_true", help="be stuck by an unreadable setup request, as libe3 up to 0.0.7"
    )
    agent.add_argument(
        "--free-ids",
        type=convert.whole(0),
        metavar="N",
        help="number of free dApp identifiers; 0: the agent refuses every setup",
    )
    _add_slots(parser)
    service.add_options(parser)
    return parser


def _add_slots(parser: command_line.Parser) -> None:
    slots = parser.group("I/Q of whole slots in shared memory (RAN function 2)")
    slots.add_argument("--slots", action="store_true", help="hand I/Q over there, not in PDUs")
    slots.add_argument(
        "--tdd",
        type=_tdd,
        default="U",
        metavar="DDDDDDDSUU",
        help="slots of a period: uplink, mixed, downlink (U: FDD)",
    )
    slots.add_argument("--rx-antennas", type=convert.whole(1, 4), default=1, metavar="N", help="of the gNB")
    slots.add_argument(
        "--beta", type=convert.factor, default=1 / 2048, metavar="1/128", help="a value there is the int16 times this"
    )
    slots.add_argument(
        "--shm-suffix", default="", type=_suffix, metavar="TEXT", help="added to the names of the memory"
    )


def _tdd(text: str) -> str:
    if not set(text) <= set("USD") or not set(text) & set("US"):
        raise argparse.ArgumentTypeError(f"letters U, S and D are expected, at least one U or S, not {text!r}")
    return text


def _suffix(text: str) -> str:
    try:
        e3.shared_memory_path(SlotPattern(suffix=text).iq_name)
    except e3.SharedMemoryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _pace(text: str) -> Pace:
    try:
        return Pace.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
