"""Every metric on synthetic records with known values."""

import json
from typing import Any

import numpy as np
import pytest
from twinlink_results import metrics

from twinlink.appkit.records import RECEIVED, SENT, Table

US = 1_000
MS = 1_000_000
START = 1_700_000_000_000_000_000


def records(
    n: int = 40,
    *,
    rounds: int = 1,
    octets: int = 100,
    there_ns: int = 40 * US,
    back_ns: int = 30 * US,
    residence_ns: int = 5 * US,
    offset_ns: int = 0,
    interval_ns: int = MS,
    late_ns: int = 0,
    noise_ns: int = 10 * US,
) -> tuple[Table, Table]:
    """A cell in which everything arrives; every tenth message or so is quick both ways."""
    generator = np.random.default_rng(1)
    sent = np.zeros(n * rounds, SENT)
    sent["round"] = np.repeat(np.arange(rounds), n)
    sent["sequence"] = np.tile(np.arange(n), rounds)
    sent["octets"] = octets
    sent["scheduled_ns"] = START + np.arange(n * rounds) * interval_ns
    sent["sent_ns"] = sent["scheduled_ns"] + late_ns
    sent["acknowledged"] = True
    arrived = sent["sent_ns"] + there_ns + generator.integers(0, noise_ns + 1, len(sent))
    left = arrived + residence_ns
    sent["received_ns"] = left + back_ns + generator.integers(0, noise_ns + 1, len(sent))
    sent["peer_received_ns"], sent["peer_sent_ns"] = arrived + offset_ns, left + offset_ns
    sent["rtt_ns"] = sent["received_ns"] - sent["sent_ns"]
    received = np.zeros(len(sent), RECEIVED)
    for name in ("round", "sequence", "octets", "sent_ns"):
        received[name] = sent[name]
    received["received_ns"] = sent["peer_received_ns"]
    return sent, received


def facts(sent: Table, **amounts: Any) -> list[dict[str, Any]]:
    """``rounds`` of run.json."""
    return [
        {"round": int(each), "sent": int((sent["round"] == each).sum()), **amounts} for each in np.unique(sent["round"])
    ]


def cell(sent: Table, received: Table, setting: str = "hosts", **amounts: Any) -> dict[str, Any]:
    found = metrics.cell(sent, received, facts(sent, **amounts), setting)
    json.dumps(found, allow_nan=False)
    return found


def unacknowledge(sent: Table, index: Any) -> None:
    sent["acknowledged"][index] = False
    for name in ("peer_received_ns", "peer_sent_ns", "received_ns", "rtt_ns"):
        sent[name][index] = 0


def test_delays_are_those_of_the_records() -> None:
    sent, received = records(60, rounds=3)
    found = cell(sent, received, "loopback")
    assert (found["n_sent"], found["n_received"], found["n_acknowledged"], found["lost"]) == (180, 180, 180, 0)
    for name, values in (
        ("rtt_ns", sent["rtt_ns"]),
        ("rtt_without_residence_ns", sent["rtt_ns"] - 5 * US),
        ("one_way_delay_ns", received["received_ns"] - received["sent_ns"]),
    ):
        spread = found[name]
        assert spread["n"] == len(values)
        assert spread["mean"] * spread["n"] == pytest.approx(values.sum())
        assert (spread["min"], spread["max"]) == (values.min(), values.max())
        assert spread["sd"] == pytest.approx(values.std(ddof=1))
        ordered = np.sort(values)
        assert [spread[f"p{share}"] for share in (50, 90, 95, 99)] == [ordered[k] for k in (89, 161, 170, 178)]
        assert spread["ci95"][0] < spread["mean"] < spread["ci95"][1]
        assert spread["paper_ci95"][0] < spread["mean"] < spread["paper_ci95"][1]
        assert spread["p50_ci95"][0] <= spread["p50"] <= spread["p50_ci95"][1]
        assert spread["p99_ci95"] is None
        assert "bootstrap" in spread["ci95_method"]


def test_variation_stays_within_a_round_and_keeps_its_sign() -> None:
    sent, received = records(30, rounds=2)
    delays = (received["received_ns"] - received["sent_ns"]).reshape(2, 30)
    differences = np.diff(delays, axis=1).ravel()
    found = cell(sent, received, "loopback")
    assert found["ipdv_ns"]["n"] == 58
    assert found["ipdv_ns"]["mean"] == pytest.approx(differences.mean())
    assert found["ipdv_ns"]["min"] == differences.min() < 0
    assert found["pdv_ns"]["min"] == 0
    assert found["pdv_ns"]["max"] == delays.max() - delays.min()
    assert found["pdv_ns"]["ci95"] == pytest.approx(
        [end - delays.min() for end in found["one_way_delay_ns"]["ci95"]], abs=1e-3
    )
    jitter = np.abs(np.diff(sent["rtt_ns"].reshape(2, 30), axis=1)).ravel()
    assert found["paper_rtt_jitter_ns"]["p95"] == np.sort(jitter)[int(np.ceil(0.95 * 58)) - 1]


def test_delay_variation_needs_no_common_clock() -> None:
    """RFC 3393: an offset does not change it."""
    plain = cell(*records())
    shifted = cell(*records(offset_ns=3_600_000 * MS))
    assert shifted["ipdv_ns"]["mean"] == pytest.approx(plain["ipdv_ns"]["mean"], abs=1)
    assert shifted["pdv_ns"]["mean"] == pytest.approx(plain["pdv_ns"]["mean"], abs=1)


def test_what_is_lost() -> None:
    sent, received = records(50)
    unacknowledge(sent, [7, 8, 30])
    received = received[~np.isin(received["sequence"], [7, 30])]  # 8 arrived, its ack did not
    found = cell(sent, received)
    assert (found["n_sent"], found["n_received"], found["n_acknowledged"], found["lost"]) == (50, 48, 47, 2)
    assert found["loss_ratio"] == 0.04
    low, high = found["loss_ratio_ci95"]
    assert 0 < low < 0.04 < high < 0.2
    assert found["rtt_ns"]["n"] == 47
    assert found["one_way_delay_ns"]["n"] == 48
    assert found["ipdv_ns"]["n"] == 49 - 4  # of 50 messages 7 and 30 have no neighbours
    assert found["paper_rtt_jitter_ns"]["n"] == 49 - 5


def test_the_ack_tells_when_the_receivers_record_is_missing() -> None:
    sent, received = records(20)
    found = cell(sent, received[:0])
    assert (found["n_received"], found["lost"]) == (20, 0)
    assert found["one_way_delay_ns"]["mean"] == pytest.approx(cell(sent, received)["one_way_delay_ns"]["mean"])


def test_duplicates_and_order() -> None:
    sent, received = records(10, rounds=2)
    order = [0, 1, 2, 4, 3, 4, 5, 9, 6, 7, 8]  # 4 comes twice; 3, 6, 7 and 8 come late
    received = np.concatenate([received[order], received[10:]])
    found = cell(sent, received)
    assert (found["n_received"], found["duplicates"], found["reordered"], found["lost"]) == (20, 1, 4, 0)


def test_arrivals_of_unsent_messages_are_not_counted() -> None:
    sent, received = records(10)
    stranger = received[-1:].copy()
    stranger["sequence"] = 99
    found = cell(sent, np.concatenate([received[:5], stranger, received[5:]]))
    assert (found["n_received"], found["duplicates"], found["reordered"]) == (10, 0, 0)


@pytest.mark.parametrize("setting", ["loopback", "netns"])
def test_one_host_has_one_clock(setting: str) -> None:
    found = cell(*records(), setting)
    assert found["clock"]["offset_ns"] == 0
    assert found["clock"]["method"] == metrics.ONE_CLOCK
    assert found["clock"]["bound_ns"] < 8 * US  # the asymmetry that was put in is 10 us, half of it looks like offset
    assert found["one_way_delay_ns"]["usable"]
    assert found["one_way_delay_ns"]["mean"] == pytest.approx(45 * US, rel=0.05)


def test_unless_the_exchanges_prove_otherwise() -> None:
    found = cell(*records(offset_ns=5 * MS), "netns")
    assert found["clock"]["method"] != metrics.ONE_CLOCK
    assert abs(found["clock"]["offset_ns"] - 5 * MS) <= found["clock"]["bound_ns"]
    delay = found["one_way_delay_ns"]
    assert abs(delay["mean"] - 45 * US) <= delay["bound_ns"]
    assert not delay["usable"]  # its bound is half of the round trip
    assert found["paper_throughput_mb_s"] is None


def test_small_messages_tell_the_clock_of_large_ones() -> None:
    """Over two hosts 1 MB takes long enough that the bound from 100 B in the same run is small beside it."""
    offset_ns = -3 * 3_600_000 * MS
    small, _ = records(offset_ns=offset_ns)
    large, received = records(octets=1 << 20, there_ns=12 * MS, interval_ns=20 * MS, offset_ns=offset_ns)
    answers, _ = records(offset_ns=-offset_ns)  # the Digital Twin sends
    for name in ("scheduled_ns", "sent_ns", "received_ns"):
        answers[name] += offset_ns
    for name in ("peer_received_ns", "peer_sent_ns"):
        answers[name] += offset_ns
    cells = [({"direction": "rw-dt"}, small), ({"direction": "rw-dt"}, large), ({"direction": "dt-rw"}, answers)]
    clocks = metrics.run_clocks(cells)
    alone = metrics.cell(large, received, facts(large), "hosts")
    found = metrics.cell(large, received, facts(large), "hosts", clock=clocks["rw-dt"])
    assert not alone["one_way_delay_ns"]["usable"]
    assert found["one_way_delay_ns"]["usable"]
    assert abs(found["one_way_delay_ns"]["mean"] - 12_005 * US) <= found["one_way_delay_ns"]["bound_ns"]
    mean_ns = found["one_way_delay_ns"]["mean"]
    assert found["paper_throughput_mb_s"] == pytest.approx((1 << 20) / (mean_ns / 1e9) / 1e6)
    seen_back = clocks["dt-rw"]
    assert abs(seen_back.offset_ns + offset_ns) <= seen_back.bound_ns
    delays = metrics.one_way_delays(received, clocks["rw-dt"])
    assert delays.mean() == pytest.approx(mean_ns, abs=1)


def test_nothing_answered_tells_nothing_of_the_clock() -> None:
    sent, received = records(10)
    unacknowledge(sent, slice(None))
    assert metrics.run_clocks([({"direction": "rw-dt"}, sent)]) == {}
    assert metrics.run_clocks([]) == {}
    found = cell(sent, received)
    assert found["clock"] is None
    assert found["rtt_ns"] is None
    assert found["one_way_delay_ns"]["bound_ns"] is None
    assert not found["one_way_delay_ns"]["usable"]
    assert found["lost"] == 0


def test_a_step_is_flagged_and_nothing_is_clamped() -> None:
    sent, received = records(60)
    for table, names in ((sent, ("peer_received_ns", "peer_sent_ns")), (received, ("received_ns",))):
        for name in names:
            table[name][30:] -= 20 * MS
    found = cell(sent, received)
    assert "stepped" in found["one_way_delay_ns"]["flags"]
    assert not found["one_way_delay_ns"]["usable"]
    assert [round(step["size_ns"] / MS) for step in found["clock"]["estimate"]["steps"]] == [-20]
    raw = metrics.one_way_delays(received, None)
    assert (raw < 0).sum() == 30  # what the stamps say, when no clock is taken into account


def test_a_negative_delay_is_flagged() -> None:
    sent, received = records(60)
    received["received_ns"][17] -= 30 * MS
    found = cell(sent, received, "loopback")
    delay = found["one_way_delay_ns"]
    assert delay["flags"] == ["negative"]
    assert delay["min"] < -29 * MS
    assert not delay["usable"]


def test_the_open_loop_counts_from_the_schedule() -> None:
    sent, received = records(late_ns=2 * MS)
    found = cell(sent, received, "loopback")
    assert found["open_loop_delay_ns"]["mean"] == pytest.approx(found["one_way_delay_ns"]["mean"] + 2 * MS)
    assert cell(*records(), "loopback")["open_loop_delay_ns"] is None


def test_goodput_is_the_payload_that_arrived_in_the_time_it_took() -> None:
    sent, received = records(11, rounds=2, octets=1_000, noise_ns=0)
    found = cell(sent, received)
    assert found["goodput_bit_s"] == pytest.approx(1_000 * 8 / 1e-3)  # a thousand octets each millisecond
    assert found["goodput_mb_s"] == pytest.approx(1.0)
    again = np.concatenate([received[:11], received[:11], received[11:]])
    assert cell(sent, again)["goodput_bit_s"] == found["goodput_bit_s"]  # duplicates are none
    assert cell(sent[:1], received[:1])["goodput_bit_s"] is None


def test_age_of_information() -> None:
    """A message each millisecond that takes 45 us: when one arrives the last is 1.045 ms old, and 45 us after it."""
    sent, received = records(20, rounds=2, there_ns=45 * US, noise_ns=0)
    age = cell(sent, received, "loopback")["age_of_information_ns"]
    assert age["peak"] == age["max"] == pytest.approx(1_045 * US)
    assert age["mean"] == pytest.approx(545 * US)
    late = received[:20].copy()
    late["received_ns"][5] = late["sent_ns"][6] + 500 * US  # after 6: it makes nothing fresher
    aged = cell(sent[:20], late[np.argsort(late["received_ns"])], "loopback")
    assert aged["age_of_information_ns"]["max"] == pytest.approx(2_045 * US)
    assert aged["reordered"] == 1
    assert cell(sent[:1], received[:1])["age_of_information_ns"] is None


def test_amounts_per_message() -> None:
    sent, received = records(10, rounds=2)
    found = cell(
        sent,
        received,
        sender_cpu_ns=50_000,
        receiver_cpu_ns=20_000,
        broker_cpu_ns=None,
        sender_peak_rss_octets=7,
        receiver_peak_rss_octets=9,
        wire_octets={"forward": 2_000, "back": 1_500},
    )
    assert found["cpu_ns_per_message"] == {"sender": 5_000, "receiver": 2_000, "broker": None}
    assert found["peak_rss_octets"] == {"sender": 7, "receiver": 9, "broker": None}
    assert found["wire_octets_per_message"] == {"forward": 200, "back": 150}
    nothing = cell(sent, received)
    assert nothing["wire_octets_per_message"] == {"forward": None, "back": None}


def test_a_cell_in_which_nothing_happened() -> None:
    found = cell(np.zeros(0, SENT), np.zeros(0, RECEIVED))
    assert found["n_sent"] == found["lost"] == 0
    for name in ("loss_ratio", "rtt_ns", "one_way_delay_ns", "ipdv_ns", "pdv_ns", "clock", "goodput_bit_s"):
        assert found[name] is None, name


def test_the_order_of_the_rows_does_not_matter() -> None:
    sent, received = records(40, rounds=2)
    found = metrics.cell(sent, received, facts(sent), "loopback")
    mixed = np.random.default_rng(2).permutation(len(sent))
    other = metrics.cell(sent[mixed], received, facts(sent), "loopback")
    for name in ("rtt_ns", "one_way_delay_ns", "ipdv_ns", "paper_rtt_jitter_ns"):
        assert other[name] == found[name], name


def test_a_hundred_thousand_messages_are_no_burden() -> None:
    """Nothing grows worse than n log n, nor needs memory for each resample of so many; the timeout would tell."""
    sent, received = records(50_000, rounds=2)
    found = cell(sent, received, "loopback")
    assert found["rtt_ns"]["n"] == 100_000
    assert found["rtt_ns"]["p99_ci95"] is not None
