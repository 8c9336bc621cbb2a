"""What control groups (containers, systemd slices, batch systems) leave us of the machine.

A limit of any group from our own up to the root of what is mounted holds for us, so all of them are
read. What lies above a container's own mount cannot be seen from inside it. Files: cgroup-v2.rst and
cgroup-v1/memory.rst in the kernel's Documentation/admin-guide; proc(5) for mountinfo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_NO_LIMIT = 2**60  # v1 says "no limit" by the largest number of pages


@dataclass(frozen=True)
class ResourceLimit:
    """A limit of one group: ``amount`` of CPUs or bytes, how much of it is ``free``, and where it is set."""

    amount: float
    free: float
    where: str


@dataclass(frozen=True)
class _CgroupMount:
    root: str
    point: str
    controllers: frozenset[str]  # of a v1 hierarchy; empty for v2


def read_cpu_limits(root: Path) -> list[ResourceLimit]:
    """Return the CPU quotas above us, in CPUs; ``root`` is the file system's (``/``)."""
    limits = []
    for unified, folder, where in _list_cgroups(root, "cpu"):
        if unified:
            quota, _, period = (_read_stripped(folder / "cpu.max") or "max").partition(" ")
        else:
            quota = _read_stripped(folder / "cpu.cfs_quota_us") or "-1"
            period = _read_stripped(folder / "cpu.cfs_period_us") or ""
        if quota.isdecimal() and int(period or 0):
            cpus = int(quota) / int(period)
            limits.append(ResourceLimit(cpus, cpus, where))
    return limits


def read_memory_limits(root: Path) -> list[ResourceLimit]:
    """Return the memory limits above us, in bytes; what only caches files is free, as in MemAvailable."""
    limits = []
    for unified, folder, where in _list_cgroups(root, "memory"):
        names = ("memory.max", "memory.high") if unified else ("memory.limit_in_bytes",)
        values = [int(text) for name in names if (text := _read_stripped(folder / name)) and text.isdecimal()]
        limit = min(values, default=_NO_LIMIT)
        if limit >= _NO_LIMIT:
            continue
        used = _read_stripped(folder / ("memory.current" if unified else "memory.usage_in_bytes")) or "0"
        stat = dict(
            line.split(" ", 1) for line in (_read_stripped(folder / "memory.stat") or "").splitlines()
        )
        prefix = "" if unified else "total_"
        files = sum(int(stat.get(f"{prefix}{name}_file", 0)) for name in ("active", "inactive"))
        limits.append(ResourceLimit(limit, max(0, min(limit, limit - int(used) + files)), where))
    return limits


def _list_cgroups(root: Path, controller: str) -> Iterator[tuple[bool, Path, str]]:
    """Yield (v2?, folder, name) of every group from ours up that may limit what ``controller`` does."""
    memberships = _read_memberships(root)
    for mount in _list_cgroup_mounts(root):
        unified = not mount.controllers
        if not unified and controller not in mount.controllers:
            continue
        group = memberships.get("" if unified else controller)
        if group is None or (relative_path := _locate_cgroup(mount, group)) is None:
            continue
        top = root / mount.point.lstrip("/")
        for part in (relative_path, *relative_path.parents):
            yield unified, top / part, str(PurePosixPath(mount.point, part))


def _read_memberships(root: Path) -> dict[str, str]:
    """Return controller → group of this process; the v2 hierarchy's name is ``""``."""
    groups = {}
    for line in (_read_stripped(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = group
    return groups


def _list_cgroup_mounts(root: Path) -> Iterator[_CgroupMount]:
    for line in (_read_stripped(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in {"cgroup", "cgroup2"}:
            fields = before.split(" ")
            controllers = frozenset(options.split(",")) if kind == "cgroup" else frozenset[str]()
            yield _CgroupMount(_unescape_field(fields[3]), _unescape_field(fields[4]), controllers)


def _locate_cgroup(mount: _CgroupMount, group: str) -> PurePosixPath | None:
    """Return where a group lies below a mount; ``None`` when it is not seen through it.

    A container without a cgroup namespace mounts its own group and reads its path from the host's root.
    Where neither fits, the mount was made for us by somebody else: its own folder is all there is.
    """
    if mount.root in {group, "/"} or group.startswith(f"{mount.root}/"):
        relative = group[len(mount.root) :] if group.startswith(mount.root) else group
        relative_path = PurePosixPath(relative.lstrip("/"))
        return None if ".." in relative_path.parts else relative_path
    return PurePosixPath()


def _unescape_field(field: str) -> str:
    """Undo mountinfo's octal escapes of blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _read_stripped(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return None  # the root group has no limits, and a group may hide its own
