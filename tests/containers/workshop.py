"""Where images are built without a registry and without a daemon: a base made here, buildah, and a tmpfs for it all."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinlink import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
CLONE_NEWNS = 0x00020000  # sched.h


class Workshop:
    """The base, the wheels, buildah's storage and the images, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._buildah = ["buildah", "--root", f"{folder}/storage", "--runroot", f"{folder}/run"]
        self._buildah += ["--storage-driver", "overlay"]

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        """The command's stdout.  Raises RuntimeError with what it said last."""
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
        return done.stdout.strip()

    def make_base(self) -> str:
        """A Debian 12 with as little in it as the registries' slim image; returns its name."""
        name, folder = "localhost/debian:12-slim", self.folder / "base"
        folder.mkdir()
        self._run("mmdebstrap", "--quiet", "--variant=minbase", "bookworm", str(folder / "base.tar"))
        (folder / "Containerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
        self._run(*self._buildah, "build", "--isolation", "chroot", "--tag", name, str(folder))
        shutil.rmtree(folder)
        return name

    def build(self, base: str) -> str:
        """`make image`, from what is committed, with the wheels beside it; returns the revision."""
        context = self.folder / "context"
        context.mkdir()
        revision = self._run("git", "rev-parse", "HEAD", cwd=CHECKOUT)
        self._run("git", "archive", "--output", str(context / "source.tar"), revision, cwd=CHECKOUT)
        self._run("tar", "--extract", "--file", "source.tar", cwd=context)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", "containers/wheels", "--require-hashes"]
        for packages in ("requirements", "build-requirements"):
            self._run(*pip, "--requirement", f"containers/{packages}.txt", cwd=context)
        arguments = "ARGS=--isolation chroot --pull=never --build-arg OFFLINE=1"
        given = (f"BUILDER={' '.join(self._buildah)}", f"BASE={base}", f"REVISION={revision}", arguments)
        self._run("make", "image", *given, cwd=context)
        return revision

    def config(self, name: str) -> dict[str, Any]:
        """The configuration of an image, as OCI has it."""
        told = self._run(*self._buildah, "inspect", "--type", "image", f"localhost/{name}:{__version__}")
        config: dict[str, Any] = json.loads(told)["OCIv1"]["config"]
        return config

    def mount(self, name: str) -> Path:
        """The files of an image."""
        container = self._run(*self._buildah, "from", "--pull-never", f"localhost/{name}:{__version__}")
        return Path(self._run(*self._buildah, "mount", container))


@contextmanager
def own_mounts() -> Iterator[Path]:
    """A mount namespace for this process, with a tmpfs, whose path this gives, and without cgroup2.

    crun does not start where cgroup2 stands beside cgroup v1.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and place != "/sys/fs/cgroup":
            subprocess.run(["umount", place], check=True)
    with tempfile.TemporaryDirectory(prefix="twinlink-images-") as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=12g", "images", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", "--recursive", name], check=True)
