"""Send messages on a flow: the given files, --count generated messages, or the lines of stdin."""

import argparse
import hashlib
import os
import random
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import twinlink
from twinlink.process import address
from twinlink.protocol.frames import MAX_PAYLOAD

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from . import rate

_NAME = "twinlink pub"
EXAMPLES = """
twinlink pub --connect tcp/10.0.0.5:7447 report.json  # a file, one message
twinlink pub --count 1000 --size 64KB                 # generated messages
tail -f run.jsonl | twinlink pub --flow telemetry     # a message each line
"""
_CHUNK = 65536


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files to send, each as one message")
    linking.add_options(parser, listens=False, flow="data")
    linking.add_mirror_option(parser)
    parser.add_argument("-c", "--count", type=convert.count, metavar="N", help="send N generated messages")
    parser.add_argument(
        "--size",
        type=convert.octets,
        default=100,
        metavar="B",
        help="octets of a generated message, such as 100, 64KB or 1MB",
    )
    parser.add_argument("--interval", type=convert.seconds, default=0.0, metavar="S", help="time between messages in s")
    parser.add_argument("--hash", action="store_true", help="print sequence, octets and SHA-256 of every message")
    linking.add_timeout_option(parser, "wait for the peer, and for the last acks")


def run(given: argparse.Namespace) -> int:
    """Send everything, wait until it is acknowledged, print the summary."""
    peer = next((str(path) for path in given.files or () if address.is_meant(str(path)) and not path.exists()), None)
    if peer is not None:
        raise twinlink.ConfigurationError(f"{peer} is no file; the peer's address follows --connect: --connect {peer}")
    if given.files and given.count:
        raise twinlink.ConfigurationError("files and --count exclude each other: both say what to send")
    for path in given.files or ():  # before waiting for a peer; a pipe can be opened only once
        if not path.exists():
            raise twinlink.TwinlinkError(
                f"{path}: No such file or directory; check the path, or send a text: echo TEXT | twinlink pub"
            )
        if path.is_dir() or not os.access(path, os.R_OK):
            path.read_bytes()  # raises the reason
    output = Output(given.json)
    octets, began = 0, time.monotonic()
    problem = None
    with Stop() as stop, linking.open_link(given) as link:
        if given.count:
            linking.check_size(given, link)
        for path in given.files or ():
            _check_size(path, link)
        watch = linking.Watch(_NAME, link)
        sender = link.sender(given.flow)
        try:
            linking.wait_for_peer(link, stop, given, _NAME, "twinlink sub")
            began = time.monotonic()
            for payload in _payloads(given, stop):
                if stop.requested:
                    break
                sequence = sender.send(payload)
                octets += len(payload)
                if given.hash:
                    _tell(output, sequence, payload)
                watch.tell()
                if given.interval:
                    stop.wait(given.interval)
            # After Ctrl-C without a peer there is nothing to wait for.
            sender.flush(timeout=given.timeout if link.peers() or not stop.requested else 0)
        except (twinlink.AckTimeout, twinlink.PeerTimeout, twinlink.SendTimeout) as error:
            problem = str(error)
        elapsed_s = time.monotonic() - began
        watch.tell()
        stats = sender.stats()
    if problem:
        log(_NAME, problem)
    sent, acknowledged = stats["sent"], stats["acknowledged"]
    wanted = given.count or len(given.files or ())
    interrupted = sent < wanted and not problem
    if interrupted:
        log(_NAME, f"interrupted: {sent} of {wanted} messages were sent")
    counts = {"sent": sent, "octets": octets, "acknowledged": acknowledged, "lost": sent - acknowledged}
    speed = rate.figures(sent if sent == acknowledged else 0, octets, elapsed_s)  # with losses it would be a time-out's
    _summarise(output, given, {**counts, "interrupted": interrupted}, speed)
    return NOT_MET if problem or interrupted or sent != acknowledged else DONE


def _summarise(output: Output, given: argparse.Namespace, counts: dict[str, int], speed: dict[str, Any]) -> None:
    sent, acknowledged = counts["sent"], counts["acknowledged"]
    summary = [
        f"sent {sent:,} messages, {counts['octets']:,} B; {acknowledged:,} acknowledged, {counts['lost']:,} lost",
        *rate.lines(speed),
    ]
    output.emit(
        {"transport": given.transport, "flow": given.flow, **counts, **speed},
        None if given.hash else "\n".join(summary),
    )
    if given.hash and not given.json:
        for line in summary:  # stdout has the hashes only: `diff` compares it with the output of sub
            log(_NAME, line)


def _tell(output: Output, sequence: int, payload: bytes) -> None:
    digest = hashlib.sha256(payload).hexdigest()
    output.emit(
        {"type": "sent", "sequence": sequence, "octets": len(payload), "sha256": digest},
        f"{sequence} {len(payload)} {digest}",
    )


def _payloads(given: argparse.Namespace, stop: Stop) -> Iterator[bytes]:
    if given.files:
        yield from map(_content, given.files)
    elif given.count:
        generator = random.Random(0)  # the same messages in every run, so that hashes can be compared
        for _ in range(given.count):
            yield generator.randbytes(given.size)
    else:
        yield from _lines(stop)


def _check_size(path: Path, link: twinlink.Link) -> None:
    """Raises ConfigurationError for a file that is longer than a message; the length of a pipe is not known before."""
    if path.is_file() and (size := path.stat().st_size) > link.max_payload:
        raise twinlink.ConfigurationError(
            f"{path} has {size} octets, and a message of this link at most {link.max_payload}: `split -b "
            f"{link.max_payload} {path}` makes files that can be sent"
        )


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        octets = file.read(MAX_PAYLOAD + 1)
    if len(octets) > MAX_PAYLOAD:
        raise twinlink.PayloadTooLarge(f"{path} has more than {MAX_PAYLOAD} octets, the most of a message: split it")
    return octets


def _lines(stop: Stop) -> Iterator[bytes]:
    """The lines of stdin without their ends; unlike a plain read, it ends at Ctrl-C."""
    if sys.stdin is None:
        raise twinlink.TwinlinkError("standard input is closed: give files, or --count")
    source = sys.stdin.fileno()
    rest = bytearray()
    waiting = select.poll()
    for descriptor in (source, stop.fd):
        waiting.register(descriptor, select.POLLIN)
    while not stop.requested:
        if source not in [descriptor for descriptor, _ in waiting.poll()]:
            break
        chunk = os.read(source, _CHUNK)
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        rest += first
        if others:
            yield bytes(rest)
            yield from others[:-1]
            rest = bytearray(others[-1])
        if len(rest) > MAX_PAYLOAD:
            break  # `send` refuses it with the reason; reading on would fill the memory
    if rest:
        yield bytes(rest)
