"""The folder of an identity, its public line, and what it trusts."""

import base64
import io
import itertools
import logging
import os
import stat
import subprocess
import sys
import traceback
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from zmq.utils import z85

import twinlink
from tests.identity.nodes import OTHER, Node, as_root, content, make, make_pair, watch
from twinlink.errors import ConfigurationError
from twinlink.identity import Identity, PublicLine, certificates, trust
from twinlink.identity.secret_line import SecretLine
from twinlink.protocol.authentication import epoch_prefix
from twinlink.testing import patience, wait_until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_identity_is_private_and_whole(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = Identity.create(tmp_path / "a" / "gnb-1", "gnb-1", "gnb", hosts=["10.0.0.5", "gnb.example"])
    finally:
        os.umask(old)
    assert mode(made.folder) == 0o700
    assert {file.name: mode(file) for file in made.folder.iterdir()} == dict.fromkeys(
        ("secret", "tls.crt", "tls.key"), 0o600
    )
    assert Identity.load(made.folder).line == made.line
    assert {"gnb-1", "10.0.0.5", "gnb.example", "127.0.0.1"} <= set(certificates.hosts(made.line.certificate))
    assert [path.name for path in made.folder.parent.iterdir()] == ["gnb-1"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    made = make(tmp_path, "gnb-1", "gnb")
    before = {file.name: file.read_bytes() for file in made.folder.iterdir()}
    with pytest.raises(ConfigurationError, match="not empty; nothing was changed"):
        Identity.create(made.folder, "gnb-2", "gnb")
    assert {file.name: file.read_bytes() for file in made.folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["gnb-1"]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 64, "ä"])
def test_a_name_is_a_plain_word(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        Identity.create(tmp_path / "a", name, "gnb")


@pytest.mark.parametrize("file", ["secret", "tls.key"])
def test_a_secret_that_others_can_read_is_refused(file: str, tmp_path: Path) -> None:
    made = make(tmp_path, "gnb-1", "gnb")
    (made.folder / file).chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        Identity.load(made.folder)


@pytest.mark.parametrize(("what", "mode"), [("trusted", 0o620), ("revoked", 0o602), (".", 0o777)])
def test_what_others_can_change_is_refused(what: str, mode: int, tmp_path: Path) -> None:
    """They could add a key of their own to those that are trusted."""
    twin, _ = make_pair(tmp_path)
    (twin.folder / "revoked").touch(0o600)
    (twin.folder / what).chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod go-w"):
        Identity.load(twin.folder)


def _given_away(folder: Path, what: str) -> None:
    """Let another user have the folder, a file of it, or the link or the folder on the way to that file."""
    file = folder / "trusted"
    if what == "folder":
        os.chown(folder, OTHER, OTHER)
    elif what in {"link", "target", "way"}:
        (away := folder.parent / "away").mkdir(mode=0o755)
        file.rename(away / "trusted")
        file.symlink_to("../away/trusted" if what == "way" else away / "trusted")
        os.chown({"link": file, "target": away / "trusted", "way": away}[what], OTHER, OTHER, follow_symlinks=False)
    else:
        (folder / what).touch(0o600)
        os.chown(folder / what, OTHER, OTHER)


@as_root
@pytest.mark.parametrize(
    "what", ["folder", "link", "target", "way", "secret", "tls.key", "tls.crt", "trusted", "revoked"]
)
def test_nothing_of_another_user_counts(what: str, tmp_path: Path) -> None:
    """Neither when it is read, nor when it is changed, nor while it is in use."""
    twin, _ = make_pair(tmp_path)
    watched = watch(twin)
    assert watched.names == {"gnb-1"}
    _given_away(twin.folder, what)
    with pytest.raises(ConfigurationError, match=f"is of the user {OTHER}"):
        Identity.load(twin.folder)
    line = make(tmp_path, "gnb-2", "gnb").identity.line
    for change in (
        lambda: trust.trust(twin.folder, line, "gnb"),
        lambda: trust.revoke(twin.folder, "gnb-1"),
        lambda: trust.prepare_rotation(twin.folder),
    ):
        with pytest.raises(ConfigurationError, match=f"is of the user {OTHER}"):
            change()
    watched.refresh(at_once=True)
    assert watched.names == set()


@as_root
@pytest.mark.parametrize("what", [".", "secret", "tls.key"])
def test_next_keys_of_another_user_are_not_used(what: str, tmp_path: Path) -> None:
    node = make(tmp_path, "gnb-1", "gnb")
    trust.prepare_rotation(node.folder)
    os.chown(node.folder / "next" / what, OTHER, OTHER)
    (node.folder / "next" / "tls.crt").unlink()  # as after a crash, when they cannot be read as a whole
    before = content(node)
    with pytest.raises(ConfigurationError, match=f"is of the user {OTHER}"):
        trust.complete_rotation(node.folder)
    assert content(node) == before


@as_root
def test_what_others_added_to_a_sticky_folder_is_refused(tmp_path: Path) -> None:
    """The volume of a Secret is one; each user could add an authority to another."""
    twin, _ = make_pair(tmp_path)
    twin.folder.chmod(0o1777)
    Identity.load(twin.folder)
    (twin.folder / "ca.crt").touch(0o644)
    os.chown(twin.folder / "ca.crt", OTHER, OTHER)
    with pytest.raises(ConfigurationError, match=f"is of the user {OTHER}"):
        Identity.load(twin.folder)


def test_a_link_that_leads_nowhere_is_no_missing_file(tmp_path: Path) -> None:
    """What is revoked may be behind a mount that is not there yet."""
    twin, _ = make_pair(tmp_path)
    (twin.folder / "revoked").symlink_to(tmp_path / "mount" / "revoked")
    with pytest.raises(ConfigurationError, match="revoked cannot be read: No such file"):
        Identity.load(twin.folder)


def test_a_pipe_keeps_no_reader_waiting(tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    (twin.folder / "trusted").unlink()
    os.mkfifo(twin.folder / "trusted", 0o600)
    with pytest.raises(ConfigurationError, match="it is no file"):
        Identity.load(twin.folder)


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    with (twin.folder / "trusted").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigurationError, match="the most that is read"):
        Identity.load(twin.folder)


@pytest.mark.parametrize("file", ["secret", "tls.key", "tls.crt"])
def test_files_of_two_identities_do_not_mix(file: str, tmp_path: Path) -> None:
    one, other = make(tmp_path, "gnb-1", "gnb"), make(tmp_path, "gnb-2", "gnb")
    (one.folder / file).write_bytes((other.folder / file).read_bytes())
    with pytest.raises(ConfigurationError):
        Identity.load(one.folder)


@pytest.mark.parametrize("file", ["tls.key", "tls.crt"])
def test_keys_that_no_transport_takes_are_an_error_with_a_message(file: str, tmp_path: Path) -> None:
    """The package for certificates has exceptions of its own for some of them: here, for another curve."""
    made = make(tmp_path, "gnb-1", "gnb")
    head, *rest = (made.folder / file).read_text().splitlines(keepends=True)
    body, end = base64.b64decode("".join(rest[:-1])), rest[-1]
    changed = body.replace(bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d03010e"))
    assert changed != body
    (made.folder / file).write_text(f"{head}{base64.encodebytes(changed).decode()}{end}")
    with pytest.raises(ConfigurationError, match="are no pair"):
        Identity.load(made.folder)


def test_a_public_line_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    line = str(make(tmp_path, "gnb-1", "gnb").identity.line)
    assert str(PublicLine.parse(f"  {line}\n")) == line
    text = line.split()[3]
    for at in (0, 10, len(text) // 2, len(text) - 2):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(ConfigurationError):
            PublicLine.parse(line.replace(text, changed))
    for broken in (line[:-5], line.replace("gnb-1", "gnb-2", 1), line.replace(" gnb ", " twin "), "", "x" * 100):
        with pytest.raises(ConfigurationError):
            PublicLine.parse(broken)


def test_a_public_line_needs_no_quotes() -> None:
    """A word of it that begins with a dash would be taken for an option."""
    for _ in range(500):
        public = z85.decode(SecretLine.generate("gnb-1", "gnb").curve_public)
        assert not base64.urlsafe_b64encode(public).startswith(b"-")


def test_a_secret_is_not_taken_for_a_public_line(tmp_path: Path) -> None:
    secret = (make(tmp_path, "gnb-1", "gnb").folder / "secret").read_text()
    for pasted in (secret, f'"{secret}"', secret.split()[3]):
        with pytest.raises(ConfigurationError, match=r"this is a secret|has 1 words") as raised:
            PublicLine.parse(pasted)
        assert secret.split()[3][:8] not in str(raised.value)


def certificate_of(name: str, authority: bool | None) -> bytes:
    """DER; ``authority``: what it says of itself, None: nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=1))
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_line_with_keys_that_no_node_has_is_refused(tmp_path: Path) -> None:
    """Its certificate cannot be read or could issue others, or with its point on Curve25519 every secret is known."""
    line = make(tmp_path, "gnb-1", "gnb").identity.line
    at = line.certificate.index(f"{line.expiry:%y%m%d}".encode())
    for changed in (
        replace(line, certificate=line.certificate[:at] + b"309901" + line.certificate[at + 6 :]),
        replace(line, certificate=line.certificate + b"more"),
        replace(line, certificate=certificate_of(line.name, authority=True)),
        replace(line, certificate=certificate_of(line.name, authority=None)),
        replace(line, curve_public=b"0" * 40),
    ):
        with pytest.raises(ConfigurationError):
            PublicLine.parse(str(changed))


@pytest.mark.parametrize("key", ["curve_public", "verify_key"])
@pytest.mark.parametrize("of", ["twin-1", "gnb-1"])
def test_two_names_do_not_share_a_key(of: str, key: str, tmp_path: Path) -> None:
    """The connection of one would count as that of the other."""
    twin, gnb = make_pair(tmp_path)
    copied = getattr((twin if of == "twin-1" else gnb).identity.line, key)
    line = replace(make(tmp_path, "gnb-2", "observer").identity.line, **{key: copied})
    with pytest.raises(ConfigurationError, match=f"has a key of {of}"):
        trust.trust(twin.folder, line, "observer")


def test_a_changed_key_is_refused_loudly(tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    stranger = make(tmp_path / "other", "gnb-1", "gnb")
    with pytest.raises(ConfigurationError, match="THE KEY OF gnb-1 HAS CHANGED") as raised:
        twin.trust(stranger)
    for fingerprint in (gnb.identity.fingerprint, stranger.identity.fingerprint):
        assert fingerprint in str(raised.value)
    assert [peer.fingerprint for peer in twin.identity.trusted] == [gnb.identity.fingerprint]
    twin.trust(stranger, beside=True)
    assert twin.identity.peers["gnb-1"].fingerprint == stranger.identity.fingerprint


def test_a_revoked_key_stays_so(tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    twin.revoke(gnb)
    assert twin.identity.trusted == ()
    assert [peer.name for peer in twin.identity.revoked] == ["gnb-1"]
    renewed = replace(gnb.identity.line, certificate=certificate_of("gnb-1", authority=False))
    for line in (gnb.identity.line, renewed):
        with pytest.raises(ConfigurationError, match="was revoked here"):
            trust.trust(twin.folder, line, "gnb")
    with pytest.raises(ConfigurationError, match="no key of gnb-1 is trusted"):
        twin.revoke(gnb)


def test_trust_is_said_once_and_a_role_can_be_changed(tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    assert not trust.trust(twin.folder, gnb.identity.line, "gnb")
    assert trust.trust(twin.folder, gnb.identity.line, "observer")
    assert [peer.role for peer in twin.identity.trusted] == ["observer"]
    with pytest.raises(ConfigurationError, match="name of this side"):
        twin.trust(twin)
    with pytest.raises(ConfigurationError, match="expired"):
        twin.trust(make(tmp_path, "gnb-3", "gnb", expires_in_s=-1))


def test_names_with_the_same_epochs_are_refused(tmp_path: Path) -> None:
    seen: dict[bytes, str] = {}
    for number in itertools.count():  # by the birthday paradox, some 80,000
        name = f"n{number}"
        if (other := seen.setdefault(epoch_prefix(name), name)) != name:
            break
    one, two, three = make(tmp_path, name, "gnb"), make(tmp_path, other, "gnb"), make(tmp_path, "twin-1", "twin")
    three.trust(one)
    for node in (three, one):
        with pytest.raises(ConfigurationError, match="could be taken for those of"):
            node.trust(two)


def test_rotation_is_prepared_and_then_completed(tmp_path: Path) -> None:
    _, gnb = make_pair(tmp_path)
    old = gnb.identity.line
    with pytest.raises(ConfigurationError, match="has no next keys"):
        trust.complete_rotation(gnb.folder)
    line = trust.prepare_rotation(gnb.folder)
    assert trust.prepare_rotation(gnb.folder) == line  # printed once more
    assert gnb.identity.line == old
    assert trust.complete_rotation(gnb.folder) == line == gnb.identity.line
    assert [peer.name for peer in gnb.identity.trusted] == ["twin-1"]
    assert not (gnb.folder / "next").exists()
    trust.prepare_rotation(gnb.folder)
    (gnb.folder / "next" / "tls.key").replace(gnb.folder / "tls.key")  # as far as a crash let it come
    with pytest.raises(ConfigurationError, match="run `twinlink key rotate --use` again"):
        Identity.load(gnb.folder)
    assert trust.complete_rotation(gnb.folder) == gnb.identity.line != line
    assert certificates.hosts(line.certificate) == certificates.hosts(old.certificate)


def test_a_key_is_trusted_until_it_expires(tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path, expires_in_s=100)
    now = datetime.now(UTC)
    assert [peer.name for peer in twin.identity.valid(now)] == ["gnb-1"]
    assert twin.identity.valid(now + timedelta(seconds=101)) == ()
    assert gnb.identity.expiry <= now + timedelta(seconds=101)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("sys.modules['cryptography'] = None", "pip install 'twinlink[security]'"),
        ("from cryptography import x509; x509.Certificate = object", "cryptography from 42 on"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(before: str, says: str, tmp_path: Path) -> None:
    opening = f"import twinlink; twinlink.open('zeromq', listen='tcp/127.0.0.1:1', identity={str(tmp_path)!r})"
    code = f"import sys\n{before}\n{opening}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=patience())
    assert done.returncode == 1
    assert "twinlink.errors.TransportMissing" in done.stderr
    assert says in done.stderr


def secrets_of(node: Node) -> list[str]:
    """Every form in which a secret of this node could be written."""
    identity = node.identity
    text = (node.folder / "secret").read_text().split()[3]
    octets = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    pem = (node.folder / "tls.key").read_text().splitlines()[1:3]  # the rest is the public key (RFC 5915)
    curve, signing = octets[:32], octets[32:64]
    assert z85.encode(curve) == identity.curve_secret
    raw = [form(key) for key in (curve, signing) for form in (bytes.hex, repr)]
    return [text, identity.curve_secret.decode(), *pem, *raw, base64.b64encode(signing).decode()]


def test_no_secret_is_ever_shown(tmp_path: Path, endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    twin, gnb = make_pair(tmp_path)
    stranger = make(tmp_path, "gnb-2", "gnb")
    stranger.trust(twin)
    nodes, shown = (twin, gnb, stranger), io.StringIO()
    caplog.set_level(logging.DEBUG)
    with (
        twinlink.open("zeromq", listen=endpoint, identity=twin.folder) as listener,
        twinlink.open("zeromq", connect=endpoint, identity=gnb.folder) as connector,
        twinlink.open("zeromq", connect=endpoint, identity=stranger.folder) as refused,
    ):
        wait_until(lambda: listener.peers() and connector.peers() and listener._transport.refusals.count)
        try:
            refused.wait_ready(patience())
        except twinlink.AuthenticationError as error:
            print(error, repr(error), *traceback.format_exception(error), file=shown)
        for link in (listener, connector, refused):
            print(link, link.stats(), link.identity, vars(link.identity), list_events(link), file=shown)
            print(link.identity and link.identity.identity.line, file=shown)
    for node in nodes:
        print(node.identity, vars(node.identity).keys(), node.identity.trusted, file=shown)
        (node.folder / "secret").chmod(0o666)
        try:
            Identity.load(node.folder)
        except ConfigurationError as error:
            print(*traceback.format_exception(error), file=shown)
        (node.folder / "secret").chmod(0o600)
    text = shown.getvalue() + caplog.text
    assert "gnb-2" in text
    for node in nodes:
        assert [secret for secret in secrets_of(node) if secret in text] == []


def list_events(link: twinlink.Link) -> list[twinlink.Event]:
    found = []
    while (event := link.events().receive(timeout=0)) is not None:
        found.append(event)
    return found
