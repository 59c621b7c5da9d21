"""The metrics of a cell, computed from its records; None where a metric is not valid.

docs/metrics.md has the definitions with their RFCs.  Implausible values are not corrected: a negative delay stays
negative, and is flagged.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinlink.appkit import clock as clocks
from twinlink.appkit.records import RECEIVED, Table

from . import labels, statistics

USABLE = 0.2  # greatest clock bound of a usable one-way delay, as a share of its median
ONE_HOST = frozenset({"loopback", "netns"})  # settings in which both sides read one clock
ONE_CLOCK = "one host, one clock; the bound is what the exchanges say against it"

Floats = NDArray[np.float64]


def run_clocks(cells: Iterable[tuple[Mapping[str, Any], Table]]) -> dict[str, clocks.Estimate]:
    """The receiver's clock minus the sender's by direction, from all exchanges of a run; empty without any.

    ``cells`` are those of the run, each with its sent records.  Large messages bound the clocks poorly, since half of
    their RTT is the bound; so small messages of other cells and subjects are used for them as well.
    """
    forward, back = labels.DIRECTIONS
    try:
        estimate = clocks.pooled((_exchanges(sent), cell["direction"] == back) for cell, sent in cells)
    except ValueError:
        return {}
    return {forward: estimate, back: estimate.reversed()}


def cell(
    sent: Table,
    received: Table,
    rounds: Sequence[Mapping[str, Any]],
    setting: str,
    clock: clocks.Estimate | None = None,
) -> dict[str, Any]:
    """Every metric of a cell, ready for JSON.

    Args:
        sent, received: its records (`twinlink.appkit.records`); all rounds, in the order of sending and of arrival.
        rounds: its ``rounds`` in run.json.
        setting: the run's.
        clock: receiver minus sender (`run_clocks`); from this cell's own exchanges when None.
    """
    if clock is None:
        clock = _estimate(sent)
    arrived = arrivals(sent, received)
    acknowledged = sent[sent["acknowledged"]]
    acknowledged = acknowledged[np.argsort(_keys(acknowledged), kind="stable")]
    offset_ns, bound_ns = _offsets(arrived["sent_ns"], clock, setting)
    one_way_ns = arrived["received_ns"] - arrived["sent_ns"] - offset_ns
    residence_ns = acknowledged["peer_sent_ns"] - acknowledged["peer_received_ns"]
    lost = len(sent) - len(arrived)

    delay = spread(one_way_ns)
    variation = _shifted(delay, -delay["min"]) if delay else None
    if delay is not None:
        delay |= _validity(delay["p50"], bound_ns, _flags(sent, one_way_ns, clock))
    goodput_bit_s = _goodput_bit_s(arrived)
    return {
        "n_sent": len(sent),
        "n_received": len(arrived),
        "n_acknowledged": len(acknowledged),
        "lost": lost,
        "loss_ratio": lost / len(sent) if len(sent) else None,
        "loss_ratio_ci95": _pair(statistics.share_interval(lost, len(sent))),
        "duplicates": _duplicates(sent, received),
        "reordered": _reordered(sent, received),
        "rtt_ns": spread(acknowledged["rtt_ns"]),
        "rtt_without_residence_ns": spread(acknowledged["rtt_ns"] - residence_ns),
        "one_way_delay_ns": delay,
        "ipdv_ns": spread(_differences(arrived, one_way_ns)),
        "pdv_ns": variation,
        "paper_rtt_jitter_ns": spread(np.abs(_differences(acknowledged, acknowledged["rtt_ns"].astype(np.float64)))),
        "open_loop_delay_ns": spread(_open_loop(sent, arrived, one_way_ns)),
        "clock": _clock_figures(sent, clock, setting),
        "paper_throughput_mb_s": (
            float(arrived["octets"].mean()) / delay["mean"] * 1e3 if delay and delay["usable"] else None
        ),
        "goodput_bit_s": goodput_bit_s,
        "goodput_mb_s": None if goodput_bit_s is None else goodput_bit_s / 8e6,
        "age_of_information_ns": _age(arrived, one_way_ns),
        "cpu_ns_per_message": {side: _per_message(rounds, f"{side}_cpu_ns") for side in _SIDES},
        "peak_rss_octets": {side: _peak(rounds, f"{side}_peak_rss_octets") for side in _SIDES},
        "wire_octets_per_message": {way: _per_message(rounds, "wire_octets", way) for way in ("forward", "back")},
    }


_SIDES = ("sender", "receiver", "broker")


def spread(values: ArrayLike) -> dict[str, Any] | None:
    """Mean and percentiles with their intervals, of values in the order of time; None without values."""
    x = np.asarray(values, np.float64)
    n = len(x)
    if n == 0:
        return None
    ordered = np.sort(x)
    interval = statistics.mean_interval(x)
    found: dict[str, Any] = {
        "n": n,
        "n_eff": interval.n_eff if interval else float(n),
        "mean": float(x.mean()),
        "ci95": [interval.low, interval.high] if interval else None,
        "ci95_method": interval.method if interval else None,
        "paper_ci95": _pair(statistics.plain_interval(x)) if n > 1 else None,
        "min": float(ordered[0]),
        "max": float(ordered[-1]),
        "sd": float(x.std(ddof=1)) if n > 1 else None,
    }
    for percent in (50, 90, 95, 99):
        found[f"p{percent}"] = statistics.percentile(ordered, percent / 100)
        if percent != 90:
            between = statistics.percentile_interval(x, ordered, percent / 100, found["n_eff"])
            found[f"p{percent}_ci95"] = _pair(between)
    return found


def _shifted(found: dict[str, Any], by: float) -> dict[str, Any]:
    """The spread of the same values, each greater by ``by``."""

    def moved(name: str, value: Any) -> Any:
        if value is None or name in ("n", "n_eff", "sd", "ci95_method"):
            return value
        return [each + by for each in value] if isinstance(value, list) else value + by

    return {name: moved(name, value) for name, value in found.items()}


def one_way_delays(received: Table, clock: clocks.Estimate | None, setting: str = "hosts") -> Floats:
    """The one-way delay (ns) of each row of a received record, or of `arrivals`, with the clock that `cell` uses."""
    offset_ns, _ = _offsets(received["sent_ns"], clock, setting)
    return np.asarray(received["received_ns"] - received["sent_ns"] - offset_ns, np.float64)


# Clocks


def _exchanges(sent: Table) -> NDArray[np.int64]:
    """T1 to T4 of acknowledged messages, in the order of sending."""
    rows = sent[sent["acknowledged"]]
    rows = rows[np.argsort(_keys(rows), kind="stable")]
    return np.stack([rows[name] for name in ("sent_ns", "peer_received_ns", "peer_sent_ns", "received_ns")])


def _estimate(sent: Table) -> clocks.Estimate | None:
    try:
        return clocks.estimate(*_exchanges(sent))
    except ValueError:
        return None


def _is_one_clock(clock: clocks.Estimate | None, setting: str) -> bool:
    """Whether both sides read one clock, as they do on one host unless the exchanges prove otherwise."""
    if setting not in ONE_HOST:
        return False
    if clock is None:
        return True
    ends = np.array([each for segment in clock.segments for each in (segment.first_ns, segment.last_ns)])
    return not clock.stepped and bool((np.abs(clock.offset_at(ends)) <= clock.bound_at(ends)).all())


def _offsets(at_ns: NDArray[Any], clock: clocks.Estimate | None, setting: str) -> tuple[Floats, Floats | None]:
    """Receiver's clock minus sender's, and its bound; 0 and None if unknown."""
    nothing = np.zeros(len(at_ns))
    if _is_one_clock(clock, setting):
        # A shift within the bound of the exchanges cannot be detected, so their estimate is the bound.
        return nothing, np.abs(clock.offset_at(at_ns)) if clock and len(at_ns) else nothing if len(at_ns) else None
    if clock is None or not len(at_ns):
        return nothing, None
    return clock.offset_at(at_ns), clock.bound_at(at_ns)


def _clock_figures(sent: Table, clock: clocks.Estimate | None, setting: str) -> dict[str, Any] | None:
    if clock is None or not len(sent):
        return None
    middle = np.array([(int(sent["sent_ns"].min()) + int(sent["sent_ns"].max())) // 2])
    offset_ns, bound_ns = _offsets(middle, clock, setting)
    one_clock = _is_one_clock(clock, setting)
    each_round = []
    for number in np.unique(sent["round"]).tolist():
        own = _estimate(sent[sent["round"] == number])
        if own:
            each_round.append(
                {"round": number, "offset_ns": round(own.offset_ns), "bound_ns": round(own.bound_ns), "n": own.n}
            )
    return {
        "offset_ns": round(float(offset_ns[0])),
        "skew_ppm": 0.0 if one_clock else clock.skew_ppm,
        "bound_ns": round(float(bound_ns[0])) if bound_ns is not None else None,
        "method": ONE_CLOCK if one_clock else clocks.METHOD,
        "n": clock.n,
        "estimate": clock.figures(),  # from the exchanges, also where both sides read one clock
        "rounds": each_round,
    }


def _validity(median_ns: float, bound_ns: Floats | None, flags: list[str]) -> dict[str, Any]:
    """Whether the clocks allow a one-way delay to be reported."""
    bound = None if bound_ns is None else float(bound_ns.max())
    usable = bound is not None and not flags and 0 <= bound <= USABLE * median_ns
    return {"bound_ns": bound, "usable": usable, "flags": flags}


def _flags(sent: Table, one_way_ns: Floats, clock: clocks.Estimate | None) -> list[str]:
    flags = []
    t1, t2, t3, t4 = _exchanges(sent)
    if (one_way_ns < 0).any() or ((t4 - t1) - (t3 - t2) < 0).any():
        flags.append("negative")
    if clock is not None and len(t1) and any(t1.min() <= at <= t4.max() for at, _ in clock.steps):
        flags.append("stepped")
    return flags


# Messages


def _keys(table: Table) -> NDArray[np.int64]:
    return np.asarray((table["round"].astype(np.int64) << 40) + table["sequence"], np.int64)


def arrivals(sent: Table, received: Table) -> Table:
    """The first arrival of each message that was sent, by round and sequence.

    The arrival time of an acknowledged message that is not in the receiver's record (it may have died) is that of the
    ack.
    """
    acknowledged = sent[sent["acknowledged"]]
    told = np.zeros(len(acknowledged), RECEIVED)
    for name in ("round", "sequence", "octets", "sent_ns"):
        told[name] = acknowledged[name]
    told["received_ns"] = acknowledged["peer_received_ns"]
    together = np.concatenate([_known(sent, received), told])
    _, first = np.unique(_keys(together), return_index=True)
    found: Table = together[first]
    return found


def _known(sent: Table, received: Table) -> Table:
    """The arrivals of messages that were sent."""
    known: Table = received[np.isin(_keys(received), _keys(sent))]
    return known


def _duplicates(sent: Table, received: Table) -> int:
    keys = _keys(_known(sent, received))
    return len(keys) - len(np.unique(keys))


def _reordered(sent: Table, received: Table) -> int:
    """Messages that arrived after one with a greater number (RFC 4737 section 3.3); duplicates do not count."""
    received, count = _known(sent, received), 0
    for number in np.unique(received["round"]):
        sequences = received["sequence"][received["round"] == number]
        _, first = np.unique(sequences, return_index=True)
        in_order = sequences[np.sort(first)]
        count += int((in_order < np.maximum.accumulate(in_order)).sum())
    return count


def _differences(rows: Table, values: Floats) -> Floats:
    """Value minus that of the preceding message, where both exist; rows by round and sequence."""
    adjacent = np.diff(_keys(rows)) == 1
    return np.asarray(np.diff(values)[adjacent], np.float64)


def _open_loop(sent: Table, arrivals: Table, one_way_ns: Floats) -> Floats:
    """Time from the scheduled send to the arrival; empty without a schedule."""
    if not len(arrivals) or (sent["scheduled_ns"] == sent["sent_ns"]).all():
        return np.zeros(0)
    sent = sent[np.argsort(_keys(sent), kind="stable")]
    rows = sent[np.searchsorted(_keys(sent), _keys(arrivals))]
    return np.asarray(one_way_ns + (rows["sent_ns"] - rows["scheduled_ns"]), np.float64)


def _each_round(arrivals: Table) -> Iterable[NDArray[np.intp]]:
    """Indices of each round's rows in the order of arrival."""
    for number in np.unique(arrivals["round"]):
        rows = np.flatnonzero(arrivals["round"] == number)
        yield rows[np.argsort(arrivals["received_ns"][rows], kind="stable")]


def _goodput_bit_s(arrivals: Table) -> float | None:
    """Payload received after the first message, divided by the time since then, on the receiver's clock."""
    octets = duration_ns = 0
    for rows in _each_round(arrivals):
        octets += int(arrivals["octets"][rows[1:]].sum())
        duration_ns += int(arrivals["received_ns"][rows[-1]] - arrivals["received_ns"][rows[0]])
    return octets * 8e9 / duration_ns if duration_ns > 0 and octets else None


def _age(arrivals: Table, one_way_ns: Floats) -> dict[str, float] | None:
    """Age of the freshest message received, from each round's first arrival to its last."""
    area, duration, peaks = 0.0, 0.0, []
    for rows in _each_round(arrivals):
        sent_ns = arrivals["sent_ns"][rows]
        fresh = rows[np.append(True, sent_ns[1:] > np.maximum.accumulate(sent_ns)[:-1])]
        if len(fresh) < 2:
            continue
        gaps = np.diff(arrivals["received_ns"][fresh]).astype(np.float64)
        ages = one_way_ns[fresh][:-1]
        area += float((gaps * (ages + gaps / 2)).sum())
        duration += float(gaps.sum())
        peaks.extend((ages + gaps).tolist())
    if duration <= 0:
        return None
    return {"mean": area / duration, "peak": float(np.mean(peaks)), "max": float(np.max(peaks))}


def _per_message(rounds: Sequence[Mapping[str, Any]], name: str, way: str | None = None) -> float | None:
    """An amount per message, over the rounds that have it."""
    total = messages = 0
    for each in rounds:
        amount = each.get(name)
        if way is not None and amount is not None:
            amount = amount.get(way)
        if amount is not None and each["sent"]:
            total += amount
            messages += each["sent"]
    return total / messages if messages else None


def _peak(rounds: Sequence[Mapping[str, Any]], name: str) -> int | None:
    return max((each[name] for each in rounds if each.get(name) is not None), default=None)


def _pair(interval: tuple[float, float] | None) -> list[float] | None:
    return list(interval) if interval else None
