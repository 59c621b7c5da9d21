"""Faults put into the core one at a time: each has to be found by the traces, or else by the tests of the core.

``make mutants``; exit code 1 where fewer than `LEAST` are found, 2 where one no longer fits the source.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TRACES = "tests/traces"
LEAST = 115
TIMEOUT_S = 600


class Mutant(NamedTuple):
    """A text of a file of ``twinlink/protocol/``, and what stands in its place."""

    file: str
    before: str
    after: str


MUTANTS = [Mutant(**mutant) for mutant in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["mutant"]]


def find(mutant: Mutant) -> str:
    """What finds it: ``tests/traces``, ``tests/core`` or nothing, as an empty text."""
    with tempfile.TemporaryDirectory(prefix="twinlink-mutant-") as folder:
        copy = Path(folder)
        for name in ("twinlink", "tests", "docs", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name)
            else:
                shutil.copy(source, copy / name)
        changed = copy / "twinlink" / "protocol" / mutant.file
        text = changed.read_text()
        if text.count(mutant.before) != 1 or mutant.before == mutant.after:
            print(f"{mutant.file}: {text.count(mutant.before)} places have {mutant.before!r}", file=sys.stderr)
            return "unfit"
        changed.write_text(text.replace(mutant.before, mutant.after))
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/core"]
        for where, command in ((TRACES, [sys.executable, "-m", "tests.traces.play"]), ("tests/core", pytest)):
            try:
                done = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return where
            if done.returncode:
                return where
    return ""


def main() -> int:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(find, MUTANTS))
    for mutant, by in zip(MUTANTS, found, strict=True):
        print(f"{by or 'NOT FOUND':12} {mutant.file}: {' '.join(mutant.before.split())}")
    count = sum(by not in ("", "unfit") for by in found)
    print(f"\n{count} of {len(MUTANTS)} found, {found.count(TRACES)} of them by the traces")
    if "unfit" in found:
        return 2
    return 0 if count >= min(LEAST, len(MUTANTS)) else 1


if __name__ == "__main__":
    sys.exit(main())
