"""The bare libraries beside twinlink: set up as it is, with as many octets, and without any of its code."""

import ast
import re
from pathlib import Path

import pytest
import twinlink_measure
import zenoh
from twinlink_measure import frames
from twinlink_measure.channels import base
from twinlink_measure.channels import zenoh as raw_zenoh
from twinlink_measure.channels import zeromq as raw_zeromq

from twinlink.process import malloc
from twinlink.protocol import frames as link_frames
from twinlink.transports import Endpoint
from twinlink.transports import zenoh as link_zenoh
from twinlink.transports.zenoh_config import ZenohOptions
from twinlink.transports.zeromq_options import ZeromqOptions

FOLDER = Path(twinlink_measure.__file__).parent
MEASURED = re.compile(r"twinlink\.(protocol|runtime|link|aio|transports\.(zenoh|zeromq|mqtt|websocket|memory))\b")


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_instrument_imports_nothing_of_what_it_measures() -> None:
    found = {(path.name, name) for path in FOLDER.rglob("*.py") for name in imported(path) if MEASURED.match(name)}
    assert found == set()


@pytest.mark.parametrize("listening", [True, False])
def test_a_tuned_zenoh_session_is_configured_as_a_links(listening: bool) -> None:
    options = ZenohOptions(open_timeout_ms=raw_zenoh.OPTIONS["open_timeout_ms"])
    endpoint = Endpoint.parse("127.0.0.1:7447")
    transport = link_zenoh.ZenohTransport(endpoint, listening, base.MAX_FRAME, options)
    made = raw_zenoh.configuration(endpoint, listening, tuned=True)
    assert isinstance(made, zenoh.Config)
    assert str(made) == str(transport.config())
    assert raw_zenoh.OPTIONS.items() <= vars(options).items()
    assert (raw_zenoh.RUNTIME, raw_zenoh.FIFO_MESSAGES) == (link_zenoh.RUNTIME, link_zenoh.FIFO_MESSAGES)


def test_zeromqs_sockets_have_the_options_of_a_links() -> None:
    options = ZeromqOptions()
    for name in ("send_hwm", "receive_hwm", "heartbeat_ms", "heartbeat_timeout_ms", "reconnect_ms", "reconnect_max_ms"):
        assert getattr(raw_zeromq, name.upper()) == getattr(options, name)
    assert raw_zeromq.REUSED_OCTETS == malloc.REUSED_OCTETS


def test_the_frames_are_those_of_a_link() -> None:
    records = [(number, 10 + number, 20 + number) for number in range(frames.MAX_BATCH)]
    made = frames.ack(7, 3, 99, 8, 64, records)
    assert made == link_frames.frame(link_frames.Kind.ACK, 7, 3, 99, link_frames.ack_body(8, 64, records))
    epoch, found = frames.parse_ack(made)
    assert (epoch, [*found]) == (8, records)
    assert frames.parse_ack(made[:-1]) == (0, ())
    data = frames.HEADER.pack(frames.DATA_WORD, 0, 7, 3, 99)
    assert data == link_frames.frame(link_frames.Kind.DATA, 7, 3, 99, b"")
    assert frames.MAX_PAYLOAD == link_frames.MAX_PAYLOAD
