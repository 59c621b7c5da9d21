"""`twinlink top` against real programs, over real HTTP."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import twinlink
from tests.cli.calling import call
from tests.cli.running import Run, Start
from twinlink.appkit import options
from twinlink.appkit.convert import HttpAddress
from twinlink.appkit.pulse import Pulse
from twinlink.cli import top
from twinlink.cli.scrape import Scrape, scrape
from twinlink.cli.top import measured
from twinlink.testing import patience, wait_until

http_server = pytest.importorskip("twinlink.appkit.http", reason="prometheus_client is not installed")
metrics = pytest.importorskip("twinlink.metrics")

SERVED = r"at http://(127\.0\.0\.1:\d+)"


def serve(stack: ExitStack, link: twinlink.Link) -> HttpAddress:
    """Serve the metrics of a link of this process."""
    server = http_server.Server(HttpAddress("127.0.0.1", 0), Pulse(), list, [metrics.collector(link)])
    address: HttpAddress = stack.enter_context(server).address
    return address


def pong(start: Start, endpoint: str) -> tuple[Run, str]:
    """A pong that serves its metrics, and where."""
    run = start("pong", "--listen", endpoint, "--node", "twin-1", "--http", "127.0.0.1:0")
    run.wait_for("serves /healthz")
    (address,) = re.findall(SERVED, run.err)
    return run, address


def test_both_directions_with_rate_goodput_loss_age_and_rtt(endpoint: str) -> None:
    """The figures of the interval follow from what was sent in it."""
    with (
        ExitStack() as stack,
        twinlink.open("zeromq", listen=endpoint, node="twin-1") as twin,
        twinlink.open("zeromq", connect=endpoint, node="gnb-1") as gnb,
    ):
        twin.receiver("spectrum", handler=lambda message: None)
        twin.sync("spectrum")
        gnb.wait_ready(patience())
        sender = gnb.sender("spectrum", on_ack=lambda ack: None)
        at_gnb, at_twin = serve(stack, gnb), serve(stack, twin)
        sender.send(bytes(50))
        sender.flush(patience())
        before = scrape(at_gnb), scrape(at_twin)
        for _ in range(10):
            sender.send(bytes(1000))
        sender.flush(patience())
        now = scrape(at_gnb), scrape(at_twin)
        sent, received = (measured(*pair) for pair in zip(before, now, strict=True))

    (row,) = sent["flows"]
    assert (sent["node"], sent["transport"], row["flow"], row["direction"]) == ("gnb-1", "zeromq", "spectrum", "sent")
    seconds = now[0].at_s - before[0].at_s
    assert (row["messages"], row["lost"], row["loss_ratio"], row["age_ns"]) == (11, 0, 0, None)
    assert row["rate_hz"] * seconds == pytest.approx(10)
    assert row["goodput_mb_s"] * seconds == pytest.approx(0.01)
    (peer,) = sent["peers"]
    assert (peer["node"], peer["up"], peer["rtt_ns"]) == ("twin-1", True, row["rtt_ns"])
    assert 0 <= peer["one_way_delay_ns"] <= row["rtt_ns"] + peer["clock_bound_ns"]
    assert abs(peer["clock_offset_ns"]) <= peer["clock_bound_ns"]

    (row,) = received["flows"]
    assert (row["direction"], row["messages"], row["rtt_ns"], row["loss_ratio"]) == ("received", 11, None, 0)
    assert row["goodput_mb_s"] * (now[1].at_s - before[1].at_s) == pytest.approx(0.01)
    assert row["age_ns"] > 0


def sample(at_s: float, **values: float) -> Scrape:
    return Scrape(at_s, "n", "zeromq", "0", {(f"twinlink_flow_{name}_total", "f", ""): values[name] for name in values})


def test_a_program_that_began_anew_counts_from_0() -> None:
    before = sample(10.0, sent=500, sent_bytes=5000, acknowledged=400, lost=100)
    (row,) = measured(before, sample(12.0, sent=20, sent_bytes=4000, acknowledged=15, lost=5))["flows"]
    assert (row["rate_hz"], row["goodput_mb_s"], row["loss_ratio"]) == (10.0, 0.002, 0.25)
    (row,) = measured(None, before)["flows"]
    assert (row["messages"], row["lost"], row["rate_hz"], row["loss_ratio"]) == (500, 100, None, None)


def test_once_prints_one_table_within_80_columns(start: Start, endpoint: str) -> None:
    _, address = pong(start, endpoint)
    start("ping", endpoint, "-i", "0.01", "-q", "--node", "gnb-1").wait_for("is up")
    run = start("top", address, "--once", "--interval", "0.2")
    assert run.code() == 0
    assert run.out[0] == f"twin-1 at {address}: twinlink {twinlink.__version__}, zeromq, 1 peer up"
    assert any(re.match(r"ping +received +\d+ +\d", line) for line in run.out)
    assert any(re.match(r"gnb-1 +up", line) for line in run.out)
    assert "\x1b" not in "".join(run.out)  # no terminal is cleared
    assert max(map(len, run.out)) <= 80


def test_json_and_a_program_that_ends(start: Start, endpoint: str) -> None:
    program, address = pong(start, endpoint)
    run = start("top", address, "--json", "--interval", "0.1")
    wait_until(lambda: len(run.out) >= 2)
    program.process.kill()
    assert run.code() == 1
    *samples, summary = run.records()
    assert {one["type"] for one in samples} == {"sample"}
    assert summary == {"type": "summary", "address": address, "samples": len(samples)}
    assert "the program has ended or is busy" in run.err


def test_interrupt(start: Start, endpoint: str) -> None:
    _, address = pong(start, endpoint)
    run = start("top", address, "--interval", "0.1")
    run.wait_for("twin-1 at", "out")
    run.interrupt()
    assert run.code() == 0


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives this answer to each connection, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with contextlib.suppress(OSError):  # closed at the end
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(patience())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "answers /metrics with HTTP status 404"),
        (b"HTTP/1.0 200 OK\r\n\r\nup 1\n", "does not serve twinlink's metrics"),
        (b"HTTP/1.0 200 OK\r\n\r\n}{ x=1\n", "does not serve twinlink's metrics"),
        (b"SSH-2.0-server\r\n", "no HTTP from"),
        (b"", "no HTTP from"),
    ],
)
def test_what_answers_is_no_program_of_ours(start: Start, answer: bytes, expected: str) -> None:
    with answering(answer) as address:
        run = start("top", address, "--once", "--json")
        assert run.code() == 1
    assert expected in run.err
    assert "--http" in run.err
    assert [record["samples"] for record in run.records()] == [0]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("twin", "twin", 9464), ("twin:1", "twin", 1), ("::1", "::1", 9464), ("[::1]:1", "::1", 1)],
)
def test_a_host_needs_no_port(text: str, host: str, port: int) -> None:
    parser = options.Parser(prog="twinlink top")
    top.add_options(parser)
    given = parser.parse_args([text])
    assert (given.address.host, given.address.port) == (host, port)


def test_nothing_listens(endpoint: str) -> None:
    address = endpoint.removeprefix("tcp/")
    run = call("top", address)
    assert run.code() == 1
    assert f"nothing listens at {address}" in run.err
    assert f"start the program with `--http {address}`" in run.err
    assert call("top", "10.0.0.5:70000").code() == 3
    assert call("top", "--interval", "0").code() == 3
