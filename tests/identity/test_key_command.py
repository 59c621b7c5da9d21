"""`twinlink key`: two hosts from nothing, as docs/security.md has it."""

import json
import os
import shlex
import tempfile
from pathlib import Path

import pytest

import twinlink
from tests.cli.running import Start
from tests.identity.nodes import make, make_pair
from twinlink import cli
from twinlink.cli import identity_checks
from twinlink.errors import ConfigurationError
from twinlink.identity import Identity
from twinlink.testing import wait_until

BAD_ARGUMENTS = 3


class Shell:
    """Runs `twinlink key ...` in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, line: str, code: int = 0) -> tuple[str, str]:
        self._capture.readouterr()
        assert cli.main(["key", *shlex.split(line)]) == code
        return self._capture.readouterr()


@pytest.fixture
def key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("TWINLINK_IDENTITY", raising=False)
    return Shell(capsys)


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_two_hosts_from_nothing(transport: str, start: Start, endpoint: str, tmp_path: Path, key: Shell) -> None:
    twin, gnb = tmp_path / "twin", tmp_path / "gnb"
    gnb_line, told = key(f"new gnb-1 --role gnb --identity {gnb}")
    assert gnb_line.count("\n") == 1
    assert "key trust LINE --as gnb-1 --role gnb" in told
    twin_line, _ = key(f"new twin-1 --role twin --identity {twin}")
    key(f"trust '{gnb_line}' --as gnb-1 --role gnb --identity {twin}")
    key(f"trust {twin_line} --as twin-1 --role twin --identity {gnb}")  # without quotes
    over = ("--transport", transport)
    pong = start("pong", "--listen", endpoint, *over, "--identity", str(twin), "--count", "2")
    ping = start(
        "ping", "--connect", endpoint, *over, "--count", "2", "--interval", "0.01", env={"TWINLINK_IDENTITY": str(gnb)}
    )
    assert ping.code() == 0, ping.err
    assert pong.code() == 0, pong.err
    assert "peer gnb-1 is up" in pong.err
    assert "peer twin-1 is up" in ping.err


def test_a_refusal_names_the_command_that_repairs_it(start: Start, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    twin.revoke(gnb)
    stranger = make(tmp_path, "gnb-2", "gnb")
    stranger.trust(twin)
    pong = start("pong", "--listen", endpoint, "--identity", str(twin.folder))
    pong.wait_for("Ctrl-C ends it")
    ping = start("ping", "--connect", endpoint, "--identity", str(stranger.folder))
    assert ping.code() == 1
    assert "twinlink key trust LINE --as gnb-2 --role gnb" in ping.err
    pong.wait_for("its key is not trusted; if it is a peer, run `twinlink key trust LINE")
    secret = (stranger.folder / "secret").read_text().split()[3]
    assert secret not in ping.err + pong.err


def test_a_line_must_be_of_the_peer_that_is_meant(tmp_path: Path, key: Shell) -> None:
    twin, gnb = make_pair(tmp_path)
    line = gnb.identity.line
    for wrong, says in (
        (f"trust '{line}' --as gnb-2", "this line is of gnb-1, not of gnb-2"),
        (f"trust '{line}'", "give --as NAME"),
        (f"trust '{str(line)[:-3]}' --as gnb-1", "checksum"),
        (f"trust '{(gnb.folder / 'secret').read_text()}' --as gnb-1", "this is a secret"),
        ("new gnb-1", "give --role"),
        ("new --role gnb", "takes one NAME"),
        ("revoke gnb-7", "no key of gnb-7 is trusted"),
    ):
        _, told = key(f"{wrong} --identity {twin.folder}", BAD_ARGUMENTS)
        assert says in told
    _, told = key("list", BAD_ARGUMENTS)
    assert "--identity DIR" in told


def test_router_writes_a_configuration_for_the_nodes_of_each_namespace(tmp_path: Path, key: Shell) -> None:
    twin, gnb = make_pair(tmp_path)
    router = tmp_path / "router"
    line, _ = key(f"new router-1 --role router --identity {router}")
    for node in (twin, gnb):
        key(f"trust {node.identity.line} --as {node.name} --identity {router}")
        key(f"trust {line} --as router-1 --identity {node.folder}")
    printed, told = key(f"router twinlink/cell-7=gnb-1,twin-1 --listen tcp/10.0.0.1:7447 --identity {router}")
    assert f"zenohd --config {printed}" in told
    written = json.loads(Path(printed.strip()).read_text())
    assert written["listen"]["endpoints"] == ["tls/10.0.0.1:7447"]
    assert written["access_control"]["default_permission"] == "deny"
    assert {path.stat().st_mode & 0o777 for path in (router / "router").iterdir()} == {0o600}
    _, told = key(f"router gnb-1 --identity {router}", BAD_ARGUMENTS)
    assert "such as twinlink/cell-7=gnb-1,twin-1" in told


def test_list_show_revoke_and_rotate(tmp_path: Path, key: Shell) -> None:
    twin, gnb = make_pair(tmp_path)
    assert key(f"show --identity {gnb.folder}")[0] == f"{gnb.identity.line}\n"
    next_line, told = key(f"rotate --identity {gnb.folder}")
    assert "not used yet" in told
    key(f"trust {next_line} --as gnb-1 --beside --identity {twin.folder}")
    assert key(f"rotate --use --identity {gnb.folder}")[0] == next_line
    old = twin.identity.trusted[0].fingerprint
    key(f"revoke gnb-1 --fingerprint {old} --identity {twin.folder}")
    listed = json.loads(key(f"list --json --identity {twin.folder}")[0])
    assert listed["own"]["fingerprint"] == twin.identity.fingerprint
    assert [(peer["name"], peer["role"], peer["state"]) for peer in listed["peers"]] == [
        ("gnb-1", "gnb", "trusted"),
        ("gnb-1", "gnb", "revoked"),
    ]
    assert listed["peers"][0]["fingerprint"] == Identity.load(gnb.folder).fingerprint
    assert "revoked" in key(f"list --identity {twin.folder}")[0]


def test_a_link_without_an_identity_is_not_opened_where_one_is_required(
    start: Start, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ["sweep", "--peer", endpoint, "--require-identity", "--out", str(tmp_path / "out")]
    assert cli.main(sweep) == BAD_ARGUMENTS
    assert "make one with `twinlink key new`" in capsys.readouterr().err
    pong = start("pong", "--listen", endpoint, env={"TWINLINK_REQUIRE_IDENTITY": "true", "TWINLINK_IDENTITY": ""})
    assert pong.code() == BAD_ARGUMENTS
    assert "make one with `twinlink key new`" in pong.err


def checked(folder: Path, connect: str | None = None) -> dict[str, tuple[str, str]]:
    return {row.check: (row.status, row.seen + row.next) for row in identity_checks.identity(str(folder), connect)}


def test_doctor_checks_an_identity(tmp_path: Path, endpoint: str) -> None:
    twin, gnb = make_pair(tmp_path)
    with twinlink.open("zeromq", listen=endpoint, identity=twin.folder) as listener:
        assert {row: status for row, (status, _) in checked(gnb.folder, endpoint).items()} == dict.fromkeys(
            ("identity", "key files", "peer key", "handshake"), "ok"
        )
        twin.revoke(gnb)
        wait_until(lambda: listener.identity and not listener.identity.names)
        status, text = checked(gnb.folder, endpoint)["handshake"]
        assert (status, "twinlink key rotate" in text) == ("fail", True)
    (gnb.folder / "trusted").chmod(0o640)
    assert checked(gnb.folder)["key files"][0] == "warn"
    (gnb.folder / "secret").chmod(0o644)
    assert "chmod 600" in checked(gnb.folder)["identity"][1]
    soon, ended = (make(tmp_path, name, "gnb", expires_in_s=s) for name, s in (("gnb-4", 1000), ("gnb-5", -1)))
    assert checked(soon.folder)["identity"][0] == "warn"
    assert checked(ended.folder)["identity"][0] == "fail"
    assert checked(ended.folder)["peers"][0] == "warn"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_root_changes_the_folder_of_another_user_as_that_user(start: Start, tmp_path: Path) -> None:
    """As of a broker, whose user cannot be lent what root may."""
    lines = {node.name: node.identity.line for node in make_pair(tmp_path)}
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        folder = make(Path(above), "broker-1", "broker").folder
        for path in (folder, *folder.iterdir()):
            os.chown(path, 65534, 65534)
        trusting = [["trust", str(line), "--as", name] for name, line in lines.items()]
        for arguments in (*trusting, ["broker", "twin-1=gnb-1"]):
            done = start("key", *arguments, "--identity", str(folder))
            assert done.code() == 0, done.err
            assert "acting as that user" in done.err
        assert {path.stat().st_uid for path in folder.rglob("*")} == {65534}
        assert (folder / "broker" / "mosquitto.conf").exists()
        with pytest.raises(ConfigurationError, match="is of the user 65534"):
            Identity.load(folder)


def test_help_and_the_error_without_an_action_list_the_actions(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    actions = ["new", "show", "trust", "list", "revoke", "rotate", "router", "broker"]
    assert cli.main(["key", "--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    listed = lines[lines.index("actions:") + 2 : lines.index("positional arguments:")]
    assert [line.split()[0] for line in listed if line[2:3].strip()] == actions
    assert cli.main(["key"]) == BAD_ARGUMENTS
    assert f"required: ACTION; ACTION is one of {', '.join(actions)}\n" in capfd.readouterr().err
