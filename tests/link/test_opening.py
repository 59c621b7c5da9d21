"""A link that cannot be opened leaves nothing behind."""

import pytest

import twinlink
from twinlink.testing import free_endpoint


def test_a_link_that_cannot_say_hello_gives_its_endpoint_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise twinlink.TransportError("no more")

    endpoint = free_endpoint()
    with monkeypatch.context() as patch:
        patch.setattr("twinlink.transports.memory.MemoryTransport.send", refuse)
        with pytest.raises(twinlink.TransportError, match="no more"):
            twinlink.open("memory", listen=endpoint)
    twinlink.open("memory", listen=endpoint).close()
