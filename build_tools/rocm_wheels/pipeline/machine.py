"""Measure how much of this machine we may use: cores and memory, as containers and batch systems leave it.

A limit of any control group from our own up to the root of what is mounted holds for us, so all of them
are read. What lies above a container's own mount cannot be seen from inside it. Files: cgroup-v2.rst in the
kernel's Documentation/admin-guide; proc(5) for mountinfo. Hierarchies of version 1 (RHEL 8) are not read.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rocm_wheels.core import errors, tables


class _Limit(NamedTuple):
    """A limit of one group: ``amount`` of CPUs or bytes, how much of it is ``free``, and where it is set."""

    amount: float
    free: float
    where: str


def _read_limits(root: Path) -> tuple[list[_Limit], list[_Limit]]:
    """Return the CPU quotas above us, in CPUs, and the memory limits, in bytes.

    What only caches files is free, as in MemAvailable. ``root`` is the file system's (``/``).
    """
    cpus, memory = [], []
    for folder, where in _list_cgroups(root):
        quota, _, period = _read_stripped(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and int(period or 0):
            cpus.append(_Limit(int(quota) / int(period), 0, where))
        texts = [_read_stripped(folder / name) for name in ("memory.max", "memory.high")]
        if sizes := [int(text) for text in texts if text.isdecimal()]:
            stat = dict(line.split(" ", 1) for line in _read_stripped(folder / "memory.stat").splitlines())
            used = int(_read_stripped(folder / "memory.current") or 0)
            used -= sum(int(stat.get(name, 0)) for name in ("active_file", "inactive_file"))
            memory.append(_Limit(min(sizes), max(0, min(sizes) - max(0, used)), where))
    return cpus, memory


def _list_cgroups(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield folder and name of every group from ours up to the root of what is mounted."""
    lines = _read_stripped(root / "proc/self/cgroup").splitlines()
    group = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    for line in _read_stripped(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if group is None or not after.startswith("cgroup2 "):
            continue
        mounted, point = (  # blanks and backslashes are octal escapes there
            re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
            for text in before.split(" ")[3:5]
        )
        below = PurePosixPath()
        # A container without a cgroup namespace mounts its own group and reads its path from the host's root.
        # Where neither fits, the mount was made for us by somebody else: its own folder is all there is.
        if mounted in {group, "/"} or group.startswith(f"{mounted}/"):
            below = PurePosixPath(group.removeprefix(mounted).lstrip("/"))
        if ".." in below.parts:
            continue  # it is not seen through this mount
        for part in (below, *below.parents):
            yield root / point.lstrip("/") / part, str(PurePosixPath(point, part))


def _read_stripped(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""  # the root group has no limits, and a group may hide its own


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
    cpu_limits, memory_limits = _read_limits(root)
    if (number := env.get("SLURM_CPUS_ON_NODE", "")).isdecimal() and int(number):
        cpu_limits.append(_Limit(int(number), int(number), "SLURM_CPUS_ON_NODE"))
    if (number := env.get("SLURM_MEM_PER_NODE", "")).isdecimal() and int(number):
        size = int(number) * _MIB
        memory_limits.append(_Limit(size, size, "SLURM_MEM_PER_NODE"))
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
