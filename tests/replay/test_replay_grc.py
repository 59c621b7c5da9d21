"""gnuradio-companion finds the blocks; the flowgraphs compile and run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from twinlink_replay import blocks, grc

import twinlink
from twinlink.spectrum import Spectrum
from twinlink.testing import patience, wait_until

REPLAY = [sys.executable, "-m", "twinlink_replay"]


def printed_path() -> str:
    return subprocess.run([*REPLAY, "--grc-path"], capture_output=True, text=True, check=True).stdout.strip()


def compile_graph(graph: Path, folder: Path) -> Path:
    done = subprocess.run(
        ["grcc", "-o", str(folder), str(graph)],
        env={**os.environ, "GRC_BLOCKS_PATH": printed_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = folder / f"{graph.stem}.py"
    assert made.exists(), done.stdout + done.stderr
    return made


def test_the_module_prints_the_same_path() -> None:
    command = [sys.executable, "-m", "twinlink_replay.grc"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed_path() == str(grc.PATH)


def test_companion_is_not_started_for_a_missing_flowgraph() -> None:
    done = subprocess.run([*REPLAY, "--companion", "mistyped.grc"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "twinlink-replay: mistyped.grc: No such file or directory; check the path\n"


GI = """
from types import SimpleNamespace

def require_version(name, version):
    {body}

repository = SimpleNamespace(Gtk=SimpleNamespace(init_check=lambda: (False, [])))
__import__("sys").modules["gi.repository"] = repository
"""


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("raise ValueError('Namespace Gtk not available')", "apt install python3-gi gir1.2-gtk-3.0"),
        ("pass", "run it on a desktop (over ssh with -X)"),
    ],
)
def test_companion_says_what_it_lacks(body: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "gi").mkdir()
    (tmp_path / "gi" / "__init__.py").write_text(GI.format(body=body))
    done = subprocess.run(
        [*REPLAY, "--companion"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 2
    assert advice in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_companion_adds_its_blocks_to_those_of_the_user(tmp_path: Path) -> None:
    """What is started is a script that prints its environment; GTK itself needs no display to be imported."""
    (tmp_path / "gi").mkdir()
    (tmp_path / "gi" / "__init__.py").write_text(GI.format(body="pass").replace("False", "True"))
    (tmp_path / "uplink_desktop.grc").touch()  # of the user, and not named on the command line
    program = tmp_path / "gnuradio-companion"
    program.write_text("import os, sys\nprint(os.environ['GRC_BLOCKS_PATH'], *sys.argv[1:], sep=os.linesep)\n")
    program.chmod(0o755)
    changed = {"PYTHONPATH": tmp_path, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GRC_BLOCKS_PATH": "/opt/mine"}
    done = subprocess.run(
        [*REPLAY, "--companion"],
        env={**os.environ, **{name: str(value) for name, value in changed.items()}},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.stdout.splitlines() == [f"/opt/mine:{grc.PATH}", str(grc.PATH / "uplink_desktop.grc")], done.stderr


def test_every_block_has_its_description() -> None:
    described = "".join(path.read_text() for path in grc.PATH.glob("*.block.yml"))
    for name in blocks.__all__:
        assert f"twinlink_blocks.{name}(" in described


@pytest.mark.parametrize("graph", sorted(grc.PATH.glob("*.grc")), ids=lambda path: path.stem)
def test_flowgraphs_compile(graph: Path, tmp_path: Path) -> None:
    source = compile_graph(graph, tmp_path).read_text()
    compile(source, str(graph), "exec")
    assert "twinlink_blocks.Source(transport='zeromq', listen='tcp/0.0.0.0:7447'" in source


def test_a_flowgraph_that_runs_outside_the_virtual_environment_says_how_to_run_it(tmp_path: Path) -> None:
    made = compile_graph(grc.PATH / "uplink_transmit.grc", tmp_path)
    python = Path(sys.base_prefix, "bin/python3")
    imported = subprocess.run([python, "-c", "import twinlink"], capture_output=True, cwd=tmp_path, check=False)
    if imported.returncode == 0:
        pytest.skip(f"{python} has twinlink")
    done = subprocess.run([python, made], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "Run this with the Python that has twinlink" in done.stderr


OPENS = """
import sys
sys.path.insert(0, sys.argv[1])
from PyQt5 import Qt
application = Qt.QApplication([])
import uplink_desktop
window = uplink_desktop.uplink_desktop()
uplink_desktop.snippets_main_after_init(window)
screen = application.primaryScreen().availableSize()
print(window.width(), window.height(), screen.width(), screen.height())
"""


def test_the_desktop_flowgraph_opens_at_a_usable_size(tmp_path: Path) -> None:
    compile_graph(grc.PATH / "uplink_desktop.grc", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", OPENS, str(tmp_path)],
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    width, height, most_wide, most_high = map(int, done.stdout.split()[-4:])
    assert (width, height) == (min(1200, most_wide), min(800, most_high))


def every_block(endpoint: str) -> str:
    link = f"transport: zenoh, role: connect, endpoint: {endpoint}, node: twin"
    return f"""
options:
  parameters: {{id: every_block, generate_options: no_gui, output_language: python, run_options: prompt}}
  states: {{state: enabled}}
blocks:
- {{name: stream, id: twinlink_source, parameters: {{{link}, flow: a, zero_fill: 'True'}}, states: {{state: enabled}}}}
- {{name: pdus, id: twinlink_pdu_source, parameters: {{{link}, flow: b, payload: text}}, states: {{state: enabled}}}}
- {{name: back, id: twinlink_pdu_sink, parameters: {{{link}, flow: c}}, states: {{state: enabled}}}}
- {{name: out, id: twinlink_stream_sink, parameters: {{{link}, flow: d}}, states: {{state: enabled}}}}
connections:
- [stream, '0', out, '0']
- [pdus, pdus, back, pdus]
metadata: {{file_format: 1}}
"""


def test_every_block_compiles_and_constructs(endpoint: str, tmp_path: Path) -> None:
    graph = tmp_path / "every_block.grc"
    graph.write_text(every_block(endpoint))
    made = compile_graph(graph, tmp_path)
    check = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import every_block; every_block.every_block()"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, made.read_text() + done.stderr


def test_a_compiled_flowgraph_runs(endpoint: str, tmp_path: Path) -> None:
    graph = tmp_path / "uplink_transmit.grc"
    graph.write_text((grc.PATH / "uplink_transmit.grc").read_text().replace("tcp/0.0.0.0:7447", endpoint))
    made = compile_graph(graph, tmp_path)
    runs = subprocess.Popen([sys.executable, str(made)], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with twinlink.open("zeromq", connect=endpoint) as gnb:
            gnb.wait_ready(patience())
            for _ in range(28):
                samples = np.full((1272, 2), 100, np.int16)
                gnb.sender("spectrum").send(Spectrum(samples, 106, 30_000, 3.6e9, time.time_ns()).encode())
            gnb.sender("spectrum").flush(patience())
            file, size = tmp_path / "uplink.cf32", 61440 * 8  # a subframe: 1 ms at 61.44 MHz
            wait_until(lambda: file.stat().st_size >= size * 0.9)
        runs.send_signal(signal.SIGINT)
        runs.wait(patience())
        assert file.stat().st_size == size
    finally:
        runs.kill()
        runs.communicate()
