"""Facts about a host that a figure may depend on."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from twinlink.transports.mosquitto import SBIN

PACKAGES = (
    *("twinlink", "pyzmq", "eclipse-zenoh", "paho-mqtt", "numpy"),
    *("aiohttp", "asyncua", "pymodbus", "python-snap7", "websockets"),
)


def facts() -> dict[str, Any]:
    """Host, kernel, processors, load, clock source and versions; None where unknown."""
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpu_model": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "clocksource": _first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "versions": {**{name: _version(name) for name in PACKAGES}, "libzmq": _libzmq(), "mosquitto": _mosquitto()},
    }


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _libzmq() -> str | None:
    try:
        import zmq
    except ModuleNotFoundError:
        return None
    return zmq.zmq_version()


def _mosquitto() -> str | None:
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if program is None:
        return None
    try:
        told = subprocess.run(
            [program, "-h"], capture_output=True, text=True, errors="backslashreplace", timeout=5, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = told.split("\n", 1)[0].split()
    return words[-1] if words else None
