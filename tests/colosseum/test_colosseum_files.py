"""What stands in colosseum/, without running it: batch jobs, configurations, scripts, units."""

import copy
import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .controller import SCRIPTS
from .srn import ROOT

COLOSSEUM = ROOT / "colosseum"
SCHEMA = json.loads((Path(__file__).parent / "batch.schema.json").read_text())
JOBS = sorted((COLOSSEUM / "batch").glob("*.json"))
CONFIGS = sorted((COLOSSEUM / "config").glob("*.conf"))
SHELL = sorted(COLOSSEUM.rglob("*.sh"))


def job(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def ids(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", JOBS, ids=ids)
def test_batch_jobs_keep_to_the_schema_and_name_what_is_there(path: Path) -> None:
    batch = job(path)
    jsonschema.validate(batch, SCHEMA)
    nodes = batch["NodeData"]
    count = list(range(1, len(nodes) + 1))
    assert sorted(node["RFNode_ID"] for node in nodes) == count
    assert sorted(node["TrafficNode_ID"] for node in nodes) == count
    for node in nodes:
        assert (COLOSSEUM / "config" / node["ModemConfig"]).exists()
        assert node["isGateway"], "without col0 the nodes do not reach each other"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ImageName", "a-name-that-is-longer-than-31-chars"),
        ("ImageName", "twinlink_1"),
        ("isGateway", "true"),
        ("node_type", "observer"),
        ("RFNode_ID", 0),
        ("SRN", 7),
    ],
)
def test_the_schema_refuses_what_colosseum_would_not_take(key: str, value: object) -> None:
    batch = copy.deepcopy(job(JOBS[0]))
    batch["NodeData"][0][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(batch, SCHEMA)


@pytest.mark.parametrize("path", CONFIGS, ids=ids)
def test_every_program_takes_its_configuration(path: Path, tmp_path: Path) -> None:
    text = path.read_text().replace("/logs", str(tmp_path))
    text = text.replace("/opt/recordings", str(ROOT / "examples/recordings"))
    programs = {"replay", "exporter", "ran-emulator"} & tomllib.loads(text).keys()
    assert programs
    here = tmp_path / "radio.conf"
    here.write_text(text)
    for name in sorted(programs):
        command = [str(ROOT / ".venv/bin" / f"twinlink-{name}"), "--config", str(here), "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_api_is_complete() -> None:
    for name in SCRIPTS:
        assert (COLOSSEUM / "radio_api" / f"{name}.sh").stat().st_mode & 0o111, (
            f"{name}.sh is missing or not executable"
        )


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_scripts_are_clean() -> None:
    done = subprocess.run(["shellcheck", *map(str, SHELL)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_as_systemd_reads_them(tmp_path: Path) -> None:
    units = []
    for unit in sorted((COLOSSEUM / "systemd").iterdir()):
        units.append(tmp_path / unit.name.replace("@.", "@exporter."))
        text = unit.read_text()
        assert "/root/radio_api/" in text
        # The commands have to exist for systemd-analyze.
        units[-1].write_text(text.replace("/root/radio_api", str(COLOSSEUM / "radio_api")))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stderr, done.stderr
