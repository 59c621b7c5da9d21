"""The lower part of the page: comparisons, clocks, every cell, method, hosts and versions."""

from collections.abc import Sequence
from typing import Any

from twinlink.appkit import formatting

from . import document, labels, reference_results, table

_SPREADS = {
    "rtt_ns": "RTT",
    "rtt_without_residence_ns": "RTT without residence",
    "one_way_delay_ns": "one-way delay",
    "open_loop_delay_ns": "delay from intended send time",
    "ipdv_ns": "IPDV (signed)",
    "pdv_ns": "PDV",
    "paper_rtt_jitter_ns": "|RTTᵢ - RTTᵢ₋₁|",
}
_METHOD = (
    "Every subject carries the same frames: a header of 32 octets and the payload, answered by an acknowledgement with "
    "the receiver's timestamps. The raw baselines do so over the bare library, without keeping track of anything.",
    "Subjects take turns in rounds, in a new order and with new processes each round; a warm-up, which does not count, "
    "comes before each cell.",
    "Closed loop: the next message goes when the last is acknowledged. Open loop: messages go on a schedule, and the "
    "delay counts from when each should have gone. Saturation: the highest rate without loss, found by search.",
    "CI95 of means: moving-block bootstrap, because neighbouring messages are alike; the paper's plain interval, which "
    "takes them as independent, stands beside it in results.json. Neither contains how rounds differ; the comparisons "
    "do. A percentile has an interval where there are messages enough for one.",
    "A hundred messages say nothing of a p99.9, and little of a p99. Figures hold for this setting, these hosts and "
    "this load. Processes and namespaces of one host share its processors: what one spends the other waits for; and "
    "there is no network between them but the kernel's.",
)


def shown(results: dict[str, Any]) -> dict[str, Any]:
    """What the template shows there."""
    rows = table.mgen(results)
    return {
        "context": _context(),
        "mgen": document.table(*rows) if rows else None,
        "comparisons": _comparisons(results),
        "anova": _anova(results),
        "clocks": _clocks(results),
        "cells": [_cell(cell) for cell in results["cells"]],
        "method": _method(results),
        "about": _about(results),
    }


def _comparisons(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Ratios of RTTs by pair of subjects."""
    pairs: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for each in results["comparisons"]["paired"]:
        pairs.setdefault((each["mode"], each["subject"], each["to"]), []).append(each)
    told = []
    for (mode, subject, other), found in pairs.items():
        names = " / ".join(labels.subject(name).short for name in (subject, other))
        rows = [
            (_place(each), f"{each['ratio']:.3f}", _interval(each["ci95"]), formatting.p(each["p"]))
            for each in _sorted(found)
        ]
        ratios = sorted(each["ratio"] for each in found)
        span = f"{ratios[0]:.2f}" if len(ratios) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        note = "" if mode == "closed" else labels.MODES[mode]
        ratios_table = document.table(("", "ratio", "CI95", "p"), rows)
        told.append({"title": f"{names}: {span}", "note": note, "table": ratios_table})
    return told


def _anova(results: dict[str, Any]) -> document.Table | None:
    rows = [
        (
            f"{_place(each)}, {labels.MODES[each['mode']]}",
            str(len(each["subjects"])),
            "-" if each["f"] is None else formatting.decimal(each["f"]),
            formatting.p(each["p"]),
        )
        for each in _sorted(results["comparisons"]["anova"])
    ]
    return document.table(("", "subjects", "F", "p"), rows) if rows else None


def _clocks(results: dict[str, Any]) -> list[tuple[str, str]]:
    """The peer's clock by the link's estimate and by NTP, with flags."""
    rows = []
    for direction, name in labels.DIRECTIONS.items():
        found = [
            clock for cell in results["cells"]
            if cell["direction"] == direction and cell["statistics"] and (clock := cell["statistics"]["clock"])
        ]  # fmt: skip
        if found:
            best = min(found, key=lambda clock: clock["bound_ns"])
            skew = "" if best["skew_ppm"] is None else f", skew {best['skew_ppm']:+.3f} ppm"
            offset = formatting.within(best["offset_ns"], best["bound_ns"])
            rows.append((f"receiver's clock ahead, {name}", f"{offset}{skew} ({best['method']})"))
    for side, name in (("real_world", "Real World"), ("digital_twin", "Digital Twin")):
        rows.append((f"NTP, {name}", _ntp((results.get("ntp") or {}).get(side))))
    for cell in results["cells"]:
        delay = cell["statistics"] and cell["statistics"]["one_way_delay_ns"]
        if delay and delay["flags"]:
            rows.append(("flag", f"{cell['id']}: {formatting.listed(delay['flags'])}"))
    return rows


def _ntp(ntp: dict[str, Any] | None) -> str:
    if not ntp:
        return "not asked"
    if "error" in ntp:
        return str(ntp["error"])
    offset, limit, delay, dispersion = (
        formatting.time(ntp[name]) for name in ("offset_ns", "bound_ns", "root_delay_ns", "root_dispersion_ns")
    )
    return f"offset {offset} ±{limit} by {ntp['server']} (root delay {delay}, root dispersion {dispersion})"


def _context() -> list[tuple[str, str]]:
    """Published measurements of MQTT."""
    rows = []
    for each in reference_results.MQTT:
        points = ", ".join(f"{ms:g} ms" + (f" at {octets:,} B" if octets else "") for octets, ms in each.points)
        rows.append((each.quantity, f"{points}; {each.setting}; {each.source}"))
    return rows


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    figures = cell["statistics"]
    title = f"{labels.subject(cell['subject']).short}, {_place(cell)}, {labels.MODES[cell['mode']]}"
    state = "" if cell["status"] == "done" else str(cell["status"])
    told = {"title": title, "reason": str(cell.get("reason") or "")}
    if not figures:
        return {**told, "note": state or "nothing was sent", "spreads": None}
    rtt = figures["rtt_ns"]
    short = (
        f"RTT mean {formatting.time(rtt['mean'])}, p99 {formatting.time(rtt['p99'])}" if rtt else "nothing came back"
    )
    rows = [(name, *_spread(figures[key])) for key, name in _SPREADS.items() if figures.get(key)]
    return {
        **told,
        "note": f"{short}; {state}".removesuffix("; "),
        "spreads": document.table(("ms", "n", "mean", "CI95", "min", "p50", "p95", "p99", "max"), rows),
        "counted": _counted(cell, figures),
    }


def _spread(figures: dict[str, Any]) -> list[str]:
    ci95 = figures["ci95"]
    interval = f"{formatting.ms(ci95[0])} to {formatting.ms(ci95[1])}" if ci95 else "-"
    percentiles = [formatting.ms(figures[key]) for key in ("min", "p50", "p95", "p99", "max")]
    return [f"{figures['n']:,}", formatting.ms(figures["mean"]), interval, *percentiles]


def _counted(cell: dict[str, Any], figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Further counters of a cell."""
    words = {
        "n_sent": "sent",
        "n_received": "received",
        "n_acknowledged": "acknowledged",
        "lost": "lost",
        "duplicates": "twice",
        "reordered": "out of order",
    }
    warm_up = max((each.get("warm_up") or 0 for each in cell["rounds"]), default=0)
    rows = [
        ("messages", ", ".join(f"{figures[key]:,} {word}" for key, word in words.items())),
        ("rounds", f"{len(cell['rounds'])}, warm-up {warm_up}"),
    ]
    delay = figures["one_way_delay_ns"]
    if delay and delay["bound_ns"] is not None:
        usable = "" if delay["usable"] else ", so RTT only"
        rows.append(("clock", "; ".join([f"±{formatting.time(delay['bound_ns'])}{usable}", *delay["flags"]])))
    if figures["goodput_mb_s"] is not None:
        bits = figures["goodput_bit_s"] / 1e6
        rows.append(("goodput", f"{formatting.decimal(figures['goodput_mb_s'])} MB/s, {bits:,.1f} Mbit/s"))
    for name, key in (
        ("age of information", "age_of_information_ns"),
        ("CPU per message", "cpu_ns_per_message"),
        ("peak RSS (MiB)", "peak_rss_octets"),
        ("octets on the wire per message", "wire_octets_per_message"),
    ):
        parts = [
            f"{part} {_amount(key, value)}" for part, value in (figures.get(key) or {}).items() if value is not None
        ]
        if parts:
            rows.append((name, ", ".join(parts)))
    return rows


def _amount(key: str, value: float) -> str:
    if key.endswith("rss_octets"):
        return f"{value / (1 << 20):.0f}"
    return formatting.time(value) if "_ns" in key else f"{value:,.0f}"


def _method(results: dict[str, Any]) -> list[str]:
    items = list(_METHOD)
    hosts = [facts for facts in results["system"].values() if facts]
    if any((facts.get("cpus") or 3) <= 2 for facts in hosts):
        items.append("A host here has two processors or fewer: a broker, or a thread more, costs more than elsewhere.")
    return items


def _about(results: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Hosts, versions, configuration."""
    folded = []
    for side, facts in results["system"].items():
        rows = [
            (key, _value(value)) for key, value in {**(facts or {}), **((facts or {}).get("versions") or {})}.items()
        ]
        folded.append((side.replace("_", " ").capitalize(), [row for row in rows if row[0] != "versions"]))
    for name in ("given", "used"):
        configuration = results["configuration"].get(name) or {}
        folded.append((f"Configuration as {name}", [(key, _value(value)) for key, value in configuration.items()]))
    return folded


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) or "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _place(each: dict[str, Any]) -> str:
    return f"{labels.DIRECTIONS[each['direction']]} {formatting.payload(each['octets'])}"


def _sorted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    directions = list(labels.DIRECTIONS)
    return sorted(found, key=lambda each: (each["mode"], directions.index(each["direction"]), each["octets"]))


def _interval(ci95: Sequence[float] | None) -> str:
    return f"{ci95[0]:.3f} to {ci95[1]:.3f}" if ci95 else "-"
