"""Whether the kernel takes the processor away from this process once it has had its share: a CPU limit of a container.

Who has used up a quota stands still until the next period, for tens of ms, whatever is to be done.
"""

from pathlib import Path


def is_limited(mounted: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> bool:
    """Whether this process's control group, or one around it, has a quota (cgroups(7), versions 1 and 2).

    Inside a container the group may go by its name on the host, where only its root is mounted, which is the group.
    """
    try:
        lines = own.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False  # a kernel without control groups
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, name = mounted, "cpu.max"
        elif "cpu" in controllers.split(","):
            root, name = mounted / "cpu", "cpu.cfs_quota_us"
        else:
            continue
        folder = root / group.lstrip("/")
        if any(_has_quota(each / name) for each in (folder, *folder.parents) if each.is_relative_to(root)):
            return True
    return False


def _has_quota(file: Path) -> bool:
    try:
        return not file.read_text().startswith(("max", "-1"))
    except OSError:
        return False  # no such group here, or the topmost one of version 2
