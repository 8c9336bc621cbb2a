"""What ``doctor`` checks of the machine: driver, devices, permissions, and variables that harm.

Sources: AMD, "Running ROCm Docker containers" and "Prerequisites" (groups render and video) of ROCm's
installation guide; ROCm/librocdxg (WSL); RCCL, src/init.cc (what it warns of when it starts: iommu=pt,
NUMA balancing); Docker's default of 64 MB for /dev/shm; ROCm's guides, which start containers for training
with a larger one.

Owns ``data/doctor_variables.yaml``.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from pydantic import field_validator

from rocm_wheels.core import errors, records, tables
from rocm_wheels.gpus import detect, kfd
from rocm_wheels.gpus.gpu import Gpu, format_override_version, parse_override_version
from rocm_wheels.gpus.variables import (
    CUDA_VISIBLE_DEVICES,
    GFX_VARIABLES,
    HIP_VISIBLE_DEVICES,
    OVERRIDE_VARIABLE,
    ROCR_VISIBLE_DEVICES,
)
from rocm_wheels.gpus.vendors import GPU_VENDORS
from rocm_wheels.models import facts, gfx, project_names
from rocm_wheels.user import gpu_support
from rocm_wheels.user.machine import DeviceFile, DoctorSubject, MachineFacts, join_some


def check_gpus(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Say which GPUs there are, and by what they were found."""
    gpus = subject.hardware.gpus
    for (text, source), count in Counter((_describe_gpu(gpu), gpu.source) for gpu in gpus).items():
        times = f"{count} × " if count > 1 else ""
        origin = "stated" if source in {"forced", "--gfx"} else f"found by {source or 'unknown means'}"
        yield errors.Finding("ok", f"{times}{text} ({origin})")
    if subject.machine.platform == "darwin":
        return
    if not gpus and not subject.has_amd:
        yield errors.Finding(
            "info",
            "no GPU detected; torch runs on the CPU",
            "if there is one, check that it is enabled for this machine (BIOS, virtual machine, container)",
        )
    other_vendors = sorted({gpu.vendor for gpu in gpus if gpu.vendor not in ("amd", "apple")})
    if other_vendors and not subject.has_amd:
        vendors = " and ".join(GPU_VENDORS[vendor].title for vendor in other_vendors)
        yield errors.Finding(
            "info",
            f"no AMD GPU, but one of {vendors}: wheels for ROCm do nothing for it",
            subject.make_install_line("torch"),
        )


def check_hidden_gpus(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of GPUs that a variable hides, and of those that are not there for this process."""
    hidden_gpus = [gpu for gpu in subject.hardware.gpus if not gpu.visible]
    has_visible = bool(subject.hardware.amd)
    for hidden_by in sorted({gpu.hidden_by for gpu in hidden_gpus}):
        counts = Counter(_describe_gpu(gpu) for gpu in hidden_gpus if gpu.hidden_by == hidden_by)
        gpu_names = join_some(
            [f"{number} × {message}" if number > 1 else message for message, number in counts.items()]
        )
        if hidden_by in (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES):
            message, fix = (
                f"{hidden_by}={subject.env.get(hidden_by, '')} hides {gpu_names}",
                f"unset {hidden_by}",
            )
        else:  # no device file in a container, too old for the runtime, given to others by a scheduler
            message = f"{gpu_names}: not for this process, by {hidden_by}"
            devices = hidden_by.startswith("/dev/")
            run = "docker run --device /dev/kfd --device /dev/dri …"
            fix = run if devices else "rocminfo   # lists what programs may use"
        none = "" if has_visible else ": no AMD GPU is left"
        yield errors.Finding("info" if has_visible else "warning", message + none, fix)


def check_unknown_gpus(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of AMD GPUs whose target is not known."""
    for gpu in subject.hardware.amd:
        if gpu.gfx is None:
            yield errors.Finding(
                "warning",
                f"the target of {_describe_gpu(gpu)} is not known, so nobody can say which kernels it needs",
                f"export {GFX_VARIABLES[0]}=gfx…   # rocminfo prints it, once the driver is loaded",
            )


def check_odd_gpus(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Pass on what looking for GPUs could not read, and what is odd about a GPU."""
    for fault in subject.hardware.faults:
        if fault.startswith(kfd.NO_DEVICE_FILES) or detect.UNKNOWN_TARGET in fault:
            continue  # other checks tell of each, with what to do
        names = [name for name in subject.env if re.search(rf"\b{re.escape(name)}\b", fault)]
        fix = f"unset {' '.join(names)}" if names else "see that what it names is there and can be read"
        is_stated = fault.startswith(GFX_VARIABLES)  # every other command refuses it
        yield errors.Finding("error" if is_stated else "warning", fault, fix)
    for gpu in subject.hardware.gpus:
        if gpu.vendor == "amd" and gpu.confidence == "derived":
            yield errors.Finding(
                "info",
                f"{_describe_gpu(gpu)}: the target was looked up, not read from the driver"
                + "".join(f"; {note}" for note in gpu.notes),
                "a loaded driver tells it for certain: see the check `driver`",
            )


def _describe_gpu(gpu: Gpu) -> str:
    name = gpu.name or f"{GPU_VENDORS[gpu.vendor].title} GPU"
    posing = f", posing as {gpu.gfx}" if gpu.native and gpu.gfx != gpu.native else ""
    target = gpu.native or gpu.gfx
    kind = " integrated" if gpu.integrated else ""
    where = "" if target else f" at {gpu.address or 'an unknown place'}"
    return f"{name}{where}" + (f" ({target}{kind}{posing})" if target else "")


_INSTALL_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html"
_DOCKER_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html"
_WSL_GUIDE = "https://github.com/ROCm/librocdxg"
_UDEV_RULE = (
    """printf '%s\\n' 'KERNEL=="kfd", GROUP="render", MODE="0660"' """
    """'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"' """
    "| sudo tee /etc/udev/rules.d/70-amdgpu.rules && sudo udevadm control --reload && sudo udevadm trigger"
)
_DOCKER_RUN = "docker run --device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined …"


def check_system(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Say what kind of system this is."""
    machine = subject.machine
    kind = f"a {machine.container} container" if machine.container else ""
    kind = "WSL" + (f", in {kind}" if kind else "") if machine.wsl else kind
    yield errors.Finding("ok", f"{kind or 'no container, no WSL'} ({machine.kernel.split('(')[0].strip()})")


def check_driver(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that the kernel's amdgpu is loaded and has the GPUs."""
    machine = subject.machine
    if machine.driver_loaded:
        version = machine.driver_version or "the kernel's own"
        yield errors.Finding("ok", f"the driver amdgpu is loaded (version {version})")
    elif subject.has_amd:
        fix = f"{'on the host: ' * bool(machine.container)}sudo modprobe amdgpu"
        yield errors.Finding("error", "there is an AMD GPU, but the driver amdgpu is not loaded", fix)
    if machine.blacklisted and subject.has_amd:
        yield errors.Finding(
            "warning" if machine.driver_loaded else "error",
            f"amdgpu is blacklisted in {join_some(list(machine.blacklisted))}",
            "take the line out, then: sudo update-initramfs -u && sudo reboot",
        )
    for gpu in machine.amd_devices:
        if gpu.driver != "amdgpu" and (gpu.driver or machine.driver_loaded):
            owner = f"is taken by the driver {gpu.driver}" if gpu.driver else "is taken by no driver"
            yield errors.Finding(
                "warning",
                f"the AMD GPU {gpu.pci_id} at {gpu.address} {owner}, so ROCm does not see it",
                "sudo dmesg | grep -i amdgpu   # says why; vfio-pci means that a virtual machine has it"
                if gpu.driver
                else "sudo dmesg | grep -i amdgpu   # says why",
            )


def check_kfd(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that /dev/kfd, which all compute goes through, can be opened."""
    machine = subject.machine
    if machine.kfd.usable:
        yield errors.Finding("ok", f"{machine.kfd.path} can be read and written")
    elif machine.kfd.refused is not None:
        yield _explain_refusal(machine, machine.kfd)
    elif machine.container and (subject.has_amd or machine.driver_loaded):
        yield errors.Finding(
            "error",
            f"{machine.kfd.path} is not in this {machine.container} container",
            _suggest_access(machine),
            source=_DOCKER_GUIDE,
        )
    elif subject.has_amd and machine.driver_loaded:
        yield errors.Finding(
            "error",
            f"the driver amdgpu is loaded, but there is no {machine.kfd.path}: "
            "it was built or started without compute",
            "sudo dmesg | grep -i kfd   # says why; the driver of ROCm's installation guide has it",
            source=_INSTALL_GUIDE,
        )


def check_render_devices(subject: DoctorSubject) -> Iterator[errors.Finding]:
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
        yield errors.Finding(
            "info" if is_partial and machine.container else "error",
            f"{paths}: not there, and the kernel has it",
            fix,
            source=_DOCKER_GUIDE,
        )
    if machine.render and not closed and not missing:
        paths = join_some([str(device.path) for device in machine.render], 2)
        yield errors.Finding("ok", f"{paths} can be read and written")


def check_wsl(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that Windows lends its GPU."""
    machine = subject.machine
    if machine.dxg is None or machine.kfd.refused is not None:
        return
    if machine.dxg.refused is None:
        yield errors.Finding(
            "error",
            "WSL without /dev/dxg: Windows lends no GPU",
            "in Windows: install AMD's driver for WSL and run `wsl --update`; it must be WSL 2",
            source=_WSL_GUIDE,
        )
    elif machine.dxg.refused:
        yield _explain_refusal(machine, machine.dxg)
    elif subject.env.get("HSA_ENABLE_DXG_DETECTION") != "1":
        yield errors.Finding(
            "info",
            "WSL has no /dev/kfd: ROCm 7.2 and newer reach the GPU over /dev/dxg, "
            "with librocdxg, when enabled",
            "export HSA_ENABLE_DXG_DETECTION=1   # librocdxg must be installed",
            source=_WSL_GUIDE,
        )


def _explain_refusal(machine: MachineFacts, *devices: DeviceFile) -> errors.Finding:
    """Explain why devices could not be opened."""
    first = devices[0]
    paths = join_some([str(device.path) for device in devices])
    if first.refused not in {errno.EACCES, errno.EPERM}:
        error_name = errno.errorcode.get(first.refused or 0, str(first.refused))
        return errors.Finding(
            "error", f"{paths} cannot be opened ({error_name})", "sudo dmesg | grep -i -e amdgpu -e kfd"
        )
    if first.refused == errno.EPERM and machine.container:
        text = f"{paths}: the rules of this {machine.container} container forbid it"
        return errors.Finding("error", text, _suggest_access(machine), source=_DOCKER_GUIDE)
    group = machine.group_names.get(first.gid, "")
    permissions = f"group {group or first.gid} ({first.gid}), mode {first.mode:04o}"
    user = machine.user
    text = f"{paths} cannot be opened by {user.name or user.uid}: {permissions}"
    if (not first.mode & 0o060 or not first.gid) and not machine.container:
        return errors.Finding("error", f"{text}: open to root alone", _UDEV_RULE, source=_INSTALL_GUIDE)
    if machine.container and not group:
        text += "; the group has no name in this container"
    if first.gid in user.groups:
        return errors.Finding(
            "error", f"{text}, which this user is in", f"getfacl {first.path}", source=_INSTALL_GUIDE
        )
    if machine.container:
        return errors.Finding(
            "error",
            text,
            f"docker run --group-add {first.gid} …   # and --device as before",
            source=_DOCKER_GUIDE,
        )
    if group and user.name in machine.members.get(group, ()):
        return errors.Finding(
            "error",
            f"{text}; the user was added to it after logging in",
            f"newgrp {group}",
            source=_INSTALL_GUIDE,
        )
    groups = ",".join(dict.fromkeys([group or str(first.gid), "video"]))
    return errors.Finding(
        "error", text, f"sudo usermod -aG {groups} {user.name}   # then log in again", source=_INSTALL_GUIDE
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


_RCCL_SOURCE = "https://github.com/ROCm/rccl/blob/develop/src/init.cc"
_MIOPEN_GUIDE = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/cache.html"
_ENOUGH_MEMORY = 1 << 30


def check_shared_memory(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of a /dev/shm too small for several processes: data loaders and RCCL put buffers there."""
    size = subject.machine.shared_memory
    if size is None or size >= _ENOUGH_MEMORY or not subject.has_amd:
        return
    has_several_cards = len(_list_cards(subject)) > 1
    yield errors.Finding(
        "warning" if has_several_cards else "info",
        f"/dev/shm has {tables.format_size(size)}; "
        + ("RCCL and data loaders" if has_several_cards else "data loaders")
        + " fail with 'No space left on device' or a bus error when it is full",
        "docker run --ipc=host …   # or --shm-size 16G"
        if subject.machine.container
        else "sudo mount -o remount,size=16G /dev/shm",
    )


def check_locked_memory(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of a limit of locked memory: memory for network cards is locked."""
    limit = subject.machine.locked_memory
    if limit is None or len(_list_cards(subject)) < 2 or limit >= _ENOUGH_MEMORY:
        return
    yield errors.Finding(
        "info",
        f"a process may lock {tables.format_size(limit)} of memory: RCCL over InfiniBand or RoCE needs more",
        "docker run --ulimit memlock=-1 …" if subject.machine.container else "ulimit -l unlimited",
    )


def check_iommu(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of a kernel that was started without iommu=pt on a machine with several GPUs."""
    machine = subject.machine
    if len(_list_cards(subject)) < 2 or machine.hypervisor or not machine.command_line:
        return
    words = machine.command_line.split()
    if not {"iommu=pt", "iommu=off", "amd_iommu=off", "intel_iommu=off"} & set(words):
        text = f"{len(_list_cards(subject))} GPUs, and the kernel was started without iommu=pt: "
        fix = "add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub && sudo reboot"
        yield errors.Finding(
            "warning", f"{text}programs on several of them may hang", fix, source=_RCCL_SOURCE
        )


def check_numa(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of NUMA balancing on a machine with several GPUs."""
    if len(_list_cards(subject)) > 1 and subject.machine.numa_balancing:
        yield errors.Finding(
            "info",
            "NUMA balancing is on: programs on several GPUs vary in speed",
            "sudo sysctl kernel.numa_balancing=0",
            source=_RCCL_SOURCE,
        )


def check_caches(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """See that the home folder can be written to: MIOpen and triton keep compiled kernels there."""
    machine = subject.machine
    is_configured = subject.env.get("MIOPEN_USER_DB_PATH") and subject.env.get("TRITON_CACHE_DIR")
    if not machine.home_writable and not is_configured:
        yield errors.Finding(
            "warning",
            f"{machine.home} cannot be written to: "
            "MIOpen and triton compile their kernels again in every process, or fail",
            "export MIOPEN_USER_DB_PATH=/tmp/miopen MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen "
            "TRITON_CACHE_DIR=/tmp/triton",
            source=_MIOPEN_GUIDE,
        )


def _list_cards(subject: DoctorSubject) -> list[Gpu]:
    """Return the GPUs that programs use together: an integrated one beside a card is none of them."""
    return [gpu for gpu in subject.hardware.amd if not gpu.integrated]


_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


class VariableHarm(facts.Fact):
    """What a value of a variable does: ``when`` is a pattern for the whole value."""

    when: str
    severity: Literal["warning", "info"]
    text: str
    fix: str = ""

    @field_validator("when")
    @classmethod
    def _require_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as cause:
            raise ValueError(f"{value!r} is not a regular expression: {cause}") from None
        return value


class AllocatorKeys(facts.Fact):
    """The settings that torch's allocator knows."""

    keys: tuple[str, ...]


class VariableHarms(facts.FactTable):
    """The table: what harms by variable."""

    variables: Mapping[str, tuple[VariableHarm, ...]]
    allocator_keys: AllocatorKeys


@lru_cache
def load_variable_harms() -> VariableHarms:
    """Return the table."""
    return records.load_record(project_names.get_data_folder() / "doctor_variables.yaml", VariableHarms)


def check_harmful_variables(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Look the variables of the process up in the table."""
    table = load_variable_harms()
    for name, cases in table.variables.items():
        value = subject.env.get(name)
        for harm in cases if value is not None else ():
            if re.fullmatch(harm.when, value or ""):
                source = table.sources[harm.source].url
                yield errors.Finding(
                    harm.severity, f"{name}={value}: {harm.text}", harm.fix or f"unset {name}", source=source
                )


def check_override(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Judge HSA_OVERRIDE_GFX_VERSION: harmful where native kernels exist, or for another major version."""
    names = sorted(
        name for name in subject.env if name.startswith(OVERRIDE_VARIABLE) and _is_read(subject.env[name])
    )
    if not names:
        return
    statement = ", ".join(f"{name}={subject.env[name]}" for name in names)
    unset = f"unset {' '.join(names)}"
    if subject.stated:
        yield errors.Finding("ok", f"{statement} is set here; it does not count for the GPUs that are stated")
        return
    if subject.machine.platform == "win32":
        yield errors.Finding("info", f"{statement}: the runtime of Windows does not read it", unset)
        return
    try:
        targets = gpu_support.list_kernel_targets(subject.installed, "torch")
    except errors.RocmWheelsError:  # the check of the kernels tells of it
        targets = ()
    posing = [gpu for gpu in subject.hardware.amd if gpu.native and gpu.gfx and gpu.native != gpu.gfx]
    for gpu in {(posing_gpu.native, posing_gpu.gfx): posing_gpu for posing_gpu in posing}.values():
        yield _judge_override(gpu, targets, statement, unset)
    if not posing:
        native = any(gpu.native for gpu in subject.hardware.amd)
        text = "changes nothing here" if native else "there is no GPU that it could be meant for"
        yield errors.Finding("info", f"{statement}: {text}", unset)


def _is_read(text: str) -> bool:
    """Tell whether the runtime reads a version there; what is no version is told of by the look at GPUs."""
    try:
        return bool(parse_override_version(text))
    except ValueError:
        return False


def check_device_lists(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of lists of devices that torch refuses together."""
    hip, rocr = subject.env.get(HIP_VISIBLE_DEVICES), subject.env.get(ROCR_VISIBLE_DEVICES)
    if hip and rocr is not None and len(hip.split(",")) > len(rocr.split(",")):
        yield errors.Finding(
            "error",
            f"{HIP_VISIBLE_DEVICES}={hip} names more GPUs than {ROCR_VISIBLE_DEVICES}={rocr}: "
            "torch.cuda.device_count() fails",
            f"unset {HIP_VISIBLE_DEVICES}   # it counts among those that {ROCR_VISIBLE_DEVICES} leaves",
            source=load_variable_harms().sources["torch-cuda-init"].url,
        )


def check_architectures(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Judge PYTORCH_ROCM_ARCH, which is read when something is compiled, and never later."""
    value = subject.env.get(gfx.TARGETS_VARIABLE)
    if not value:
        return
    try:
        chosen = {
            gfx.strip_features(target) for target in gfx.parse_targets(value, input_name=gfx.TARGETS_VARIABLE)
        }
    except errors.RocmWheelsError as error:
        yield errors.Finding("warning", error.message, f"unset {gfx.TARGETS_VARIABLE}")
        return
    absent = [target for target in subject.hardware.targets if target not in chosen]
    if absent:
        yield errors.Finding(
            "warning",
            f"{gfx.TARGETS_VARIABLE}={value}: extensions compiled here get no kernels for "
            f"{join_some(absent)}",
            f"unset {gfx.TARGETS_VARIABLE}",
        )
    else:
        text = "is for compiling; it changes nothing of what is installed"
        yield errors.Finding(
            "info",
            f"{gfx.TARGETS_VARIABLE}={value} {text}",
            f"unset {gfx.TARGETS_VARIABLE}   # unless you compile",
        )


def check_allocator(subject: DoctorSubject) -> Iterator[errors.Finding]:
    """Tell of settings of torch's allocator that it does not know: it refuses to start."""
    keys = load_variable_harms().allocator_keys
    source = load_variable_harms().sources[keys.source].url
    for name in _ALLOCATOR_VARIABLES:
        # commas inside […] part the values of one setting
        settings = re.sub(r"\[[^\]]*\]", "", subject.env.get(name, "")).split(",")
        for setting in (part.strip() for part in settings if part.strip()):
            key, colon, value = setting.partition(":")
            if not colon or not key.strip():
                text = f"{name}: {setting!r} is not KEY:VALUE; torch refuses it when it first uses a GPU"
                yield errors.Finding(
                    "error", text, f"export {name}=expandable_segments:True   # for example", source=source
                )
            elif key.strip() not in keys.keys:
                hint = tables.suggest_name(key.strip(), keys.keys)
                text = f"{name}: torch refuses settings that it does not know, like {key.strip()!r}{hint}"
                yield errors.Finding("error" if hint else "warning", text, f"unset {name}", source=source)
            elif key.strip() == "backend" and value.strip() not in {
                "native",
                "cudaMallocAsync",
                "hipMallocAsync",
            }:
                yield errors.Finding(
                    "error",
                    f"{name}: torch has no allocator {value.strip()!r}",
                    f"unset {name}",
                    source=source,
                )
    set_ones = [name for name in _ALLOCATOR_VARIABLES if subject.env.get(name)]
    if len({subject.env[name] for name in set_ones}) > 1:
        text = f"{' and '.join(set_ones)} differ: {set_ones[0]} is the one that counts"
        yield errors.Finding("info", text, f"unset {' '.join(set_ones[1:])}", source=source)


def _judge_override(gpu: Gpu, targets: tuple[str, ...], statement: str, unset: str) -> errors.Finding:
    native, target = gpu.native or "", gpu.gfx or ""
    if format_override_version(native).split(".")[0] != format_override_version(target).split(".")[0]:
        text = f"{native} cannot run code for {target}: another generation; programs crash or refuse to start"
        return errors.Finding("error", f"{statement}: {text}", unset)
    if gpu_support.check_kernel_support(targets, native).runs:
        text = f"makes {native} pose as {target}, although torch has kernels for {native} itself"
        return errors.Finding("warning", f"{statement} {text}", unset)
    fits = gpu_support.check_kernel_support(targets, target).runs
    text = f"makes {native} pose as {target}, which is untested"
    text += "" if fits or not targets else ", and torch has no kernels for that either"
    return errors.Finding(
        "info" if fits else "warning",
        f"{statement} {text}",
        "rocm-wheels configure --print   # what this card needs",
    )
