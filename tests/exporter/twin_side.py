"""The twin's side of the exporter's tests: what it proposes and what it receives."""

import time

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.testing import patience

from .conftest import LONG_MS

RNG = np.random.default_rng(3)


def symbol(fft_size: int = 1536) -> NDArray[np.int16]:
    return RNG.integers(-2000, 2000, (fft_size, 2), np.int16)


def natural(bins: NDArray[np.int16], n_prbs: int = 106) -> NDArray[np.int16]:
    """What the twin must get, written down independently of the code under test."""
    return np.roll(bins, n_prbs * 6, axis=0)[: n_prbs * 12]


def receive(receiver: twinlink.Receiver, count: int) -> list[twinlink.Message]:
    got: list[twinlink.Message] = []
    while len(got) < count:
        message = receiver.receive(timeout=patience())
        assert message is not None, f"{len(got)} of {count} messages came"
        got.append(message)
    return got


def propose(
    twin_link: twinlink.Link,
    id: str = "b-1",
    prbs: tuple[int, ...] = (40, 41),
    validity_ms: int = LONG_MS,
    age_ms: int = 0,
) -> None:
    block = PrbBlock(id, tuple(prbs), time.time_ns() - age_ms * 1_000_000, validity_ms, "test")
    twin_link.sender("control").send(block.encode())


def results(twin_link: twinlink.Link, count: int) -> list[PrbBlockResult]:
    return [PrbBlockResult.decode(m.payload) for m in receive(twin_link.receiver("control-result"), count)]


def say(result: PrbBlockResult) -> tuple[str, str, tuple[int, ...]]:
    return result.id, result.status, result.prbs
