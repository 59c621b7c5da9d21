"""Identities for the nodes of the suite: listeners trust all of them, connectors the listeners of their test."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..identity.public_line import PublicLine, Role

ROLE: "Role" = "twin"  # sends on every flow
UNNAMED = {"listen": "listener", "connect": "connector"}  # by role, where a test gives no name
NODES = (
    *UNNAMED.values(), "first", "second", "early", "late", "going", "twin", "ours", "foreign", "large", "small",
    "sends", "slow", *(f"quick-{number}" for number in range(2)), "gnb", *(f"gnb-{number}" for number in range(3)),
    *(f"l{number}" for number in range(5)), *(f"c{number}" for number in range(5)),
)  # fmt: skip


class Identities:
    """Identities of one test; its methods are for one thread.

    A connector over ZeroMQ tries the keys that it trusts one by one, so it trusts no more than it needs.
    """

    def __init__(self, folder: Path) -> None:
        """``folder``: an empty one, for the folders of the identities."""
        self._folder = folder
        self._count = 0
        self._connectors: list[Path] = []
        self._listeners = [UNNAMED["listen"]]

    def folder_of(self, node: str | None, role: str) -> Path:
        """An identity for a link with this name and role; several links may have the same name."""
        name = node or UNNAMED[role]
        self._count += 1
        made = self._folder / f"{self._count}-{name}"
        shutil.copytree(_keys() / name, made)
        if role == "listen":
            _trust(made, [other for other in NODES if other != name])
            if name not in self._listeners:
                self._listeners.append(name)
                for connector in self._connectors:
                    _trust(connector, self._listeners)
        else:
            self._connectors.append(made)
            _trust(made, self._listeners)
        return made


def _trust(folder: Path, names: list[str]) -> None:
    from ..identity import trust_file  # needs a package that suites without identities do without
    from ..identity.folder import Folder
    from ..identity.identity import TRUSTED
    from ..identity.trust_file import TrustedPeer

    with Folder.opened(folder, exclusive=True) as opened:
        trust_file.write(opened, TRUSTED, [TrustedPeer(_lines()[name], ROLE) for name in names])


@functools.cache
def _keys() -> Path:
    """A folder with an identity for each node; made once, since that takes milliseconds each."""
    from ..identity import Identity

    folder = Path(tempfile.mkdtemp(prefix="twinlink-testing-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in NODES:
        Identity.create(folder / name, name, ROLE)
    return folder


@functools.cache
def _lines() -> "dict[str, PublicLine]":
    from ..identity import Identity

    return {name: Identity.load(_keys() / name).line for name in NODES}
