"""`connect` of the JavaScript module in the hands of programs that make mistakes, and on paths that go silent."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import twinlink
from tests.c.running import Program
from tests.javascript.running import MODULE, NODE, needs_node
from twinlink.testing import patience, wait_until

pytestmark = needs_node
OPTIONS = ("--experimental-websocket", "--no-warnings")  # before Node 22 it is an experiment


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    programs: list[Program] = []

    def start(text: str) -> Program:
        script = tmp_path / f"{len(programs)}.mjs"
        script.write_text(f'import {{ ReceivingNode, connect }} from "{MODULE.as_uri()}/index.js";\n{text}')
        programs.append(Program(NODE, *OPTIONS, script))
        return programs[-1]

    yield start
    for one in programs:
        one.end(signal.SIGKILL)


WRONG = {
    '{ flows: ["f"], message() {} }': "node",
    '{ node: "a\\u0007", flows: ["f"], message() {} }': "node",
    '{ node: "viewer", flows: "spectrum", message() {} }': "flows",
    '{ node: "viewer", message() {} }': "flows",
    '{ node: "viewer", flows: ["no flow"], message() {} }': "no flow",
    '{ node: "viewer", flows: ["f"] }': "message",
    '{ node: "viewer", flows: ["f"], message() {}, maxPayload: -1 }': "maxPayload",
    '{ node: "viewer", flows: ["f"], message() {}, windowOctets: "1e6" }': "windowOctets",
    '{ node: "viewer", flows: ["f"], message() {}, maxpayload: 5 }': "maxpayload",
}


def test_a_setting_that_cannot_be_is_refused_by_name(run: Callable[[str], Program]) -> None:
    attempts = "".join(
        f'try {{ connect("ws://127.0.0.1:9", {settings}); console.log("taken"); }} '
        "catch (error) { console.log(error.message); }\n"
        for settings in WRONG
    )
    program = run(f"{attempts}console.log('end'); process.exit();")
    program.wait_for("end")
    assert [line.split(":")[0] for line in program.lines[:-1]] == list(WRONG.values())


def test_a_handler_that_throws_loses_no_event_and_no_connection(run: Callable[[str], Program], endpoint: str) -> None:
    viewer = run(f"""
process.on("uncaughtException", (error) => console.log(`thrown: ${{error.message}}`));   // as a browser, which goes on
connect("{endpoint.replace("tcp/", "ws://")}", {{
  node: "viewer", flows: ["f"],
  message: ({{ sequence }}) => {{ console.log(`message ${{sequence}}`); throw new Error("of message"); }},
  event: (one) => {{ console.log(`${{one.event}} ${{one.flow ?? ""}}`); throw new Error("of event"); }},
  state: (isUp) => {{ console.log(isUp ? "connected" : "not connected"); throw new Error("of state"); }},
}});""")
    viewer.wait_for("not connected")  # its first attempt finds no listener
    for _ in range(2):
        before = len(viewer.lines)
        with twinlink.open("websocket", listen=endpoint, node="gnb") as link:
            link.wait_ready(patience())
            for flow in ("g", "f", "h"):
                link.sender(flow).send_many([b"", b""])
            for wanted in ("peer_up", "unclaimed g", "message 0", "message 1", "unclaimed h"):
                viewer.wait_for(wanted, before)
        viewer.wait_for("peer_down", before)


def test_a_clock_that_is_set_while_it_runs_is_followed(run: Callable[[str], Program], endpoint: str) -> None:
    viewer = run(f"""
const real = Date.now;
connect("{endpoint.replace("tcp/", "ws://")}", {{
  node: "viewer", flows: ["f"],
  message: ({{ sequence, sentNs, receivedNs }}) => {{
    console.log(`message ${{sequence}} after ${{(receivedNs - sentNs + 1_800_000_000_000n) / 3_600_000_000_000n}} h`);
    Date.now = () => real() + 3_600_000;
  }},
}});""")
    with twinlink.open("websocket", listen=endpoint, node="gnb") as link:
        link.wait_ready(patience())
        sender = link.sender("f")
        for number in range(2):
            sender.send(b"")
            viewer.wait_for(f"message {number} after {number} h")


def test_a_message_that_waits_keeps_no_frame_that_is_much_longer(run: Callable[[str], Program]) -> None:
    viewer = run(f"""
import {{ Kind, compose }} from "{MODULE.as_uri()}/frames.js";
const now = {{ monoMs: 1, unixNs: 1n }}, node = new ReceivingNode({{ node: "viewer", epoch: 1n, now }});
const frame = (kind, sequence, body) => compose(kind, 2n, sequence, 1n, body);
const hello = {{ node: "gnb", heard: {{}}, flows: {{}}, repairs: true }};
node.subscribe("f");
node.receive("traffic/_link", frame(Kind.HELLO, 1n, new TextEncoder().encode(JSON.stringify(hello))), now);
for (const sequence of [1n, 2n, 0n]) {{
  const messages = [frame(Kind.DATA, sequence, new Uint8Array(9)), frame(Kind.DATA, 1n, new Uint8Array(1e6))];
  node.receive("traffic/f", frame(Kind.BUNDLE, 0n, Buffer.concat(messages)), now);
}}
for (let one = node.take("f", now); one; one = node.take("f", now)) {{
  console.log(one.sequence, one.payload.length, one.payload.buffer.byteLength);
}}
console.log("end");""")
    viewer.wait_for("end")
    assert viewer.lines == ["0n 9 9", "1n 9 9", "2n 9 9", "end"]


class SilentPath:
    """A path of TCP from a port of its own, whose connections can go silent without an end."""

    def __init__(self, to: str) -> None:
        host, port = to.removeprefix("tcp/").rsplit(":", 1)
        self._to = host, int(port)
        self._listener = socket.create_server((host, 0))
        self.url = f"ws://{host}:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self.is_silent = threading.Event()
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                other = socket.create_connection(self._to)
                self._connections += [one, other]
                self.count += 1
                silent = self.is_silent
                for source, target in ((one, other), (other, one)):
                    threading.Thread(target=self._copy, args=(source, target, silent), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while octets := source.recv(65536):
                if not silent.is_set():
                    target.sendall(octets)

    def cut(self) -> None:
        """The connections that there are carry nothing more; others do."""
        self.is_silent.set()
        self.is_silent = threading.Event()

    def close(self) -> None:
        for one in (self._listener, *self._connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.mark.thorough
def test_a_connection_that_goes_silent_is_replaced(run: Callable[[str], Program], endpoint: str) -> None:
    with twinlink.open("websocket", listen=endpoint, node="gnb") as link:
        path = SilentPath(endpoint)
        viewer = run(f"""
connect("{path.url}", {{
  node: "viewer", flows: ["f"], message: ({{ sequence }}) => console.log(`message ${{sequence}}`),
}});
""")
        link.wait_ready(patience())
        sender = link.sender("f")
        path.cut()
        wait_until(lambda: link.peers() == [])
        sender.send(b"meanwhile")
        viewer.wait_for("message 0")
        assert path.count == 2
        path.close()
