"""The memory that a container or a batch system allows: the control groups of Linux, in versions 1 and 2."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_FILES = {
    "cgroup2": ("memory.max", "memory.current", ""),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
"""For each version the limit, the use, and what stands before the names of ``memory.stat``."""

_NO_LIMIT = 1 << 60
"""Version 1 writes a number of this size where there is none."""


@dataclass(frozen=True)
class GroupMemory:
    """The memory of a control group in bytes.

    Attributes:
        limit: What it may use.
        left: What is left of it; pages of files count as left, for the system takes them back when it has to.
    """

    limit: int
    left: int


def group_memory(root: Path = Path("/")) -> GroupMemory | None:
    """Return the smallest limit, and the least that is left, of the groups this process is in; None without any.

    A group can use no more than the groups it lies in, so each of them is read.

    Args:
        root: Where ``/proc`` and ``/sys`` are.
    """
    folders = _find_folders(root, "\n".join(_lines(root / "proc/self/cgroup")))
    groups = [group for kind, folder in folders if (group := _read_group(folder, *_FILES[kind])) is not None]
    if not groups:
        return None
    return GroupMemory(min(group.limit for group in groups), min(group.left for group in groups))


@lru_cache(maxsize=1)
def _find_folders(root: Path, membership: str) -> tuple[tuple[str, Path], ...]:
    """Return the folder of each group that counts the memory of this process, and its version.

    Args:
        root: Where ``/proc`` and ``/sys`` are.
        membership: What ``/proc/self/cgroup`` says: for each tree of groups, the path of this process's group.
    """
    paths = dict(_group_paths(membership))
    found: list[tuple[str, Path]] = []
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, rest = line.partition(" - ")
        kind, options = rest.split(" ")[0], rest.split(" ")[-1]
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        mount_root, mount_point = mount.split(" ")[3:5]
        top = root / mount_point.lstrip("/")
        inner = top / paths[kind].removeprefix(mount_root).lstrip("/")
        # Inside a container the path can be one of the host's, which is not there.
        folder = inner if paths[kind].startswith(mount_root) and inner.is_dir() else top
        while folder != top:
            found.append((kind, folder))
            folder = folder.parent
        found.append((kind, top))
    return tuple(found)


def _group_paths(membership: str) -> Iterator[tuple[str, str]]:
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield "cgroup2", path
        elif "memory" in controllers.split(","):
            yield "cgroup", path


def _read_group(folder: Path, limit_name: str, use_name: str, prefix: str) -> GroupMemory | None:
    """Return the memory of a group, or None where it has no limit."""
    # The top has no such file, "max" is no number, and a group can be gone by now.
    with suppress(OSError, ValueError):
        limit = int((folder / limit_name).read_text(encoding="ascii"))
        if limit >= _NO_LIMIT:
            return None
        used = int((folder / use_name).read_text(encoding="ascii"))
        counts = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat"))
        files = sum(int(counts.get(f"{prefix}{name}", 0)) for name in ("active_file", "inactive_file"))
        return GroupMemory(limit, max(0, limit - max(0, used - files)))
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
