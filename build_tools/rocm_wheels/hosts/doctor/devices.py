"""Checks of the way to the GPU: kernel driver, device files, groups, containers, WSL.

Sources: AMD, "Running ROCm Docker containers" and "Prerequisites" (groups render and video) of ROCm's
installation guide; ROCm/librocdxg (WSL).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from rocm_wheels.hosts.doctor.machine import DeviceFile, MachineFacts
from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject, join_some

_INSTALL_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html"
_DOCKER_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html"
_WSL_GUIDE = "https://github.com/ROCm/librocdxg"
_UDEV_RULE = (
    """printf '%s\\n' 'KERNEL=="kfd", GROUP="render", MODE="0660"' """
    """'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"' """
    "| sudo tee /etc/udev/rules.d/70-amdgpu.rules && sudo udevadm control --reload && sudo udevadm trigger"
)
_DOCKER_RUN = "docker run --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined …"


def check_system(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Say what kind of system this is."""
    machine = subject.machine
    kind = f"a {machine.container} container" if machine.container else ""
    kind = "WSL" + (f", in {kind}" if kind else "") if machine.wsl else kind
    yield DoctorFinding("ok", f"{kind or 'no container, no WSL'} ({machine.kernel.split('(')[0].strip()})")


def check_driver(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that the kernel's amdgpu is loaded and has the GPUs."""
    machine = subject.machine
    if machine.driver_loaded:
        version = machine.driver_version or "the kernel's own"
        yield DoctorFinding("ok", f"the driver amdgpu is loaded (version {version})")
    elif subject.has_amd:
        fix = f"{'on the host: ' * bool(machine.container)}sudo modprobe amdgpu"
        yield DoctorFinding("error", "there is an AMD GPU, but the driver amdgpu is not loaded", fix)
    if machine.blacklisted and subject.has_amd:
        yield DoctorFinding(
            "warning" if machine.driver_loaded else "error",
            f"amdgpu is blacklisted in {join_some(list(machine.blacklisted))}",
            "take the line out, then: sudo update-initramfs -u && sudo reboot",
        )
    for gpu in machine.amd_devices:
        if gpu.driver != "amdgpu" and (gpu.driver or machine.driver_loaded):
            owner = f"is taken by the driver {gpu.driver}" if gpu.driver else "is taken by no driver"
            yield DoctorFinding(
                "warning",
                f"the AMD GPU {gpu.pci_id} at {gpu.address} {owner}, so ROCm does not see it",
                "sudo dmesg | grep -i amdgpu   # says why; vfio-pci means that a virtual machine has it"
                if gpu.driver
                else "sudo dmesg | grep -i amdgpu   # says why",
            )


def check_kfd(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that /dev/kfd, the door to all compute, can be opened."""
    machine = subject.machine
    if machine.kfd.usable:
        yield DoctorFinding("ok", f"{machine.kfd.path} can be read and written")
    elif machine.kfd.refused is not None:
        yield _explain_refusal(machine, machine.kfd)
    elif machine.container and (subject.has_amd or machine.driver_loaded):
        yield DoctorFinding(
            "error",
            f"{machine.kfd.path} is not in this {machine.container} container",
            _suggest_access(machine),
            _DOCKER_GUIDE,
        )
    elif subject.has_amd and machine.driver_loaded:
        yield DoctorFinding(
            "error",
            f"the driver amdgpu is loaded, but there is no {machine.kfd.path}: "
            "it was built or started without compute",
            "sudo dmesg | grep -i kfd   # says why; the driver of ROCm's installation guide has it",
            _INSTALL_GUIDE,
        )


def check_render_devices(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that the GPUs' own devices can be opened."""
    machine = subject.machine
    missing = [device for device in machine.render if device.refused is None]
    closed = [device for device in machine.render if device.refused]
    if closed:
        yield _explain_refusal(machine, *closed)
    if missing:
        paths = join_some([str(device.path) for device in missing])
        fix = _suggest_access(machine) if machine.container else "sudo udevadm trigger --subsystem-match=drm"
        # some of many may be left out on purpose: a container for some of the GPUs
        is_partial = len(missing) < len(machine.render)
        yield DoctorFinding(
            "info" if is_partial and machine.container else "error",
            f"{paths}: not there, and the kernel has it",
            fix,
            _DOCKER_GUIDE,
        )
    if machine.render and not closed and not missing:
        paths = join_some([str(device.path) for device in machine.render], 2)
        yield DoctorFinding("ok", f"{paths} can be read and written")


def check_wsl(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that Windows lends its GPU."""
    machine = subject.machine
    if machine.dxg is None or machine.kfd.refused is not None:
        return
    if machine.dxg.refused is None:
        yield DoctorFinding(
            "error",
            "WSL without /dev/dxg: Windows lends no GPU",
            "in Windows: install AMD's driver for WSL and run `wsl --update`; it must be WSL 2",
            _WSL_GUIDE,
        )
    elif machine.dxg.refused:
        yield _explain_refusal(machine, machine.dxg)
    elif subject.env.get("HSA_ENABLE_DXG_DETECTION") != "1":
        yield DoctorFinding(
            "info",
            "WSL has no /dev/kfd: ROCm 7.2 and newer reach the GPU over /dev/dxg, "
            "with librocdxg, when they are told to",
            "export HSA_ENABLE_DXG_DETECTION=1   # librocdxg must be installed",
            _WSL_GUIDE,
        )


def _explain_refusal(machine: MachineFacts, *devices: DeviceFile) -> DoctorFinding:
    """Explain why devices could not be opened."""
    first = devices[0]
    paths = join_some([str(device.path) for device in devices])
    if first.refused not in {errno.EACCES, errno.EPERM}:
        error_name = errno.errorcode.get(first.refused or 0, str(first.refused))
        return DoctorFinding(
            "error", f"{paths} cannot be opened ({error_name})", "sudo dmesg | grep -i -e amdgpu -e kfd"
        )
    if first.refused == errno.EPERM and machine.container:
        text = f"{paths}: the rules of this {machine.container} container forbid it"
        return DoctorFinding("error", text, _suggest_access(machine), _DOCKER_GUIDE)
    group = machine.group_names.get(first.gid, "")
    permissions = f"group {group or first.gid} ({first.gid}), mode {first.mode:04o}"
    user = machine.user
    text = f"{paths} cannot be opened by {user.name or user.uid}: {permissions}"
    if (not first.mode & 0o060 or not first.gid) and not machine.container:
        return DoctorFinding("error", f"{text}: open to root alone", _UDEV_RULE, _INSTALL_GUIDE)
    if machine.container and not group:
        text += "; the group has no name in this container"
    if first.gid in user.groups:
        return DoctorFinding(
            "error", f"{text}, which this user is in", f"getfacl {first.path}", _INSTALL_GUIDE
        )
    if machine.container:
        return DoctorFinding(
            "error", text, f"docker run --group-add {first.gid} …   # and --device as before", _DOCKER_GUIDE
        )
    if group and user.name in machine.members.get(group, ()):
        return DoctorFinding(
            "error", f"{text}; the user was added to it after logging in", f"newgrp {group}", _INSTALL_GUIDE
        )
    groups = ",".join(dict.fromkeys([group or str(first.gid), "video"]))
    return DoctorFinding(
        "error", text, f"sudo usermod -aG {groups} {user.name}   # then log in again", _INSTALL_GUIDE
    )


def _suggest_access(machine: MachineFacts) -> str:
    if machine.container == "kubernetes":
        return "resources: {limits: {amd.com/gpu: 1}}   # AMD's device plugin lends GPUs to a pod"
    if machine.container == "podman":
        return "podman run --device /dev/kfd --device /dev/dri --group-add keep-groups …"
    if machine.container == "apptainer":
        return "apptainer exec --rocm …"
    if machine.container == "lxc":
        return "lxc config device add NAME gpu gpu; lxc config device add NAME kfd unix-char path=/dev/kfd"
    return _DOCKER_RUN
