"""All checks of a machine. To add one: a function, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rocm_wheels.hosts.doctor import (
    devices,
    gpus,
    issues,
    kernels,
    packages,
    requirements,
    rocm,
    surroundings,
    variables,
)
from rocm_wheels.hosts.doctor.subject import Finding, Severity, Subject

Look = Callable[[Subject], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A named check. ``here``: it is about this machine's devices, and says nothing of a machine to be."""

    name: str
    group: str
    look: Look
    here: bool = False


_MACHINE, _ROCM, _TORCH, _KERNELS, _VARIABLES = "machine", "ROCm", "packages", "kernels", "variables"

CHECKS: tuple[Check, ...] = (
    Check("gpus", _MACHINE, gpus.found),
    Check("hidden-gpus", _MACHINE, gpus.hidden),
    Check("unknown-gpus", _MACHINE, gpus.unknown),
    Check("odd-gpus", _MACHINE, gpus.odd),
    Check("system", _MACHINE, devices.where, here=True),
    Check("driver", _MACHINE, devices.driver, here=True),
    Check("kfd", _MACHINE, devices.kfd, here=True),
    Check("render", _MACHINE, devices.render, here=True),
    Check("wsl", _MACHINE, devices.wsl, here=True),
    Check("shared-memory", _MACHINE, surroundings.shared_memory, here=True),
    Check("locked-memory", _MACHINE, surroundings.locked_memory, here=True),
    Check("iommu", _MACHINE, surroundings.iommu, here=True),
    Check("numa", _MACHINE, surroundings.numa, here=True),
    Check("caches", _MACHINE, surroundings.caches, here=True),
    Check("rocm", _ROCM, rocm.found),
    Check("rocm-variables", _ROCM, rocm.variables),
    Check("rocm-packages", _ROCM, rocm.sdk),
    Check("python", _TORCH, packages.environment),
    Check("torch", _TORCH, packages.torch_build),
    Check("kinds", _TORCH, packages.kinds),
    Check("triton", _TORCH, packages.triton),
    Check("requirements", _TORCH, requirements.requirements),
    Check("release-line", _TORCH, requirements.line),
    Check("interpreter", _TORCH, packages.interpreter),
    Check("twice", _TORCH, packages.twice),
    Check("unreadable", _TORCH, packages.unreadable),
    Check("torch-kernels", _KERNELS, kernels.torch_code),
    Check("torch-libraries", _KERNELS, kernels.torch_libraries),
    Check("companion-kernels", _KERNELS, kernels.companions),
    Check("library-kernels", _KERNELS, kernels.libraries),
    Check("known-issues", _KERNELS, issues.known),
    Check("harmful", _VARIABLES, variables.harmful),
    Check("override", _VARIABLES, variables.override),
    Check("devices", _VARIABLES, variables.devices),
    Check("architectures", _VARIABLES, variables.architectures),
    Check("allocator", _VARIABLES, variables.allocator),
)
GROUPS = (_MACHINE, _ROCM, _TORCH, _KERNELS, _VARIABLES)
_ORDER: tuple[Severity, ...] = ("ok", "info", "warning", "error")


def examine(subject: Subject) -> tuple[Finding, ...]:
    """Run all checks; return their findings by group, in each the worst last."""
    found = [
        replace(finding, check=check.name, group=check.group)
        for check in CHECKS
        if not (check.here and subject.stated)
        and (subject.machine.platform.startswith("linux") or not check.here)
        for finding in check.look(subject)
    ]
    unique = list(dict.fromkeys(found))
    return tuple(sorted(unique, key=lambda one: (GROUPS.index(one.group), _ORDER.index(one.severity))))
