"""`twinlink mgen` as a user starts it, between independent mgen processes."""

import json
import socket
from pathlib import Path

import pytest
from twinlink_results.mgen import records

from tests.cli.calling import call
from tests.cli.running import Run, Start
from tests.mgen.conftest import Listen, Mgen, Send, free_ports
from twinlink.appkit.mgen_message import Address, Flag, Packet
from twinlink.testing.base import free_endpoint

TRANSPORTS = ("zeromq", "zenoh")


def finish(run: Run) -> dict[str, dict[str, int]]:
    """Ctrl-C; what the summary says, with the exit code."""
    run.interrupt()
    code = run.code()
    found: dict[str, dict[str, int]] = json.loads(run.out[-1])
    found["exit"] = {"code": code}
    return found


PAYLOADS = {"UDP": (100, 8192), "TCP": (76, 10_240, 102_400, 1_048_576)}


class Way:
    """A pair of bridges over one transport, with a listener for each protocol behind it."""

    def __init__(self, start: Start, listen: Listen, transport: str, folder: Path) -> None:
        folder.mkdir()
        udp, tcp, out_udp, out_tcp = free_ports(4)
        self.ports = {"UDP": udp, "TCP": tcp}
        self.listeners = {"UDP": listen("UDP", out_udp), "TCP": listen("TCP", out_tcp)}
        self.into_records, self.out_records = folder / "i.gz", folder / "o"
        endpoint, link = free_endpoint(), ("--transport", transport, "--json", "--records")
        out_ports, in_ports = ("--udp", f"{out_udp}", "--tcp", f"{out_tcp}"), ("--udp", f"{udp}", "--tcp", f"{tcp}")
        self.out = start("mgen", "out", "--listen", endpoint, *out_ports, *link, str(self.out_records))
        self.into = start("mgen", "in", "--connect", endpoint, *in_ports, *link, str(self.into_records))
        self.senders: dict[int, Mgen] = {}

    def ready(self) -> None:
        self.into.wait_for("is up")
        self.out.wait_for("connected to TCP")


def test_every_message_of_every_payload(start: Start, listen: Listen, send: Send, tmp_path: Path) -> None:
    """The acceptance: 100 of 100 at each payload, no RERR, over one pair of bridges; on both transports at once."""
    ways = [Way(start, listen, transport, tmp_path / transport) for transport in TRANSPORTS]
    for way in ways:
        way.ready()
    for protocol, payloads in PAYLOADS.items():
        for number, octets in enumerate(payloads):
            for way in ways:
                rate_hz = 200 if octets < 10**6 else 60
                way.senders[octets] = send(protocol, way.ports[protocol], octets, 100, rate_hz, 10 * octets)
            for way in ways:
                way.senders[octets].wait()
                assert len(way.senders[octets].log().of("SEND")) == 100
                way.listeners[protocol].wait_for(100 * (number + 1))
    for way in ways:
        carried_every_message(way, start)


def carried_every_message(way: Way, start: Start) -> None:
    for protocol, payloads in PAYLOADS.items():
        received = way.listeners[protocol].received()
        for octets in payloads:
            messages = [one for one in received if one.flow == 10 * octets]
            assert [one.sequence for one in messages] == list(range(100))
            assert all(one.complete and one.octets == octets for one in messages)
            assert {one.fragments for one in messages} == {-(-octets // 65535)}
        assert way.listeners[protocol].log().of("RERR") == []
    gave, took = finish(way.into), finish(way.out)
    assert (gave["exit"]["code"], took["exit"]["code"]) == (0, 0)
    assert (gave["in"]["udp"], gave["in"]["tcp"], gave["in"]["acknowledged"], gave["in"]["lost"]) == (200, 400, 600, 0)
    assert (took["out"]["forwarded"], took["out"]["missing"]) == (600, 0)
    assert gave["in"]["octets"] == took["out"]["octets"] == 100 * sum(sum(each) for each in PAYLOADS.values())

    rows_in, rows_out = records.read(way.into_records), records.read(way.out_records)
    assert sorted(row.sequence for row in rows_in) == [row.sequence for row in rows_out] == list(range(600))
    by_number = {row.sequence: row for row in rows_out}
    for row in rows_in:
        other = by_number[row.sequence]
        assert row[1:9] == other[1:9]
        assert (row.sent_ns, row.peer_received_ns) == (other.sent_ns, other.peer_received_ns)
        assert None not in (row.taken_ns, row.peer_sent_ns, row.received_ns, row.rtt_ns)

    tx, rx = way.senders[1_048_576].path, way.listeners["TCP"].path
    join = start("mgen", "join", "--tx", str(tx), "--rx", str(rx), "--records", str(way.into_records))
    assert join.code() == 0
    assert join.out[0].startswith("100 of 100 received, 0 RERR, 0 duplicates")
    assert [line.split("  ")[0] for line in join.out[2:3]] == ["MGEN, SEND to RECV"]
    assert any("on the link" in line and " 100 " in line for line in join.out)


def test_both_end_when_traffic_that_went_one_way_only_is_over(
    start: Start, listen: Listen, send: Send, endpoint: str
) -> None:
    ports = free_ports(4)
    sides = [
        start("mgen", "both", way, endpoint, "--idle", "1", "--udp", str(udp), "--out-udp", str(out), "--json")
        for way, udp, out in (("--listen", *ports[:2]), ("--connect", *ports[2:]))
    ]
    listen("UDP", ports[3])
    for side in sides:
        side.wait_for("is up")
    send("UDP", ports[0], 100, 10, 100).wait()
    for side in sides:
        side.code()
    assert sides[0].records()[-1]["in"]["acknowledged"] == 10
    assert sides[1].records()[-1]["out"]["forwarded"] == 10


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_both_directions_over_one_link(start: Start, listen: Listen, send: Send, endpoint: str, transport: str) -> None:
    ports = free_ports(8)
    names = ("--udp", "--tcp", "--out-udp", "--out-tcp")
    sides = []
    for side, way in ((ports[:4], "--listen"), (ports[4:], "--connect")):
        options = [text for name, port in zip(names, side, strict=True) for text in (name, str(port))]
        sides.append(start("mgen", "both", way, endpoint, "--transport", transport, "--json", *options))
    listeners = {
        port: listen(p, port)
        for side in (ports[:4], ports[4:])
        for p, port in zip(("UDP", "TCP"), side[2:], strict=True)
    }
    for side_run in sides:
        side_run.wait_for("is up")
        side_run.wait_for("connected to TCP")
    senders = [
        send("UDP", ports[0], 100, 50, 100, 1),
        send("TCP", ports[1], 102_400, 50, 100, 2),
        send("UDP", ports[4], 100, 50, 100, 3),
        send("TCP", ports[5], 102_400, 50, 100, 4),
    ]
    for sender in senders:
        sender.wait()
    # From the first side's ports to the second side's listeners, and back.
    for port, number in ((ports[6], 1), (ports[7], 2), (ports[2], 3), (ports[3], 4)):
        listeners[port].wait_for(50)
        assert [(one.flow, one.sequence) for one in listeners[port].received()] == [(number, n) for n in range(50)]
        assert listeners[port].log().of("RERR") == []
    for side_run in sides:
        side_run.interrupt()
    for side_run in sides:
        assert side_run.code() == 0
        summary = side_run.records()[-1]
        assert (summary["in"]["acknowledged"], summary["out"]["forwarded"]) == (100, 100)


@pytest.mark.parametrize(("protocol", "octets"), [("UDP", 100), ("TCP", 10_240)])
def test_the_bridge_before_its_peer(
    start: Start, listen: Listen, send: Send, endpoint: str, protocol: str, octets: int
) -> None:
    port, out_port = free_ports(2)
    option = f"--{protocol.lower()}"
    into = start("mgen", "in", "--connect", endpoint, option, str(port), "--json")
    into.wait_for("Ctrl-C ends it")
    listener = listen(protocol, out_port)
    sender = send(protocol, port, octets)
    if protocol == "UDP":
        sender.wait()
    out = start("mgen", "out", "--listen", endpoint, option, str(out_port), "--json")
    listener.wait_for(100)
    assert [one.sequence for one in listener.received()] == list(range(100))
    assert finish(into)["exit"]["code"] == 0
    assert finish(out)["exit"]["code"] == 0


def test_what_waited_for_a_peer_that_never_came_is_counted(start: Start, send: Send, endpoint: str) -> None:
    (port,) = free_ports(1)
    into = start("mgen", "in", "--connect", endpoint, "--udp", str(port), "--json")
    into.wait_for("Ctrl-C ends it")
    send("UDP", port, 8192, 800, 4000).wait()  # more than the socket's buffer holds
    summary = finish(into)
    assert summary["exit"]["code"] == 1
    assert summary["in"]["dropped"] > 0
    assert summary["in"]["given_up"] + summary["in"]["dropped"] == 800


def test_an_end_without_a_peer_says_so(start: Start, endpoint: str) -> None:
    runs = {}
    for transport in TRANSPORTS:  # at the same time, as each waits five seconds before it says so
        port, out_port = free_ports(2)
        into = start("mgen", "in", "--transport", transport, "--connect", endpoint, "--udp", str(port))
        out = start("mgen", "out", "--transport", transport, "--listen", free_endpoint(), "--udp", str(out_port))
        runs[transport] = into, out
    for transport, (into, out) in runs.items():
        into.wait_for(f"no peer at {endpoint} yet (TCP says: Connection refused)")
        into.wait_for(f"`twinlink mgen out --transport {transport}` run on the other host?")
        out.wait_for("no peer has come to tcp/")
        out.wait_for(f"`twinlink mgen in --transport {transport}`")
        for run in (into, out):
            run.interrupt()
            assert run.code() == 1
            assert run.err.count("no peer") == 1


def test_a_port_that_is_in_use(start: Start, endpoint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        into = start("mgen", "in", "--connect", endpoint, "--tcp", f"127.0.0.1:{port}")
        assert into.code() == 2
    assert f"TCP 127.0.0.1:{port}: Address already in use; `ss -lntup` shows by which program" in into.err


def test_a_peer_that_was_killed(start: Start, listen: Listen, send: Send, endpoint: str) -> None:
    port, out_port = free_ports(2)
    listener = listen("TCP", out_port)
    into = start("mgen", "in", "--connect", endpoint, "--tcp", str(port), "--json")
    out = start("mgen", "out", "--listen", endpoint, "--tcp", str(out_port))
    into.wait_for("is up")
    sender = send("TCP", port, 10_240, 100, 50)
    listener.wait_for(20)
    out.process.kill()
    out.code()
    again = start("mgen", "out", "--listen", endpoint, "--tcp", str(out_port), "--json")
    sender.wait()
    into.wait_for("is gone")
    gave = finish(into)
    took = finish(again)
    assert gave["in"]["tcp"] == gave["in"]["sent"] == 100
    assert gave["in"]["acknowledged"] + gave["in"]["lost"] == 100
    assert took["out"]["tcp"] == took["out"]["forwarded"] >= 1
    listener.wait_for(20 + took["out"]["tcp"])
    assert gave["exit"]["code"] == (1 if gave["in"]["lost"] else 0)


def test_garbage_does_no_harm(start: Start, listen: Listen, send: Send, endpoint: str) -> None:
    udp, tcp, out_udp, out_tcp = free_ports(4)
    listeners = [listen("UDP", out_udp), listen("TCP", out_tcp)]
    out = start("mgen", "out", "--listen", endpoint, "--udp", str(out_udp), "--tcp", str(out_tcp), "--json")
    into = start("mgen", "in", "--connect", endpoint, "--udp", str(udp), "--tcp", str(tcp), "--json")
    into.wait_for("is up")
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        for octets in (b"garbage" * 10, b"", b"x", bytes(100)):
            datagrams.sendto(octets, ("127.0.0.1", udp))
    for octets in (b"garbage" * 100, b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", tcp)) as connection:
            connection.sendall(octets)
            connection.settimeout(30)
            assert connection.recv(1) == b""  # the bridge closes it
    begun = Packet(65535, Flag.CONTINUES, 9, 0, 0, Address("127.0.0.1", tcp)).serialize()
    with socket.create_connection(("127.0.0.1", tcp)) as cut:
        cut.sendall(begun + begun[:1000])
    into.wait_for("without its last fragment")
    never_ends = socket.create_connection(("127.0.0.1", tcp))
    never_ends.sendall(begun)
    for protocol, port, listener in (("UDP", udp, listeners[0]), ("TCP", tcp, listeners[1])):
        send(protocol, port, 1024, 20)
        listener.wait_for(20)
        assert [one.sequence for one in listener.received()] == list(range(20))
        assert listener.log().of("RERR") == []
    gave, took = finish(into), finish(out)
    never_ends.close()
    assert (gave["in"]["udp"], gave["in"]["tcp"]) == (20, 20)
    assert (gave["in"]["malformed"], gave["in"]["incomplete"]) == (6, 2)
    assert gave["exit"]["code"] == 1
    assert took["exit"]["code"] == 0


def test_nothing_listens(start: Start, send: Send, endpoint: str) -> None:
    udp, tcp, out_udp, out_tcp = free_ports(4)
    out = start("mgen", "out", "--listen", endpoint, "--udp", str(out_udp), "--tcp", str(out_tcp), "--json")
    into = start("mgen", "in", "--connect", endpoint, "--udp", str(udp), "--tcp", str(tcp), "--json", "--idle", "4")
    into.wait_for("is up")
    for sender in (send("UDP", udp, 100, 20), send("TCP", tcp, 10_240, 20)):
        sender.wait()
    assert into.code() == 0  # it ended by itself, and the other side had everything
    took = finish(out)
    assert took["exit"]["code"] == 1
    assert took["out"]["held"] == 20
    assert took["out"]["refused"] >= 1  # the host may tell of several at once
    assert took["out"]["refused"] + took["out"]["forwarded"] == 20
    assert f"nothing listens at UDP 127.0.0.1:{out_udp}" in out.err
    assert f"no connection to TCP 127.0.0.1:{out_tcp}: Connection refused" in out.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "required: in|out|both|join"),
        (("sideways",), "is none of in, out, both, join"),
        (("in",), "say which ports to use: --udp or --tcp"),
        (("out",), "say which ports to use: --udp or --tcp"),
        (("both", "--udp", "5001", "--listen", "tcp/127.0.0.1:7447"), "--out-udp or --out-tcp"),
        (("both", "--udp", "5001", "--out-udp", "6001"), "--listen or --connect"),
        (("in", "--udp", "0"), "PORT or HOST:PORT"),
        (("in", "--udp", "many"), "PORT or HOST:PORT"),
        (("in", "--tcp", ":5"), "PORT or HOST:PORT"),
        (("in", "--tcp", "::1:5"), "IPv6 in brackets"),
        (("in", "--udp", "224.1.2.4:5001"), "224.1.2.4 is a multicast group"),
        (("out", "--udp", "[ff02::1]:5001"), "[ff02::1] is a multicast group"),
        (("out", "--tcp", "[fe80::1]:5001"), "[fe80::1] is link-local: add the interface"),
        (("in", "--udp", "5001", "--out-udp", "6001"), "--out-udp has no effect with `twinlink mgen in`: leave it out"),
        (("in", "--udp", "5001", "--tx", "a"), "--tx has no effect with `twinlink mgen in`: leave it out"),
        (("in", "--udp", "5001", "--records", "a", "--records", "b"), "one file of --records"),
        (("in", "--udp", "5001", "--connect", "here:"), "host:port"),
        (("join",), "--rx, --records, or both"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], says: str) -> None:
    run = call("mgen", *arguments)
    assert run.code() == 3
    assert says in run.err
    assert run.out == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("in", "--udp", "192.0.2.1:5001"), "cannot listen at UDP 192.0.2.1:5001"),
        (("in", "--udp", "5001", "--records", "/nonexistent/file"), "/nonexistent/file: No such file or directory"),
        (("out", "--tcp", "host.invalid:1"), "host.invalid does not resolve"),
        (("join", "--rx", "/nonexistent"), "/nonexistent: No such file or directory"),
        (("join", "--rx", "/etc/passwd"), "/etc/passwd is no log of MGEN"),
        (("join", "--records", "/etc/passwd"), "does not name the columns"),
    ],
)
def test_what_cannot_be_done(arguments: tuple[str, ...], says: str) -> None:

    link = () if arguments[0] == "join" else ("--connect", "tcp/127.0.0.1:7447")
    run = call("mgen", *arguments, *link)
    assert run.code() == 2
    assert says in run.err


def test_options_from_the_environment(start: Start, listen: Listen, send: Send, endpoint: str, tmp_path: Path) -> None:
    port, out_port = free_ports(2)
    listener = listen("UDP", out_port)
    config = tmp_path / "twinlink.toml"
    config.write_text(f'[mgen]\nconnect = "{endpoint}"\nudp = {port}\nflow = "other"\n')
    out = start("mgen", "out", "--flow", "other", env={"TWINLINK_UDP": str(out_port), "TWINLINK_LISTEN": endpoint})
    into = start("mgen", "in", "--config", str(config))
    into.wait_for("is up")
    send("UDP", port, 100, 10)
    listener.wait_for(10)
    for run, text in ((into, "10 sent over the link, 10 acknowledged"), (out, "10 forwarded to MGEN; nothing lost")):
        run.interrupt()
        assert run.code() == 0
        assert text in run.out[-1]
