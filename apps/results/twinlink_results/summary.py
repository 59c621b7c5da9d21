"""Summary of a run in sentences: the top of the page, and the output of the command."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinlink.appkit import formatting
from twinlink.protocol.rtt import percentiles
from twinlink.story import ENDS, Story

from . import labels, load, reference_results
from .metrics import ONE_CLOCK
from .statistics import MIN_ROUNDS

Cell = dict[str, Any]
ROUND_TRIP = "Round trip"


def statements(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of a heading and a sentence, most important first."""
    cells = [cell for cell in results["cells"] if cell["statistics"]]
    told = [
        ("Measured", _measured(results, cells)),
        ("State", _state(results)),
        ("Load", load.warning(results.get("load") or ())),
        ("Rounds", _few_rounds(cells)),
        ("Fidelity", _fidelity(results.get("fidelity") or ())),
        ("Decisions", _decisions(results.get("decisions") or ())),
    ]
    if cells:
        paired = [each for each in results["comparisons"]["paired"] if each["mode"] == "closed"]
        told += [
            ("Completeness", _loss(cells)),
            ("MGEN", _mgen(cells)),
            (ROUND_TRIP, _rtt(cells)),
            ("twinlink and the bare library", _beside_bare(paired)),
            *((labels.subject(name).short, text) for name, text in _brokered(paired)),
            ("Zenoh or ZeroMQ", _ratio(paired, "zenoh", "zeromq", "Zenoh's RTT is", "ZeroMQ's")),
            ("Rates", _rates(cells)),
            ("Clocks", _clocks(cells)),
            ("The paper", _paper(results, [cell for cell in cells if cell["mode"] == "closed"])),
        ]
    return [(title, text) for title, text in told if text]


def _fidelity(sessions: Iterable[dict[str, Any]]) -> str:
    """How far the twin's picture was from what each exporter heard."""
    told = []
    for one in sessions:
        windows = one["windows"]
        least = min(windows, key=lambda window: window["score"])
        mean = sum(window["score"] for window in windows) / len(windows)
        parts = {name: part for name, part in least["parts"].items() if part is not None}
        kpms = [part for window in windows if (part := window["parts"].get("kpm")) is not None]
        by_kpm = f"KPMs scored {sum(kpms) / len(kpms):.3f} in the mean" if kpms else "KPMs are not known"
        told.append(
            f"the twin's picture scored {mean:.3f} in the mean of {len(windows)} s of {one['node'] or one['epoch']}, "
            f"{least['score']:.3f} at least (by {min(parts, key=lambda name: parts[name])}); {by_kpm}"
        )
    return "; ".join(told)


def _decisions(told: Iterable[dict[str, Any]]) -> str:
    """How many decisions were recorded, how they ended, and how long they took."""
    stories = [Story.of(one) for one in told]
    if not stories:
        return ""
    ends = Counter(next((end for end in reversed(ENDS) if end in story.stages), "open") for story in stories)
    back = sum("taken back" in story.stages for story in stories)
    said = f"{len(stories)} PRB blocks: " + ", ".join(f"{count} {end}" for end, count in ends.most_common())
    took = [since[0] for story in stories if (since := story.since("on air"))]
    if took and (spread := percentiles(took)):
        said += f"; from seen to on air {spread['p50'] / 1e6:.1f} ms (median), {spread['p99'] / 1e6:.1f} ms (p99)"
    return f"{said}; the twin took {back} back"


def text(results: dict[str, Any]) -> str:
    """The statements as lines of text."""
    return "\n".join(f"{title}: {sentence}" for title, sentence in statements(results))


def unfinished(results: dict[str, Any]) -> list[Cell]:
    """The unfinished cells; a payload beyond a subject's limit is not one."""
    return [cell for cell in results["cells"] if cell["status"] != "done" and not _beyond(cell)]


def _beyond(cell: Cell) -> bool:
    return cell["status"] == "skipped" and (cell["reason"] or "").startswith(labels.TOO_LONG)


def _measured(results: dict[str, Any], cells: list[Cell]) -> str:
    number = sum(cell["statistics"]["n_sent"] for cell in cells)
    payloads = sorted({cell["octets"] for cell in results["cells"]})
    sizes = formatting.listed(formatting.payload(each) for each in payloads)
    ours = formatting.listed(_short(results["cells"], raw=False))
    raw = formatting.listed(_short(results["cells"], raw=True))
    modes = formatting.listed(
        labels.MODES[mode] for mode in labels.MODES if any(c["mode"] == mode for c in results["cells"])
    )
    where = labels.setting(results)
    told = f"{number:,} messages of {sizes} were sent on {formatting.date(results['started_ns'])} ({where}; {modes})"
    if ours:
        told += f" with twinlink over {ours}"
    if raw:
        told += f"{';' if ours else ''} {raw} carried the same frames in turn with them" if ours else f" over {raw}"
    return f"{told}."


def _short(cells: list[Cell], raw: bool) -> list[str]:
    names = labels.ordered(cell["subject"] for cell in cells)
    return [labels.subject(name).short for name in names if labels.subject(name).raw == raw]


def _state(results: dict[str, Any]) -> str:
    told = []
    missing = unfinished(results)
    if not results["complete"]:
        part = sum(bool(cell["rounds"]) for cell in missing)
        number = sum(not _beyond(cell) for cell in results["cells"])
        told.append(
            f"The run was broken off: of {number} cells {number - len(missing)} have all their rounds, {part} some, "
            f"{len(missing) - part} none."
        )
    failed = [cell for cell in missing if cell["status"] not in ("interrupted", "skipped")]
    if failed:
        reasons = [f"{_some(names)}: {why}" for names, why in _reasons(failed, _name)]
        told.append(f"{len(failed)} {'cells' if len(failed) > 1 else 'cell'} failed: {_some(reasons, '; ')}.")
    skipped = [cell for cell in results["cells"] if cell["status"] == "skipped"]
    if results["complete"]:
        for what, begun in (("Not measured", False), ("Not in every round", True)):
            found = _reasons(
                (cell for cell in skipped if bool(cell["rounds"]) == begun),
                lambda cell: labels.subject(cell["subject"]).short,
            )
            if found:
                told.append(
                    f"{what}: {formatting.listed(f'{formatting.listed(names)} ({why})' for names, why in found)}."
                )
    return " ".join(told)


def _few_rounds(cells: list[Cell]) -> str:
    """What few rounds leave open; an application's flows have no rounds."""
    rounds = max((len(cell["rounds"]) for cell in cells if "flow" not in cell), default=MIN_ROUNDS)
    if rounds >= MIN_ROUNDS:
        return ""
    return (
        f"{rounds} {'is' if rounds == 1 else 'are'} too few to show how rounds, each in new processes, differ: the "
        f"intervals of means cover the messages measured here only. Take --rounds {MIN_ROUNDS} or more."
    )


def _reasons(cells: Iterable[Cell], name: Callable[[Cell], str]) -> list[tuple[list[str], str]]:
    """Each reason once, beginning with all its rounds, with the names of its cells."""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for cell in cells:
        reason = str(cell.get("reason") or cell["status"])
        number, _, why = reason.partition(": ") if reason.startswith("round ") else ("", "", reason)
        names, numbers = found.setdefault(why, ({}, {}))
        names[name(cell)] = None
        numbers |= {number: None} if number else {}
    return [
        (list(names), f"{formatting.listed(numbers)}: {why}" if numbers else why)
        for why, (names, numbers) in found.items()
    ]


def _some(texts: list[str], between: str = ", ") -> str:
    """The first three items and the number of the others."""
    more = f" (and {len(texts) - 3} more)" if len(texts) > 3 else ""
    return between.join(texts[:3]) + more


def _name(cell: Cell) -> str:
    subject = labels.subject(cell["subject"]).short
    return f"{subject} {formatting.payload(cell['octets'])} {labels.DIRECTIONS[cell['direction']]}"


def _loss(cells: list[Cell]) -> str:
    counted = [cell for cell in cells if cell["mode"] != "saturation"]
    if not counted:
        return ""
    sent = sum(cell["statistics"]["n_sent"] for cell in counted)
    lost = [cell for cell in counted if cell["statistics"]["lost"]]
    again = sum(cell["statistics"]["duplicates"] for cell in counted)
    late = sum(cell["statistics"]["reordered"] for cell in counted)
    if not lost:
        told = f"All {sent:,} messages arrived"
        if len(counted) < len(cells):
            told = f"Outside the search for the highest rate, all {sent:,} messages arrived"
    else:
        number = sum(cell["statistics"]["lost"] for cell in lost)
        worst = max(lost, key=lambda cell: cell["statistics"]["lost"])
        most = worst["statistics"]["lost"]
        told = f"{number:,} of {sent:,} messages were lost, most of them ({most:,}) in {_name(worst)}"
    return f"{told}; {again or 'none'} came twice, {late or 'none'} out of order."


def _mgen(cells: list[Cell]) -> str:
    found = [(cell, cell["mgen"]) for cell in cells if cell.get("mgen")]
    if not found:
        return ""
    sent, received, errors = (sum(each[name] for _, each in found) for name in ("sent", "received", "errors"))
    told = f"{received:,} of {sent:,} messages that MGEN sent came whole to the listening MGEN; {errors or 'no'} RERR."
    delays = [(cell, each) for cell, each in found if each["mgen_delay_ns"] and each["link_delay_ns"]]
    parts = [
        f"{_name(cell)} {formatting.time(each['mgen_delay_ns']['p50'])}, "
        f"{formatting.time(each['link_delay_ns']['p50'])} of it "
        f"in the link{labels.of_fewer(each['link_delay_ns'], each['received'])}"
        for cell, each in (delays[:1] + delays[-1:] if len(delays) > 1 else delays)
    ]
    return f"{told} Median delay from MGEN to MGEN: {'; '.join(parts)}." if parts else told


def _rtt(cells: list[Cell]) -> str:
    closed = [cell for cell in cells if cell["mode"] == "closed" and cell["statistics"]["rtt_ns"]]
    if not closed:
        return ""
    direction = next(name for name in labels.DIRECTIONS if any(cell["direction"] == name for cell in closed))
    sizes = sorted({cell["octets"] for cell in closed})
    parts = []
    for octets in dict.fromkeys((sizes[0], sizes[-1])):
        each = [
            f"{labels.subject(name).short} {formatting.time(cell['statistics']['rtt_ns']['mean'])}"
            for name in labels.ordered(cell["subject"] for cell in closed)
            if (cell := _closed(closed, name, octets, direction))
        ]
        parts.append(f"With {formatting.payload(octets)}: {', '.join(each)}.")
    return f"Mean time from send to acknowledgement, {labels.WAYS[direction]}. {' '.join(parts)}"


def _closed(cells: list[Cell], subject: str, octets: int, direction: str) -> Cell | None:
    place = (subject, octets, direction)
    return next((cell for cell in cells if (cell["subject"], cell["octets"], cell["direction"]) == place), None)


def _beside_bare(paired: list[dict[str, Any]]) -> str:
    """twinlink against the bare library."""
    names = labels.ordered(each["subject"] for each in paired)
    told = [
        _ratio(
            paired,
            name,
            base,
            f"The RTT of twinlink over {labels.subject(name).short} is",
            f"{labels.subject(base).short}'s",
        )
        for name in names
        if (base := labels.BASELINES.get(name))
    ]
    told = list(filter(None, told))
    if not told:
        return ""
    told.append(
        "Rounds were interleaved. In a closed loop twinlink polls briefly before it blocks; the bare libraries do not."
    )
    return " ".join(told)


def _brokered(paired: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for name in labels.ordered(each["subject"] for each in paired if each["subject"].startswith("mqtt")):
        told = [
            _ratio(paired, name, other, "Through a broker the RTT is", f"twinlink over {labels.subject(other).short}'s")
            for other in ("zenoh", "zeromq")
        ]
        yield name, " ".join(filter(None, told))


def _ratio(paired: list[dict[str, Any]], subject: str, other: str, begin: str, end: str) -> str:
    """Such as "A's RTT is 1.02 times (CI95 0.99 to 1.04) B's at 100 B and ... at 1 MB"; the first direction."""
    found = [each for each in paired if (each["subject"], each["to"]) == (subject, other)]
    found = [each for each in found if each["direction"] == found[0]["direction"]]
    ends = sorted(found, key=lambda each: each["octets"])
    if not ends:
        return ""
    parts = [
        f"{each['ratio']:.2f} times{_interval(each)}{'' if place else f' {end}'} "
        f"at {formatting.payload(each['octets'])}"
        for place, each in enumerate({each["octets"]: each for each in (ends[0], ends[-1])}.values())
    ]
    return f"{begin} {formatting.listed(parts)}."


def _interval(each: dict[str, Any]) -> str:
    if not each["ci95"]:
        rounds = each["n_rounds"]
        return f" (inconclusive: {rounds} {'round is' if rounds == 1 else 'rounds are'} too few for an interval)"
    low, high = each["ci95"]
    verdict = ": inconclusive, as the interval contains 1" if low <= 1 <= high else ""
    return f" (CI95 {low:.2f} to {high:.2f}{verdict})"


def _rates(cells: list[Cell]) -> str:
    found = [cell for cell in cells if (cell.get("search") or {}).get("highest_loss_free_hz")]
    each = [f"{_name(cell)} {labels.highest_rate(cell['search'])}" for cell in found[:6]]
    more = f" (and {len(found) - 6} more cells)" if len(found) > 6 else ""
    return f"Highest without loss, in messages/s: {formatting.listed(each)}{more}." if each else ""


def _clocks(cells: list[Cell]) -> str:
    every = [spread for cell in cells if (spread := cell["statistics"]["one_way_delay_ns"])]
    spreads = [spread for spread in every if spread["bound_ns"] is not None]
    if not spreads:
        return ""
    reach = formatting.between(spread["bound_ns"] for spread in spreads if not spread["flags"])
    flagged = sum(bool(spread["flags"]) for spread in spreads)
    too_wide = sum(not spread["usable"] and not spread["flags"] for spread in spreads)
    clocks = [clock for cell in cells if (clock := cell["statistics"]["clock"])]
    if clocks and all(clock["method"] == ONE_CLOCK for clock in clocks):
        told = f"Both ends read the clock of one host; the estimate from their exchanges agrees to within {reach}"
    else:
        told = f"One-way delays are within ±{reach}, the bound of the clock offset"
    if too_wide:
        told += (
            f"; in {too_wide} of {len(spreads)} cells that is more than 20 % of the delay, and only the RTT is given"
        )
    told += "."
    if flagged:
        flags = sorted({flag for spread in spreads for flag in spread["flags"]})
        told = f"{told} " if flagged < len(spreads) else ""  # flagged delays have no valid bound
        told += (
            f"Look at the clocks: delays of {flagged} of {len(spreads)} cells are flagged "
            f"as {formatting.listed(flags)}, and only the RTT is given there."
        )
    return told


def _paper(results: dict[str, Any], cells: list[Cell]) -> str:
    names = {cell["subject"] for cell in cells}
    row = next((reference_results.row(name, "rw-dt", 100) for name in ("zeromq", "zenoh") if name in names), None)
    if row is None:
        return ""
    where = "other two" if results["setting"] == "hosts" else labels.SETTINGS[results["setting"]]
    return (
        f"Its RTTs ({row.rtt_ms:.1f} ms at 100 B) were taken between two hosts with a network between them; these here "
        f"between {where}. Compare their shapes, not the figures."
    )
