"""Checks of what several GPUs need of a system, and of where caches go.

Sources: RCCL, src/init.cc (what it warns of when it starts: iommu=pt, NUMA balancing); Docker's default of
64 MB for /dev/shm; ROCm's guides, which start containers for training with a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.hosts.doctor.subject import Finding, Subject

_RCCL = "https://github.com/ROCm/rccl/blob/develop/src/init.cc"
_MIOPEN = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/cache.html"
_ENOUGH = 1 << 30


def shared_memory(subject: Subject) -> Iterator[Finding]:
    """Tell of a /dev/shm too small for several processes: data loaders and RCCL put buffers there."""
    size = subject.machine.shared_memory
    if size is None or size >= _ENOUGH or not subject.has_amd:
        return
    several = len(_cards(subject)) > 1
    yield Finding(
        "warning" if several else "info",
        f"/dev/shm has {size // (1 << 20)} MB; "
        + ("RCCL and data loaders" if several else "data loaders")
        + " fail with 'No space left on device' or a bus error when it is full",
        "docker run --ipc=host …   # or --shm-size 16G"
        if subject.machine.container
        else "sudo mount -o remount,size=16G /dev/shm",
    )


def locked_memory(subject: Subject) -> Iterator[Finding]:
    """Tell of a limit of locked memory: memory for network cards is locked."""
    limit = subject.machine.locked_memory
    if limit is None or len(_cards(subject)) < 2 or limit >= _ENOUGH:
        return
    yield Finding(
        "info",
        f"a process may lock {limit // 1024} kB of memory: RCCL over InfiniBand or RoCE needs more",
        "docker run --ulimit memlock=-1 …" if subject.machine.container else "ulimit -l unlimited",
    )


def iommu(subject: Subject) -> Iterator[Finding]:
    """Tell of a kernel that was started without iommu=pt on a machine with several GPUs."""
    machine = subject.machine
    if len(_cards(subject)) < 2 or machine.hypervisor or not machine.command_line:
        return
    words = machine.command_line.split()
    if not {"iommu=pt", "iommu=off", "amd_iommu=off", "intel_iommu=off"} & set(words):
        yield Finding(
            "warning",
            f"{len(_cards(subject))} GPUs, and the kernel was started without iommu=pt: "
            "programs on several of them may hang",
            'add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub && sudo reboot',
            _RCCL,
        )  # fmt: skip


def numa(subject: Subject) -> Iterator[Finding]:
    """Tell of NUMA balancing on a machine with several GPUs."""
    if len(_cards(subject)) > 1 and subject.machine.numa_balancing:
        yield Finding(
            "info",
            "NUMA balancing is on: programs on several GPUs vary in speed",
            "sudo sysctl kernel.numa_balancing=0",
            _RCCL,
        )


def caches(subject: Subject) -> Iterator[Finding]:
    """See that the home folder can be written to: MIOpen and triton keep compiled kernels there."""
    machine = subject.machine
    placed = subject.env.get("MIOPEN_USER_DB_PATH") and subject.env.get("TRITON_CACHE_DIR")
    if not machine.home_writable and not placed:
        yield Finding(
            "warning",
            f"{machine.home} cannot be written to: "
            "MIOpen and triton compile their kernels anew in every process, or fail",
            "export MIOPEN_USER_DB_PATH=/tmp/miopen MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen "
            "TRITON_CACHE_DIR=/tmp/triton",
            _MIOPEN,
        )


def _cards(subject: Subject) -> list[Gpu]:
    """Return the GPUs that programs use together: an integrated one beside a card is none of them."""
    return [gpu for gpu in subject.amd if not gpu.integrated]
