"""How much of this machine we may use: cores and memory, as containers and batch systems leave it."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import cgroups, process
from rocm_wheels.errors import UsageError

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
    A quota of 1.5 CPUs counts as two cores. macOS and Windows: the machine's own figures (written, never
    run). ``root`` is the file system whose ``/proc`` and ``/sys`` are read. Raises UsageError when the memory
    cannot be told.
    """
    cores = float(affinity or _count_cores())
    memory, free = _read_memory(env, root)
    cpu_limits, memory_limits = cgroups.read_cpu_limits(root), cgroups.read_memory_limits(root)
    if (number := env.get("SLURM_CPUS_ON_NODE", "")).isdecimal() and int(number):
        cpu_limits.append(cgroups.ResourceLimit(int(number), int(number), "SLURM_CPUS_ON_NODE"))
    if (number := env.get("SLURM_MEM_PER_NODE", "")).isdecimal() and int(number):
        size = int(number) * _MIB
        memory_limits.append(cgroups.ResourceLimit(size, size, "SLURM_MEM_PER_NODE"))
    reasons = []
    for limit in cpu_limits:
        if limit.amount < cores:
            cores = limit.amount
            reasons.append(f"{limit.amount:g} CPUs by {limit.where}")
    for limit in memory_limits:
        if limit.amount < memory:
            memory = int(limit.amount)
            reasons.append(f"{limit.amount / 2**30:.1f} GiB of memory by {limit.where}")
        free = min(free, int(limit.free))
    return MachineResources(max(1, math.ceil(cores)), memory, free, tuple(reasons))


def read_max_jobs(env: Mapping[str, str]) -> int | None:
    """Return how many compilers the user wants at a time (MAX_JOBS), ``None`` where no number is said."""
    number = env.get("MAX_JOBS", "")
    return int(number) if number.isdecimal() else None


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


def _read_memory(env: Mapping[str, str], root: Path) -> tuple[int, int]:
    """Return (all, available) bytes of the machine's memory."""
    if sys.platform == "darwin":
        return _read_macos_memory(env)
    if sys.platform == "win32":
        return _read_windows_memory()
    path = root / "proc/meminfo"
    try:
        text = path.read_text(encoding="ascii")
    except OSError as cause:
        raise UsageError(f"cannot tell this machine's memory from {path}", tip="mount /proc") from cause
    sizes = {name: int(kib) << 10 for name, kib in re.findall(r"(?m)^(\w+): +(\d+) kB$", text)}
    return sizes["MemTotal"], sizes.get("MemAvailable", sizes.get("MemFree", 0))


def _read_macos_memory(env: Mapping[str, str]) -> tuple[int, int]:
    """Return (all, available) by vm_stat(1): pages that are free, or only cache files."""
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    output = process.capture_output(["vm_stat"], env=env)
    counted = dict(re.findall(r"(?m)^Pages ([\w ]+): +(\d+)\.$", output))
    free = sum(int(counted.get(kind, 0)) for kind in ("free", "inactive", "speculative", "purgeable"))
    return page * pages, page * free


def _read_windows_memory() -> tuple[int, int]:
    """Return (all, available) by GlobalMemoryStatusEx."""
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("all", "free", "a", "b", "c", "d", "e")),
        )

    status = Status(length=ctypes.sizeof(Status))
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  # only there on Windows, and typed only there
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise UsageError("cannot tell this machine's memory: GlobalMemoryStatusEx failed")
    return status.all, status.free
