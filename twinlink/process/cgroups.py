"""What the kernel limits for this process by its control group, or one around it: a container's CPU and memory.

Both versions of control groups are read (cgroups(7)).  Inside a container the group may go by its name on the host,
where only its root is mounted, which is the group.
"""

from contextlib import suppress
from pathlib import Path

MOUNTED, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNLIMITED_OCTETS = 2**60  # version 1 writes "none" as what it can count to


def cpu_is_limited(mounted: Path = MOUNTED, own: Path = OWN) -> bool:
    """Whether there is a quota: a process that has used it up is stopped for tens of ms."""
    limits = _limits("cpu", "cpu.max", "cpu.cfs_quota_us", mounted, own)
    return any(not limit.startswith(("max", "-1")) for limit in limits)


def memory_limit(mounted: Path = MOUNTED, own: Path = OWN) -> int | None:
    """Octets that the processes of the group may have together before the kernel ends one; None: no limit."""
    limits = _limits("memory", "memory.max", "memory.limit_in_bytes", mounted, own)
    octets = [int(limit) for limit in limits if limit.strip().isdigit()]
    return min((limit for limit in octets if limit < UNLIMITED_OCTETS), default=None)


def _limits(controller: str, name: str, name_in_1: str, mounted: Path, own: Path) -> list[str]:
    try:
        lines = own.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []  # a kernel without control groups
    found = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, file = mounted, name
        elif controller in controllers.split(","):
            root, file = mounted / controller, name_in_1
        else:
            continue
        folder = root / group.lstrip("/")
        for each in (folder, *folder.parents):
            if each.is_relative_to(root):
                with suppress(OSError):  # no such group here, or the topmost one of version 2
                    found.append((each / file).read_text())
    return found
