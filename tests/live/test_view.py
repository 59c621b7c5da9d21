"""Which flows have a place on the page."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from twinlink_live.newest import Newest
from twinlink_live.view import IDLE_STEPS, MAX_STRIPS, View

import twinlink
from twinlink.npy import encode
from twinlink.protocol.frames import Kind, frame
from twinlink.testing import free_endpoint

EPOCH = 7


class Still:
    """A source of which nothing is known but what a test puts into ``newest``."""

    node = "twin"

    def __init__(self) -> None:
        self.newest = Newest()

    def names(self) -> dict[int, str]:
        return {EPOCH: "gnb"}

    def read(self) -> dict[str, Any]:
        return {"flows": []}

    def close(self) -> None:
        pass


@pytest.fixture
def view() -> Iterator[View]:
    with twinlink.open("websocket", listen=free_endpoint()) as pages:
        yield View(Still(), pages)


def test_who_is_silent_gives_place_to_others(view: View) -> None:
    view._newest.active = True

    def comes(flow: str, step: int) -> list[str]:
        view._step = step
        view._newest.on_received(f"traffic/{flow}".encode(), frame(Kind.DATA, EPOCH, 0, 0, encode(np.arange(3))), 0)
        view._look()
        return [one["flow"] for one in view._state()["strips"]]

    names = [f"f{number}" for number in range(MAX_STRIPS)]
    for number, name in enumerate(names):
        comes(name, number)
    assert comes("more", MAX_STRIPS) == names
    assert comes("more", IDLE_STEPS) == [*names[1:], "more"]
    assert comes("again", IDLE_STEPS) == [*names[1:], "more"]  # the others have come since
