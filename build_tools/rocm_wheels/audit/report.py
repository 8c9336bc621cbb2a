"""Verify one wheel, say what was found, and set aside what failed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.audit.findings import AuditReport, Finding, Skipped
from rocm_wheels.audit.imports import ImportPlace, check_import, this_host, why_not_here
from rocm_wheels.audit.subject import Expectation, Subject
from rocm_wheels.audit.table import CHECKS, IMPORT
from rocm_wheels.variants.targets import held_of
from rocm_wheels.wheels.scan import scan_wheel
from rocm_wheels.words import counted
from rocm_wheels.workspace import copy_whole, write_json

_NO_PLACE = "not imported: no environment was given to import it in"


def verify_wheel(
    path: Path, expected: Expectation, *, place: ImportPlace | None = None, parts: Sequence[Path] = ()
) -> AuditReport:
    """Run every check of the table, then the import in ``place``; ``parts`` are device wheels split off.

    The import is skipped, with the reason in the report, when no place is given, when this
    machine is not what the wheel is for, and when the archive itself is damaged. DataError only
    when the file is not there or is no archive.
    """
    checks = expected.project.checks
    version_module = f"{checks.import_name}/version.py"
    scan = scan_wheel(path, keep=(version_module, checks.rocm_init or version_module))
    subject = Subject(scan, expected, tuple(scan_wheel(part) for part in parts))
    findings: list[Finding] = []
    ran: list[str] = []
    skipped: list[Skipped] = []
    outcomes = [(check.name, check.look(subject)) for check in CHECKS]
    outcomes.append((IMPORT, _import(path, expected, place, damaged=bool(scan.broken))))
    for name, outcome in outcomes:
        if isinstance(outcome, Skipped):
            skipped.append(replace(outcome, check=name))
        else:
            ran.append(name)
            findings += [replace(finding, check=name) for finding in outcome]
    return AuditReport(
        wheel=path,
        size=scan.size,
        sha256=scan.sha256,
        targets=subject.targets,
        findings=tuple(findings),
        ran=tuple(ran),
        skipped=tuple(skipped),
        archives=tuple(sorted({name for names in scan.elsewhere.values() for name in names})),
        parts=tuple(part.name for part in parts),
        held=held_of(scan.device_code, scan.elsewhere),
        libraries={
            name: tuple(sorted({str(code.target) for code in objects}))
            for name, objects in scan.device_code.items()
        },
        jit_sources=subject.jit_sources,
    )


def add_import(report: AuditReport, expected: Expectation, place: ImportPlace) -> AuditReport:
    """Return a report of ``verify_wheel`` with the import check added that was skipped there."""
    outcome = _import(report.wheel, expected, place, damaged=False)
    others = tuple(skip for skip in report.skipped if skip.check != IMPORT)
    if isinstance(outcome, Skipped):
        return replace(report, skipped=(*others, replace(outcome, check=IMPORT)))
    found = tuple(replace(finding, check=IMPORT) for finding in outcome)
    return replace(report, findings=(*report.findings, *found), ran=(*report.ran, IMPORT), skipped=others)


def report_lines(report: AuditReport) -> list[str]:
    """Return a report as lines for people: verdict, findings with tips, what ran and what did not."""
    verdict = "passed" if report.passed else "FAILED"
    inside = " ".join(report.targets)
    moved = f"device code in {', '.join(report.archives)}" if report.archives else ""
    jit = ""
    if report.jit_sources:
        jit = f"{counted(len(report.jit_sources), 'HIP source')} that the user's machine compiles"
    targets = "; ".join(filter(None, (inside, moved, jit))) or "no device code"
    checks = f"{len(report.ran)} checks, {len(report.skipped)} skipped"
    lines = [f"{report.wheel.name}: {verdict} ({checks}; {targets}; {report.size:,} bytes)"]
    for finding in report.findings:
        lines.append(f"  {finding.severity}: {finding.line()}")
        lines += [f"    tip: {finding.tip}"] if finding.tip else []
    lines.append(f"  ran: {' '.join(report.ran)}")
    return [*lines, *(f"  skipped: {skip.check}: {skip.reason}" for skip in report.skipped)]


def reject(wheel: Path, report: AuditReport, log: Path | None, folder: Path) -> Path:
    """Set a failed wheel aside and return its new path.

    ``<folder>/<stem>/`` receives the wheel, ``<wheel>.findings.json`` and a copy of the log as
    ``<wheel>.log``. That folder appears whole or not at all, and only then the wheel leaves its
    old place. Another wheel of that name that was set aside before stays: the new folder is
    ``<stem>.2``, ``<stem>.3``, …; the same wheel (by sha256) takes its own old place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".rejected-", dir=folder))
    try:
        beside.chmod(0o755)
        write_json(beside / _findings_name(wheel), report.as_json())
        if log is not None and log.is_file():
            copy_whole(log, beside / f"{wheel.name}.log")
        _link_or_copy(wheel, beside / wheel.name)
        place = _free_place(folder, wheel, report.sha256)
        if place.exists():
            shutil.rmtree(place)
        beside.rename(place)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    wheel.unlink()
    return place / wheel.name


def _free_place(folder: Path, wheel: Path, sha256: str) -> Path:
    """Return the first numbered folder that is free or holds this very wheel."""
    number = 1
    while True:
        place = folder / (wheel.stem if number == 1 else f"{wheel.stem}.{number}")
        if not place.exists() or _set_aside_before(place / _findings_name(wheel)) == sha256:
            return place
        number += 1


def _set_aside_before(findings: Path) -> str | None:
    try:
        return str(json.loads(findings.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # somebody else's file: whatever it is, it is not this wheel's


def _findings_name(wheel: Path) -> str:
    return f"{wheel.name}.findings.json"


def _link_or_copy(wheel: Path, target: Path) -> None:
    try:
        os.link(wheel, target)
    except OSError:  # another file system, or one without hard links
        copy_whole(wheel, target)


def _import(
    path: Path, expected: Expectation, place: ImportPlace | None, *, damaged: bool
) -> Sequence[Finding] | Skipped:
    if damaged:
        return Skipped("not imported: its archive is damaged or does not agree with itself")
    if place is None:
        return Skipped(_NO_PLACE)
    if skipped := expected.project.checks.import_skipped:
        return Skipped(f"not imported: {skipped}")
    reason = why_not_here(path.name, expected, this_host())
    return Skipped(reason) if reason else check_import(path, expected, place)
