"""What a doctor found, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rocm_wheels.hosts.doctor.kernels import Verdict, verdicts
from rocm_wheels.hosts.doctor.subject import Finding, Severity, Subject
from rocm_wheels.hosts.doctor.table import GROUPS
from rocm_wheels.hosts.installed.look import Package

Paint = Callable[[str, Severity], str]


def count(findings: Iterable[Finding], severity: Severity) -> int:
    """Return how many findings are of a severity."""
    return sum(finding.severity == severity for finding in findings)


def text_lines(findings: Iterable[Finding], paint: Paint) -> Iterator[str]:
    """Yield the lines: by group, each finding with its fix below it, and a last line with the sum."""
    found = list(findings)
    for group in GROUPS:
        those = [finding for finding in found if finding.group == group]
        if not those:
            continue
        yield f"{group}:"
        for finding in those:
            yield f"  {paint(f'{finding.severity:<7}', finding.severity)}  {finding.text}"
            if finding.fix:
                yield f"           fix: {finding.fix}"
            if finding.source:
                yield f"           see: {finding.source}"
    yield summary(found)


def summary(findings: Iterable[Finding]) -> str:
    """Return ``2 errors, 1 warning``, or that nothing is wrong."""
    found = list(findings)
    parts = []
    severities: tuple[Severity, ...] = ("error", "warning")
    for severity in severities:
        number = count(found, severity)
        if number:
            parts.append(f"{number} {severity}{'s' if number > 1 else ''}")
    return ", ".join(parts) or "nothing is wrong"


def as_json(subject: Subject, findings: Iterable[Finding]) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"errors", "warnings", "stated", "platform", "container", "wsl", "driver": {"loaded", "version"},
    "gpus", "tried", "rocm", "python": {"executable", "version", "site_packages"},
    "packages": [{"name", "version", "build", "build_version", "installer", "place", "imported"}],
    "kernels": [{"project", "gfx", "served", "how", "by", "files"}],
    "findings": [{"group", "check", "severity", "text", "fix", "source"}]}``.
    """
    found = list(findings)
    machine, python = subject.machine, subject.installed.environment
    return {
        "errors": count(found, "error"),
        "warnings": count(found, "warning"),
        "stated": subject.stated,
        "platform": machine.platform,
        "container": machine.container or None,
        "wsl": machine.wsl,
        "driver": {"loaded": machine.driver_loaded, "version": machine.driver_version or None},
        "gpus": [asdict(gpu) for gpu in subject.hardware.gpus],
        "tried": list(subject.hardware.tried),
        "rocm": [asdict(one) for one in subject.hardware.rocm],
        "python": {
            "executable": str(python.python),
            "version": python.version,
            "site_packages": str(python.site_packages),
        },
        "packages": [_package(one) for one in subject.installed.packages],
        "kernels": [_kernels(one) for one in verdicts(subject)],
        "findings": [_finding(one) for one in found],
    }


def _package(one: Package) -> dict[str, Any]:
    return {
        "name": one.name,
        "version": one.version,
        "build": one.kind,
        "build_version": one.build.version or None,
        "installer": one.distribution.installer or None,
        "place": str(one.distribution.place),
        "imported": not one.shadowed,
    }


def _kernels(one: Verdict) -> dict[str, Any]:
    return {
        "project": one.project,
        "gfx": one.gfx,
        "served": one.served.yes,
        "how": one.served.how,
        "by": one.served.by or None,
        "files": [str(path) for path in one.files],
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "group": one.group,
        "check": one.check,
        "severity": one.severity,
        "text": one.text,
        "fix": one.fix or None,
        "source": one.source or None,
    }
