"""Checks of what several GPUs need of a system, and of where caches go.

Sources: RCCL, src/init.cc (what it warns of when it starts: iommu=pt, NUMA balancing); Docker's default of
64 MB for /dev/shm; ROCm's guides, which start containers for training with a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject

_RCCL_SOURCE = "https://github.com/ROCm/rccl/blob/develop/src/init.cc"
_MIOPEN_GUIDE = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/cache.html"
_ENOUGH_MEMORY = 1 << 30


def check_shared_memory(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of a /dev/shm too small for several processes: data loaders and RCCL put buffers there."""
    size = subject.machine.shared_memory
    if size is None or size >= _ENOUGH_MEMORY or not subject.has_amd:
        return
    has_several_cards = len(_list_cards(subject)) > 1
    yield DoctorFinding(
        "warning" if has_several_cards else "info",
        f"/dev/shm has {size // (1 << 20)} MB; "
        + ("RCCL and data loaders" if has_several_cards else "data loaders")
        + " fail with 'No space left on device' or a bus error when it is full",
        "docker run --ipc=host …   # or --shm-size 16G"
        if subject.machine.container
        else "sudo mount -o remount,size=16G /dev/shm",
    )


def check_locked_memory(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of a limit of locked memory: memory for network cards is locked."""
    limit = subject.machine.locked_memory
    if limit is None or len(_list_cards(subject)) < 2 or limit >= _ENOUGH_MEMORY:
        return
    yield DoctorFinding(
        "info",
        f"a process may lock {limit // 1024} kB of memory: RCCL over InfiniBand or RoCE needs more",
        "docker run --ulimit memlock=-1 …" if subject.machine.container else "ulimit -l unlimited",
    )


def check_iommu(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of a kernel that was started without iommu=pt on a machine with several GPUs."""
    machine = subject.machine
    if len(_list_cards(subject)) < 2 or machine.hypervisor or not machine.command_line:
        return
    words = machine.command_line.split()
    if not {"iommu=pt", "iommu=off", "amd_iommu=off", "intel_iommu=off"} & set(words):
        yield DoctorFinding(
            "warning",
            f"{len(_list_cards(subject))} GPUs, and the kernel was started without iommu=pt: "
            "programs on several of them may hang",
            'add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub && sudo reboot',
            _RCCL_SOURCE,
        )  # fmt: skip


def check_numa(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of NUMA balancing on a machine with several GPUs."""
    if len(_list_cards(subject)) > 1 and subject.machine.numa_balancing:
        yield DoctorFinding(
            "info",
            "NUMA balancing is on: programs on several GPUs vary in speed",
            "sudo sysctl kernel.numa_balancing=0",
            _RCCL_SOURCE,
        )


def check_caches(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that the home folder can be written to: MIOpen and triton keep compiled kernels there."""
    machine = subject.machine
    is_configured = subject.env.get("MIOPEN_USER_DB_PATH") and subject.env.get("TRITON_CACHE_DIR")
    if not machine.home_writable and not is_configured:
        yield DoctorFinding(
            "warning",
            f"{machine.home} cannot be written to: "
            "MIOpen and triton compile their kernels anew in every process, or fail",
            "export MIOPEN_USER_DB_PATH=/tmp/miopen MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen "
            "TRITON_CACHE_DIR=/tmp/triton",
            _MIOPEN_GUIDE,
        )


def _list_cards(subject: DoctorSubject) -> list[Gpu]:
    """Return the GPUs that programs use together: an integrated one beside a card is none of them."""
    return [gpu for gpu in subject.amd_gpus if not gpu.integrated]
