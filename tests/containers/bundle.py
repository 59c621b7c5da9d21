"""A container for crun, the runtime of OpenShift: as restricted-v2 has it, for an image that buildah holds.

The specification is the OCI runtime's: https://github.com/opencontainers/runtime-spec/blob/main/config.md
"""

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .program import UID

PROFILE = Path("/usr/share/containers/seccomp.json")  # what RuntimeDefault is with podman and CRI-O
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
TMP = ["nosuid", "nodev", "mode=1777"]


def write(
    folder: Path,
    image: dict[str, Any],
    root: Path,
    dapps: Path,
    network: str,
    command: Sequence[str],
    *,
    tmp_size: str = "64m",
    config: Path | None = None,
) -> None:
    """Write ``folder/config.json``.

    Args:
        folder: exists.
        image: the image's own configuration, as OCI has it.
        root: its files.
        dapps: a folder, shown at /tmp/dapps.
        network: path of the network namespace.
        command: arguments of the entry point, or the whole command where the first is a program.
        tmp_size: of /tmp.
        config: a TOML file, shown where a ConfigMap would be and named by TWINLINK_CONFIG.
    """
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": [*TMP, f"size={tmp_size}"]},
        {"destination": "/tmp/dapps", "type": "bind", "source": str(dapps), "options": ["bind", "rw"]},
    ]
    environment = list(image["Env"])
    if config:
        where = "/etc/twinlink/twinlink.toml"
        mounts.append({"destination": where, "type": "bind", "source": str(config), "options": ["bind", "ro"]})
        environment.append(f"TWINLINK_CONFIG={where}")
    entry = [] if command and not command[0].startswith("-") else image["Entrypoint"]
    none: list[str] = []
    specification = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": UID, "gid": 0, "additionalGids": [UID]},
            "args": [*entry, *command],
            "env": environment,
            "cwd": image["WorkingDir"],
            "capabilities": dict.fromkeys(("bounding", "effective", "inheritable", "permitted", "ambient"), none),
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [
                *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                {"type": "network", "path": network},
            ],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": _seccomp(),
        },
    }
    (folder / "config.json").write_text(json.dumps(specification))


def _seccomp() -> dict[str, Any]:
    """The profile as it is for a container without capabilities."""
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    rules = []
    for rule in profile["syscalls"]:
        needed = rule.get("includes", {})
        if needed.get("caps") or ARCHITECTURE not in needed.get("arches", [ARCHITECTURE]):
            continue
        kept = {key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key)}
        rules.append(kept)
    kind = {"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}[ARCHITECTURE]
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [kind],
        "syscalls": rules,
    }
