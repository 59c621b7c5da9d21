"""N clients of one broker or server: the time until one has the answers of all others.

A part is a system: ``name``, ``system``, ``qos``, ``publishing_ms``.  Counts: ``clients`` (values of N), ``rounds`` by
system, ``octets``.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twinlink.errors import TransportError
from twinlink.transports import Endpoint
from twinlink.transports.mosquitto import Mosquitto

from ..setting import Setting
from .description import Case
from .measuring import Run, address, port, prefix
from .outcome import Row, failed, of_values
from .program import Program, ProgramFailed

CONNECT_S = 300.0
ROUND_S = 70.0


def measure(run: Run) -> list[Row]:
    """Measure each N of each system."""
    rows = []
    cases = [(part, clients) for part in run.experiment.parts for clients in run.counts["clients"]]
    _allow_files(max(run.counts["clients"]))
    with run.place() as setting:
        for number, (part, clients) in enumerate(cases):
            if run.stopped():
                break
            case: Case = {"clients": clients, "system": part["name"]}
            run.step(run.experiment.case(case), number / len(cases), None)
            rows.append(_measure(run, setting, part, case))
    return rows


def _measure(run: Run, setting: Setting, part: Any, case: Case) -> Row:
    clients: int = case["clients"]
    rounds = run.counts["rounds"][part["system"]]
    at = Endpoint(address(setting), port(setting))
    given = {
        **{name: part.get(name, 0) for name in ("system", "qos", "publishing_ms")},
        "host": at.host, "port": at.port, "clients": clients, "rounds": rounds, "octets": run.counts["octets"],
    }  # fmt: skip
    try:
        with (
            _server(setting, part["system"], at, clients),
            Program("client_group", given, prefix(setting, 0)) as group,
        ):
            connected_s = group.next(CONNECT_S, run.stopped)["connected_s"]
            lines, failure = group.until_done(ROUND_S, run.stopped)
    except (ProgramFailed, TransportError) as error:
        return failed(case, str(error))
    values = [told["ms"] for told in lines if told["answers"] == clients - 1]
    missing = len(lines) - len(values)
    row = of_values(run.folder, case, values, missing, {"connected": connected_s}, failure)
    if missing and not failure:
        row.reason = f"in {missing} rounds some answers did not come within 60 s"
    return row


@contextmanager
def _server(setting: Setting, system: str, at: Endpoint, clients: int) -> Iterator[None]:
    if system == "mqtt":
        broker = Mosquitto(at, prefix=prefix(setting, 1))
        try:
            yield
        finally:
            broker.stop()
        return
    given = {"host": at.host, "port": at.port, "names": ["A", "B"], "clients": clients}
    with Program("opcua_server", given, prefix(setting, 1)) as server:
        server.ready()
        yield


def _allow_files(clients: int) -> None:
    """Let the processes have a connection for each client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * clients + 200
    if soft < wanted <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
