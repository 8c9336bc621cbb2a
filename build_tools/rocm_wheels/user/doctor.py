"""Run all checks of a machine, report findings. To add one: a function, named in ``CHECKS`` of its file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, installation, tables
from rocm_wheels.gpus import detect
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.user import (
    doctor_kernels,
    doctor_packages,
    doctor_rocm,
    doctor_system,
    doctor_variables,
    host,
    installed_packages,
)
from rocm_wheels.user.doctor_subject import DoctorSubject
from rocm_wheels.user.machine import read_machine_facts

CheckFunction = Callable[[DoctorSubject], Iterator[errors.Finding]]
# by group, in the order of the report
CHECKS: Mapping[str, Sequence[CheckFunction]] = {
    "machine": (*doctor_system.GPU_CHECKS, *doctor_system.LOCAL_CHECKS),
    "ROCm": doctor_rocm.CHECKS,
    "packages": doctor_packages.CHECKS,
    "kernels": doctor_kernels.CHECKS,
    "variables": doctor_variables.CHECKS,
}
_SEVERITY_ORDER: tuple[errors.Severity, ...] = ("ok", "info", "warning", "error")


def get_check_name(check: CheckFunction) -> str:
    """Return a check's name as people write it: ``hidden-gpus``."""
    return check.__name__.removeprefix("check_").replace("_", "-")


def run_checks(subject: DoctorSubject) -> tuple[errors.Finding, ...]:
    """Run all checks; return their findings by group, in each the worst last.

    Those of this machine's devices say nothing of a machine to be, and are Linux's.
    """
    is_here = subject.machine.platform.startswith("linux") and not subject.stated
    findings: dict[errors.Finding, None] = {}
    for group, checks in CHECKS.items():
        of_group = [
            replace(
                finding,
                check=get_check_name(check),
                group=group,
                tip=installation.adapt_commands(finding.tip),
            )
            for check in checks
            if is_here or check not in doctor_system.LOCAL_CHECKS
            for finding in check(subject)
        ]
        of_group.sort(key=lambda finding: _SEVERITY_ORDER.index(finding.severity))
        findings |= dict.fromkeys(of_group)
    return tuple(findings)


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


Paint = Callable[[str, errors.Severity], str]
_ABSENCES = ("no GPU detected", "torch is not installed")  # nothing was looked at that may be wrong with them


def count_findings(findings: Iterable[errors.Finding], severity: errors.Severity) -> int:
    """Return how many findings are of a severity."""
    return sum(finding.severity == severity for finding in findings)


def format_findings(findings: Sequence[errors.Finding], paint: Paint) -> Iterator[str]:
    """Yield the lines: by group, each finding with its fix below it, and a last line with the sum."""
    group = ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            yield f"{group}:"
        yield f"  {paint(f'{finding.severity:<7}', finding.severity)}  {finding.message}"
        if finding.tip:
            yield f"           fix: {finding.tip}"
        if finding.source:
            yield f"           see: {finding.source}"
    yield summarize_findings(findings)


def summarize_findings(findings: Sequence[errors.Finding]) -> str:
    """Return ``2 errors, 1 warning``, or that nothing is wrong; and what was not there to look at."""
    severities: tuple[errors.Severity, ...] = ("error", "warning")
    counts = [(count_findings(findings, severity), severity) for severity in severities]
    parts = [tables.format_count(number, severity) for number, severity in counts if number]
    absences = [text for text in _ABSENCES if any(finding.message.startswith(text) for finding in findings)]
    return "; ".join([*absences, ", ".join(parts) or f"no {'other ' * bool(absences)}problems found"])


def make_report_json(subject: DoctorSubject, findings: Sequence[errors.Finding]) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"errors", "warnings", "stated", "platform", "container", "wsl", "driver": {"loaded", "version"},
    "gpus", "tried", "rocm", "python": {"executable", "version", "site_packages"},
    "packages": [{"name", "version", "build", "build_version", "installer", "place", "imported"}],
    "kernels": [{"project", "gfx", "served", "how", "by", "files"}],
    "findings": [{"group", "check", "severity", "text", "fix", "source"}]}``.
    """
    machine, python = subject.machine, subject.installed.environment
    packages = [
        {
            "name": package.name,
            "version": package.version,
            "build": package.kind,
            "build_version": package.build.version or None,
            "installer": package.installer or None,
            "place": str(package.site_folder),
            "imported": not package.shadowed,
        }
        for package in subject.installed.packages
    ]
    kernels = [
        {
            "project": verdict.project,
            "gfx": verdict.gfx,
            "served": verdict.support.runs,
            "how": verdict.support.kind,
            "by": verdict.support.by or None,
            "files": list(map(str, verdict.files)),
        }
        for verdict in doctor_kernels.judge_kernels(subject)
    ]
    names = {"group": "group", "check": "check", "severity": "severity", "message": "text"}
    optional = {"tip": "fix", "source": "source"}
    return {
        "errors": count_findings(findings, "error"),
        "warnings": count_findings(findings, "warning"),
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
        "packages": packages,
        "kernels": kernels,
        "findings": [
            {key: getattr(finding, name) for name, key in names.items()}
            | {key: getattr(finding, name) or None for name, key in optional.items()}
            for finding in findings
        ],
    }
