"""Receive the messages of a flow; print them or their hashes, or write each to a file."""

import argparse
import hashlib
import time
from pathlib import Path

from twinlink.message import Message

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log, writing
from . import rate

_NAME = "twinlink sub"
EXAMPLES = """
twinlink sub --flow telemetry             # each payload as a line
twinlink sub --count 1000 --print none    # the summary only: loss, rate, MB/s
twinlink sub --output messages --idle 10  # a file each, until 10 s of silence
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    linking.add_options(parser, listens=True, flow="data")
    parser.add_argument("--count", type=convert.count, metavar="N", help="end after N messages; by default at Ctrl-C")
    parser.add_argument(
        "--idle",
        type=convert.seconds,
        metavar="S",
        help="end when no message has arrived for S seconds after the first",
    )
    parser.add_argument(
        "--print",
        choices=("text", "hex", "hash", "none"),
        help="what goes to stdout: payload and newline (text; default without --output), payload in hex (hex), "
        "sequence, octets and SHA-256 (hash), or only the summary (none; default with --output)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write each payload to a file FLOW-SESSION-SEQUENCE.bin there"
    )


def run(given: argparse.Namespace) -> int:
    """Receive until the count, the idle time or Ctrl-C; then print the summary."""
    output = Output(given.json)
    messages = octets = first_octets = 0
    given.print = given.print or ("none" if given.output else "text")
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
    with Stop() as stop, linking.open_link(given) as link:
        watch = linking.Watch(_NAME, link)
        receiver = link.receiver(given.flow)
        log(_NAME, f"{linking.endpoint(given)}, receives flow {given.flow}; Ctrl-C ends it")
        first = last = None
        while not stop.requested and (given.count is None or messages < given.count):
            message = receiver.receive(timeout=linking.LOOK_S)
            watch.tell()
            if message is not None:
                messages += 1
                octets += len(message.payload)
                last = time.monotonic()
                if first is None:
                    first, first_octets = last, len(message.payload)
                _tell(given, output, message)
            elif given.idle is not None and last is not None and time.monotonic() - last >= given.idle:
                break
    watch.tell()
    interrupted = stop.requested and given.count is not None and messages < given.count
    if interrupted:
        log(_NAME, f"interrupted: {messages} of {given.count} messages were received")
    # Between the first message and the last: the first one itself was sent before that time.
    speed = rate.figures(messages - 1, octets - first_octets, last - first if first and last else 0.0)
    summary = [f"received {messages} messages, {octets} B; {watch.missing} did not arrive", *rate.lines(speed)]
    output.emit(
        {
            "transport": given.transport,
            "flow": given.flow,
            "received": messages,
            "octets": octets,
            "missing": watch.missing,
            "interrupted": interrupted,
            **speed,
        },
        "\n".join(summary) if given.print == "none" else None,
    )
    if not given.json and given.print != "none":
        for line in summary:  # stdout has the messages only
            log(_NAME, line)
    return DONE if messages and not watch.missing and not interrupted else NOT_MET


def _tell(given: argparse.Namespace, output: Output, message: Message) -> None:
    payload = bytes(message.payload)
    if given.output:
        _write(given.output / f"{message.flow}-{message.epoch:016x}-{message.sequence:08d}.bin", payload)
    if output.as_json:
        output.emit(
            {
                "type": "message",
                "flow": message.flow,
                "sequence": message.sequence,
                "node": message.node,
                "octets": len(payload),
                "sent_ns": message.sent_ns,
                "received_ns": message.received_ns,
                "sha256": hashlib.sha256(payload).hexdigest(),
            }
        )
    elif given.print == "text":
        output.write(payload + b"\n")
    elif given.print == "hex":
        output.write(payload.hex().encode() + b"\n")
    elif given.print == "hash":
        output.write(f"{message.sequence} {len(payload)} {hashlib.sha256(payload).hexdigest()}\n".encode())


def _write(path: Path, payload: bytes) -> None:
    """Write the file completely or not at all."""
    part = path.with_suffix(".part")
    try:
        with writing(path):
            part.write_bytes(payload)
            part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
