"""Checks of the GPUs: which are there, which a variable hides, which nobody knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rocm_wheels.gpus.forced import CHIPS
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.kfd import NO_DEVICES
from rocm_wheels.gpus.look import NO_TARGET
from rocm_wheels.gpus.visible import CUDA, HIP, ROCR
from rocm_wheels.hosts.doctor.subject import Finding, Subject, several

_VENDORS = {"nvidia": "NVIDIA", "intel": "Intel"}


def found(subject: Subject) -> Iterator[Finding]:
    """Say which GPUs there are, and by what they were found."""
    gpus = subject.hardware.gpus
    for (text, source), count in Counter((_said(gpu), gpu.source) for gpu in gpus).items():
        times = f"{count} × " if count > 1 else ""
        by = "stated" if source in {"forced", "--gfx"} else f"found by {source or 'unknown means'}"
        yield Finding("ok", f"{times}{text} ({by})")
    if subject.machine.platform == "darwin":
        return
    if not gpus and not subject.has_amd:
        yield Finding(
            "info",
            "no GPU is known of; torch computes on the processor",
            "if there is one, see that the machine is switched on for it (BIOS, virtual machine, container)",
        )
    others = sorted({gpu.vendor for gpu in gpus if gpu.vendor in _VENDORS})
    if others and not subject.has_amd:
        named = " and ".join(_VENDORS[one] for one in others)
        yield Finding(
            "info",
            f"no AMD GPU, but one of {named}: wheels for ROCm do nothing for it",
            subject.install("torch"),
        )


def hidden(subject: Subject) -> Iterator[Finding]:
    """Tell of GPUs that a variable hides, and of those that are not there for this process."""
    gone = [gpu for gpu in subject.hardware.gpus if not gpu.visible]
    left = any(gpu.vendor == "amd" for gpu in subject.amd)
    for by in sorted({gpu.hidden_by for gpu in gone}):
        counted = Counter(_said(gpu) for gpu in gone if gpu.hidden_by == by)
        those = several([f"{number} × {said}" if number > 1 else said for said, number in counted.items()])
        if by in (ROCR, HIP, CUDA):
            said, fix = f"{by}={subject.env.get(by, '')} hides {those}", f"unset {by}"
        else:  # no device file in a container, too old for the runtime, given to others by a scheduler
            said = f"{those}: not for this process, by {by}"
            devices = by.startswith("/dev/")
            run = "docker run --device /dev/kfd --device /dev/dri …"
            fix = run if devices else "rocminfo   # lists what programs may use"
        none = "" if left else ": no AMD GPU is left"
        yield Finding("info" if left else "warning", said + none, fix)


def unknown(subject: Subject) -> Iterator[Finding]:
    """Tell of AMD GPUs whose target is not known."""
    for gpu in subject.amd:
        if gpu.gfx is None:
            yield Finding(
                "warning",
                f"the target of {_said(gpu)} is not known, so nobody can say which kernels it needs",
                f"export {CHIPS[0]}=gfx…   # rocminfo prints it, once the driver is loaded",
            )


def odd(subject: Subject) -> Iterator[Finding]:
    """Pass on what looking for GPUs could not read, and what is odd about a GPU."""
    for fault in subject.hardware.faults:
        if fault.startswith(NO_DEVICES) or NO_TARGET in fault:
            continue  # other checks tell of each, with what to do
        names = [name for name in subject.env if re.search(rf"\b{re.escape(name)}\b", fault)]
        fix = f"unset {' '.join(names)}" if names else "see that what it names is there and can be read"
        yield Finding("warning", fault, fix)
    for gpu in subject.hardware.gpus:
        if gpu.vendor == "amd" and gpu.confidence == "derived":
            yield Finding(
                "info",
                f"{_said(gpu)}: the target was looked up, not read from the driver"
                + "".join(f"; {note}" for note in gpu.notes),
                "a loaded driver tells it for certain: see the check `driver`",
            )


def _said(gpu: Gpu) -> str:
    name = gpu.name or {"amd": "AMD GPU", "nvidia": "NVIDIA GPU", "intel": "Intel GPU"}.get(gpu.vendor, "GPU")
    posing = f", posing as {gpu.gfx}" if gpu.native and gpu.gfx != gpu.native else ""
    target = gpu.native or gpu.gfx
    kind = " integrated" if gpu.integrated else ""
    where = "" if target else f" at {gpu.address or 'an unknown place'}"
    return f"{name}{where}" + (f" ({target}{kind}{posing})" if target else "")
