"""Cores and memory as containers, slices and batch systems leave them.

The lines of ``/proc`` are as they were recorded on real machines: Docker 20.10 on openSUSE and Ubuntu, CRI-O
on Fedora CoreOS, and systemd.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from rocm_wheels.cli import evidence
from rocm_wheels.core import errors, user_folders
from rocm_wheels.pipeline import machine

GIB = 1 << 30
SCOPE = "docker-1f1d6e2d4940ddac13abd421a2617992bf89f0e0f9a902ed58278c5f843e9ae7.scope"
SLICE = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-u7.scope"
V2_INSIDE = "1044 1043 0:28 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate"
V2_HOST = "29 23 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:7 - cgroup2 cgroup2 rw"
V2_OUTER = (
    f"405 404 0:25 /../{SCOPE} /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate"
)
HALF = {"cpu.max": "50000 100000"}


def tree(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A file system with 32 GiB of memory, 24 of them free, and these groups."""
    meminfo = f"MemTotal:       {32 * GIB >> 10} kB\nMemFree:  1024 kB\nMemAvailable:   {24 * GIB >> 10} kB\n"
    told = {"proc/meminfo": meminfo, "proc/self/cgroup": cgroup + "\n", "proc/self/mountinfo": mounts + "\n"}
    for name, text in {**told, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else f"{text}\n")
    return root


# (what it is, /proc/self/cgroup, mounts, files below /sys/fs/cgroup, cores of 16, memory GiB, free GiB)
Shape = tuple[str, str, str, dict[str, str], int, float, float]
SHAPES: list[Shape] = [
    ("nothing limits", "0::/", V2_HOST, {}, 16, 32, 24),
    ("no groups at all", "", "", {}, 16, 32, 24),
    ("docker, v2, own namespace", "0::/", V2_INSIDE,
     {"cpu.max": "400000 100000", "memory.max": str(8 * GIB), "memory.current": str(3 * GIB)}, 4, 8, 5),
    ("what only caches files is free", "0::/", V2_INSIDE,
     {"memory.max": str(8 * GIB), "memory.current": str(7 * GIB),
      "memory.stat": f"anon 5\ninactive_file {2 * GIB}\nactive_file {GIB}\nshmem 0"}, 16, 8, 4),
    ("docker, v2, seen from another namespace", f"0::/../{SCOPE}", V2_OUTER, HALF, 1, 32, 24),
    ("a group outside what is mounted", f"0::/../{SCOPE}", V2_HOST, HALF, 16, 32, 24),
    ("systemd: the slice above is the narrow one", f"0::{SLICE}", V2_HOST,
     {f"{SLICE[1:]}/cpu.max": "max 100000",
      f"{SLICE[1:]}/memory.max": "max",
      f"{SLICE[1:]}/memory.high": str(20 * GIB),
      "user.slice/user-1000.slice/cpu.max": "250000 100000",
      "user.slice/user-1000.slice/memory.max": str(6 * GIB),
      "user.slice/user-1000.slice/memory.current": str(7 * GIB),
      "user.slice/memory.max": str(16 * GIB)}, 3, 6, 0),
    ("a limit above the machine", "0::/", V2_INSIDE,
     {"memory.max": str(64 * GIB), "cpu.max": "9900000 100000"}, 16, 32, 24),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=[row[0] for row in SHAPES])
def test_every_limit_up_to_the_root_holds(tmp_path: Path, shape: Shape) -> None:
    _, cgroup, mounts, files, cores, memory, free = shape
    found = machine.measure_machine({}, root=tree(tmp_path, cgroup, mounts, files), affinity=16)
    assert (found.cores, found.memory / GIB, found.free_memory / GIB) == (cores, memory, free)
    assert bool(found.limits) == (cores < 16 or memory < 32)


def test_names_who_limits(tmp_path: Path) -> None:
    files = {"user.slice/cpu.max": "150000 100000", "user.slice/memory.max": str(GIB)}
    found = machine.measure_machine({}, root=tree(tmp_path, "0::/user.slice/x", V2_HOST, files), affinity=16)
    where = "/sys/fs/cgroup/user.slice"
    assert found.limits == (f"1.5 CPUs by {where}", f"1.0 GiB of memory by {where}")


def test_a_blank_in_a_mount_point(tmp_path: Path) -> None:
    mount = V2_INSIDE.replace("/sys/fs/cgroup", "/sys/fs/cgroup/my\\040groups")
    root = tree(tmp_path, "0::/", mount, {"my groups/cpu.max": "100000 100000"})
    assert machine.measure_machine({}, root=root, affinity=16).cores == 1


def test_slurm_and_affinity_narrow_further(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/", V2_INSIDE, {"cpu.max": "400000 100000"})
    job = {"SLURM_CPUS_ON_NODE": "6", "SLURM_MEM_PER_NODE": "4096"}
    assert machine.measure_machine(job, root=root, affinity=3).cores == 3
    found = machine.measure_machine(job, root=root, affinity=16)
    assert (found.cores, found.memory, found.free_memory) == (4, 4 * GIB, 4 * GIB)
    assert found.limits[-1] == "4.0 GiB of memory by SLURM_MEM_PER_NODE"


def test_without_proc_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="cannot tell this machine's memory"):
        machine.measure_machine({}, root=tmp_path, affinity=16)


def test_memory_of_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    monkeypatch.setattr("rocm_wheels.pipeline.machine.sys.platform", "darwin")
    resources = machine.measure_machine({}, root=Path("/nowhere"), affinity=16)
    assert (resources.memory, resources.free_memory) == (memory.total, memory.available)


@pytest.mark.parametrize(
    ("cores", "free", "per_job", "wanted", "jobs"),
    [
        (16, 24, None, None, 16),
        (16, 24, 2, None, 12),
        (16, 24, 1, None, 16),
        (16, 24, 100, None, 1),
        (16, 0, 2, None, 1),
        (16, 24, 8, 10, 10),
        (16, 24, 8, 0, 1),
        (0, 24, None, None, 1),
    ],
)
def test_jobs_by_cores_and_memory(
    cores: int, free: int, per_job: int | None, wanted: int | None, jobs: int
) -> None:
    given = machine.MachineResources(cores, 32 * GIB, free * GIB)
    assert machine.count_compile_jobs(given, per_job * GIB if per_job else None, wanted) == jobs


@pytest.mark.skipif(sys.platform == "win32", reason="numbers of users are of POSIX")
def test_a_number_without_a_name_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docker run --user 1234`, where the image knows nobody of that number."""

    def know_nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", know_nobody)
    monkeypatch.setattr("os.getuid", lambda: 1234)
    assert user_folders.find_user_name({}) == "user1234"
    assert user_folders.find_user_name({"USER": "ada"}) == "ada"
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert evidence.name_user_and_host().startswith("user1234@")  # who changes a channel
