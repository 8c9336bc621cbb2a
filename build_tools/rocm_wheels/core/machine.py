"""Measure how much of this machine we may use: cores and memory, as containers and batch systems leave it.

A limit of any control group from our own up to the root of what is mounted holds for us, so all of them
are read. What lies above a container's own mount cannot be seen from inside it. Files: cgroup-v2.rst
and cgroup-v1/memory.rst in the kernel's Documentation/admin-guide; proc(5) for mountinfo.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rocm_wheels.core import errors, tables

IMAGE_VARIABLE = "ROCM_WHEELS_IMAGE"  # in a container: the image that it was started from
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


def find_user_name(env: Mapping[str, str]) -> str:
    """Return the name of whoever runs this; of a number without one, as in containers, ``user1000``."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows has variables
        name = env.get("USER") or env.get("USERNAME")
        return name or (f"user{os.getuid()}" if sys.platform != "win32" else "unknown")


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


_MIB = 1 << 20


@dataclass(frozen=True)
class MachineResources:
    """What we may use: ``cores``, ``memory`` (bytes) and how much of it is free now.

    ``limits`` says what leaves us less than the machine has, one sentence each.
    """

    cores: int
    memory: int
    free_memory: int
    limits: tuple[str, ...] = ()


def measure_machine(
    env: Mapping[str, str], *, root: Path = Path("/"), affinity: int | None = None
) -> MachineResources:
    """Look at cores and memory under every limit that holds for this process.

    Linux: the cores we may run on, CPU quotas and memory limits of all groups above us, and what Slurm
    gave a job (``SLURM_CPUS_ON_NODE``, ``SLURM_MEM_PER_NODE``, which not every cluster enforces).
    A quota of 1.5 CPUs counts as two cores. macOS and Windows: the machine's own figures by psutil (written,
    never run). ``root`` is the file system whose ``/proc`` and ``/sys`` are read. Raises UsageError when the
    memory cannot be told.
    """
    cores = float(affinity or _count_cores())
    memory, free = _read_memory(root)
    cpu_limits, memory_limits = read_cpu_limits(root), read_memory_limits(root)
    if (number := env.get("SLURM_CPUS_ON_NODE", "")).isdecimal() and int(number):
        cpu_limits.append(ResourceLimit(int(number), int(number), "SLURM_CPUS_ON_NODE"))
    if (number := env.get("SLURM_MEM_PER_NODE", "")).isdecimal() and int(number):
        size = int(number) * _MIB
        memory_limits.append(ResourceLimit(size, size, "SLURM_MEM_PER_NODE"))
    reasons = []
    for limit in cpu_limits:
        if limit.amount < cores:
            cores = limit.amount
            reasons.append(f"{limit.amount:g} CPUs by {limit.where}")
    for limit in memory_limits:
        if limit.amount < memory:
            memory = int(limit.amount)
            reasons.append(f"{tables.format_size(int(limit.amount))} of memory by {limit.where}")
        free = min(free, int(limit.free))
    return MachineResources(max(1, math.ceil(cores)), memory, free, tuple(reasons))


def count_compile_jobs(machine: MachineResources, memory_per_job: int | None, max_jobs: int | None) -> int:
    """Return how many compilers may run at a time: a core and ``memory_per_job`` free bytes each, at least 1.

    A number that the user gave is taken as it is.
    """
    if max_jobs is not None:
        return max(1, max_jobs)
    if not memory_per_job:
        return max(1, machine.cores)
    return max(1, min(machine.cores, machine.free_memory // memory_per_job))


def _count_cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_memory(root: Path) -> tuple[int, int]:
    """Return (all, available) bytes of the machine's memory."""
    if sys.platform != "linux":
        import psutil

        memory = psutil.virtual_memory()
        return memory.total, memory.available
    path = root / "proc/meminfo"  # psutil reads the same; every plan asks, and its import takes 40 ms
    try:
        text = path.read_text(encoding="ascii")
    except OSError as cause:
        raise errors.UsageError(
            f"cannot tell this machine's memory from {path}", tip="mount /proc"
        ) from cause
    sizes = {name: int(kib) << 10 for name, kib in re.findall(r"(?m)^(\w+): +(\d+) kB$", text)}
    return sizes["MemTotal"], sizes.get("MemAvailable", sizes.get("MemFree", 0))
