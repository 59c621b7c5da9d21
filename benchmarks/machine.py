"""What kind of machine this is: what it takes to wake a processor, to call the kernel, and to run Python.

Polling gains where waking is dear, and nothing where it is cheap; there the interpreter's own steps decide.  So the
goals of round trips have a limit for each kind.
"""

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

DEAR_US = 25.0  # of a wake-up there and back; machines on which polling gained nothing had 16, others above 30
TURNS = 5  # of each figure; the median counts
EXCHANGES = 1000
STEPS = 20_000
OCTETS = 100
CONNECT_S = 10.0


@dataclass(frozen=True)
class Machine:
    """Medians.

    Attributes:
        tcp_echo_us: a blocking exchange of 100 B over TCP, between two processes on separate processors.
        wake_up_us: a thread on another processor is woken by a pipe, and wakes this one by another.
        system_call_ns: the cheapest one.
        loop_step_ns: an addition and a comparison in Python.
    """

    tcp_echo_us: float
    wake_up_us: float
    system_call_ns: float
    loop_step_ns: float

    @property
    def dear(self) -> bool:
        """Whether waking a processor is dear, and polling gains."""
        return self.wake_up_us > DEAR_US

    def __str__(self) -> str:
        kind = "dear" if self.dear else "cheap"
        return (
            f"wake-ups are {kind} here: a thread's, there and back, {self.wake_up_us:.0f} us (dear above {DEAR_US:g}); "
            f"blocking TCP echo {self.tcp_echo_us:.0f} us, system call {self.system_call_ns:.0f} ns, "
            f"step of a Python loop {self.loop_step_ns:.0f} ns"
        )

    def as_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "wake_ups": "dear" if self.dear else "cheap"}


def probe() -> Machine:
    """Measure, in half a second."""

    def median(figure: Callable[[], float]) -> float:
        return statistics.median(figure() for _ in range(TURNS))

    return Machine(median(_tcp_echo_us), median(_wake_up_us), median(_system_call_ns), median(_loop_step_ns))


def _tcp_echo_us() -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(CONNECT_S)
        here, there = _two_processors()
        answering = os.fork()
        if not answering:
            try:
                os.sched_setaffinity(0, {there})
                with socket.create_connection(listener.getsockname()) as made:
                    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    while taken := made.recv(OCTETS):
                        made.sendall(taken)
            finally:
                os._exit(0)  # whatever happens: else it would go on as a second bench
        try:
            with listener.accept()[0] as made:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                payload = bytes(OCTETS)

                def exchange() -> None:
                    made.sendall(payload)
                    made.recv(OCTETS)

                return _exchange_us(exchange, here)
        finally:
            os.waitpid(answering, 0)


def _wake_up_us() -> float:
    here, there = _two_processors()
    (near_end, far_out), (far_end, near_out) = os.pipe(), os.pipe()

    def answer() -> None:
        os.sched_setaffinity(0, {there})
        while os.read(far_end, 1):
            os.write(far_out, b"x")

    def exchange() -> None:
        os.write(near_out, b"x")
        os.read(near_end, 1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return _exchange_us(exchange, here)
    finally:
        os.close(near_out)
        thread.join()
        for end in (near_end, far_out, far_end):
            os.close(end)


def _two_processors() -> tuple[int, int]:
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def _exchange_us(exchange: Callable[[], None], here: int) -> float:
    """The median of many exchanges by this thread, which is kept on one processor meanwhile."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {here})
    try:
        taken_ns = []
        for _ in range(EXCHANGES):
            began_ns = time.perf_counter_ns()
            exchange()
            taken_ns.append(time.perf_counter_ns() - began_ns)
        return statistics.median(taken_ns) / 1000
    finally:
        os.sched_setaffinity(0, allowed)


def _system_call_ns() -> float:
    call, began_ns = os.getppid, time.perf_counter_ns()
    for _ in range(STEPS):
        call()
    return (time.perf_counter_ns() - began_ns) / STEPS


def _loop_step_ns() -> float:
    number, began_ns = 0, time.perf_counter_ns()
    while number < STEPS:
        number += 1
    return (time.perf_counter_ns() - began_ns) / STEPS


if __name__ == "__main__":
    print(probe())
