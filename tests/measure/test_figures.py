"""The figures: they exist, are images, and show what was measured."""

import copy
import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import matplotlib.pyplot as plt
import pytest
from twinlink_measure.channels.subjects import OWN_SUBSCRIPTION
from twinlink_results import figures, labels, plot_style, reference_results, results
from twinlink_results.plot_style import Drawn
from twinlink_results.rows import Records

from tests.measure import synthetic_run
from twinlink.appkit import records

BOTH: dict[str, Any] = {"subjects": ("zeromq", "zenoh", "raw-tcp"), "payloads": (100, 10240, 1048576), "rounds": 2}


def computed(folder: Path) -> tuple[dict[str, Any], Records]:
    return results.compute(folder, results.load(folder))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Drawn]:
    folder = tmp_path_factory.mktemp("sweep")
    synthetic_run.write(folder, **BOTH)
    return figures.draw(folder / "figures", *computed(folder))


def size(path: Path) -> tuple[int, int]:
    """Width and height, from the PNG's own header."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_every_figure_of_the_paper_and_two_more(drawn: list[Drawn]) -> None:
    assert [each.path.stem for each in drawn] == [
        "latency",
        "rtt",
        "cdf-rw-dt",
        "cdf-dt-rw",
        "jitter",
        "delay-over-time",
    ]
    for each in drawn:
        width, height = size(each.path)
        assert width == 960
        assert 960 < height < 3000
        assert plt.imread(each.path)[..., :3].std() > 0.05, "an empty picture"
        assert each.caption.startswith("Two network namespaces of one host, closed loop; n = 40 a cell. ")


def test_the_same_figure_again(drawn: list[Drawn], tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, **BOTH)
    again = figures.draw(tmp_path / "figures", *computed(tmp_path))
    for suffix in (".png", ".svg"):
        files = [[each.path.with_suffix(suffix).read_bytes() for each in drawn_ones] for drawn_ones in (again, drawn)]
        assert files[0] == files[1]


def test_each_figure_is_an_svg_too(drawn: list[Drawn]) -> None:
    for each in drawn:
        root = ElementTree.parse(each.path.with_suffix(".svg")).getroot()
        width, height = (float(root.attrib[name].removesuffix("pt")) for name in ("width", "height"))
        across, down = size(each.path)
        assert width / height == pytest.approx(across / down, rel=0.01)
        assert each.path.with_suffix(".svg").stat().st_size < 2_000_000  # dots are an image in it


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("payloads", [(0,), (0, 100, 1024)])
def test_a_message_without_a_payload_has_its_place(payloads: tuple[int, ...], tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq", "raw-tcp"), payloads=payloads, rounds=2)
    assert "latency" in {each.path.stem for each in figures.draw(tmp_path / "figures", *computed(tmp_path))}


def test_rates(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq",), payloads=(100,), rounds=2, mode="open", rate_hz=100.0)
    found, rows = computed(tmp_path)
    step = {"rate_hz": 1e4, "sent": 5000, "received": 5000, "lost": 0, "lossless": True, "span_s": 0.5}
    slow = step | {"rate_hz": 2e4, "lossless": False, "span_s": 0.4}
    found["cells"][0]["search"] = {"steps": [slow, step], "highest_loss_free_hz": 1e4}
    drawn = figures.draw(tmp_path / "figures", found, rows)
    assert [each.path.stem for each in drawn] == ["delay-over-time", "rate"]
    assert size(drawn[-1].path)[0] == 960
    assert figures.rate_hz(found["cells"][0]) == 100.0
    other = copy.deepcopy(found["cells"][0])
    other["statistics"]["one_way_delay_ns"]["usable"] = False
    found["cells"].append(other)
    assert "1 cells are left out" in figures.draw(tmp_path / "figures", found, rows)[-1].caption
    closed = {"rate_hz": None, "rounds": [{"sent": 30, "elapsed_ns": 10**9}, {"sent": 10, "elapsed_ns": 10**9}]}
    assert figures.rate_hz(closed) == 20.0


def test_what_the_clocks_do_not_allow_is_not_drawn(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, subjects=("zeromq", "raw-tcp"), payloads=(100, 10240), rounds=2)
    found, rows = computed(tmp_path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "latency.png").write_bytes(b"of an earlier run")
    (tmp_path / "figures" / "latency.svg").write_bytes(b"of an earlier run")
    (tmp_path / "figures" / "mine.png").write_bytes(b"not ours")
    for cell in found["cells"]:
        cell["statistics"]["one_way_delay_ns"] |= {"bound_ns": 1e9, "usable": False}
    drawn = figures.draw(tmp_path / "figures", found, rows)
    assert not list((tmp_path / "figures").glob("latency.*"))
    assert (tmp_path / "figures" / "mine.png").exists()
    captions = {each.path.stem: each.caption for each in drawn}
    assert "RTT, because the clocks do not agree" in captions["cdf-rw-dt"]
    found["cells"][0]["statistics"]["one_way_delay_ns"] |= {"bound_ns": 1e3, "usable": True}
    drawn = figures.draw(tmp_path / "figures", found, rows)
    assert re.search(r"7 cells are left out: the clocks", drawn[0].caption)


def test_what_only_the_acknowledgements_tell_is_drawn_as_it_stands_in_the_tables(tmp_path: Path) -> None:
    """The receiver died, and its record with it: also where no other cell stands in the same panel."""
    run = synthetic_run.write(tmp_path, subjects=("zeromq",), payloads=(100,), directions=("rw-dt",), rounds=2)
    synthetic_run.without_receiver(tmp_path, run, 0)
    found, rows = computed(tmp_path)
    jsonschema.validate(found, results.schema())
    (cell,) = found["cells"]
    delays = rows[cell["id"]].one_way_ns
    assert len(delays) == cell["statistics"]["n_received"] == 40
    assert delays.mean() == pytest.approx(cell["statistics"]["one_way_delay_ns"]["mean"])
    drawn = figures.draw(tmp_path / "figures", found, rows)
    assert {"cdf-rw-dt", "delay-over-time"} < {each.path.stem for each in drawn}


def test_a_panel_in_which_no_delay_is_above_0(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, subjects=("zeromq",), payloads=(100, 1024), directions=("rw-dt",), rounds=2)
    path = records.file(tmp_path / "records", run["cells"][0]["id"], "received")
    received = records.read(path)
    received["received_ns"] -= 10**9
    records.write(path, received)
    found, rows = computed(tmp_path)
    assert found["cells"][0]["statistics"]["one_way_delay_ns"]["flags"] == ["negative"]
    assert "delay-over-time" in {each.path.stem for each in figures.draw(tmp_path / "figures", found, rows)}


@pytest.mark.parametrize("values", [[], [-1.0, -2.0]])
def test_a_log_axis_without_anything_above_0_says_so(values: list[float], tmp_path: Path) -> None:
    figure, (upper, lower) = plot_style.panels(2, 2.0)
    upper.step(values, values)
    lower.plot(values, values)
    plot_style.log_ms_x(upper)
    plot_style.log_ms(lower, "delay (ms)")
    figure.savefig(tmp_path / "x.png")
    assert [text.get_text() for axis in (upper, lower) for text in axis.texts] == ["nothing above 0"] * 2


@pytest.mark.parametrize("payloads", [(100, 1024), (100, 102400, 1048576)])
def test_points_stand_at_their_payloads_and_the_legend_names_no_others(
    payloads: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published points of other payloads are neither drawn nor named."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(plot_style, "write", lambda figure, path: kept.update({path.stem: figure}))
    synthetic_run.write(tmp_path, subjects=("zeromq", "zenoh", "mqtt-qos0", "raw-tcp"), payloads=payloads, rounds=2)
    drawn = {each.path.stem: each for each in figures.draw(tmp_path / "figures", *computed(tmp_path))}
    subjects = {each.short for each in labels.SUBJECTS.values()}
    for name in ("latency", "rtt", "jitter"):
        lines = [line for axis in kept[name].axes for line in axis.get_lines() if line.axes.get_xscale() == "log"]
        points = {float(x) for line in lines for x in line.get_xdata() if line.get_transform() == line.axes.transData}
        published = {octets for each in reference_results.MQTT for octets, _ in each.points if octets}
        least, most = kept[name].axes[0].get_xlim()
        assert points - published == {*payloads} - published
        assert all(least <= x <= most for x in points)
        (legend,) = kept[name].legends
        named = {text.get_text() for text in legend.get_texts()}
        assert {"Zenoh", "ZeroMQ", "MQTT QoS 0", "raw TCP"} == named & subjects
        for each in reference_results.MQTT:
            told = name == "latency" and any(octets is None or least <= octets <= most for octets, _ in each.points)
            assert (each.label in named) is (each.label in drawn[name].caption) is told
    for figure in kept.values():
        plt.close(figure)


def test_a_legend_names_what_the_axis_shows() -> None:
    figure, (axis,) = plot_style.panels(1, 2.0)
    axis.plot([1, 2], [1, 2], label="within")
    axis.plot([7], [1], "o", label="beyond")
    axis.axhline(9, label="above")
    axis.errorbar([1], [2], [0.5], label="on the border")
    axis.set(xlim=(1, 3), ylim=(0, 3))
    plot_style.legend(figure, [axis])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["within", "on the border"]
    plt.close(figure)


def test_subjects_can_be_told_apart() -> None:
    shown = [*labels.SUBJECTS.values()]
    assert len({each.colour for each in shown}) == len(shown)
    assert len({(each.marker, each.line) for each in shown}) == len(shown), "not without colour"
    of_sweeps = [each for name, each in labels.SUBJECTS.items() if name not in OWN_SUBSCRIPTION]
    assert len({(each.marker, each.raw) for each in of_sweeps}) == len(of_sweeps) > 22
    lines = [plot_style.line_style(number) for number in range(22)]
    assert len({(each["marker"], each["ls"]) for each in lines}) == len(lines)
    for name in ("zeromq", "zenoh", "raw-tcp", "carrier-pigeon"):
        assert re.fullmatch("#[0-9a-f]{6}", labels.subject(name).colour)
    assert labels.ordered(["raw-tcp", "carrier-pigeon", "zeromq", "zenoh", "zeromq"]) == [
        "zenoh", "zeromq", "raw-tcp", "carrier-pigeon",
    ]  # fmt: skip


def test_published_context_names_its_source() -> None:
    for each in reference_results.MQTT:
        assert each.points
        assert all((each.label, each.quantity, each.setting, each.source))
        assert ("RTT" in each.label) == ("RTT" in each.quantity)  # only the figure calls everything a one-way delay


def test_published_figures_stand_with_the_setting_in_which_they_were_measured() -> None:
    """Rocha et al. measured over 200 km and back, not on one host."""
    rocha = next(each for each in reference_results.MQTT if (100, 6.08) in each.points)
    assert rocha.points == ((100, 6.08), (10_000, 8.62), (100_000, 35.6))
    assert "Rocha" in rocha.source
    assert "Rocha" in rocha.label
    assert "200 km" in rocha.setting
    assert "own subscription" in rocha.quantity
    for each in reference_results.MQTT:
        assert ("one host" in each.setting) == ("Liang" in each.label)
