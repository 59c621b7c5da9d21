"""The detection package can be used and tested without GNU Radio and without a link: it needs numpy only."""

import json
import subprocess
import sys

IMPORT_ALL = """
import json, pkgutil, sys
import numpy
before = set(sys.modules)
import twinlink_replay.detection
names = [module.name for module in pkgutil.iter_modules(twinlink_replay.detection.__path__)]
for name in names:
    __import__(f"twinlink_replay.detection.{name}")
roots = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(json.dumps([names, sorted(roots - {"numpy"})]))
"""


def test_detection_imports_numpy_only() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    modules, imported = json.loads(done.stdout)
    assert {"detector", "features", "noise_floor"} <= set(modules)
    assert imported == ["twinlink_replay"]
