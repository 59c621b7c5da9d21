"""A Boolean from the twin to a PLC and back, through a hub or without one.

The twin and the PLC are at the Real World, the hub at the Digital Twin; with ``plc_side`` 1 the PLC is beside the hub.

Keys of a part: ``case``; ``protocol`` of the twin; ``hub``, whether there is one; ``serves``, the protocol of the
server that the twin uses, in the hub or else in the PLC (default: ``protocol``); ``delay_ms`` each way between the two
sides; ``cycle_ms`` of the PLC; ``poll_ms`` of twin and hub; ``writes`` and ``sampling_ms`` of the hub
(`hub_program`); ``plc_side``; ``measure``: ``rtt``, ``usage`` or ``octets``.
Counts: ``repetitions``, or ``seconds``; ``update_ms``.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from twinlink.errors import TransportError
from twinlink.transports import Endpoint
from twinlink.transports.mosquitto import Mosquitto

from ..namespaces import ADDRESSES
from ..setting import Setting
from . import distribution
from .description import Case
from .measuring import Run, address, port, prefix
from .node_red import NOT_CARRIED, NodeRed, carries
from .outcome import FAILED, LEFT_OUT, MEAN, Row, failed, of_values, spread, write_records
from .program import Program, ProgramFailed
from .usage_series import Series

PACKETS = "packet-sizes.png"
TWIN, PLC, HUB, BROKER = "twin", "plc", "hub", "broker"
ROUND_S = 30.0


def measure(run: Run) -> list[Row]:
    """Measure each part."""
    rows: list[Row] = []
    parts = run.experiment.parts
    for number, part in enumerate(parts):
        if run.stopped():
            break
        run.step(run.experiment.case(part["case"]), number / len(parts), None)
        if run.node_red is not None and not carries(part, run.node_red):
            rows.append(Row(dict(part["case"]), status=LEFT_OUT, reason=NOT_CARRIED))
            continue
        try:
            with run.place(part.get("delay_ms", 0)) as setting, _path(run, setting, part) as programs:
                rows += _MEASURES[part["measure"]](run, part, programs)
        except (ProgramFailed, TransportError) as error:
            rows.append(failed(dict(part["case"]), str(error)))
    sizes = {run.experiment.case(row.case): [*Counter(row.sizes).elements()] for row in rows if row.sizes}
    if sizes:
        labels = "octets of a packet", "share of the packets"
        distribution.draw(run.folder / PACKETS, sizes, labels, {"value": "linear"})
        run.figures[PACKETS] = "Packet sizes: Ethernet frames between twin and hub, both ways, as ECDF"
    return rows


@contextmanager
def _path(run: Run, setting: Setting, part: Any) -> Iterator[dict[str, Any]]:
    """PLC, hub if there is one, and twin, which is ready to begin; by name.

    ``pids`` has the process ids, ``near`` the prefix of a command at the Real World.
    """
    side = part.get("plc_side", 0)
    near = ADDRESSES[0] if setting.name == "netns" else "127.0.0.1"
    plc_host = address(setting) if side else near
    serves = part.get("serves", part["protocol"])
    plc_port, hub_port = port(setting), port(setting)
    with ExitStack() as stack:
        pids: dict[str, int] = {}

        def start(name: str, module: str, given: dict[str, Any], at: int) -> Program:
            program = stack.enter_context(Program(module, given, prefix(setting, at))).ready(run.stopped)
            pids[name] = program.pid
            return program

        plc_protocol = "s7" if part["hub"] else serves
        plc = {"protocol": plc_protocol, "host": plc_host, "port": plc_port, "cycle_ms": part["cycle_ms"]}
        start(PLC, "plc_program", plc, side)
        target = (plc_host, plc_port)
        if part["hub"]:
            target = (address(setting), hub_port)
            if serves == "mqtt":
                broker = Mosquitto(Endpoint(*target), prefix=prefix(setting, 1))
                stack.callback(broker.stop)
                pids[BROKER] = broker.pid
            hub = {
                "protocol": serves, "host": target[0], "port": target[1], "plc_host": plc_host, "plc_port": plc_port,
                **{name: part[name] for name in ("poll_ms", "writes")}, "sampling_ms": part.get("sampling_ms", 0),
            }  # fmt: skip
            if run.node_red is None:
                start(HUB, "hub_program", hub, 1)
            else:
                pids[HUB] = stack.enter_context(NodeRed(run.node_red, hub, prefix(setting, 1))).pid
        twin = {
            "protocol": part["protocol"], "host": target[0], "port": target[1], "poll_ms": part["poll_ms"],
            "spread_ms": max(run.counts["update_ms"], part.get("sampling_ms", 0)),
            **{name: run.counts[name] for name in ("update_ms", "repetitions", "seconds") if name in run.counts},
        }  # fmt: skip
        yield {TWIN: start(TWIN, "twin_program", twin, 0), "pids": pids, "near": prefix(setting, 0)}


def _round_trips(run: Run, programs: dict[str, Any]) -> tuple[list[float], int, str | None]:
    """The round trips that the twin has measured, in ms, how many were not answered, and why there are no more."""
    lines, failure = programs[TWIN].until_done(ROUND_S, run.stopped)
    values = [told["ms"] for told in lines if told["ms"] is not None]
    return values, len(lines) - len(values), failure


def _unanswered(missing: int) -> str | None:
    return f"{missing} round trips were not answered" if missing else None


def _rtt(run: Run, part: Any, programs: dict[str, Any]) -> list[Row]:
    values, missing, failure = _round_trips(run, programs)
    row = of_values(run.folder, dict(part["case"]), values, missing, failure=failure)
    row.reason = row.reason or _unanswered(missing)
    return [row]


def _usage(run: Run, part: Any, programs: dict[str, Any]) -> list[Row]:
    """A row for each process: processor time in % of one processor, memory in MiB, and the mean round trip."""
    with Series(programs["pids"]) as series:
        round_trips, missing, failure = _round_trips(run, programs)
    rtt, _ = spread(round_trips)
    rows = []
    for name in programs["pids"]:
        cpu, memory = series.cpu_percent[name], series.rss_mib[name]
        figures: dict[str, float | None] = {}
        intervals = {}
        for what, values in (("cpu", cpu), ("memory", memory)):
            of_each, ci95 = spread(values)
            figures |= {f"{what}_{key}": value for key, value in of_each.items()}
            if ci95:
                intervals[f"{what}_{MEAN}"] = ci95
        case: Case = {**part["case"], "process": name}
        records = write_records(
            run.folder, "-".join(case.values()), ("cpu_percent", "mib"), [*zip(cpu, memory, strict=True)]
        )
        row = Row(case, len(cpu), {**figures, "rtt": rtt.get(MEAN)}, missing=missing, records=records)
        row.intervals, row.values = intervals, cpu
        row.series = {"CPU (%)": cpu, "memory (MiB)": memory}
        if failure:
            row.status = FAILED
        row.reason = failure or _unanswered(missing)
        rows.append(row)
    return rows


def _octets(run: Run, part: Any, programs: dict[str, Any]) -> list[Row]:
    """Octets and packets of the twin's interface, both ways."""
    with Program("packet_sizes", {}, programs["near"]) as packets:
        packets.ready(run.stopped)
        with Series(programs["pids"], TWIN) as series:
            programs[TWIN].next(run.counts["seconds"] + ROUND_S, run.stopped)
        packets.tell({})
        sizes = {int(octets): number for octets, number in packets.next(ROUND_S, run.stopped)["sizes"].items()}
    rates = [octets / seconds for octets, seconds in zip(series.octets, series.seconds, strict=True)]
    if not rates:
        return [failed(dict(part["case"]), "it ended within a second")]
    figures, ci95 = spread(rates)
    count, octets = sum(series.packets), sum(series.octets)
    figures["packets"] = count / sum(series.seconds)
    figures["packet"] = octets / count if count else None
    figures["packet_min"], figures["packet_max"] = (float(end(sizes)) for end in (min, max)) if sizes else (None, None)
    sd, mean = figures["sd"], figures["mean"]
    figures["sd_percent"] = 100 * sd / mean if sd is not None and mean else None
    rows = [*zip(series.seconds, series.octets, series.packets, strict=True)]
    records = write_records(run.folder, "-".join(part["case"].values()), ("seconds", "octets", "packets"), rows)
    row = Row(dict(part["case"]), len(rates), figures, ci95, records=records, values=rates)
    packet_rates = [number / seconds for number, seconds in zip(series.packets, series.seconds, strict=True)]
    row.series = {"octets/s": rates, "packets/s": packet_rates}
    row.sizes = sizes
    write_records(
        run.folder, f"{'-'.join(part['case'].values())}-packets", ("octets", "packets"), sorted(sizes.items())
    )
    return [row]


_MEASURES = {"rtt": _rtt, "usage": _usage, "octets": _octets}
