"""The checks of `twinlink doctor`: one function each, which yields one row or more.

No check needs the network, root or a running peer, except those that an option asks for.
"""

import errno
import os
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Literal

import twinlink
from twinlink.process import cgroups
from twinlink.process.ip_address import listening_socket
from twinlink.process.listener_probe import is_second_port, probe
from twinlink.process.ports import free_ports
from twinlink.process.resolver import listen_addresses
from twinlink.transports import Endpoint, transport_class, transport_name

from ..appkit.linking import CONNECT_S, connection_problem

_Status = Literal["ok", "warn", "fail"]

_E3_SOCKETS = Path("/tmp/dapps")  # where libe3 and the dApp library look for a gNB on the same host
_APP_CHECKS = "twinlink.checks"  # entry points of applications: functions that return status, what was seen, and advice
_E3_NAMES = ("setup", "e3_socket", "dapp_socket")
_E3_LOGS = (Path("/tmp/e3.log"), Path("/tmp/dapp.log"))  # the dApp library opens them on import
_PORTS = 2  # zeromq needs the most: the endpoint's port and the next one
_MIN_PYZMQ = 26  # older ones bundle libzmq 4.3.4, as Debian's does, which a venv with system site packages sees
_BURST_OCTETS = 4 * 1024 * 1024  # a burst of MGEN's UDP; also the usual setting for UHD
_MIN_DESCRIPTORS = 1024
_MIN_MEMORY_OCTETS = 272 * 1024 * 1024  # MiB: 70 and more for a program, 64 and 128 for a flow's retention and window
_SHM_USERS = "Zenoh's option shared_memory and E3's rings"
_MIN_SHM_OCTETS = 64 * 1024 * 1024  # Kubernetes' default; GNU Radio's buffers and E3's rings live there
_NET_CORE = "/proc/sys/net/core"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one check.

    Attributes:
        check: its name.
        status: ``ok``; ``warn``, a part does not work or a figure is less accurate; ``fail``, a requirement is not met.
        seen: what was found.
        next: what to do; empty if ok.
    """

    check: str
    status: _Status
    seen: str
    next: str = ""


def python() -> Iterator[Row]:
    """The interpreter."""
    yield Row("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")  # pip has checked the version


def gnuradio(required: bool) -> Iterator[Row]:
    """numpy and GNU Radio together, in a process of its own: GNU Radio built for another numpy may abort."""
    try:
        numpy_version = version("numpy")
    except PackageNotFoundError:
        yield Row("gnuradio", "fail", "numpy is not installed, and twinlink needs it", "pip install numpy")
        return
    script = "from gnuradio import gr, blocks; print(gr.version())"
    failed: _Status = "fail" if required else "warn"
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Row("gnuradio", failed, "the import does not end within 60 s", f"try: {sys.executable} -c '{script}'")
        return
    if done.returncode == 0:
        yield Row("gnuradio", "ok", f"{done.stdout.strip().splitlines()[-1]} with numpy {numpy_version}")
    elif "No module named 'gnuradio'" in done.stderr:
        advice = "apt install gnuradio; then a venv of /usr/bin/python3 with --system-site-packages (`make setup`)"
        yield Row("gnuradio", failed, f"not visible to this Python (numpy {numpy_version})", advice)
    else:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        built_for_1 = sys.version_info < (3, 13)  # later distributions build GNU Radio for numpy 2
        is_wrong = built_for_1 and int(numpy_version.split(".")[0]) >= 2
        advice = "pip install 'numpy<2'" if is_wrong else f"{sys.executable} -c '{script}'"
        yield Row("gnuradio", failed, f"does not load with numpy {numpy_version}: {reason}", advice)


def companion() -> Iterator[Row]:
    """gnuradio-companion, where GNU Radio is; it needs GTK, which Debian's package of GNU Radio does not bring."""
    path = shutil.which("gnuradio-companion")
    if not path:
        return
    script = "import gi; gi.require_version('Gtk', '3.0'); gi.require_version('PangoCairo', '1.0')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, errors="backslashreplace", check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        advice = "apt install python3-gi gir1.2-gtk-3.0, if this machine is to show flowgraphs on a desktop"
        yield Row("companion", "warn", f"{path} cannot start: {reason}", advice)
    else:
        yield Row("companion", "ok", f"{path}; GTK 3 loads")


def transport(name: str) -> Iterator[Row]:
    """The driver of a transport, and a message over loopback."""
    driver = {"zeromq": "pyzmq", "zenoh": "eclipse-zenoh", "websocket": "websockets"}.get(name)
    try:
        found = f"{driver} {version(driver)}" if driver else "built in"
        kind = transport_class(name)
        for attempt in range(3):  # a free port may be taken between finding and using it
            endpoint = f"tcp/127.0.0.1:{free_ports(kind.ports)}"
            try:
                _round_trip(name, endpoint)
                break
            except twinlink.TransportError:
                if attempt == 2:
                    raise
    except PackageNotFoundError:
        if name == "websocket":  # the driver of an extra
            advice = "pip install 'twinlink[websocket]'"
            yield Row(name, "warn", f"{driver} is not installed; only links over it need it", advice)
        else:
            yield Row(name, "fail", f"{driver} is not installed", f"pip install {driver}")
    except twinlink.TransportMissing as error:
        yield Row(name, "fail", "its driver does not load", str(error))
    except twinlink.TwinlinkError as error:
        yield Row(name, "fail", f"{found}, but no message passes over loopback: {error}", "check the local firewall")
    else:
        old = driver == "pyzmq" and int(version("pyzmq").split(".")[0]) < _MIN_PYZMQ
        advice = f"pip install 'pyzmq>={_MIN_PYZMQ}' (Python finds the system's copy first)" if old else ""
        yield Row(name, "warn" if old else "ok", f"{found}; a message passed over loopback", advice)


def _round_trip(transport: str, endpoint: str) -> None:
    name = transport_name(transport)
    with (
        twinlink.open(name, listen=endpoint, identity="") as here,
        twinlink.open(name, connect=endpoint, identity="") as there,
    ):
        here.receiver("doctor")
        there.wait_ready(timeout=5)
        sender = there.sender("doctor")
        sender.send(b"doctor")
        sender.flush(timeout=5)


def _not_free(host: str, wanted: Sequence[int]) -> tuple[int, OSError] | None:
    """The first port that cannot be listened at, at any address of the host, and why."""
    port = wanted[0]
    try:
        for address in listen_addresses(host):
            for port in wanted:
                listening_socket(address, port, socket.SOCK_STREAM).close()
    except OSError as error:
        return port, error
    return None


def ports(listen: str, given: bool) -> Iterator[Row]:
    """Whether the ports of a listener are free; ``given``: the user named them."""
    endpoint = Endpoint.parse(listen)
    wanted = range(endpoint.port, min(endpoint.port + _PORTS, 65536))
    text = f"{endpoint.host}, TCP {' and '.join(map(str, wanted))}"
    if found := _not_free(endpoint.host, wanted):
        port, error = found
        advice = "find the process that uses it with `ss -ltnp`, or listen at another port"
        if error.errno == errno.EACCES:
            advice = "only root may use ports below 1024 (net.ipv4.ip_unprivileged_port_start): use a higher port"
        elif error.errno != errno.EADDRINUSE:
            advice = f"listen at an address of this host (`ip address`), or at every one: tcp/0.0.0.0:{endpoint.port}"
        yield Row("ports", "fail" if given else "warn", f"{text}: {port}: {error.strerror or error}", advice)
    else:
        yield Row("ports", "ok", f"{text}: free")


def peer(connect: str) -> Iterator[Row]:
    """Whether a listener accepts connections at the endpoint."""
    target = Endpoint.parse(connect)
    found = probe(target.host, target.port, CONNECT_S)
    if found.problem:
        advice = found.advice or "start the listener first, and check the address, routes and firewalls"
        yield Row("peer", "fail", f"{connect}: {found.problem}", advice)
        return
    text = f"{connect} accepts connections"
    if is_second_port(target.host, target.port, CONNECT_S):
        seen = f"{text}, as the second port of a ZeroMQ link"
        yield Row("peer", "fail", seen, f"give its first port: {Endpoint(target.host, target.port - 1)}")
        return
    if target.port == 65535:
        text += "; ZeroMQ also needs the next port, and there is none"
    elif behind := connection_problem(f"tcp/{target.host}:{target.port + 1}"):
        text += f"; port {target.port + 1}, which ZeroMQ also needs, does not: {behind}"
    yield Row("peer", "ok", text)


def mgen() -> Iterator[Row]:
    """The traffic generator MGEN."""
    path = shutil.which("mgen")
    if not path:
        yield Row("mgen", "warn", "not found; only MGEN traffic needs it", "apt install mgen")
        return
    try:  # MGEN has no option for its version; it prints it and ends when its script is empty
        done = subprocess.run(
            [path, "input", os.devnull],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=5,
            check=False,
        )
        told = re.search(r"version (\S+)", done.stdout + done.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Row("mgen", "warn", f"{path} does not run: {error}", "apt install --reinstall mgen")
    else:
        yield Row("mgen", "ok", f"{told[1] if told else 'unknown version'} at {path}")


def socket_buffers() -> Iterator[Row]:
    """The kernel's limits of socket buffers."""
    for name in ("rmem_max", "wmem_max"):
        try:
            octets = int(Path(_NET_CORE, name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            yield Row(name, "ok", "not visible in this container; the host's setting applies")
            continue
        text = f"net.core.{name} = {octets}"
        if octets < _BURST_OCTETS:
            advice = f"sysctl -w net.core.{name}={_BURST_OCTETS} (as root): for bursts over UDP and large TCP windows"
            yield Row(name, "warn", text, advice)
        else:
            yield Row(name, "ok", text)


def e3(required: bool, directory: Path = _E3_SOCKETS, logs: Iterable[Path] = _E3_LOGS) -> Iterator[Row]:
    """The compiler of the E3 grammar, the log files of the dApp library, and the sockets of a gNB on this host."""
    missing: _Status = "fail" if required else "warn"
    try:
        yield Row("e3 packages", "ok", f"asn1tools {version('asn1tools')}")
    except PackageNotFoundError as error:
        advice = "pip install 'twinlink[e3]' (the exporter and the emulator need it)"
        yield Row("e3 packages", missing, f"{error.name or error} is not installed", advice)

    if closed := [str(log) for log in logs if log.exists() and not _can_append(log)]:
        advice = "remove them, as their owner or root: dApps that use the dapps library fail until then"
        yield Row("e3 logs", "warn", f"{', '.join(closed)}: cannot be written", advice)
    else:
        yield Row("e3 logs", "ok", f"dApps that use the dapps library can log to {', '.join(map(str, logs))}")

    found = [name for name in _E3_NAMES if (directory / name).exists()]
    if not found:
        seen = f"no gNB and no emulator: {directory} holds no E3 sockets"
        yield Row("e3 sockets", missing if required else "ok", seen, "start the gNB first" if required else "")
        return
    trouble: dict[str, list[str]] = {}
    for name in found:
        # libe3 up to 0.0.7 accepts a POSIX link's connection once, except that of setup.
        if reason := _socket_trouble(directory / name, connect=name == "setup"):
            trouble.setdefault(reason, []).append(name)
    if trouble:
        seen = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in trouble.items())
        seen = f"in {directory}, {seen}"
        advice = "if no gNB runs, remove them; otherwise run as its user or extend the permissions"
        yield Row("e3 sockets", missing, seen, advice)
    else:
        yield Row("e3 sockets", "ok", f"{', '.join(found)} in {directory}; setup accepts connections")


def e3_agent(link: str, directory: Path = _E3_SOCKETS) -> Iterator[Row]:
    """What the E3 agent of this host speaks, as an installed application finds out by asking it.

    Args:
        link: ``zmq``, ``posix``, or ``auto`` for that of the agent.
        directory: of the agent's sockets.
    """
    for point in entry_points(group=_APP_CHECKS, name="e3-agent"):
        try:
            yield Row("e3 agent", *point.load()(directory, link))
        except ImportError as error:
            advice = "pip install 'twinlink[e3]'"
            yield Row("e3 agent", "fail", f"the agent cannot be asked: {error}", advice)


def _can_append(path: Path) -> bool:
    try:
        path.open("ab").close()
    except OSError:
        return False
    return True


def _socket_trouble(path: Path, connect: bool) -> str | None:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return "not a socket"
        if not connect:
            return None
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    except ConnectionRefusedError:
        return "left over, no process listens"
    except OSError as error:
        return error.strerror or str(error)
    return None


def descriptors() -> Iterator[Row]:
    """The limit of open files, which includes sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _MIN_DESCRIPTORS:
        yield Row("descriptors", "warn", f"at most {soft} open files", f"ulimit -n {min(hard, _MIN_DESCRIPTORS)}")
    else:
        yield Row("descriptors", "ok", f"at most {soft} open files")


def container() -> Iterator[Row]:
    """The memory and CPU limits of the control group, as of a container."""
    octets = cgroups.memory_limit()
    text = "no limit" if octets is None else f"at most {octets // (1024 * 1024)} MiB (control group)"
    if octets is not None and octets < _MIN_MEMORY_OCTETS:
        advice = "raise it, or lower retention and window (--option): each flow may fill both"
        yield Row("memory", "warn", text, advice)
    else:
        yield Row("memory", "ok", text)
    if cgroups.cpu_is_limited():
        advice = "remove the limit: under one, twinlink does not busy-poll, and the kernel may pause the process"
        yield Row("cpu", "warn", "limited (control group)", advice)
    else:
        yield Row("cpu", "ok", "no limit")


def shared_memory() -> Iterator[Row]:
    """Free space in /dev/shm."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        advice = "mount a tmpfs there (Kubernetes: emptyDir with medium Memory)"
        yield Row("/dev/shm", "warn", f"{error.strerror}; {_SHM_USERS} need it", advice)
        return
    text = f"{free // (1024 * 1024)} MiB free"
    if not os.access("/dev/shm", os.W_OK):
        yield Row("/dev/shm", "warn", "not writable", f"{_SHM_USERS} need it: mount it writable")
    elif free < _MIN_SHM_OCTETS:
        yield Row("/dev/shm", "warn", text, "free space, or mount it larger (Kubernetes: emptyDir with medium Memory)")
    else:
        yield Row("/dev/shm", "ok", text)
