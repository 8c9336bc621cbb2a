"""The table of preflight checks. To add one: a function, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from rocm_wheels.errors import UsageError
from rocm_wheels.pipeline.preflight import downloads, folders, programs, rocm, surroundings
from rocm_wheels.pipeline.preflight.subject import PreflightFinding, PreflightSubject

PreflightCheck = Callable[[PreflightSubject], Iterator[PreflightFinding]]

PREFLIGHT_CHECKS: Mapping[str, PreflightCheck] = {
    "programs": programs.check_programs,
    "git": programs.check_git,
    "ninja": programs.check_ninja,
    "python-headers": programs.check_python_headers,
    "released-pythons": programs.check_released_pythons,
    "access": folders.check_access,
    "noexec": folders.check_noexec,
    "disk": folders.check_disk_space,
    "memory": surroundings.check_memory,
    "file-systems": folders.check_file_systems,
    "paths": folders.check_odd_paths,
    "long-paths": folders.check_long_paths,
    "sdk-parts": rocm.check_sdk_parts,
    "sdk-targets": rocm.check_sdk_targets,
    "downloads": downloads.check_downloads,
    "flash-attention": rocm.check_attention_targets,
    "foreign-wheels": rocm.check_foreign_wheels,
    "clock": surroundings.check_clock,
    "locale": surroundings.check_locale,
    "open-files": surroundings.check_open_files,
}


def run_preflight_checks(subject: PreflightSubject) -> tuple[PreflightFinding, ...]:
    """Run all checks; return what they found, errors first, else in the order of the table."""
    findings = [
        replace(finding, check=name) for name, check in PREFLIGHT_CHECKS.items() for finding in check(subject)
    ]
    return tuple(sorted(findings, key=lambda finding: finding.severity != "error"))


def format_findings(findings: Iterable[PreflightFinding]) -> list[str]:
    """Return findings as lines for people, each followed by its tip."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity}: {finding.check}: {finding.text}")
        lines.append(f"  tip: {finding.tip}")
    return lines


def refuse_errors(findings: Iterable[PreflightFinding]) -> None:
    """Raise UsageError that lists every error among ``findings``, with its tip."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return
    if len(errors) == 1:
        raise UsageError(errors[0].text, tip=errors[0].tip)
    listed = "\n".join(f"  {finding.text}\n    tip: {finding.tip}" for finding in errors)
    raise UsageError(f"this run cannot succeed, for {len(errors)} reasons:\n{listed}")
