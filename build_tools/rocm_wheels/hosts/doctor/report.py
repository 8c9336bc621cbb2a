"""What a doctor found, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rocm_wheels.hosts.doctor.kernels import KernelVerdict, judge_kernels
from rocm_wheels.hosts.doctor.subject import DoctorFinding, Severity, DoctorSubject
from rocm_wheels.hosts.doctor.table import FINDING_GROUPS
from rocm_wheels.hosts.installed.look import InstalledPackage

Paint = Callable[[str, Severity], str]


def count_findings(findings: Iterable[DoctorFinding], severity: Severity) -> int:
    """Return how many findings are of a severity."""
    return sum(finding.severity == severity for finding in findings)


def format_findings(findings: Iterable[DoctorFinding], paint: Paint) -> Iterator[str]:
    """Yield the lines: by group, each finding with its fix below it, and a last line with the sum."""
    listed = list(findings)
    for group in FINDING_GROUPS:
        group_findings = [finding for finding in listed if finding.group == group]
        if not group_findings:
            continue
        yield f"{group}:"
        for finding in group_findings:
            yield f"  {paint(f'{finding.severity:<7}', finding.severity)}  {finding.text}"
            if finding.fix:
                yield f"           fix: {finding.fix}"
            if finding.source:
                yield f"           see: {finding.source}"
    yield summarize_findings(listed)


def summarize_findings(findings: Iterable[DoctorFinding]) -> str:
    """Return ``2 errors, 1 warning``, or that nothing is wrong."""
    listed = list(findings)
    parts = []
    severities: tuple[Severity, ...] = ("error", "warning")
    for severity in severities:
        number = count_findings(listed, severity)
        if number:
            parts.append(f"{number} {severity}{'s' if number > 1 else ''}")
    return ", ".join(parts) or "nothing is wrong"


def make_report_json(subject: DoctorSubject, findings: Iterable[DoctorFinding]) -> dict[str, Any]:
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
        "kernels": [_describe_verdict(entry) for entry in judge_kernels(subject)],
        "findings": [_describe_finding(entry) for entry in listed],
    }


def _describe_package(package: InstalledPackage) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "build": package.kind,
        "build_version": package.build.version or None,
        "installer": package.distribution.installer or None,
        "place": str(package.distribution.site_folder),
        "imported": not package.shadowed,
    }


def _describe_verdict(verdict: KernelVerdict) -> dict[str, Any]:
    return {
        "project": verdict.project,
        "gfx": verdict.gfx,
        "served": verdict.support.runs,
        "how": verdict.support.kind,
        "by": verdict.support.by or None,
        "files": [str(path) for path in verdict.files],
    }


def _describe_finding(finding: DoctorFinding) -> dict[str, Any]:
    return {
        "group": finding.group,
        "check": finding.check,
        "severity": finding.severity,
        "text": finding.text,
        "fix": finding.fix or None,
        "source": finding.source or None,
    }
