"""MQTT with identities through an external broker, with the files of `twinlink key broker`."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import twinlink
from tests.identity.authority import Authority
from tests.identity.nodes import REFUSED_S, Node, deliver, make, make_pair, needs_mosquitto, put
from twinlink import cli
from twinlink.identity import trust
from twinlink.testing import patience, wait_until
from twinlink.testing.base import wait_for_event
from twinlink.transports.mosquitto import RUNNING, SBIN

pytestmark = needs_mosquitto


class Site:
    """A broker and two nodes that trust each other and the broker, and it them."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.endpoint, self._folder = endpoint, folder
        self.broker = make(folder, "broker-1", "broker")
        self.twin, self.gnb = make_pair(folder)
        self.gnb_2 = make(folder, "gnb-2", "gnb")
        self.gnb_2.trust(self.twin)
        for node in (self.twin, self.gnb, self.gnb_2):
            node.trust(self.broker)
            self.broker.trust(node)
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, *links: str) -> None:
        """Run `twinlink key broker`."""
        arguments = ["key", "broker", *links, "--listen", self.endpoint, "--identity", str(self.broker.folder)]
        assert cli.main(arguments) == 0

    def start(self, *links: str) -> None:
        self.write(*links)
        configuration, log = self._folder / "mosquitto.conf", self._folder / "log"
        configuration.write_text(f"user root\ninclude_dir {self.broker.folder}/broker\nlog_dest stderr\n")
        binary = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SBIN}")
        assert binary is not None
        self._process = subprocess.Popen([binary, "-c", str(configuration)], stderr=log.open("wb"))
        wait_until(lambda: RUNNING.search(log.read_text()))

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def listen(self) -> twinlink.Link:
        return twinlink.open("mqtt", listen=self.endpoint, identity=self.twin.folder, private_broker=False)

    def connect(self, node: Node) -> twinlink.Link:
        return twinlink.open("mqtt", connect=self.endpoint, identity=node.folder)


@pytest.fixture
def site(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.delenv("TWINLINK_IDENTITY", raising=False)
    made = Site(tmp_path, endpoint)
    yield made
    made.stop()


def problem(link: twinlink.Link) -> str:
    with pytest.raises(twinlink.AuthenticationError) as raised:
        link.wait_ready(patience(REFUSED_S))
    return str(raised.value)


def test_two_sides_meet_and_are_out_as_soon_as_the_broker_is_reloaded(site: Site) -> None:
    site.start("twin-1=gnb-1,gnb-2")
    with site.listen() as listener, site.connect(site.gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")
        site.write("twin-1=gnb-2")
        site.reload()
        assert wait_for_event(listener, twinlink.PeerDown).node == "gnb-1"
        wait_until(lambda: not connector.peers())
        assert "does not let gnb-1 publish: its access list has not this name" in problem(connector)


def test_it_is_said_which_of_the_three_refuses_which(site: Site) -> None:
    site.broker.revoke(site.gnb)
    site.start("twin-1=gnb-2")
    with site.listen() as listener:
        with site.connect(site.gnb) as connector:
            said = problem(connector)
            assert "refuses the key of this side, gnb-1" in said
            assert "then `twinlink key broker`, and restart mosquitto" in said
        with site.connect(site.gnb_2) as connector:
            said = problem(connector)
            assert "twin-1 refuses the key of this side, gnb-2" in said
            refused = wait_for_event(listener, twinlink.Refused)
            assert (refused.identity, refused.reason) == ("gnb-2", "unknown")
            site.twin.trust(site.gnb_2)
            wait_until(lambda: listener.peers() and connector.peers())
            deliver(connector, listener, "spectrum")
        (site.gnb_2.folder / "trusted").unlink()
        for trusted in (site.broker, site.gnb):
            site.gnb_2.trust(trusted)
        with site.connect(site.gnb_2) as connector:
            assert "this side refuses twin-1, which it hears through the broker" in problem(connector)


def test_a_broker_may_have_a_certificate_of_an_authority(site: Site) -> None:
    """It is known by the name of its host, as that is trusted; the nodes have certificates of their own."""
    files = Authority("root").issue("broker-7", host="mqtt.example.org")
    for node in (site.twin, site.gnb):
        node.revoke(site.broker)
        put(node.folder, "ca.crt", files["ca.crt"])
        trust.trust_issued(node.folder, "mqtt.example.org", "broker")
    (site.broker.folder / "secret").unlink()
    for file, content in files.items():
        put(site.broker.folder, file, content)
    site.start("twin-1=gnb-1")
    with site.listen() as listener, site.connect(site.gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        deliver(connector, listener, "spectrum")
    assert trust.prepare_rotation(site.gnb.folder).name == "gnb-1"  # it is not the authority that renews them


def test_a_broker_needs_an_identity_of_its_own(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in (
        (["twin-1=gnb-1", "--identity", str(site.twin.folder)], "key new NAME --role broker"),
        (["twin-1=gnb-3", "--identity", str(site.broker.folder)], "no valid key of gnb-3 is trusted"),
        (["twin-1", "--identity", str(site.broker.folder)], "give each listener and its connectors"),
        (["=gnb-1", "--identity", str(site.broker.folder)], "give each listener and its connectors"),
    ):
        assert cli.main(["key", "broker", *arguments]) == 3
        assert says in capsys.readouterr().err


def test_the_user_of_a_broker_cannot_have_root_write_elsewhere(site: Site, tmp_path: Path) -> None:
    """`key broker` gives what it writes to the owner of the folder, who may put a symbolic link there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (site.broker.folder / "broker").symlink_to(elsewhere)
    assert cli.main(["key", "broker", "twin-1=gnb-1", "--identity", str(site.broker.folder)]) == 3
    assert list(elsewhere.iterdir()) == []
