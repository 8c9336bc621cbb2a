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
from rocm_wheels.hosts.doctor.subject import DoctorFinding, Severity, DoctorSubject

CheckFunction = Callable[[DoctorSubject], Iterator[DoctorFinding]]


@dataclass(frozen=True)
class DoctorCheck:
    """A named check. ``local_only``: it is about this machine's devices, and says nothing of a machine to be."""

    name: str
    group: str
    function: CheckFunction
    local_only: bool = False


_MACHINE, _ROCM, _TORCH, _KERNELS, _VARIABLES = "machine", "ROCm", "packages", "kernels", "variables"

DOCTOR_CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck("gpus", _MACHINE, gpus.check_gpus),
    DoctorCheck("hidden-gpus", _MACHINE, gpus.check_hidden_gpus),
    DoctorCheck("unknown-gpus", _MACHINE, gpus.check_unknown_gpus),
    DoctorCheck("odd-gpus", _MACHINE, gpus.check_odd_gpus),
    DoctorCheck("system", _MACHINE, devices.check_system, local_only=True),
    DoctorCheck("driver", _MACHINE, devices.check_driver, local_only=True),
    DoctorCheck("kfd", _MACHINE, devices.check_kfd, local_only=True),
    DoctorCheck("render", _MACHINE, devices.check_render_devices, local_only=True),
    DoctorCheck("wsl", _MACHINE, devices.check_wsl, local_only=True),
    DoctorCheck("shared-memory", _MACHINE, surroundings.check_shared_memory, local_only=True),
    DoctorCheck("locked-memory", _MACHINE, surroundings.check_locked_memory, local_only=True),
    DoctorCheck("iommu", _MACHINE, surroundings.check_iommu, local_only=True),
    DoctorCheck("numa", _MACHINE, surroundings.check_numa, local_only=True),
    DoctorCheck("caches", _MACHINE, surroundings.check_caches, local_only=True),
    DoctorCheck("rocm", _ROCM, rocm.check_rocm),
    DoctorCheck("rocm-variables", _ROCM, rocm.check_rocm_variables),
    DoctorCheck("rocm-packages", _ROCM, rocm.check_rocm_packages),
    DoctorCheck("python", _TORCH, packages.check_environment),
    DoctorCheck("torch", _TORCH, packages.check_torch_build),
    DoctorCheck("kinds", _TORCH, packages.check_build_kinds),
    DoctorCheck("triton", _TORCH, packages.check_triton),
    DoctorCheck("requirements", _TORCH, requirements.check_requirements),
    DoctorCheck("release-line", _TORCH, requirements.check_release_line),
    DoctorCheck("interpreter", _TORCH, packages.check_interpreter),
    DoctorCheck("twice", _TORCH, packages.check_duplicates),
    DoctorCheck("unreadable", _TORCH, packages.check_unreadable),
    DoctorCheck("torch-kernels", _KERNELS, kernels.check_torch_kernels),
    DoctorCheck("torch-libraries", _KERNELS, kernels.check_torch_libraries),
    DoctorCheck("companion-kernels", _KERNELS, kernels.check_companion_kernels),
    DoctorCheck("library-kernels", _KERNELS, kernels.check_library_kernels),
    DoctorCheck("known-issues", _KERNELS, issues.check_known_issues),
    DoctorCheck("harmful", _VARIABLES, variables.check_harmful_variables),
    DoctorCheck("override", _VARIABLES, variables.check_override),
    DoctorCheck("devices", _VARIABLES, variables.check_device_lists),
    DoctorCheck("architectures", _VARIABLES, variables.check_architectures),
    DoctorCheck("allocator", _VARIABLES, variables.check_allocator),
)
FINDING_GROUPS = (_MACHINE, _ROCM, _TORCH, _KERNELS, _VARIABLES)
_SEVERITY_ORDER: tuple[Severity, ...] = ("ok", "info", "warning", "error")


def run_checks(subject: DoctorSubject) -> tuple[DoctorFinding, ...]:
    """Run all checks; return their findings by group, in each the worst last."""
    findings = [
        replace(finding, check=check.name, group=check.group)
        for check in DOCTOR_CHECKS
        if not (check.local_only and subject.stated)
        and (subject.machine.platform.startswith("linux") or not check.local_only)
        for finding in check.function(subject)
    ]
    unique = list(dict.fromkeys(findings))
    return tuple(
        sorted(
            unique,
            key=lambda finding: (
                FINDING_GROUPS.index(finding.group),
                _SEVERITY_ORDER.index(finding.severity),
            ),
        )
    )
