"""What Ctrl-C must not cut in two: peers that come and go, gaps, what has been lost."""

import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import twinlink
from tests.core.interrupting import interrupted
from tests.core.pair import Outlet
from tests.core.receiving import OURS, THEIRS, data, driver_on
from tests.core.sending import FlowSender, adopt
from twinlink.events import Event, Gap, Lost, Unclaimed
from twinlink.process.signals import DeferSignals, defer_signals
from twinlink.protocol.frames import HELLO_TOPIC, AbandonReason, Hello, Kind, abandoned_body, frame
from twinlink.protocol.liveness import PEER_TIMEOUT_NS, RESTART_NS, SUSPENDED_NS
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.runtime.driver import SessionDriver

LIBRARY = [
    str(path) for path in Path(twinlink.__file__).parent.rglob("*.py") if path.parts[-2:] != ("process", "signals.py")
]
NEXT = 9  # the session that follows THEIRS


class _Ended(Exception):
    pass


@pytest.fixture
def ending() -> Iterator[None]:
    """Another signal whose handler raises."""

    def end(number: int, frame: object) -> None:
        assert frame is not None
        raise _Ended

    before = signal.signal(signal.SIGUSR2, end)
    yield
    assert signal.signal(signal.SIGUSR2, before) is end  # it was given back


@pytest.mark.usefixtures("ending")
def test_what_handlers_raise_is_raised_at_the_end_of_the_outer_block() -> None:
    steps = []
    handler = signal.getsignal(signal.SIGINT)

    @defer_signals
    def inner() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR2)
        steps.append("inner")

    @defer_signals
    def outer() -> None:
        inner()
        steps.append("outer")

    with pytest.raises(_Ended) as raised:
        outer()
    assert steps == ["inner", "outer"]
    assert isinstance(raised.value.__context__, KeyboardInterrupt)  # neither is lost
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ending")
def test_wherever_ctrl_c_comes_the_handlers_are_called_then_and_later() -> None:
    """Also while they are given back."""
    files = [str(Path(twinlink.__file__).parent / "process" / "signals.py")]
    for moment in itertools.count(1):
        handler = signal.getsignal(signal.SIGINT)

        def enter_and_leave() -> None:
            with DeferSignals():
                pass

        came = interrupted(moment, enter_and_leave, *files)
        for number, raises in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR2, _Ended)):
            with pytest.raises(raises):
                signal.raise_signal(number)
        enter_and_leave()
        assert signal.getsignal(signal.SIGINT) is handler
        if not came:
            break
    assert moment > 10


def test_other_threads_have_no_handlers_to_hold_up() -> None:
    held = []

    def enter() -> None:
        with DeferSignals():
            held.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert held == [signal.default_int_handler]


def _hello(driver: SessionDriver, epoch: int) -> None:
    now = time.monotonic_ns()
    body = Hello("theirs", {OURS: now - 1}, {"flow": 0}, True).encode()
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, epoch, now, now, body), now, False)


def _bye(driver: SessionDriver) -> None:
    driver.receive(HELLO_TOPIC, frame(Kind.BYE, THEIRS, 0, 1, b""), time.monotonic_ns(), False)


def _restart(driver: SessionDriver) -> None:
    driver.session.peer_manager.peers.sessions[THEIRS].heard_mono_ns -= 2 * RESTART_NS
    _hello(driver, NEXT)


def _silence(driver: SessionDriver) -> None:
    peer_manager, now = driver.session.peer_manager, time.monotonic_ns()
    if THEIRS in peer_manager.up:
        peer = peer_manager.peers.sessions[THEIRS]
        peer.heard_mono_ns = peer.confirmed_mono_ns = now - 10 * PEER_TIMEOUT_NS
        driver.on_tick(now, now)
    for peer in peer_manager.peers.suspended():
        peer.state_mono_ns = now - 2 * SUSPENDED_NS
    driver.on_tick(now, now)


@pytest.mark.parametrize("goes", [_bye, _restart, _silence])
def test_wherever_ctrl_c_comes_a_peer_that_goes_owes_nothing_any_more(goes: Callable[[SessionDriver], None]) -> None:
    for moment in itertools.count(1):
        transport, reported = Outlet(), list[Event]()
        driver = driver_on(transport, "ours", OURS, 2**20, 2**16, reported.append)
        core = adopt(driver.session, SendFlow("flow", 2**20, 2**20, InFlightBudget(50_000), epoch=OURS))
        sender = FlowSender(driver.session, core, transport.send, time.monotonic_ns)
        _hello(driver, THEIRS)
        for _ in range(6):
            sender.send(bytes(100))
        driver.on_tick(time.monotonic_ns(), time.monotonic_ns())
        came = interrupted(moment, lambda: goes(driver), *LIBRARY)  # noqa: B023
        if goes is _restart:
            time.sleep(1e-6)
            _hello(driver, NEXT)  # another one
        elif goes is _silence:
            _silence(driver)
        elif driver.session.peer_manager.peers.get(THEIRS):
            _bye(driver)  # Ctrl-C came before anything was done
        now = time.monotonic_ns()
        driver.on_tick(now, now)
        assert driver.session.peer_manager.up == core.receivers.all == ({NEXT} if goes is _restart else set())
        assert not core.unacked.entries
        assert not core.in_flight
        assert core.in_flight.budget.in_flight == 0
        lost = [number for event in reported if isinstance(event, Lost) for number in range(event.first, event.end)]
        assert lost == list(range(6))
        assert sender.stats()["lost"] == 6
        if not came:
            break
    assert moment > 50


def test_wherever_ctrl_c_comes_a_stream_goes_on_behind_its_gap() -> None:
    def gone(driver: SessionDriver) -> None:
        body = abandoned_body(AbandonReason.EVICTED, [(5, 7)])
        driver.receive(b"traffic/flow", frame(Kind.ABANDONED, THEIRS, 10, 1, body), time.monotonic_ns(), False)

    for moment in itertools.count(1):
        reported = list[Event]()
        driver = driver_on(Outlet(), "ours", OURS, 2**20, 2**16, reported.append)
        _hello(driver, THEIRS)
        receive_flow = driver.session.messages.flow("flow")
        receive_flow.subscribed = True
        for sequence in (0, 1, 2, 3, 4, 7, 8, 9):
            data(driver, sequence, True)
        came = interrupted(moment, lambda: gone(driver), *LIBRARY)  # noqa: B023
        reorder_buffer = receive_flow.streams[THEIRS].reorder_buffer
        if reorder_buffer is not None and 5 in reorder_buffer.missing:
            gone(driver)  # Ctrl-C came before anything was done; it is asked for, and announced again
        data(driver, 10, True)
        taken = []
        while (one := receive_flow.next_message()) is not None:
            taken.append(one[0].sequence)
        assert taken == [0, 1, 2, 3, 4, 7, 8, 9, 10]
        assert [(event.first, event.end) for event in reported if isinstance(event, Gap)] == [(5, 7)]
        assert receive_flow.stats()["missing"] == 2
        if not came:
            break
    assert moment > 20


def test_wherever_ctrl_c_comes_every_loss_is_told_once() -> None:
    for moment in itertools.count(1):
        reported = list[Event]()
        driver = driver_on(Outlet(), "ours", OURS, 2**20, 2**16, reported.append)
        core = adopt(driver.session, SendFlow("flow", 2**20, 2**20, InFlightBudget(50_000)))
        for first in range(0, 100, 10):
            core.losses.add(first, first + 5, "it was lost")
        came = interrupted(moment, driver.report_losses, *LIBRARY)
        driver.report_losses()
        assert [event.first for event in reported if isinstance(event, Lost)] == list(range(0, 100, 10))
        if not came:
            break
    assert moment > 10


@pytest.mark.usefixtures("ending")
def test_wherever_an_application_changes_a_handler_the_change_stays() -> None:
    """As one does whose second Ctrl-C is to end the program."""
    files = [str(Path(twinlink.__file__).parent / "process" / "signals.py")]
    before = signal.getsignal(signal.SIGINT)

    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    def enter_and_leave() -> None:
        with DeferSignals():
            pass

    try:
        for moment in itertools.count(1):
            signal.signal(signal.SIGINT, once)
            came = interrupted(moment, enter_and_leave, *files)
            if not came:
                break
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            enter_and_leave()
        assert moment > 10
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_child_that_another_thread_forked_meanwhile_has_its_handlers() -> None:
    def fork() -> None:
        child = os.fork()
        if not child:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(0)
            os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    codes: list[int] = []
    thread = threading.Thread(target=fork)
    with DeferSignals():
        thread.start()
        thread.join()
    assert codes == [0]


def test_nothing_is_logged_while_handlers_are_held_up(endpoint: str) -> None:
    """What shows a log may take long: a terminal, a pipe."""

    class Looks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            looks.append((record.getMessage().startswith("link to"), DeferSignals._active is None))

    looks: list[tuple[bool, bool]] = []
    shown = Looks()
    logging.getLogger("twinlink").addHandler(shown)
    try:
        link = twinlink.open("memory", listen=endpoint)
        link.sender("flow").send(b"to no peer")
        threading.Timer(0.1, link.close).start()
        link.receiver("other").receive()  # so that this thread, the main one, ends the link
    finally:
        logging.getLogger("twinlink").removeHandler(shown)
    assert (True, True) in looks
    assert (True, False) not in looks


def test_wherever_ctrl_c_comes_what_is_refused_is_named_once() -> None:
    for moment in itertools.count(1):
        reported = list[Event]()
        driver = driver_on(Outlet(), "ours", OURS, 2**20, 2**16, reported.append)
        hello = Hello("theirs", {}, {"flow": 0}, True, frozenset(["flow"])).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello), 0, False)
        driver.session.messages._unclaimed._limit = -1
        data(driver, 0, at_once=True)

        def refuse_and_tell(driver: SessionDriver = driver) -> None:
            data(driver, 1, at_once=True)
            driver.report_undelivered()

        came = interrupted(moment, refuse_and_tell, *LIBRARY)
        data(driver, 2, at_once=True)
        driver.report_undelivered()
        named = [event for event in reported if isinstance(event, Gap | Unclaimed)]
        assert sorted(number for event in named for number in range(event.first, event.end)) == [0, 1, 2]
        if not came:
            break
    assert moment > 50
