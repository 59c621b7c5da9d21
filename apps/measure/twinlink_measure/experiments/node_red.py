"""Node-RED as the hub of the `hub-*` experiments, with node-red-contrib-s7 for the PLC: for WebSocket and MQTT, and for
OPC UA with node-red-contrib-opcua.

It is not part of twinlink, and is installed by hand (docs/experiments.md).  The flow does what `hub_program` does: it
passes on at once what the twin writes, and tells the twin of the PLC's output, read at an interval, when that changes.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from twinlink.process.guarded_thread import GuardedThread

from .program import ProgramFailed

START_S = 120.0  # with OPC UA it makes keys the first time
STARTED = b"Started flows"
SERVES = "the server has its variables"  # logged by the flow with OPC UA, whose server starts later
PROGRAM, S7_NODES = Path("node_modules/node-red/red.js"), Path("node_modules/node-red-contrib-s7")
OPCUA_NODES = Path("node_modules/node-red-contrib-opcua")
NOT_CARRIED = (
    "Node-RED carries WebSocket and MQTT here, and OPC UA where node-red-contrib-opcua is installed, as the hub"
)
SETTINGS = """module.exports = {{
  flowFile: "flow.json", uiHost: "{host}", uiPort: {port}, httpAdminRoot: false, credentialSecret: false,
  logging: {{ console: {{ level: "info", metrics: false, audit: false }} }},
}};
"""


def find(folder: Path) -> str:
    """The program that runs Node-RED.  Raises ProgramFailed: it, or Node-RED in ``folder``, is not installed."""
    missing = [str(folder / name) for name in (PROGRAM, S7_NODES) if not (folder / name).exists()]
    node = shutil.which("node")
    if missing or node is None:
        raise ProgramFailed(
            f"Node-RED is not there: {', '.join(missing) or 'no program node'}; "
            "docs/experiments.md says how to install it"
        )
    return node


def carries(part: Mapping[str, Any], folder: Path) -> bool:
    """Whether what is installed in ``folder`` can be the hub of a part of an experiment."""
    installed = part["protocol"] != "opcua" or (folder / OPCUA_NODES).exists()
    return bool(part["hub"]) and part["protocol"] in FLOWS and installed


class NodeRed:
    """A context manager: a Node-RED process with one flow.

    Args:
        folder: in which it was installed by npm.
        given: ``protocol`` (of `FLOWS`), ``host`` and ``port`` of its server or of the broker,
            ``plc_host``, ``plc_port``, ``poll_ms``.
        prefix: of the command.

    Attributes:
        pid: of the process.

    Raises:
        ProgramFailed: it is not there, or did not start.
    """

    def __init__(self, folder: Path, given: dict[str, Any], prefix: Sequence[str] = ()) -> None:
        node = find(folder)
        self._files = tempfile.TemporaryDirectory(prefix="twinlink-node-red-")
        files = Path(self._files.name)
        (files / "flow.json").write_text(json.dumps(flow(given)))
        # Its own web server is used with WebSocket only, and gets another port elsewhere.
        port = given["port"] + (given["protocol"] != "websocket")
        (files / "settings.js").write_text(SETTINGS.format(host=given["host"], port=port))
        self._process = subprocess.Popen(
            [*prefix, node, str((folder / PROGRAM).resolve()), "-u", str(files), "-s", str(files / "settings.js")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"XDG_CONFIG_HOME": str((folder / "keys").resolve())},  # those of the OPC UA server
        )  # fmt: skip
        self._awaited = SERVES.encode() if given["protocol"] == "opcua" else STARTED
        self.pid = self._process.pid
        self._started = threading.Event()
        self._last = b""
        self._thread = GuardedThread(self._read, "node-red")
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = line
            if self._awaited in line:
                self._started.set()
        self._started.set()

    def __enter__(self) -> Self:
        """Return when the flow runs."""
        if not self._started.wait(START_S) or self._process.poll() is not None:
            last = self._last.decode(errors="replace").strip()
            self.__exit__()
            raise ProgramFailed(f"Node-RED did not start its flow within {START_S:g} s: {last}")
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._thread.join(1)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._files.cleanup()


def flow(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes: from the twin to the PLC, and back."""
    endpoint = {
        "id": "plc", "type": "s7 endpoint", "transport": "iso-on-tcp", "address": given["plc_host"],
        "port": str(given["plc_port"]), "rack": "0", "slot": "1", "connmode": "rack-slot",
        "cycletime": str(given["poll_ms"]), "timeout": "5000",
        "vartable": [{"addr": "DB1,X0.0", "name": "in"}, {"addr": "DB2,X0.0", "name": "out"}],
    }  # fmt: skip
    return [
        {"id": "tab", "type": "tab", "label": "hub"},
        endpoint,
        _node("to plc", "s7 out", endpoint="plc", variable="in"),
        _node("from plc", "s7 in", "pack", endpoint="plc", mode="single", variable="out", diff=True),
        *FLOWS[given["protocol"]](given),
    ]


def _websocket(given: dict[str, Any]) -> list[dict[str, Any]]:
    # A message with the session of its sender would be answered to that client only: the functions make new ones.
    return [
        {"id": "server", "type": "websocket-listener", "path": "/", "wholemsg": "false"},
        _node("from twin", "websocket in", "unpack", server="server", client=""),
        _function("unpack", "to plc", "return {payload: JSON.parse(msg.payload).value};"),
        _function("pack", "to twin", 'return {payload: JSON.stringify({name: "out", value: msg.payload})};'),
        _node("to twin", "websocket out", server="server", client=""),
    ]


def _mqtt(given: dict[str, Any]) -> list[dict[str, Any]]:
    broker = {
        "id": "broker", "type": "mqtt-broker", "broker": given["host"], "port": str(given["port"]), "clientid": "hub",
        "autoConnect": True, "protocolVersion": "4", "keepalive": "60", "cleansession": True,
    }  # fmt: skip
    return [
        broker,
        _node("from twin", "mqtt in", "unpack", topic="in", qos="0", datatype="buffer", broker="broker"),
        _function("unpack", "to plc", "return {payload: (msg.payload[0] & 1) === 1};"),
        _function("pack", "to twin", "return {payload: Buffer.from([msg.payload ? 1 : 0])};"),
        _node("to twin", "mqtt out", topic="out", qos="0", retain="false", broker="broker"),
    ]


def _opcua(given: dict[str, Any]) -> list[dict[str, Any]]:
    # The server takes variables when it runs, some seconds after the flow has started: asked again until it has them.
    ask = """
        if (context.get("done")) return;
        if (flow.get("known") === 2) { context.set("done", true); node.log("%s"); return; }
        return [["In", "Out"].map(name => ({
            topic: `ns=1;s=${name};datatype=Boolean`, payload: {opcuaCommand: "addVariable"}}))];
    """
    unpack = """
        const told = msg.payload || {};
        if (told.nodeId) flow.set("known", (flow.get("known") || 0) + 1);
        else if (told.variableName === "1:In") return {payload: told.variableValue === true};
    """
    pack = """
        return {payload: {messageType: "Variable", namespace: 1, variableName: "Out", variableValue: msg.payload,
            datatype: "Boolean"}};
    """
    return [
        _node("clock", "inject", "ask", props=[], once=True, onceDelay="0.5", repeat="0.5"),
        _function("ask", "to twin", ask % SERVES),
        _function("unpack", "to plc", unpack),
        _function("pack", "to twin", pack),
        _node(
            "to twin", "OpcUa-Server", "unpack", port=str(given["port"]), endpoint="", allowAnonymous=True,
            endpointNone=True, autoAcceptUnknownCertificate=True, constructDefaultAddressSpace=False,
            maxSessions="20", maxMessageSize="4096", maxBufferSize="4096",
        ),
    ]  # fmt: skip


def _node(name: str, kind: str, *to: str, **properties: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "z": "tab", "wires": [list(to)] if to else [], **properties}


def _function(name: str, to: str, body: str) -> dict[str, Any]:
    return _node(name, "function", to, func=body, outputs=1)


FLOWS = {"websocket": _websocket, "mqtt": _mqtt, "opcua": _opcua}
