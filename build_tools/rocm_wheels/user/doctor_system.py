"""What ``doctor`` checks of the machine: GPUs, driver, devices and who may open them, memory, kernel.

Sources: AMD, "Running ROCm Docker containers" and "Prerequisites" (groups render and video) of ROCm's
installation guide; ROCm/librocdxg (WSL); RCCL, src/init.cc (what it warns of when it starts: iommu=pt,
NUMA balancing); Docker's default of 64 MB for /dev/shm; ROCm's guides, which start containers for training
with a larger one.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rocm_wheels.core import tables
from rocm_wheels.core.errors import Finding
from rocm_wheels.gpus import detect, kfd
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.variables import (
    CUDA_VISIBLE_DEVICES,
    GFX_VARIABLES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
)
from rocm_wheels.gpus.vendors import GPU_VENDORS
from rocm_wheels.user.doctor_subject import DoctorSubject, error, info, join_some, ok, warning
from rocm_wheels.user.machine import DeviceFile, MachineFacts

_INSTALL_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html"
_DOCKER_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html"
_WSL_GUIDE = "https://github.com/ROCm/librocdxg"
_RCCL_SOURCE = "https://github.com/ROCm/rccl/blob/develop/src/init.cc"
_MIOPEN_GUIDE = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/cache.html"
_UDEV_RULE = (
    """printf '%s\\n' 'KERNEL=="kfd", GROUP="render", MODE="0660"' """
    """'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"' """
    "| sudo tee /etc/udev/rules.d/70-amdgpu.rules && sudo udevadm control --reload && sudo udevadm trigger"
)
_ACCESS = {  # how each kind of container is lent the devices
    "kubernetes": "resources: {limits: {amd.com/gpu: 1}}   # AMD's device plugin lends GPUs to a pod",
    "podman": "podman run --device /dev/kfd --device /dev/dri --group-add keep-groups …",
    "apptainer": "apptainer exec --rocm …",
    "lxc": "lxc config device add NAME gpu gpu; lxc config device add NAME kfd unix-char path=/dev/kfd",
    "docker": "docker run --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined …",
}
_ENOUGH_MEMORY = 1 << 30


def check_gpus(subject: DoctorSubject) -> Iterator[Finding]:
    """Say which GPUs there are, and by what they were found."""
    gpus = subject.hardware.gpus
    for (text, source), count in Counter((_describe_gpu(gpu), gpu.source) for gpu in gpus).items():
        times = f"{count} × " if count > 1 else ""
        origin = "stated" if source in {"forced", "--gfx"} else f"found by {source or 'unknown means'}"
        yield ok(f"{times}{text} ({origin})")
    if subject.machine.platform == "darwin" or subject.has_amd:
        return
    if not gpus:
        tip = "if there is one, check that it is enabled for this machine (BIOS, virtual machine, container)"
        yield info("no GPU detected; torch runs on the CPU", tip)
    if titles := [GPU_VENDORS[vendor].title for vendor in sorted({gpu.vendor for gpu in gpus} - {"apple"})]:
        text = f"no AMD GPU, but one of {' and '.join(titles)}: wheels for ROCm do nothing for it"
        yield info(text, subject.format_install("torch"))


def check_hidden_gpus(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of GPUs that a variable hides, and of those that are not there for this process."""
    hidden_gpus = [gpu for gpu in subject.hardware.gpus if not gpu.visible]
    for hidden_by in sorted({gpu.hidden_by for gpu in hidden_gpus}):
        counts = Counter(_describe_gpu(gpu) for gpu in hidden_gpus if gpu.hidden_by == hidden_by)
        names = join_some([f"{count} × {name}" if count > 1 else name for name, count in counts.items()])
        message = f"{names}: not for this process, by {hidden_by}"
        fix = "rocminfo   # lists what programs may use"  # too old for the runtime, a scheduler gave it away
        if hidden_by in (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES):
            message = f"{hidden_by}={subject.env.get(hidden_by, '')} hides {names}"
            fix = f"unset {hidden_by}"
        elif hidden_by.startswith("/dev/"):  # no device file, in a container
            fix = "docker run --device /dev/kfd --device /dev/dri …"
        if subject.hardware.amd:
            yield info(message, fix)
        else:
            yield warning(f"{message}: no AMD GPU is left", fix)


def check_unknown_gpus(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of AMD GPUs whose target is not known."""
    for gpu in subject.hardware.amd:
        if gpu.gfx is None:
            text = (
                f"the target of {_describe_gpu(gpu)} is not known, so nobody can say which kernels it needs"
            )
            fix = f"export {GFX_VARIABLES[0]}=gfx…   # rocminfo prints it, once the driver is loaded"
            yield warning(text, fix)


def check_odd_gpus(subject: DoctorSubject) -> Iterator[Finding]:
    """Pass on what looking for GPUs could not read, and what is odd about a GPU."""
    for fault in subject.hardware.faults:
        if fault.startswith(kfd.NO_DEVICE_FILES) or detect.UNKNOWN_TARGET in fault:
            continue  # other checks tell of each, with what to do
        names = [name for name in subject.env if re.search(rf"\b{re.escape(name)}\b", fault)]
        fix = f"unset {' '.join(names)}" if names else "see that what it names is there and can be read"
        is_stated = fault.startswith(GFX_VARIABLES)  # every other command refuses it
        yield error(fault, fix) if is_stated else warning(fault, fix)
    for gpu in subject.hardware.gpus:
        if gpu.vendor == "amd" and gpu.confidence == "derived":
            facts = ["the target was looked up, not read from the driver", *gpu.notes]
            fix = "a loaded driver tells it for certain: see the check `driver`"
            yield info(f"{_describe_gpu(gpu)}: {'; '.join(facts)}", fix)


def _describe_gpu(gpu: Gpu) -> str:
    name = gpu.name or f"{GPU_VENDORS[gpu.vendor].title} GPU"
    target = gpu.native or gpu.gfx
    if not target:
        return f"{name} at {gpu.address or 'an unknown place'}"
    kind = " integrated" if gpu.integrated else ""
    posing = f", posing as {gpu.gfx}" if gpu.native and gpu.gfx != gpu.native else ""
    return f"{name} ({target}{kind}{posing})"


def check_system(subject: DoctorSubject) -> Iterator[Finding]:
    """Say what kind of system this is."""
    machine = subject.machine
    container = f"a {machine.container} container" if machine.container else ""
    kind = ", in ".join(filter(None, ["WSL" if machine.wsl else "", container]))
    yield ok(f"{kind or 'no container, no WSL'} ({machine.kernel.split('(')[0].strip()})")


def check_driver(subject: DoctorSubject) -> Iterator[Finding]:
    """See that the kernel's amdgpu is loaded and has the GPUs."""
    machine = subject.machine
    if machine.driver_loaded:
        version = machine.driver_version or "the kernel's own"
        yield ok(f"the driver amdgpu is loaded (version {version})")
    elif subject.has_amd:
        fix = f"{'on the host: ' * bool(machine.container)}sudo modprobe amdgpu"
        yield error("there is an AMD GPU, but the driver amdgpu is not loaded", fix)
    if machine.blacklisted and subject.has_amd:
        text = f"amdgpu is blacklisted in {join_some(list(machine.blacklisted))}"
        fix = "take the line out, then: sudo update-initramfs -u && sudo reboot"
        yield warning(text, fix) if machine.driver_loaded else error(text, fix)
    for card in machine.amd_cards:
        if card.driver != "amdgpu" and (card.driver or machine.driver_loaded):
            owner = f"is taken by the driver {card.driver}" if card.driver else "is taken by no driver"
            text = f"the AMD GPU {card.pci_id} at {card.address} {owner}, so ROCm does not see it"
            hint = "; vfio-pci means that a virtual machine has it" if card.driver else ""
            yield warning(text, f"sudo dmesg | grep -i amdgpu   # says why{hint}")


def check_kfd(subject: DoctorSubject) -> Iterator[Finding]:
    """See that /dev/kfd, which all compute goes through, can be opened."""
    machine, kfd_file = subject.machine, subject.machine.kfd
    if kfd_file.refused == 0:
        yield ok(f"{kfd_file.path} can be read and written")
    elif kfd_file.refused is not None:
        yield _explain_refusal(machine, kfd_file)
    elif machine.container and (subject.has_amd or machine.driver_loaded):
        text = f"{kfd_file.path} is not in this {machine.container} container"
        yield error(text, _ACCESS[machine.container], _DOCKER_GUIDE)
    elif subject.has_amd and machine.driver_loaded:
        yield error(
            f"the driver amdgpu is loaded, but there is no {kfd_file.path}: "
            "it was built or started without compute",
            "sudo dmesg | grep -i kfd   # says why; the driver of ROCm's installation guide has it",
            _INSTALL_GUIDE,
        )


def check_render(subject: DoctorSubject) -> Iterator[Finding]:
    """See that the GPUs' own devices can be opened."""
    machine = subject.machine
    missing = [device for device in machine.render if device.refused is None]
    closed = [device for device in machine.render if device.refused]
    if closed:
        yield _explain_refusal(machine, *closed)
    if missing:
        text = f"{_join_paths(missing)}: not there, and the kernel has it"
        # it may well be on purpose: a container for some of the GPUs
        if machine.container and len(missing) < len(machine.render):
            yield info(text, _ACCESS[machine.container], _DOCKER_GUIDE)
        else:
            fix = _ACCESS.get(machine.container, "sudo udevadm trigger --subsystem-match=drm")
            yield error(text, fix, _DOCKER_GUIDE)
    if machine.render and not closed and not missing:
        yield ok(f"{_join_paths(machine.render, 2)} can be read and written")


def check_wsl(subject: DoctorSubject) -> Iterator[Finding]:
    """See that Windows lends its GPU."""
    machine = subject.machine
    if machine.dxg is None or machine.kfd.refused is not None:
        return
    if machine.dxg.refused is None:
        fix = "in Windows: install AMD's driver for WSL and run `wsl --update`; it must be WSL 2"
        yield error("WSL without /dev/dxg: Windows lends no GPU", fix, _WSL_GUIDE)
    elif machine.dxg.refused:
        yield _explain_refusal(machine, machine.dxg)
    elif subject.env.get("HSA_ENABLE_DXG_DETECTION") != "1":
        text = "WSL has no /dev/kfd: ROCm 7.2 and newer reach the GPU over /dev/dxg, with librocdxg, "
        yield info(
            f"{text}when enabled",
            "export HSA_ENABLE_DXG_DETECTION=1   # librocdxg must be installed",
            _WSL_GUIDE,
        )


def _explain_refusal(machine: MachineFacts, *devices: DeviceFile) -> Finding:
    """Explain why devices could not be opened."""
    first, user = devices[0], machine.user
    paths = _join_paths(devices)
    if first.refused not in {errno.EACCES, errno.EPERM}:
        error_name = errno.errorcode.get(first.refused or 0, str(first.refused))
        return error(f"{paths} cannot be opened ({error_name})", "sudo dmesg | grep -i -e amdgpu -e kfd")
    if first.refused == errno.EPERM and machine.container:
        text = f"{paths}: the rules of this {machine.container} container forbid it"
        return error(text, _ACCESS[machine.container], _DOCKER_GUIDE)
    group = machine.group_names.get(first.gid, "")
    text = f"{paths} cannot be opened by {user.name or user.uid}: "
    text += f"group {group or first.gid} ({first.gid}), mode {first.mode:04o}"
    if machine.container:
        text += "" if group else "; the group has no name in this container"
    elif not first.mode & 0o060 or not first.gid:
        return error(f"{text}: open to root alone", _UDEV_RULE, _INSTALL_GUIDE)
    if first.gid in user.groups:
        return error(f"{text}, which this user is in", f"getfacl {first.path}", _INSTALL_GUIDE)
    if machine.container:
        return error(text, f"docker run --group-add {first.gid} …   # and --device as before", _DOCKER_GUIDE)
    if group and user.name in machine.members.get(group, ()):
        text += "; the user was added to it after logging in"
        return error(text, f"newgrp {group}", _INSTALL_GUIDE)
    groups = ",".join(dict.fromkeys([group or str(first.gid), "video"]))
    return error(text, f"sudo usermod -aG {groups} {user.name}   # then log in again", _INSTALL_GUIDE)


def _join_paths(devices: Sequence[DeviceFile], most: int = 6) -> str:
    return join_some([str(device.path) for device in devices], most)


def check_shared_memory(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of a /dev/shm too small for several processes: data loaders and RCCL put buffers there."""
    size = subject.machine.shared_memory
    if size is None or size >= _ENOUGH_MEMORY or not subject.has_amd:
        return
    users = "RCCL and data loaders" if len(subject.cards) > 1 else "data loaders"
    text = (
        f"/dev/shm has {tables.format_size(size)}; {users} fail with 'No space left on device' or a bus error"
    )
    fix = "sudo mount -o remount,size=16G /dev/shm"
    if subject.machine.container:
        fix = "docker run --ipc=host …   # or --shm-size 16G"
    tell = warning if len(subject.cards) > 1 else info
    yield tell(f"{text} when it is full", fix)


def check_locked_memory(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of a limit of locked memory: memory for network cards is locked."""
    limit = subject.machine.locked_memory
    if limit is not None and len(subject.cards) > 1 and limit < _ENOUGH_MEMORY:
        size = tables.format_size(limit)
        fix = "docker run --ulimit memlock=-1 …" if subject.machine.container else "ulimit -l unlimited"
        yield info(f"a process may lock {size} of memory: RCCL over InfiniBand or RoCE needs more", fix)


def check_iommu(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of a kernel that was started without iommu=pt on a machine with several GPUs."""
    machine = subject.machine
    if len(subject.cards) < 2 or machine.hypervisor or not machine.command_line:
        return
    if {"iommu=pt", "iommu=off", "amd_iommu=off", "intel_iommu=off"}.isdisjoint(machine.command_line.split()):
        text = f"{len(subject.cards)} GPUs, and the kernel was started without iommu=pt: "
        fix = "add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub && sudo reboot"
        yield warning(f"{text}programs on several of them may hang", fix, _RCCL_SOURCE)


def check_numa(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of NUMA balancing on a machine with several GPUs."""
    if len(subject.cards) > 1 and subject.machine.numa_balancing:
        text = "NUMA balancing is on: programs on several GPUs vary in speed"
        yield info(text, "sudo sysctl kernel.numa_balancing=0", _RCCL_SOURCE)


def check_caches(subject: DoctorSubject) -> Iterator[Finding]:
    """See that the home folder can be written to: MIOpen and triton keep compiled kernels there."""
    machine = subject.machine
    if not machine.home_writable and not ({"MIOPEN_USER_DB_PATH", "TRITON_CACHE_DIR"} <= set(subject.env)):
        text = f"{machine.home} cannot be written to: MIOpen and triton compile their kernels again in every "
        fix = "export MIOPEN_USER_DB_PATH=/tmp/miopen MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen "
        yield warning(f"{text}process, or fail", f"{fix}TRITON_CACHE_DIR=/tmp/triton", _MIOPEN_GUIDE)


GPU_CHECKS = (check_gpus, check_hidden_gpus, check_unknown_gpus, check_odd_gpus)
# of this machine's devices: they say nothing of a machine to be
LOCAL_CHECKS = (
    check_system,
    check_driver,
    check_kfd,
    check_render,
    check_wsl,
    check_shared_memory,
    check_locked_memory,
    check_iommu,
    check_numa,
    check_caches,
)
