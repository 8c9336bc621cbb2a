"""Run all checks of a machine, report findings. To add one: a function, a line in ``DOCTOR_CHECKS``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, extras, tables
from rocm_wheels.gpus import detect
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.user import doctor_kernels, doctor_machine, doctor_packages, host, installed_packages
from rocm_wheels.user.machine import DoctorSubject, read_machine_facts

CheckFunction = Callable[[DoctorSubject], Iterator[errors.Finding]]


@dataclass(frozen=True)
class DoctorCheck:
    """A named check. ``local_only``: it is about this machine's devices, and says nothing of a machine to
    be.
    """

    name: str
    group: str
    function: CheckFunction
    local_only: bool = False


_MACHINE, _ROCM, _TORCH, _KERNELS, _VARIABLES = "machine", "ROCm", "packages", "kernels", "variables"

DOCTOR_CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck("gpus", _MACHINE, doctor_machine.check_gpus),
    DoctorCheck("hidden-gpus", _MACHINE, doctor_machine.check_hidden_gpus),
    DoctorCheck("unknown-gpus", _MACHINE, doctor_machine.check_unknown_gpus),
    DoctorCheck("odd-gpus", _MACHINE, doctor_machine.check_odd_gpus),
    DoctorCheck("system", _MACHINE, doctor_machine.check_system, local_only=True),
    DoctorCheck("driver", _MACHINE, doctor_machine.check_driver, local_only=True),
    DoctorCheck("kfd", _MACHINE, doctor_machine.check_kfd, local_only=True),
    DoctorCheck("render", _MACHINE, doctor_machine.check_render_devices, local_only=True),
    DoctorCheck("wsl", _MACHINE, doctor_machine.check_wsl, local_only=True),
    DoctorCheck("shared-memory", _MACHINE, doctor_machine.check_shared_memory, local_only=True),
    DoctorCheck("locked-memory", _MACHINE, doctor_machine.check_locked_memory, local_only=True),
    DoctorCheck("iommu", _MACHINE, doctor_machine.check_iommu, local_only=True),
    DoctorCheck("numa", _MACHINE, doctor_machine.check_numa, local_only=True),
    DoctorCheck("caches", _MACHINE, doctor_machine.check_caches, local_only=True),
    DoctorCheck("rocm", _ROCM, doctor_packages.check_rocm),
    DoctorCheck("rocm-variables", _ROCM, doctor_packages.check_rocm_variables),
    DoctorCheck("rocm-packages", _ROCM, doctor_packages.check_rocm_packages),
    DoctorCheck("python", _TORCH, doctor_packages.check_environment),
    DoctorCheck("recommended", _TORCH, doctor_packages.check_recommended_torch),
    DoctorCheck("torch", _TORCH, doctor_packages.check_torch_build),
    DoctorCheck("kinds", _TORCH, doctor_packages.check_build_kinds),
    DoctorCheck("triton", _TORCH, doctor_packages.check_triton),
    DoctorCheck("requirements", _TORCH, doctor_packages.check_requirements),
    DoctorCheck("release-line", _TORCH, doctor_packages.check_release_line),
    DoctorCheck("interpreter", _TORCH, doctor_packages.check_interpreter),
    DoctorCheck("twice", _TORCH, doctor_packages.check_duplicates),
    DoctorCheck("unreadable", _TORCH, doctor_packages.check_unreadable),
    DoctorCheck("torch-kernels", _KERNELS, doctor_kernels.check_torch_kernels),
    DoctorCheck("torch-libraries", _KERNELS, doctor_kernels.check_torch_libraries),
    DoctorCheck("companion-kernels", _KERNELS, doctor_kernels.check_companion_kernels),
    DoctorCheck("archive-runtime", _KERNELS, doctor_kernels.check_archive_runtime),
    DoctorCheck("library-kernels", _KERNELS, doctor_kernels.check_library_kernels),
    DoctorCheck("known-issues", _KERNELS, doctor_kernels.check_known_issues),
    DoctorCheck("harmful", _VARIABLES, doctor_machine.check_harmful_variables),
    DoctorCheck("override", _VARIABLES, doctor_machine.check_override),
    DoctorCheck("devices", _VARIABLES, doctor_machine.check_device_lists),
    DoctorCheck("architectures", _VARIABLES, doctor_machine.check_architectures),
    DoctorCheck("allocator", _VARIABLES, doctor_machine.check_allocator),
)
FINDING_GROUPS = (_MACHINE, _ROCM, _TORCH, _KERNELS, _VARIABLES)
_SEVERITY_ORDER: tuple[errors.Severity, ...] = ("ok", "info", "warning", "error")


def run_checks(subject: DoctorSubject) -> tuple[errors.Finding, ...]:
    """Run all checks; return their findings by group, in each the worst last."""
    findings = [
        replace(finding, check=check.name, group=check.group, tip=extras.adapt_commands(finding.tip or ""))
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


def inspect_host(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    root: Path = Path("/"),
) -> DoctorSubject:
    """Read a machine whose files are below ``root``, and the environment of ``python``.

    Without ``python`` that of the active environment, else the running one. ``gfx`` states GPUs of a machine
    to be, as ``--gfx`` takes them (``none``: none). UsageError for a Python that does not run, and for GPUs
    that are none.
    """
    active = installed_packages.find_active_python(python, env)
    installed = installed_packages.read_installed_packages(active, env)
    hardware = (
        host.make_host(env, host.StatedMachine(tuple(gfx))).hardware
        if gfx
        else _detect_here(env, root, installed.environment.path)
    )
    return DoctorSubject(
        hardware=hardware,
        installed=installed,
        machine=read_machine_facts(env, root=root),
        env=env,
        stated=bool(gfx),
        python=python,
        is_own=python is None and installed_packages.is_own_environment(active),
    )


def _detect_here(env: Mapping[str, str], root: Path, path: tuple[Path, ...]) -> Hardware:
    """Look at this machine; a variable that cannot be read is a fault, and what it says does not count."""
    faults: list[str] = []
    remaining = dict(env)
    while True:
        try:
            hardware = detect.detect_hardware(remaining, root=root, site_packages=path)
        except ValueError as error:
            variables = [name for name in remaining if re.search(rf"\b{re.escape(name)}\b", str(error))]
            if not variables:
                raise errors.UsageError(str(error)) from None
            faults.append(str(error))
            remaining = {name: value for name, value in remaining.items() if name not in variables}
        else:
            return replace(hardware, faults=(*faults, *hardware.faults))


_ABSENCES = ("no GPU detected", "torch is not installed")  # nothing was looked at that may be wrong with them
Paint = Callable[[str, errors.Severity], str]


def count_findings(findings: Iterable[errors.Finding], severity: errors.Severity) -> int:
    """Return how many findings are of a severity."""
    return sum(finding.severity == severity for finding in findings)


def format_findings(findings: Iterable[errors.Finding], paint: Paint) -> Iterator[str]:
    """Yield the lines: by group, each finding with its fix below it, and a last line with the sum."""
    listed = list(findings)
    for group in FINDING_GROUPS:
        group_findings = [finding for finding in listed if finding.group == group]
        if not group_findings:
            continue
        yield f"{group}:"
        for finding in group_findings:
            yield f"  {paint(f'{finding.severity:<7}', finding.severity)}  {finding.message}"
            if finding.tip:
                yield f"           fix: {finding.tip}"
            if finding.source:
                yield f"           see: {finding.source}"
    yield summarize_findings(listed)


def summarize_findings(findings: Iterable[errors.Finding]) -> str:
    """Return ``2 errors, 1 warning``, or that nothing is wrong; and what was not there to look at."""
    listed = list(findings)
    parts = []
    severities: tuple[errors.Severity, ...] = ("error", "warning")
    for severity in severities:
        number = count_findings(listed, severity)
        if number:
            parts.append(tables.format_count(number, severity))
    absences = [text for text in _ABSENCES if any(finding.message.startswith(text) for finding in listed)]
    others = ", ".join(parts) or f"no {'other ' * bool(absences)}problems found"
    return "; ".join([*absences, others])


def make_report_json(subject: DoctorSubject, findings: Iterable[errors.Finding]) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"errors", "warnings", "stated", "platform", "container", "wsl", "driver": {"loaded", "version"},
    "gpus", "tried", "rocm", "python": {"executable", "version", "site_packages"},
    "packages": [{"name", "version", "build", "build_version", "installer", "place", "imported"}],
    "kernels": [{"project", "gfx", "served", "how", "by", "files"}],
    "findings": [{"group", "check", "severity", "text", "fix", "source"}]}``.
    """
    listed = list(findings)
    machine, python = subject.machine, subject.installed.environment
    return {
        "errors": count_findings(listed, "error"),
        "warnings": count_findings(listed, "warning"),
        "stated": subject.stated,
        "platform": machine.platform,
        "container": machine.container or None,
        "wsl": machine.wsl,
        "driver": {"loaded": machine.driver_loaded, "version": machine.driver_version or None},
        "gpus": [asdict(gpu) for gpu in subject.hardware.gpus],
        "tried": list(subject.hardware.tried),
        "rocm": [asdict(entry) for entry in subject.hardware.rocm],
        "python": {
            "executable": str(python.python),
            "version": python.version,
            "site_packages": str(python.site_packages),
        },
        "packages": [_describe_package(entry) for entry in subject.installed.packages],
        "kernels": [_describe_verdict(entry) for entry in doctor_kernels.judge_kernels(subject)],
        "findings": [_describe_finding(entry) for entry in listed],
    }


def _describe_package(package: installed_packages.InstalledPackage) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "build": package.kind,
        "build_version": package.build.version or None,
        "installer": package.distribution.installer or None,
        "place": str(package.distribution.site_folder),
        "imported": not package.shadowed,
    }


def _describe_verdict(verdict: doctor_kernels.KernelVerdict) -> dict[str, Any]:
    return {
        "project": verdict.project,
        "gfx": verdict.gfx,
        "served": verdict.support.runs,
        "how": verdict.support.kind,
        "by": verdict.support.by or None,
        "files": [str(path) for path in verdict.files],
    }


def _describe_finding(finding: errors.Finding) -> dict[str, Any]:
    return {
        "group": finding.group,
        "check": finding.check,
        "severity": finding.severity,
        "text": finding.message,
        "fix": finding.tip or None,
        "source": finding.source or None,
    }
