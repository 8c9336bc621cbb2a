"""Checks of the way to the GPU: kernel driver, device files, groups, containers, WSL.

Sources: AMD, "Running ROCm Docker containers" and "Prerequisites" (groups render and video) of ROCm's
installation guide; ROCm/librocdxg (WSL).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from rocm_wheels.hosts.doctor.machine import DeviceFile, Machine
from rocm_wheels.hosts.doctor.subject import Finding, Subject, several

_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html"
_DOCKER = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html"
_WSL = "https://github.com/ROCm/librocdxg"
_RULE = (
    """printf '%s\\n' 'KERNEL=="kfd", GROUP="render", MODE="0660"' """
    """'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"' """
    "| sudo tee /etc/udev/rules.d/70-amdgpu.rules && sudo udevadm control --reload && sudo udevadm trigger"
)
_RUN = "docker run --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined …"


def where(subject: Subject) -> Iterator[Finding]:
    """Say what kind of system this is."""
    machine = subject.machine
    kind = f"a {machine.container} container" if machine.container else ""
    kind = "WSL" + (f", in {kind}" if kind else "") if machine.wsl else kind
    yield Finding("ok", f"{kind or 'no container, no WSL'} ({machine.kernel.split('(')[0].strip()})")


def driver(subject: Subject) -> Iterator[Finding]:
    """See that the kernel's amdgpu is loaded and has the GPUs."""
    machine = subject.machine
    if machine.driver_loaded:
        said = machine.driver_version or "the kernel's own"
        yield Finding("ok", f"the driver amdgpu is loaded (version {said})")
    elif subject.has_amd:
        fix = f"{'on the host: ' * bool(machine.container)}sudo modprobe amdgpu"
        yield Finding("error", "there is an AMD GPU, but the driver amdgpu is not loaded", fix)
    if machine.blacklisted and subject.has_amd:
        yield Finding(
            "warning" if machine.driver_loaded else "error",
            f"amdgpu is blacklisted in {several(list(machine.blacklisted))}",
            "take the line out, then: sudo update-initramfs -u && sudo reboot",
        )
    for gpu in machine.amd_devices:
        if gpu.driver != "amdgpu" and (gpu.driver or machine.driver_loaded):
            has = f"is taken by the driver {gpu.driver}" if gpu.driver else "is taken by no driver"
            yield Finding(
                "warning",
                f"the AMD GPU {gpu.pci_id} at {gpu.address} {has}, so ROCm does not see it",
                "sudo dmesg | grep -i amdgpu   # says why; vfio-pci means that a virtual machine has it"
                if gpu.driver
                else "sudo dmesg | grep -i amdgpu   # says why",
            )


def kfd(subject: Subject) -> Iterator[Finding]:
    """See that /dev/kfd, the door to all compute, can be opened."""
    machine = subject.machine
    if machine.kfd.usable:
        yield Finding("ok", f"{machine.kfd.path} can be read and written")
    elif machine.kfd.refused is not None:
        yield _refused(machine, machine.kfd)
    elif machine.container and (subject.has_amd or machine.driver_loaded):
        yield Finding(
            "error",
            f"{machine.kfd.path} is not in this {machine.container} container",
            _door(machine),
            _DOCKER,
        )
    elif subject.has_amd and machine.driver_loaded:
        yield Finding(
            "error",
            f"the driver amdgpu is loaded, but there is no {machine.kfd.path}: "
            "it was built or started without compute",
            "sudo dmesg | grep -i kfd   # says why; the driver of ROCm's installation guide has it",
            _GUIDE,
        )


def render(subject: Subject) -> Iterator[Finding]:
    """See that the GPUs' own devices can be opened."""
    machine = subject.machine
    missing = [one for one in machine.render if one.refused is None]
    closed = [one for one in machine.render if one.refused]
    if closed:
        yield _refused(machine, *closed)
    if missing:
        named = several([str(one.path) for one in missing])
        fix = _door(machine) if machine.container else "sudo udevadm trigger --subsystem-match=drm"
        # some of many may be left out on purpose: a container for some of the GPUs
        some = len(missing) < len(machine.render)
        yield Finding(
            "info" if some and machine.container else "error",
            f"{named}: not there, and the kernel has it",
            fix,
            _DOCKER,
        )
    if machine.render and not closed and not missing:
        named = several([str(one.path) for one in machine.render], 2)
        yield Finding("ok", f"{named} can be read and written")


def wsl(subject: Subject) -> Iterator[Finding]:
    """See that Windows lends its GPU."""
    machine = subject.machine
    if machine.dxg is None or machine.kfd.refused is not None:
        return
    if machine.dxg.refused is None:
        yield Finding(
            "error",
            "WSL without /dev/dxg: Windows lends no GPU",
            "in Windows: install AMD's driver for WSL and run `wsl --update`; it must be WSL 2",
            _WSL,
        )
    elif machine.dxg.refused:
        yield _refused(machine, machine.dxg)
    elif subject.env.get("HSA_ENABLE_DXG_DETECTION") != "1":
        yield Finding(
            "info",
            "WSL has no /dev/kfd: ROCm 7.2 and newer reach the GPU over /dev/dxg, "
            "with librocdxg, when they are told to",
            "export HSA_ENABLE_DXG_DETECTION=1   # librocdxg must be installed",
            _WSL,
        )


def _refused(machine: Machine, *devices: DeviceFile) -> Finding:
    """Explain why devices could not be opened."""
    first = devices[0]
    named = several([str(one.path) for one in devices])
    if first.refused not in {errno.EACCES, errno.EPERM}:
        said = errno.errorcode.get(first.refused or 0, str(first.refused))
        return Finding("error", f"{named} cannot be opened ({said})", "sudo dmesg | grep -i -e amdgpu -e kfd")
    if first.refused == errno.EPERM and machine.container:
        text = f"{named}: the rules of this {machine.container} container forbid it"
        return Finding("error", text, _door(machine), _DOCKER)
    group = machine.group_names.get(first.gid, "")
    about = f"group {group or first.gid} ({first.gid}), mode {first.mode:04o}"
    user = machine.user
    text = f"{named} cannot be opened by {user.name or user.uid}: {about}"
    if (not first.mode & 0o060 or not first.gid) and not machine.container:
        return Finding("error", f"{text}: open to root alone", _RULE, _GUIDE)
    if machine.container and not group:
        text += "; the group has no name in this container"
    if first.gid in user.groups:
        return Finding("error", f"{text}, which this user is in", f"getfacl {first.path}", _GUIDE)
    if machine.container:
        return Finding(
            "error", text, f"docker run --group-add {first.gid} …   # and --device as before", _DOCKER
        )
    if group and user.name in machine.members.get(group, ()):
        return Finding(
            "error", f"{text}; the user was added to it after logging in", f"newgrp {group}", _GUIDE
        )
    groups = ",".join(dict.fromkeys([group or str(first.gid), "video"]))
    return Finding("error", text, f"sudo usermod -aG {groups} {user.name}   # then log in again", _GUIDE)


def _door(machine: Machine) -> str:
    if machine.container == "kubernetes":
        return "resources: {limits: {amd.com/gpu: 1}}   # AMD's device plugin lends GPUs to a pod"
    if machine.container == "podman":
        return "podman run --device /dev/kfd --device /dev/dri --group-add keep-groups …"
    if machine.container == "apptainer":
        return "apptainer exec --rocm …"
    if machine.container == "lxc":
        return "lxc config device add NAME gpu gpu; lxc config device add NAME kfd unix-char path=/dev/kfd"
    return _RUN
