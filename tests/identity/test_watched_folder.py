"""The folder of an identity while it is watched, and as a volume of Kubernetes."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.identity.nodes import RANDOM, as_root, content, make, make_pair, watch
from twinlink.identity import Identity
from twinlink.identity.folder import Folder
from twinlink.identity.watched import WatchedIdentity
from twinlink.testing import wait_until


def test_a_watched_identity_follows_its_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    twin, gnb = make_pair(tmp_path)
    watched = watch(twin)
    assert watched.names == {"gnb-1"}

    def becomes(*names: str) -> None:
        def is_so() -> bool:
            watched.refresh()
            return watched.names == set(names)

        wait_until(is_so)

    twin.trust(make(tmp_path, "gnb-2", "gnb"))
    becomes("gnb-1", "gnb-2")
    twin.revoke(gnb)
    becomes("gnb-2")
    trusted = (twin.folder / "trusted").read_text()
    (twin.folder / "trusted").write_text(trusted + "gnb twinlink-public-1 broken\n")
    becomes()  # closed: the broken line may be the one that was to replace another
    assert "line 2" in caplog.text
    (twin.folder / "trusted").write_text(trusted)
    becomes("gnb-2")
    for mode, names in ((0o666, ()), (0o600, ("gnb-2",))):
        (twin.folder / "trusted").chmod(mode)
        becomes(*names)
    twin.folder.chmod(0o770)
    becomes()
    twin.folder.chmod(0o700)
    becomes("gnb-2")
    with Folder.opened(twin.folder, exclusive=True):  # by a program that was stopped, perhaps
        (twin.folder / "trusted").write_text("")
        becomes()


def test_an_identity_is_not_read_again_for_what_else_is_in_its_folders(tmp_path: Path) -> None:
    """A link may lead through a busy one, such as /tmp."""
    twin, _ = make_pair(tmp_path)
    (away := tmp_path / "away").mkdir(mode=0o755)
    (twin.folder / "trusted").rename(away / "trusted")
    (twin.folder / "trusted").symlink_to(away / "trusted")
    watched = watch(twin)
    read = watched.identity
    for folder in (twin.folder, away):
        (folder / "other").touch()
    watched.refresh(at_once=True)
    assert watched.identity is read
    (away / "trusted").write_text("")
    watched.refresh(at_once=True)
    assert watched.names == set()


def test_what_is_revoked_between_reading_and_watching_counts(tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    read = twin.identity
    twin.revoke(gnb)
    assert WatchedIdentity(read).names == frozenset()


def _mount(volume: Path, version: str, files: dict[str, bytes], group: int | None = None) -> None:
    """What the kubelet does: each version in a folder of its own, and a symbolic link that is switched.

    ``group``: the pod's fsGroup.
    """
    (volume / version).mkdir(mode=0o755)
    for name, octets in files.items():
        (volume / version / name).write_bytes(octets)
        (volume / version / name).chmod(0o440)
    (volume / "..new").symlink_to(version)
    (volume / "..new").rename(volume / "..data")
    for name in files:
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    if group is not None:
        volume.chmod(0o3777)
        (volume / version).chmod(0o2755)
        for path in (volume, volume / version, *(volume / version).iterdir()):
            os.chown(path, 0, group)


def test_the_volume_of_a_secret_is_an_identity(tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    _mount(volume, "..1", content(twin))
    watched = WatchedIdentity(Identity.load(volume))
    assert watched.names == {"gnb-1"}
    twin.revoke(gnb)
    _mount(volume, "..2", content(twin))

    def noticed() -> bool:
        watched.refresh()
        return not watched.names

    wait_until(noticed)
    assert [peer.name for peer in watched.identity.revoked] == ["gnb-1"]


@as_root
@pytest.mark.parametrize(("group", "of_pod"), [(None, 0), (1000, 1000)], ids=["group 0", "fsGroup"])
def test_a_volume_of_root_is_the_identity_of_any_user(group: int | None, of_pod: int, tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    with tempfile.TemporaryDirectory() as folder:  # that user may not pass pytest's
        Path(folder).chmod(0o755)
        (volume := Path(folder) / "volume").mkdir()
        volume.chmod(0o1777)  # that of a tmpfs
        _mount(volume, "..1", content(twin), group)
        groups = os.getgroups()
        try:
            os.setgroups([of_pod])
            os.setegid(of_pod)
            os.seteuid(RANDOM)
            found = Identity.load(volume)
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
    assert [peer.name for peer in found.trusted] == ["gnb-1"]
