"""A link that cannot be opened leaves nothing behind."""

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import twinlink
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName


def test_a_link_that_cannot_say_hello_gives_its_endpoint_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise twinlink.TransportError("no more")

    endpoint = free_endpoint()
    with monkeypatch.context() as patch:
        patch.setattr("twinlink.transports.memory.MemoryTransport.send", refuse)
        with pytest.raises(twinlink.TransportError, match="no more"):
            twinlink.open("memory", listen=endpoint)
    twinlink.open("memory", listen=endpoint).close()


def test_a_free_threaded_interpreter_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such interpreter is at hand; this is how one says what it is (Python 3.13)."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(twinlink.ConfigurationError, match="-X gil=1"):
        twinlink.open("memory", listen=free_endpoint())


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_a_link_that_is_interrupted_at_any_moment_gives_its_endpoint_back(transport: TransportName) -> None:
    """Ctrl-C before each call of a function of the library."""
    endpoint, library = free_endpoint(), str(Path(twinlink.__file__).parent)
    for moment in itertools.count(1):
        calls = itertools.count(1)

        def interrupt(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(library) and next(calls) == moment:  # noqa: B023
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

        try:
            sys.setprofile(interrupt)
            link = twinlink.open(transport, listen=endpoint)
        except KeyboardInterrupt:
            continue
        finally:
            sys.setprofile(None)
        link.close()
        break
    assert moment > 20
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("twinlink")])


FEW = """
import os, resource, sys, twinlink
role, transport, endpoint = sys.argv[1:]
in_use = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 8, in_use + 8))
try:
    twinlink.open(transport, **{role: endpoint})
except twinlink.TransportError as error:
    print(error)
"""


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt"])
@pytest.mark.parametrize("role", ["listen", "connect"])
def test_a_process_without_descriptors_is_told_so(transport: TransportName, role: str) -> None:
    """The drivers would abort it, or find no peer."""
    command = [sys.executable, "-c", FEW, role, transport, free_endpoint()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert "ulimit -n" in ended.stdout, ended.stderr
    assert ended.returncode == 0


NO_THREADS = """
import os, resource, sys, threading, twinlink
role, transport, endpoint = sys.argv[1:]
# Now: below the limit it may not read the files of twinlink, driver and Python.
twinlink.open, twinlink.transports.transport_class(transport)
"localhost".encode("idna")
if os.geteuid() == 0:  # the limit does not bind root
    os.setgid(65534)
    os.setuid(65534)
most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
resource.setrlimit(resource.RLIMIT_NPROC, (1, most))
try:
    twinlink.open(transport, **{role: endpoint})
except twinlink.TransportError as error:
    print(error)
assert threading.enumerate() == [threading.main_thread()]
resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
twinlink.open(transport, **{role: endpoint}).close()
"""


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh", "mqtt"])
@pytest.mark.parametrize("role", ["listen", "connect"])
def test_a_process_that_can_start_no_threads_is_told_so(transport: TransportName, role: str) -> None:
    """The drivers would abort it, or panic."""
    command = [sys.executable, "-c", NO_THREADS, role, transport, free_endpoint()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert "can start 0 more threads" in ended.stdout, ended.stderr
    assert "ulimit -u" in ended.stdout
    assert ended.returncode == 0, ended.stderr
