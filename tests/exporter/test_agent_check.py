"""`twinlink doctor --ask-e3` names the generation, and leaves no identifier in use."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import twinlink_e3 as e3
from twinlink_exporter import agent_check

from twinlink.cli import checks

from .emulated_agent import EmulatedAgent


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="e3-"))
    yield path
    shutil.rmtree(path)


def endpoints(directory: Path, link: str) -> e3.Endpoints:
    setup, to_dapp, from_dapp = (f"ipc://{directory}/{name}" for name in ("setup", "e3_socket", "dapp_socket"))
    return e3.Endpoints(setup, to_dapp, from_dapp, link)


@pytest.mark.parametrize("link", e3.LINKS)
def test_the_agent_is_asked_and_released(directory: Path, link: str) -> None:
    with EmulatedAgent(endpoints(directory, link), e3.ASN1_CODECS["G2b"], controls=False) as agent:
        (row,) = checks.e3_agent(link, directory)
        assert (row.check, row.status) == ("e3 agent", "ok")
        assert row.seen == (
            "twinlink-ran-emulator speaks G2b (asked in G0, it answered in G2b), and offers no control of PRB blocks"
        )
        agent.wait_for(lambda a: not a.agent._dapps)


@pytest.mark.parametrize("link", e3.LINKS)
def test_the_link_of_the_agent_is_found(directory: Path, link: str) -> None:
    with EmulatedAgent(endpoints(directory, link), e3.G0) as agent:
        (row,) = checks.e3_agent("auto", directory)
        assert (row.status, row.seen) == ("ok", f"twinlink-ran-emulator speaks G0 over {link} (asked in G0)")
        agent.wait_for(lambda a: not a.agent._dapps)


@pytest.mark.parametrize("link", e3.LINKS)
def test_an_agent_that_hangs_is_no_reason_to_ask_over_the_other_link(
    directory: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    monkeypatch.setattr(agent_check, "PATIENCE_S", 0.5)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "setup"))
        listener.listen()
        (row,) = checks.e3_agent(link, directory)
        assert (row.status, "hangs" in row.next) == ("warn", True)
        assert "over the other link" not in row.next


def test_an_agent_that_refuses_is_named(directory: Path) -> None:
    with EmulatedAgent(endpoints(directory, "posix"), e3.G0, first_dapp=101):
        (row,) = checks.e3_agent("posix", directory)
    assert row.status == "warn"
    assert "refused the setup of this dApp" in row.seen


def test_an_agent_on_the_other_link_is_not_asked(directory: Path) -> None:
    with EmulatedAgent(endpoints(directory, "posix"), e3.G0) as agent:
        (row,) = checks.e3_agent("zmq", directory)
        assert row.status == "warn"
        assert "set --e3-link posix" in row.next
        assert agent.agent.counters["malformed"] == 0


def test_an_agent_that_is_not_there_is_missed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_check, "PATIENCE_S", 0.2)
    (row,) = checks.e3_agent("posix", directory)
    assert (row.status, row.seen) == ("warn", "no E3 agent answers a setup over posix within 0.2 s")
    assert row.next
