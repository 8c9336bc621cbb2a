"""Checks of the GPUs: which are there, which a variable hides, which nobody knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rocm_wheels.gpus.forced import GFX_VARIABLES
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.kfd import NO_DEVICE_FILES
from rocm_wheels.gpus.look import UNKNOWN_TARGET
from rocm_wheels.gpus.visible import CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES
from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject, join_some

_VENDOR_NAMES = {"nvidia": "NVIDIA", "intel": "Intel"}


def check_gpus(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Say which GPUs there are, and by what they were found."""
    gpus = subject.hardware.gpus
    for (text, source), count in Counter((_describe_gpu(gpu), gpu.source) for gpu in gpus).items():
        times = f"{count} × " if count > 1 else ""
        origin = "stated" if source in {"forced", "--gfx"} else f"found by {source or 'unknown means'}"
        yield DoctorFinding("ok", f"{times}{text} ({origin})")
    if subject.machine.platform == "darwin":
        return
    if not gpus and not subject.has_amd:
        yield DoctorFinding(
            "info",
            "no GPU is known of; torch computes on the processor",
            "if there is one, see that the machine is switched on for it (BIOS, virtual machine, container)",
        )
    other_vendors = sorted({gpu.vendor for gpu in gpus if gpu.vendor in _VENDOR_NAMES})
    if other_vendors and not subject.has_amd:
        vendors = " and ".join(_VENDOR_NAMES[vendor] for vendor in other_vendors)
        yield DoctorFinding(
            "info",
            f"no AMD GPU, but one of {vendors}: wheels for ROCm do nothing for it",
            subject.make_install_line("torch"),
        )


def check_hidden_gpus(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of GPUs that a variable hides, and of those that are not there for this process."""
    hidden_gpus = [gpu for gpu in subject.hardware.gpus if not gpu.visible]
    has_visible = any(gpu.vendor == "amd" for gpu in subject.amd_gpus)
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
        yield DoctorFinding("info" if has_visible else "warning", message + none, fix)


def check_unknown_gpus(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of AMD GPUs whose target is not known."""
    for gpu in subject.amd_gpus:
        if gpu.gfx is None:
            yield DoctorFinding(
                "warning",
                f"the target of {_describe_gpu(gpu)} is not known, so nobody can say which kernels it needs",
                f"export {GFX_VARIABLES[0]}=gfx…   # rocminfo prints it, once the driver is loaded",
            )


def check_odd_gpus(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Pass on what looking for GPUs could not read, and what is odd about a GPU."""
    for fault in subject.hardware.faults:
        if fault.startswith(NO_DEVICE_FILES) or UNKNOWN_TARGET in fault:
            continue  # other checks tell of each, with what to do
        names = [name for name in subject.env if re.search(rf"\b{re.escape(name)}\b", fault)]
        fix = f"unset {' '.join(names)}" if names else "see that what it names is there and can be read"
        yield DoctorFinding("warning", fault, fix)
    for gpu in subject.hardware.gpus:
        if gpu.vendor == "amd" and gpu.confidence == "derived":
            yield DoctorFinding(
                "info",
                f"{_describe_gpu(gpu)}: the target was looked up, not read from the driver"
                + "".join(f"; {note}" for note in gpu.notes),
                "a loaded driver tells it for certain: see the check `driver`",
            )


def _describe_gpu(gpu: Gpu) -> str:
    name = gpu.name or {"amd": "AMD GPU", "nvidia": "NVIDIA GPU", "intel": "Intel GPU"}.get(gpu.vendor, "GPU")
    posing = f", posing as {gpu.gfx}" if gpu.native and gpu.gfx != gpu.native else ""
    target = gpu.native or gpu.gfx
    kind = " integrated" if gpu.integrated else ""
    where = "" if target else f" at {gpu.address or 'an unknown place'}"
    return f"{name}{where}" + (f" ({target}{kind}{posing})" if target else "")
