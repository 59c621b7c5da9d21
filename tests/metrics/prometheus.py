"""Prometheus' own programs, which judge what is said to it."""

import os
import shutil
import sys
from pathlib import Path

import pytest


def program(name: str) -> str:
    """The path of ``promtool`` or ``prometheus``; without it the test is skipped."""
    unpacked = Path(sys.prefix) / "prometheus/usr/bin"  # where `make setup` puts it without installing it
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{unpacked}")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian's package prometheus)")
    return found
