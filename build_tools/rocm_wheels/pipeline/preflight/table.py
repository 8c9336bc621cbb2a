"""The table of preflight checks. To add one: a function, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from rocm_wheels.errors import UsageError
from rocm_wheels.pipeline.preflight import downloads, folders, programs, rocm, surroundings
from rocm_wheels.pipeline.preflight.subject import PreflightFinding, Subject

Check = Callable[[Subject], Iterator[PreflightFinding]]

CHECKS: Mapping[str, Check] = {
    "programs": programs.programs,
    "git": programs.old_git,
    "ninja": programs.old_ninja,
    "python-headers": programs.python_headers,
    "released-pythons": programs.released_pythons,
    "access": folders.access,
    "noexec": folders.runs_programs,
    "disk": folders.disk,
    "memory": surroundings.memory,
    "file-systems": folders.file_systems,
    "paths": folders.odd_paths,
    "long-paths": folders.long_paths,
    "sdk-parts": rocm.sdk_parts,
    "sdk-targets": rocm.sdk_targets,
    "downloads": downloads.downloads,
    "flash-attention": rocm.attention_targets,
    "foreign-wheels": rocm.foreign_wheels,
    "clock": surroundings.clock,
    "locale": surroundings.language,
    "open-files": surroundings.open_files,
}


def run_preflight(subject: Subject) -> tuple[PreflightFinding, ...]:
    """Run all checks; return what they found, errors first, else in the order of the table."""
    found = [replace(finding, check=name) for name, check in CHECKS.items() for finding in check(subject)]
    return tuple(sorted(found, key=lambda finding: finding.severity != "error"))


def finding_lines(findings: Iterable[PreflightFinding]) -> list[str]:
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
